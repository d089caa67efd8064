"""Reductions of the namespace: each sends one reduction, and casts before it where a dtype is given; no wait."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..dtypes import as_dtype
from ..errors import InvalidRequest
from ._operands import as_axes, as_axis, cast_to, forward, handle

__all__ = ["all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var"]


def _reduced(op: str, x: GpuRef, axis: Any, keepdims: bool, dtype: Any = None) -> GpuRef:
    axes = as_axes(op, axis, handle(op, x).ndim)
    if dtype is not None:
        x = cast_to(x, as_dtype(dtype))
    made = x.device.elementwise.reduce(op, forward(x), axes)
    if dtype is not None:
        made = cast_to(made, as_dtype(dtype))
    return made.reshape(tuple(1 if i in axes else n for i, n in enumerate(x.shape))) if keepdims else made


def sum(x: GpuRef, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> GpuRef:
    """Return sums; of integers as int64 or uint64, if no dtype is given."""
    return _reduced("sum", x, axis, keepdims, dtype)


def prod(x: GpuRef, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> GpuRef:
    """Return products; of integers as int64 or uint64, if no dtype is given."""
    return _reduced("prod", x, axis, keepdims, dtype)


def mean(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return means; of integers as float64, and NaN over no elements."""
    axes = as_axes("mean", axis, handle("mean", x).ndim)
    if x.size == 0:
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
        return x.device.full(shape, math.nan, "float64" if x.dtype.kind in "biu" else x.dtype)
    return _reduced("mean", x, axes, keepdims)


def max(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return the largest elements; NaN wins."""
    return _reduced("max", x, axis, keepdims)


def min(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return the smallest elements; NaN wins."""
    return _reduced("min", x, axis, keepdims)


def any(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return whether an element is not zero."""
    return _reduced("any", x, axis, keepdims)


def all(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return whether no element is zero."""
    return _reduced("all", x, axis, keepdims)


def _index(op: str, x: GpuRef, axis: Any, keepdims: bool) -> GpuRef:
    found = None if axis is None else as_axis(op, axis, handle(op, x).ndim)
    made = handle(op, x).device.elementwise.reduce(op, forward(x), found)
    shape = tuple(1 if found is None or i == found else n for i, n in enumerate(x.shape))
    return made.reshape(shape) if keepdims else made


def argmax(x: GpuRef, /, *, axis: int | None = None, keepdims: bool = False) -> GpuRef:
    """Return the indices of the first largest elements, as int64; NaN wins."""
    return _index("argmax", x, axis, keepdims)


def argmin(x: GpuRef, /, *, axis: int | None = None, keepdims: bool = False) -> GpuRef:
    """Return the indices of the first smallest elements, as int64; NaN wins."""
    return _index("argmin", x, axis, keepdims)


def count_nonzero(x: GpuRef, /, *, axis: Any = None, keepdims: bool = False) -> GpuRef:
    """Return how many elements are not zero, as int64."""
    return _reduced("sum", handle("count_nonzero", x) != 0, axis, keepdims)


def var(x: GpuRef, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> GpuRef:
    """Return variances: sums of squared distances from the mean, divided by their number less `correction`.

    Integers are computed in float64.  Three messages.
    """
    axes = as_axes("var", axis, handle("var", x).ndim)
    if isinstance(correction, bool | GpuRef) or not isinstance(correction, int | float | np.integer | np.floating):
        raise InvalidRequest(f"var with correction={correction!r}; allowed: a real number of this process")
    if x.dtype.kind == "c":
        raise InvalidRequest(f"var of {x.layout!r}; allowed: real dtypes")
    count = math.prod(x.shape[i] for i in axes)
    centre = mean(x, axis=axes, keepdims=True)
    squares: GpuRef = x.device.elementwise.run("(x - m) * (x - m)", x=x, m=centre)
    total = _reduced("sum", squares, axes, keepdims)
    left = count - float(correction)
    return cast_to(total / left if left > 0 else total * math.nan, centre.dtype)


def std(x: GpuRef, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> GpuRef:
    """Return standard deviations; see `var`."""
    found = var(x, axis=axis, correction=correction, keepdims=keepdims)
    made: GpuRef = x.device.elementwise.run("sqrt(x)", x=found)
    return made
