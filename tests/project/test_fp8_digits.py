"""The example that learns to read digits in float8: gradients against float64, accuracy beside that of bfloat16."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_programs import load
from matmul_reference import gelu, gelu_gradient

import atomr_native as an

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
needs_data = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="needs the extra [examples]: scikit-learn"
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("fp8_digits")


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


def reference(p: dict[str, Any], x: Any, labels: Any) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of two layers, in float64."""
    z = x @ p["w1"].T + p["b1"]
    h, slope = gelu(z), gelu_gradient(z)
    odds = np.exp(h @ p["w2"].T + p["b2"])
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(odds[rows, labels]).mean()
    odds[rows, labels] -= 1
    dy = odds / len(x)
    dz = dy @ p["w2"] * slope
    return loss, {"w2": dy.T @ h, "b2": dy.sum(0), "w1": dz.T @ x, "b1": dz.sum(0)}


@pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-3), ("bfloat16", 0.02), ("float8", 0.2)])
def test_gradients(example: ModuleType, device: an.Device, precision: str, bound: float) -> None:
    network = example.Network(device, precision, [32], 3)
    rng = np.random.default_rng(4)
    x, labels = rng.uniform(-1, 1, (32, 64)).astype(np.float32), rng.integers(0, 10, 32)
    given = device.put(x, dtype=network.wide), device.put(labels)
    network.gradients(*given)  # what scales are made of
    found_loss, found = network.gradients(*given)
    p = {name: ref.numpy().astype(np.float64) for name, ref in network.parameters.items()}
    loss, wanted = reference(p, x.astype(np.float64), labels)
    assert abs(float(found_loss.numpy()) - loss) <= bound * loss
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        error = np.abs(found[name].numpy().astype(np.float64) - value).max()
        assert error <= bound * np.abs(value).max(), name
    if precision == "float8":
        scales = {name: float(state.scale.numpy()[0]) for name, state in network.scaling.items()}
        assert sorted(scales) == ["g1", "g2", "w1", "w2", "x1", "x2"]
        largest = np.abs(p["w1"]).max()
        assert scales["w1"] == pytest.approx(largest / 448)
        assert scales["x1"] == pytest.approx(np.abs(given[0].numpy().astype(float)).max() / 448)
        assert {state.dtype for name, state in network.scaling.items() if name[0] == "g"} == {"float8_e5m2"}


@needs_data
@pytest.mark.parametrize(
    ("names", "steps"), [(["host"], "120"), pytest.param(["host", "cuda:0"], "300", marks=GPU.marks)]
)
def test_float8_is_as_accurate(
    example: ModuleType, names: list[str], steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main(["--device", *names, "--steps", steps, "--seeds", "1", "--hidden", "64"]) == 0
    out = capsys.readouterr().out
    for name in names:
        assert f"{name}: float8 is " in out
        for line in (line for line in out.splitlines() if line.count("│") > 3 and f" {name} " in line):
            assert float(line.split("│")[3].strip(" %")) > 90, line
    assert "OUTSIDE" not in out


def test_what_is_outside_of_noise(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = {precision: [example.Outcome(0.97, 0.1, 100.0)] for precision in ("float32", "bfloat16")}
    assert example.verdict({("host", name): found for name, found in outcomes.items()}, 450) == 0
    outcomes["float8"] = [example.Outcome(0.94, 0.1, 100.0), example.Outcome(0.95, 0.1, 100.0)]
    assert example.verdict({("host", name): found for name, found in outcomes.items()}, 450) == 1
    assert capsys.readouterr().out.count("-2.50 points from bfloat16, OUTSIDE the noise of 450 images (1.61 ") == 1


def test_what_cannot_be_done_is_said_in_a_line(
    example: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(example.PACKAGES, "not_there", "not-there")
    assert example.main([]) == 2
    error = capsys.readouterr().err
    assert "not-there: pip install '.[examples]'" in error
    assert error.count("\n") == 1
    for wrong in (["--steps", "0"], ["--batch", "24"], ["--hidden", "64", "40"], ["--precision", "float4"]):
        with pytest.raises(SystemExit) as left:
            example.main(wrong)
        assert left.value.code == 2
