"""Blends against NumPy: one body for both kinds of device."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from plan_builds import build_cuda

import atomr_native as an
from atomr_native.builders.cuda.target import Target

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", params=["host"])
def device(request: pytest.FixtureRequest) -> Any:
    with an.System(isolation="thread") as system:
        yield system.device(request.param)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0,)])
def test_mix(device: an.Device, dtype: str, shape: tuple[int, ...]) -> None:
    x, y = (RNG.standard_normal(shape).astype(dtype) for _ in range(2))
    found = device.blend.mix(device.put(x), device.put(y), 0.25).numpy()
    np.testing.assert_allclose(found, 0.25 * x + 0.75 * y, rtol=4 * np.finfo(dtype).eps)


def test_plans_and_outputs_in_place(device: an.Device) -> None:
    x, y = device.put(np.zeros(4)), device.put(np.ones(4))
    plan = device.blend.plan(an.MixRequest(x=x, y=y, weight=0.5))
    plan.ask(x, y, out=x, weight=0.5).result(30)
    assert x.numpy().tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weight": 2.0}, "weight=2.0; allowed: a number from 0 to 1"),
        ({"y": np.ones(3)}, r"y is float64\[3\]; allowed: float64\[4\]"),
        ({"x": np.ones(4, "int8")}, "x has dtype int8; allowed: float32, float64"),
    ],
)
def test_bad_input(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.MixRequest(**{"x": np.ones(4), "y": np.ones(4), "weight": 0.5, **options})


def test_requests_are_pickled_under_their_public_names() -> None:
    request = an.MixRequest(x=np.ones(4), y=np.ones(4), weight=0.5)
    assert b"atomr_native.libraries" not in pickle.dumps(type(request))


def test_the_kernel_compiles() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda.bindings is not installed")
    spec = an.MixRequest(x=np.ones((4, 5)), y=np.ones((4, 5)), weight=0.5).lowered.spec()
    built = build_cuda(spec, Target("sm_90", 132))
    assert "w * x0" in built.run.source
