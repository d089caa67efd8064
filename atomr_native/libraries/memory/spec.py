"""Fill and copy: plan specifications of the device's own memory operations, as pure functions of layouts."""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import numpy as np

from ..._support.recorded import RecordedInt, is_recorded
from ...arrays.operands import ArrayLayout, broadcast_shapes, check_disjoint, check_input, check_output
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.spec import HOST, OVERWRITE, READ, WRITE, PlanSpec, describe, signed_word
from .attributes import CopyAttributes

__all__ = ["copy_scalars", "copy_spec", "fill_scalars", "fill_spec"]

_FULL = WRITE | OVERWRITE
_NUMBERS: Final = (int, float, complex)


def fill_spec(out: object) -> PlanSpec[tuple[()]]:
    """Return the plan that sets each element of `out` to one value; its scalars are those of `fill_scalars`.

    Raises
    ------
    InvalidRequest
        If `out` overlaps itself.
    """
    array = check_output("out", out)
    kind = as_dtype(array.dtype).kind
    scalars = ("float64", "float64") if kind == "c" else ("int64",) if kind in "biu" else ("float64",)
    return PlanSpec("memory.fill", (describe("out", array, _FULL),), scalars)


@functools.cache
def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the largest value of an integer or Boolean dtype."""
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def fill_scalars(dtype: np.dtype[Any], value: object) -> tuple[int | float, ...]:
    """Return `value` as the scalars of a fill of this dtype.

    Floating values round as NumPy's do.  Complex numbers travel as two; uint64 as the int64 of the same bits.

    Raises
    ------
    InvalidRequest
        If `value` is no number, or has no exact equivalent in an integer or real dtype.
    """
    if is_recorded(value):
        if dtype.kind == "c" or (dtype.kind in "biu" and type(value) is not RecordedInt):
            raise InvalidRequest(
                f"fill value {value!r} for {dtype_name(dtype)}; allowed: a recorded number of its kind"
            )
        return (value,)  # type: ignore[return-value]
    plain: Any = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, _NUMBERS):
        raise InvalidRequest(f"fill value {value!r} is a {type(value).__name__}; allowed: a number")
    try:
        if dtype.kind == "c":
            return (complex(plain).real, complex(plain).imag)
        if isinstance(plain, complex):
            raise InvalidRequest(f"fill value {value!r} is complex; allowed for {dtype_name(dtype)}: real numbers")
        if dtype.kind not in "biu":
            return (float(plain),)
    except OverflowError:
        raise InvalidRequest(f"fill value {value!r} is too large for {dtype_name(dtype)}") from None
    low, high = _range(dtype)
    if (isinstance(plain, float) and not plain.is_integer()) or not low <= plain <= high:
        raise InvalidRequest(f"fill value {value!r} is no {dtype_name(dtype)}; allowed: integers from {low} to {high}")
    return (signed_word(int(plain)),)


def _is_raw(src: ArrayLayout, out: ArrayLayout) -> bool:
    """Return whether a copy is one of consecutive bytes."""
    if src.dtype != out.dtype or tuple(src.shape) != tuple(out.shape):
        return False
    step = out.dtype.itemsize
    for extent, theirs, ours in zip(reversed(out.shape), reversed(src.strides), reversed(out.strides), strict=True):
        if extent > 1 and (theirs != step or ours != step):
            return False
        step *= extent
    return True


def copy_spec(src: object, out: object, *, host: bool = False) -> PlanSpec[CopyAttributes]:
    """Return the plan that copies `src` into `out`, converting dtype and layout; `src` broadcasts.

    With `host`, `out` is memory that the processor writes as well.

    Conversions are NumPy's (``casting="unsafe"``).  A copy of consecutive bytes is native: the message's scalars
    are then those of `copy_scalars`.

    Raises
    ------
    InvalidRequest
        For shapes that do not broadcast, complex into real, and arrays that overlap.
    """
    source, target = check_input("src", src, backwards=True), check_output("out", out)
    shape = tuple(target.shape)
    if broadcast_shapes((("src", tuple(source.shape)), ("out", shape)), "src and out") != shape:
        raise InvalidRequest(f"src of shape {tuple(source.shape)} does not fit out of shape {shape}; allowed: {shape}")
    if as_dtype(source.dtype).kind == "c" and as_dtype(target.dtype).kind != "c":
        raise InvalidRequest(
            f"src is {dtype_name(source.dtype)} and out is {dtype_name(target.dtype)}: the imaginary part would be "
            f"lost; allowed: complex64, complex128"
        )
    check_disjoint([("out", out)], [("src", src)])
    raw = _is_raw(source, target)
    operands = (describe("src", source, READ), describe("out", target, _FULL | (HOST if host else 0)))
    return PlanSpec("memory.copy", operands, ("int64",) if raw else (), CopyAttributes(raw))


def copy_scalars(spec: PlanSpec) -> tuple[int, ...]:
    """Return the scalars of a message to a copy plan: the number of bytes where it is native, else none."""
    if not spec.scalars:
        return ()
    out = spec.operands[1]
    return (math.prod(out.shape) * as_dtype(out.dtype).itemsize,)
