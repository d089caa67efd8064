"""Shapes and layouts of arrays, checked and cached."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from .._lib.sender import Layout, Ref
from ..dtypes import DTYPES, dtype_name
from ..errors import InvalidRequest

__all__ = ["as_shape", "extents_of", "layout_from", "layout_of"]

#: Maximum number of axes, as in NumPy, which computes views.
_MAX_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_NO_SHAPES = (str, bytes, bytearray, Set, Mapping, Ref)  # contain integers, but are not sequences of extents
_TOO_LARGE = 1 << 62  # bytes, with zero extents counted as one


def _extent(n: Any) -> int:
    if isinstance(n, bool | np.bool_ | Ref):  # the value of a handle would have to be waited for
        raise TypeError
    return int(n.__index__())


def extents_of(shape: object) -> tuple[int, ...] | None:
    """Return the integers of a shape; None for anything else."""
    items = (shape,) if isinstance(shape, int | np.integer) else shape
    try:
        return None if isinstance(items, _NO_SHAPES) else tuple(_extent(n) for n in items)  # type: ignore[attr-defined]
    except (TypeError, AttributeError):
        return None


def as_shape(shape: object) -> tuple[int, ...]:
    """Return a shape as a tuple of non-negative integers, or raise `InvalidRequest`."""
    found = extents_of(shape)
    if found is None:
        raise InvalidRequest(f"shape {shape!r} is neither an integer nor a sequence of integers")
    if any(n < 0 for n in found):
        raise InvalidRequest(f"shape {found} has a negative extent; extents are 0 or more")
    if len(found) > _MAX_AXES:
        raise InvalidRequest(f"shape has {len(found)} axes; at most {_MAX_AXES} are possible")
    return found


@functools.lru_cache(maxsize=65536)
def layout_from(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Layout:
    """Return the layout with these strides (bytes); the same object each time, so plans compare it by identity."""
    return Layout(shape, strides, DTYPES[dtype], dtype)


@functools.lru_cache(maxsize=65536)
def layout_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
    """Return the C-contiguous layout of a shape and element type."""
    strides: list[int] = []
    step = dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    if step >= _TOO_LARGE:  # even for an array without elements, whose strides must fit into integers, too
        raise InvalidRequest(
            f"shape {shape} of {dtype_name(dtype)}: its nonzero extents take {step} bytes; an array has fewer than "
            f"{_TOO_LARGE}"
        )
    return layout_from(shape, tuple(reversed(strides)), dtype_name(dtype))
