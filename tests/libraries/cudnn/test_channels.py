"""Softmax, local response norms and dropout against formulas in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, random_images
from placements import Placement

import atomr_native as an

RNG = np.random.default_rng(23)
Array = np.ndarray[Any, Any]

#: Shapes, axes, and whether x and out are C-contiguous.
SOFTMAX: dict[str, tuple[tuple[int, ...], Any, bool]] = {
    "last": ((5, 7), -1, True),
    "channels": ((2, 3, 4, 5), 1, True),
    "instances": ((2, 3, 4, 5), (1, 2, 3), True),
    "first, by strides": ((4, 3, 2), 0, False),
    "all": ((6,), 0, True),
    "one element": ((3, 1), 1, True),
}


def softmax(x: Array, axis: Any, log: bool) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    made: Array = powers / powers.sum(axis, keepdims=True)
    return np.log(made) if log else made


def put(device: an.Device, x: Array, dense: bool) -> an.GpuRef:
    """Put an array as it is, or with gaps between its elements."""
    if dense:
        return device.put(x)
    return device.put(np.repeat(x, 2, axis=-1))[..., ::2]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("case", SOFTMAX)
def test_softmax(device: an.Device, case: str, log: bool) -> None:
    shape, axis, dense = SOFTMAX[case]
    for dtype in ("float32", "float64", "bfloat16"):
        x, dy = (4 * random_images(RNG, shape, dtype) for _ in range(2))
        x, dy = x.astype(dy.dtype), dy.astype(dy.dtype)
        gx, gdy, out = put(device, x, dense), put(device, dy, dense), put(device, np.zeros_like(x), dense)
        wanted = softmax(x.astype(np.float64), axis, log)
        y = device.cudnn.softmax(gx, axis, log=log, out=out)
        assert y is out
        assert_close(y.numpy(), wanted, dtype)
        found = y.numpy().astype(np.float64)
        wide = dy.astype(np.float64)
        sums = (wide if log else wide * found).sum(axis, keepdims=True)
        slope = wide - np.exp(found) * sums if log else found * (wide - sums)
        assert_close(device.cudnn.softmax_backward(gdy, y, axis, log=log).numpy(), slope, dtype, 8.0)


def test_softmax_of_large_numbers(device: an.Device) -> None:
    """Exponents do not overflow, and an element that is far below the others is 0."""
    x = device.put(np.array([[1e4, 1e4, -1e4], [-1e30, -1e30, -1e30]], "float32"))
    np.testing.assert_array_equal(device.cudnn.softmax(x).numpy(), np.float32([[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))
    assert device.cudnn.softmax(device.zeros((0, 3), "float32")).numpy().shape == (0, 3)


def response(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """The norm across axis 1, a channel after the other."""
    made = np.empty(x.shape)
    for c in range(x.shape[1]):
        first = c - (size - 1) // 2
        around = x[:, max(first, 0) : first + size]
        made[:, c] = x[:, c] / (k + alpha / size * (around**2).sum(1)) ** beta
    return made


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("shape", "size"), [((2, 7, 3, 2), 5), ((3, 5, 4), 2), ((2, 4), 1), ((1, 3, 2, 2, 2), 16)])
def test_response_norms(device: an.Device, shape: tuple[int, ...], size: int, channels_last: bool) -> None:
    how: dict[str, Any] = {"size": size, "alpha": 0.8, "beta": 0.6, "k": 1.5}
    x, dy = random_images(RNG, shape, "float64"), random_images(RNG, shape, "float64")

    def turned(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if channels_last else a)

    def back(a: an.GpuRef) -> Array:
        return np.moveaxis(a.numpy(), -1, 1) if channels_last else a.numpy()

    gx, options = turned(x), {**how, "channels_last": channels_last}
    y = device.cudnn.response_norm(gx, **options)
    assert_close(back(y), response(x, **how), "float64")
    dx = back(device.cudnn.response_norm_backward(gx, y, turned(dy), **options))
    step, wanted = 1e-6, np.empty(shape)
    for i in range(x.size):
        unit = np.zeros(shape)
        unit.flat[i] = step
        wanted.flat[i] = ((response(x + unit, **how) - response(x - unit, **how)) * dy).sum() / (2 * step)
    np.testing.assert_allclose(dx, wanted, rtol=0, atol=1e-8)


def test_dropout(device: an.Device, placement: Placement) -> None:
    """The fused actor's, so that both kinds of device drop the same elements."""
    if placement.fake:
        pytest.skip("the emulator has no kernels of Numba")
    x = device.put(random_images(RNG, (4, 50), "float32"))
    y = device.cudnn.dropout(x, 0.25, seed=5, offset=2)
    np.testing.assert_array_equal(y.numpy(), device.fused.dropout(x, 0.25, seed=5, offset=2).numpy())
    assert 0 < (y.numpy() == 0).mean() < 0.6


@pytest.mark.plain
def test_bad_input() -> None:
    x = np.zeros((2, 8, 3), "float32")
    for axis in (3, (0, 2), (1, 0), (), "all", (0, 0)):
        with pytest.raises(an.InvalidRequest, match="allowed: an axis of 3, or neighbouring ones in order"):
            an.SoftmaxRequest(x=x, axis=axis)
    with pytest.raises(an.InvalidRequest, match="log=2 must be True or False"):
        an.SoftmaxRequest(x=x, log=2)
    with pytest.raises(an.InvalidRequest, match=r"dy has shape \(2,\); allowed: \(2, 8, 3\)"):
        an.SoftmaxGradientRequest(dy=x[:, 0, 0], y=x)
    with pytest.raises(an.InvalidRequest, match="x has dtype int32"):
        an.SoftmaxRequest(x=x.astype(np.int32))
    for options, text in [
        ({"size": 17}, "size=17; allowed"),
        ({"beta": 0.001}, "beta=0.001; allowed: numbers from 0.01"),
        ({"k": 0.0}, "k=0.0; allowed: numbers from 1e-05"),
        ({"alpha": float("inf")}, "alpha=inf; allowed"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.ResponseNormalizationRequest(x=x, **options)
    with pytest.raises(an.InvalidRequest, match="y has dtype float64"):
        an.ResponseNormalizationGradientRequest(x=x, y=x.astype(float), dy=x)
