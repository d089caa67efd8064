"""Rules shared by the requests of the fused actor: dtypes, rows, numbers, and outputs in place."""

from __future__ import annotations

import math
from typing import Any, Final, cast

from ..._support.checks import is_real
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output, same_view
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Operand, written

__all__ = ["FLOATS", "check_float", "check_like", "check_number", "check_rows", "output", "row_step"]

#: Dtypes of elements.
FLOATS: Final = ("float32", "float16", "bfloat16", "float64")


def row_step(name: str, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the stride between rows of an array in elements; a row is the last axis.

    Raises
    ------
    InvalidRequest
        If the elements of a row do not lie together, or rows do not follow each other evenly.
    """
    if 0 in shape:
        return 0
    step = next_step = None
    fits = not shape or shape[-1] == 1 or strides[-1] == itemsize
    for extent, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if extent == 1:
            continue
        fits = fits and (next_step is None or stride == next_step)
        step = stride if step is None else step
        next_step = stride * extent
    if not fits:
        raise InvalidRequest(
            f"{name} has shape {shape} and strides {strides}; allowed: a last axis whose elements lie together, and "
            f"axes before it that fold into one (contiguous arrays, and slices of them along the last axis); copy it "
            f"first"
        )
    return 0 if step is None else step // itemsize


def check_rows(name: str, array: Any) -> None:
    """Raise `InvalidRequest` if `row_step` does not take an array."""
    row_step(name, tuple(array.shape), tuple(array.strides), as_dtype(array.dtype).itemsize)


def check_float(name: str, array: Any, allowed: tuple[str, ...] = FLOATS) -> str:
    """Return the dtype of an input that a kernel takes, with rows as `check_rows` has them."""
    check_input(name, array)
    found = dtype_name(as_dtype(array.dtype))
    if found not in allowed:
        raise InvalidRequest(f"{name} has dtype {found}; allowed: {', '.join(allowed)}")
    check_rows(name, array)
    return found


def check_like(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise `InvalidRequest` if an input or output differs from this dtype and shape, or has other rows."""
    check_input(name, array)
    found = dtype_name(as_dtype(array.dtype))
    if found != dtype or tuple(array.shape) != shape:
        raise InvalidRequest(
            f"{name} has dtype {found} and shape {tuple(array.shape)}; allowed here: {dtype} of {shape}"
        )
    check_rows(name, array)


def check_number(
    name: str, value: object, least: float, most: float, *, above: bool = False, below: bool = False
) -> float:
    """Return a real number within limits, the lower one excluded with `above`, the upper one with `below`."""
    if not is_real(value):
        raise InvalidRequest(f"{name}={value!r}; it must be a real number")
    try:
        number = float(cast("float", value))
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    excluded = (above and number == least) or (below and number == most)
    if not (least <= number <= most) or excluded or math.isinf(number):
        begin, end = "(" if above else "[", ")" if below or math.isinf(most) else "]"
        raise InvalidRequest(f"{name}={value!r}; allowed: {begin}{least:g}, {most:g}{end}")
    return number


def output(
    name: str, array: Any, dtype: str, shape: tuple[int, ...], inputs: tuple[Operand, ...], *, in_place: bool = False
) -> Operand:
    """Return an operand that is overwritten: the given array, after checks, or a new one.

    With `in_place` it may be one of the inputs, the very view.
    """
    fresh = Fresh(shape, DTYPES[dtype])
    if array is None:
        return written(name, None, fresh)
    check_output(name, array)
    check_like(name, array, dtype, shape)
    same = [o for o in inputs if in_place and same_view(o.given, array)]
    others = [(o.name, o.given) for o in inputs if o.given is not None and o not in same]
    check_disjoint([(name, array)], others, "; or be that very view" if in_place else "")
    return written(name, array, fresh, updated=bool(same))
