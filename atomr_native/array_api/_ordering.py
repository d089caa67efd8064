"""Sorts, searches, and running sums and products of the namespace; all enqueue."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..arrays.owner import ArrayArithmetic, owner_of
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest
from ._manipulation import concat, moveaxis, reshape
from ._operands import as_axis, as_type, cast_to, handle

__all__ = ["actor_of", "argsort", "cumulative_prod", "cumulative_sum", "scanned", "searchsorted", "sort"]


def actor_of(x: GpuRef) -> ArrayArithmetic:
    """Return the actor of an array's device."""
    found: ArrayArithmetic = owner_of(x.device).elementwise
    return found


def _rows(x: GpuRef, axis: int) -> tuple[GpuRef, tuple[int, ...]]:
    """Return an array as rows along an axis, copied if they do not follow each other, and their shape before."""
    moved = moveaxis(x, axis, -1)
    shape = moved.shape
    flat = (math.prod(shape[:-1]), shape[-1])
    if moved.size and not moved.layout.contiguous:
        moved = moved.device.copy(moved)
    return reshape(moved, flat), shape


def _real(function: str, x: GpuRef) -> GpuRef:
    if handle(function, x).dtype.kind == "c":
        raise InvalidRequest(f"{function} of an array of {dtype_name(x.dtype)}; allowed: real dtypes")
    return x


def _sorted(function: str, x: GpuRef, axis: Any, descending: Any, stable: Any, *, places: bool) -> GpuRef:
    for name, flag in (("descending", descending), ("stable", stable)):
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{function} with {name}={flag!r}; allowed: True, False")
    place = as_axis(function, axis, _real(function, x).ndim)
    rows, shape = _rows(x, place)
    return moveaxis(reshape(actor_of(x).sort(rows, descending=descending, places=places), shape), -1, place)


def sort(x: GpuRef, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> GpuRef:
    """Return a sorted copy along an axis; enqueues.  Always stable; NaN counts as the largest number."""
    return _sorted("sort", x, axis, descending, stable, places=False)


def argsort(x: GpuRef, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> GpuRef:
    """Return the indices that sort an array along an axis, as int64; enqueues.  Always stable, as `sort`."""
    return _sorted("argsort", x, axis, descending, stable, places=True)


def searchsorted(x1: GpuRef, x2: GpuRef, /, *, side: str = "left", sorter: GpuRef | None = None) -> GpuRef:
    """Return where elements of `x2` would go in the sorted array `x1`, as int64; enqueues.

    Parameters
    ----------
    x1, x2 : GpuRef
        Real; `x1` of one axis.
    side : str
        ``"left"`` of equal elements, or ``"right"``.
    sorter : GpuRef, optional
        Indices that sort `x1`.
    """
    if side not in ("left", "right"):
        raise InvalidRequest(f"searchsorted with side={side!r}; allowed: 'left', 'right'")
    if _real("searchsorted", x1).ndim != 1:
        raise InvalidRequest(f"searchsorted in an array of shape {x1.shape}; allowed: one axis")
    dtype = as_type(x1, _real("searchsorted", x2))
    row = cast_to(x1, dtype)
    if sorter is not None:
        row = actor_of(x1).take(row, handle("searchsorted", sorter), 0, along=False)
    rows, values = (_rows(x, 0)[0] for x in (row, reshape(cast_to(x2, dtype), (-1,))))
    return reshape(actor_of(x1).search(rows, values, right=side == "right"), x2.shape)


def scanned(op: str, x: GpuRef, place: int, dtype: np.dtype[Any]) -> GpuRef:
    """Return running sums or products along an axis."""
    rows, shape = _rows(x, place)
    return moveaxis(reshape(actor_of(x).scan(op, rows, dtype_name(dtype)), shape), -1, place)


def _cumulative(function: str, op: str, x: GpuRef, axis: int | None, dtype: Any, initial: Any) -> GpuRef:
    if not isinstance(initial, bool):
        raise InvalidRequest(f"{function} with include_initial={initial!r}; allowed: True, False")
    if axis is None and handle(function, x).ndim != 1:
        raise InvalidRequest(f"{function} without an axis of an array of shape {x.shape}; allowed: arrays of one axis")
    place = as_axis(function, 0 if axis is None else axis, handle(function, x).ndim)
    if dtype is None:
        found = as_dtype({"b": "int64", "i": "int64", "u": "uint64"}.get(x.dtype.kind, x.dtype))
    else:
        found = as_dtype(dtype)
        x = cast_to(x, found)
    made = scanned(op, x, place, found)
    if not initial:
        return made
    shape = tuple(1 if i == place else n for i, n in enumerate(x.shape))
    return concat([x.device.full(shape, 0 if op == "sum" else 1, found), made], axis=place)


def cumulative_sum(
    x: GpuRef, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> GpuRef:
    """Return running sums along an axis, which is optional for an array of one; enqueues.

    Of integers as int64 or uint64, if no dtype is given; float16 and bfloat16 are added in float32.
    `include_initial` puts a 0 in front.
    """
    return _cumulative("cumulative_sum", "sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: GpuRef, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> GpuRef:
    """Return running products along an axis, otherwise as `cumulative_sum`; `include_initial` puts a 1 in front."""
    return _cumulative("cumulative_prod", "prod", x, axis, dtype, include_initial)
