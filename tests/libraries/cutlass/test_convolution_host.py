"""Convolutions with epilogues on the host device, against float64 sums of products, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]

RNG = np.random.default_rng(21)
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=["thread", "process"])
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System(isolation=request.param, allow_crash=True) as system:
        yield system.device("host")


def gathered(x: Array, size: tuple[int, ...], step: Any, pad: Any, wide: Any) -> Array:
    """Return the pixels of x under each position of the filter, (N, *pixels of y, *positions, C), one by one."""
    axes = x.ndim - 2
    padded = np.pad(x.astype("f8"), [(0, 0), *((p, p) for p in pad), (0, 0)])
    outs = [(padded.shape[1 + i] - wide[i] * (size[i] - 1) - 1) // step[i] + 1 for i in range(axes)]
    made = np.empty((x.shape[0], *outs, *size, x.shape[-1]))
    for place in product(*map(range, outs)):
        for tap in product(*map(range, size)):
            at = tuple(place[i] * step[i] + tap[i] * wide[i] for i in range(axes))
            made[:, *place, *tap] = padded[:, *at]
    return made


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    axes = draw(st.sampled_from([2, 3]))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(axes))  # noqa: E731
    filters, dilation, padding = each(1, 3), each(1, 2), each(0, 2)
    least = [max(1, d * (f - 1) + 1 - 2 * p) for f, d, p in zip(filters, dilation, padding, strict=True)]
    return {
        "size": tuple(draw(st.integers(n, n + 3)) for n in least), "filters": filters,
        "images": draw(st.integers(1, 3)),
        "channels": (draw(st.integers(1, 3)), draw(st.integers(1, 4))),
        "how": {"stride": each(1, 3), "padding": padding, "dilation": dilation},
    }  # fmt: skip


@given(p=problems())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_convolutions_and_their_gradients(device: an.Device, p: dict[str, Any]) -> None:
    (c, k), how = p["channels"], p["how"]
    x = RNG.standard_normal((p["images"], *p["size"], c)).astype("f4")
    w = RNG.standard_normal((k, *p["filters"], c)).astype("f4")
    under = gathered(x, p["filters"], how["stride"], how["padding"], how["dilation"])
    taps = tuple(range(under.ndim - len(p["filters"]) - 1, under.ndim))
    y = np.tensordot(under, w.astype("f8"), (taps, range(1, w.ndim)))
    send = device.cutlass
    placed_x, placed_w, bias = device.put(x), device.put(w), RNG.standard_normal(k).astype("f4")
    found = send.convolution(
        placed_x, placed_w, epilogue="relu(alpha * acc + bias)", alpha=0.5, operands={"bias": device.put(bias)}, **how
    )
    np.testing.assert_allclose(found.numpy(), np.maximum(0.5 * y + bias, 0), rtol=1e-4, atol=1e-4)
    dy = RNG.standard_normal(y.shape).astype("f4")
    pixels = tuple(range(y.ndim - 1))
    dw = np.tensordot(dy.astype("f8"), under, (pixels, pixels))
    found = send.convolution_backward_filter(placed_x, device.put(dy), p["filters"], **how)
    np.testing.assert_allclose(found.numpy(), dw, rtol=1e-4, atol=1e-4)
    # The gradient is the adjoint: <dy, x * w> = <dx, x> for each pixel of x by itself.
    dx = np.empty(x.shape)
    flat = np.zeros(x.shape)
    for place in np.ndindex(x.shape[1:]):
        flat[:, *place] = 1
        under = gathered(flat, p["filters"], how["stride"], how["padding"], how["dilation"])
        dx[:, *place] = (dy * np.tensordot(under, w.astype("f8"), (taps, range(1, w.ndim)))).sum(
            (*pixels[1:], y.ndim - 1)
        )
        flat[:, *place] = 0
    out, residual = device.put(np.full(x.shape, np.nan, "f4")), device.put(x)
    found = send.convolution_backward_data(
        device.put(dy), placed_w, p["size"], out=out, c=residual, epilogue="acc + c", **how
    )
    assert found is out
    np.testing.assert_allclose(found.numpy(), dx + x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "out", "bits"),
    [("float64", "float64", 40), ("float16", "float16", 9), ("bfloat16", "float32", 16), ("int8", "int32", 31)],
)
def test_types_of_convolutions(device: an.Device, dtype: str, out: str, bits: int) -> None:
    shapes = (2, 5, 4, 3), (2, 3, 2, 3)
    x, w = (
        device.put(RNG.integers(-100, 100, s).astype("i1") if dtype == "int8" else RNG.standard_normal(s), dtype=dtype)
        for s in shapes
    )
    found = device.cutlass.convolution(x, w, out_dtype=out, epilogue="acc")
    under = gathered(x.numpy(), (3, 2), (1, 1), (0, 0), (1, 1))
    want = np.tensordot(under, w.numpy().astype("f8"), ((3, 4, 5), (1, 2, 3)))
    assert str(found.dtype) == out
    assert np.abs(found.numpy().astype("f8") - want).max() <= 2.0**-bits * np.abs(want).max()


def test_gradients_of_filters_are_added(device: an.Device) -> None:
    x, dy, dw = (RNG.standard_normal(s).astype("f4") for s in ((2, 4, 4, 2), (2, 3, 3, 3), (3, 2, 2, 2)))
    total = device.put(dw)
    for _ in range(2):
        device.cutlass.convolution_backward_filter(device.put(x), device.put(dy), (2, 2), c=total, out=total, beta=1.0)
    once = device.cutlass.convolution_backward_filter(device.put(x), device.put(dy), (2, 2)).numpy()
    np.testing.assert_allclose(total.numpy(), dw + 2 * once, rtol=1e-4, atol=1e-4)


def test_plans_of_convolutions_take_part_in_recorded_programs(device: an.Device) -> None:
    x, out = device.put(RNG.standard_normal((1, 4, 4, 2)).astype("f4")), device.zeros((1, 3, 3, 3), "float32")
    w = device.put(RNG.standard_normal((3, 2, 2, 2)).astype("f4"))
    with device.record() as recording:
        device.cutlass.convolution(recording.operand("x", x), w, out=out)
    for scale in (1, 2):
        recording.plan.ask(x=device.put(scale * x.numpy())).result(60)
        np.testing.assert_allclose(out.numpy(), scale * device.cutlass.convolution(x, w).numpy(), rtol=1e-5)
    plan = device.cutlass.plan_convolution(an.FusedConvolutionRequest(operation="forward", a=x, b=w))
    plan.ask(x, w, out=out).result(60)
    np.testing.assert_allclose(out.numpy(), device.cutlass.convolution(x, w).numpy(), rtol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "operation": ({"operation": "backward"}, "operation='backward'; allowed: 'forward', 'data_gradient'"),
    "groups": ({"b": (3, 2, 2, 1)}, r"allowed: 2 channels; of 2 groups: device\.cudnn\.convolution\(groups=\)"),
    "channels": ({"b": (3, 2, 2, 4)}, r"x has 2 channels and w has shape \(3, 2, 2, 4\); allowed: 2 channels"),
    "axes": ({"a": (4, 4, 2)}, r"x has shape \(4, 4, 2\); allowed: two or three spatial axes"),
    "ranks": ({"a": (1, 4, 4, 4, 2)}, "allowed: as many axes"),
    "filter": ({"dilation": 4}, "the filter's extent 2, dilated by 4, is beyond x's 4 with padding=0"),
    "stride": ({"stride": (1, 2, 3)}, r"stride=\(1, 2, 3\); allowed: 1 to 2147483647, or a tuple of 2"),
    "size": ({"size": (2, 2)}, r"size=\(2, 2\) of a convolution forward; allowed: None"),
    "no size": ({"operation": "filter_gradient", "b": (1, 4, 4, 2)}, "size is None; allowed for a gradient: 2 spatial"),
    "dy": (
        {"operation": "data_gradient", "a": (1, 3, 3, 3), "size": (5, 4)},
        r"dy has shape \(1, 3, 3, 3\); allowed for this size, stride, padding and dilation: \(1, 4, 3, 3\)",
    ),
    "images": ({"operation": "filter_gradient", "b": (2, 4, 4, 2), "size": 2}, "dy has 1 images and x has 2"),
    "row": (
        {"epilogue": "acc + z", "operands": {"z": (1, 3, 1, 3)}}, r"z has shape \(1, 3, 1, 3\); allowed: \(1, 3, 3"
    ),
    "own name": ({"epilogue": "acc + x", "operands": {"x": (3,)}}, "operand 'x' is a convolution's own"),
    "store": ({"epilogue": an.EpilogueTree.acc().stored("pre")}, "the epilogue stores pre"),
    "splits": ({"config": 3}, "config is a int; allowed: None, GemmConfig"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_requests_that_cannot_be(device: an.Device, name: str) -> None:
    changed, text = REFUSED[name]
    given_: dict[str, Any] = {"operation": "forward", "a": (1, 4, 4, 2), "b": (3, 2, 2, 2), **changed}
    for key in ("a", "b"):
        given_[key] = np.zeros(given_[key], "f4")
    given_["operands"] = {key: np.zeros(one, "f4") for key, one in given_.get("operands", {}).items()}
    with pytest.raises(an.InvalidRequest, match=text):
        an.FusedConvolutionRequest(**given_)


def test_types_that_no_convolution_has() -> None:
    x, w = np.zeros((1, 4, 4, 2), "i1"), np.zeros((1, 3, 3, 3), "i1")
    with pytest.raises(an.InvalidRequest, match=r"a convolution \(data_gradient\) of int8; allowed: float64"):
        an.FusedConvolutionRequest(operation="data_gradient", a=w, b=np.zeros((3, 2, 2, 2), "i1"), size=(4, 4))
    with pytest.raises(an.InvalidRequest, match="compute='tf32'; allowed for these operands: int32"):
        an.FusedConvolutionRequest(operation="forward", a=x, b=np.zeros((3, 2, 2, 2), "i1"), compute="tf32")
