"""Convolutions in float64 by their definition, and arrays to compute them of."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erf

from atomr_native.dtypes import DTYPES

__all__ = [
    "ACTIVATIONS",
    "assert_close",
    "convolved",
    "filter_gradient",
    "group_norm",
    "input_gradient",
    "pairs",
    "random_images",
    "several",
]

Array = np.ndarray[Any, Any]
ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}
#: Bounds of errors, as parts of the sum of magnitudes.
BOUNDS = {"float16": 2e-3, "bfloat16": 1.5e-2, "float32": 2e-5, "float64": 1e-13}


def random_images(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return numbers of moderate size."""
    return (rng.standard_normal(shape) * 0.5).astype(DTYPES[dtype])


def pairs(padding: Any, axes: int) -> list[tuple[int, int]]:
    """Return paddings as pairs."""
    if isinstance(padding, int):
        return [(padding, padding)] * axes
    return [(p, p) if isinstance(p, int) else tuple(p) for p in padding]


def several(value: Any, axes: int) -> tuple[int, ...]:
    """Return an option as a number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value)


def windows(x: Array, size: tuple[int, ...], stride: Any, padding: Any, dilation: Any) -> Array:
    """Return (N, C, *results, *window) of images (N, C, ...)."""
    axes = len(size)
    steps, holes = several(stride, axes), several(dilation, axes)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pairs(padding, axes)])
    reach = tuple(d * (k - 1) + 1 for d, k in zip(holes, size, strict=True))
    found = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + axes)))
    found = found[(slice(None), slice(None), *(slice(None, None, s) for s in steps))]
    return found[(..., *(slice(None, None, d) for d in holes))]


def convolved(x: Array, w: Array, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Array:
    """Return the convolution of images with filters, both with channels first."""
    axes = w.ndim - 2
    found = windows(x, w.shape[2:], stride, padding, dilation)
    parts = []
    for part, filters in zip(np.split(found, groups, 1), np.split(w.astype(np.float64), groups, 0), strict=True):
        inner = tuple(range(2 + axes, 2 + 2 * axes))
        made = np.tensordot(part, filters, ((1, *inner), (1, *range(2, 2 + axes))))
        parts.append(np.moveaxis(made, -1, 1))
    return np.concatenate(parts, 1)


def filter_gradient(x: Array, dy: Array, size: tuple[int, ...], **how: Any) -> Array:
    """Return the gradient by the filters."""
    groups = how.pop("groups", 1)
    axes = len(size)
    options = {"stride": 1, "padding": 0, "dilation": 1} | how
    found = windows(x, size, options["stride"], options["padding"], options["dilation"])
    outer = tuple(range(2, 2 + axes))
    parts = [
        np.tensordot(slope, part, ((0, *outer), (0, *outer)))
        for part, slope in zip(np.split(found, groups, 1), np.split(dy.astype(np.float64), groups, 1), strict=True)
    ]
    return np.concatenate(parts, 0)


def input_gradient(dy: Array, w: Array, shape: tuple[int, ...], **how: Any) -> Array:
    """Return the gradient by the images, by one unit image after the other: for small ones."""
    made = np.zeros(shape)
    for i in range(int(np.prod(shape))):
        unit = np.zeros(shape)
        unit.flat[i] = 1
        made.flat[i] = (convolved(unit, w, **how) * dy.astype(np.float64)).sum()
    return made


def assert_close(found: Array, wanted: Array, dtype: str, terms: float = 1.0) -> None:
    """Compare within the bound of a dtype, for results whose magnitudes sum up to about `terms`."""
    scale = max(float(np.abs(wanted).max(initial=0)), terms)
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=0, atol=BOUNDS[dtype] * scale)


def group_norm(x: Array, dy: Array, scale: Array, bias: Array, groups: int) -> list[Array]:
    """Return the result of a group norm with epsilon 1e-5, and the gradients by x, scale and bias."""
    n, channels = x.shape[:2]
    grouped = x.reshape(n, groups, -1)
    inverse = 1 / np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    unit = (grouped - grouped.mean(2, keepdims=True)) * inverse
    wide = (1, channels, *(1,) * (x.ndim - 2))
    others = (0, *range(2, x.ndim))
    slope = (dy * scale.reshape(wide)).reshape(grouped.shape)
    dx = (slope - slope.mean(2, keepdims=True) - unit * (slope * unit).mean(2, keepdims=True)) * inverse
    unit = unit.reshape(x.shape)
    return [
        unit * scale.reshape(wide) + bias.reshape(wide),
        dx.reshape(x.shape),
        (unit * dy).sum(others),
        dy.sum(others),
    ]
