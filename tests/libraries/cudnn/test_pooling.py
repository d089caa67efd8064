"""Pooling and its gradients against windows of NumPy, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, pairs, random_images, several

import atomr_native as an

RNG = np.random.default_rng(3)

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 6), {"window": 2}),
    "overlapping": ((1, 8, 7, 5), {"window": (3, 2), "stride": (2, 1), "padding": ((1, 0), (0, 1))}),
    "one axis": ((2, 8, 9), {"window": 3, "stride": 2, "padding": 1}),
    "three axes": ((1, 2, 4, 3, 5), {"window": (2, 1, 2), "stride": 1}),
}


def windows(x: np.ndarray[Any, Any], how: dict[str, Any], value: float) -> np.ndarray[Any, Any]:
    """(N, C, *results, places) of the padded images."""
    axes = x.ndim - 2
    size = several(how["window"], axes)
    stride = several(how.get("stride", how["window"]), axes)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pairs(how.get("padding", 0), axes)], constant_values=value)
    found = np.lib.stride_tricks.sliding_window_view(padded, size, tuple(range(2, 2 + axes)))
    found = found[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]
    return found.reshape(*found.shape[: 2 + axes], -1)


def reference(x: np.ndarray[Any, Any], mode: str, how: dict[str, Any]) -> np.ndarray[Any, Any]:
    if mode == "max":
        return windows(x, how, -np.inf).max(-1)
    counts = windows(np.ones(x.shape), how, 0).sum(-1) if mode == "average_exclude_padding" else None
    found = windows(x, how, 0)
    return found.sum(-1) / (found.shape[-1] if counts is None else counts)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_pooling_and_gradients(device: an.Device, case: str, channels_last: bool) -> None:
    shape, how = CASES[case]
    x = random_images(RNG, shape, "float32")

    def turned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.ascontiguousarray(np.moveaxis(a, 1, -1)) if channels_last else a

    def back(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.moveaxis(a, -1, 1) if channels_last else a

    for mode in ("max", "average", "average_exclude_padding"):
        wanted = reference(x, mode, how)
        options = {**how, "channels_last": channels_last}
        found = device.cudnn.pooling(device.put(turned(x)), mode, index=mode == "max", **options)
        index = None
        if mode == "max":
            found, index = found
            np.testing.assert_array_equal(back(index.numpy()), windows(x, how, -np.inf).argmax(-1))
        assert_close(back(found.numpy()), wanted, "float32")
        dy = random_images(RNG, wanted.shape, "float32")
        dx = device.cudnn.pooling_backward(device.put(turned(dy)), shape[2:], mode, index=index, **options)
        # The gradient is the derivative of the sum of dy * y, which is linear along each element of x.
        direction = random_images(RNG, shape, "float32").astype(np.float64)
        step = 1e-7
        ahead, behind = (reference(x + sign * step * direction, mode, how) for sign in (1, -1))
        slope = ((ahead - behind) * dy.astype(np.float64)).sum() / (2 * step)
        assert abs((back(dx.numpy()).astype(np.float64) * direction).sum() - slope) < 1e-4 * max(1, abs(slope))


def test_bad_input() -> None:
    x = np.zeros((1, 2, 4, 4), "float32")
    for options, text in [
        ({"mode": "sum", "window": 2}, "mode='sum'; allowed: 'max', 'average', 'average_exclude_padding'"),
        ({"mode": "max", "window": 2, "padding": 2}, "less than the window"),
        ({"mode": "max", "window": 12, "padding": 11}, "144 places; allowed for maxima: 128 at most"),
        ({"mode": "average", "window": 2, "index": True}, "index=True with mode='average'"),
        ({"mode": "average", "window": 5}, "5 places along spatial axis 0, and x with its padding 4"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.PoolingRequest(x=x, **options)
    with pytest.raises(an.InvalidRequest, match="needs index"):
        an.PoolingGradientRequest(dy=x, size=8, mode="max", window=2)
    with pytest.raises(an.InvalidRequest, match="x has dtype float64; allowed: float16, bfloat16, float32"):
        an.PoolingRequest(x=np.zeros((1, 2, 4, 4)), mode="max", window=2)
