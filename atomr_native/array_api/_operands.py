"""Checks and conversions that the functions of the namespace share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..arrays.refusals import refused_operand
from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidAxis, InvalidRequest

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["as_axes", "as_axis", "as_type", "cast_to", "check_device", "common", "forward", "handle", "is_operand"]

_NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def handle(function: str, x: object) -> GpuRef:
    """Return an array operand, or refuse what is none."""
    if not isinstance(x, GpuRef):
        raise refused_operand(function, x)
    return x


def is_operand(value: object) -> bool:
    """Return whether a value can be an operand beside an array: a handle or a number."""
    return isinstance(value, GpuRef | bool | int | float | complex | np.generic)


def check_device(device: Any) -> Device:
    """Return the device for a new array, which must be given."""
    if hasattr(type(device), "host_array"):  # the class is of a layer above
        return device  # type: ignore[no-any-return]
    raise InvalidRequest(
        f"device={device!r}; a new array needs a Device: device=system.device(), or xp = x.__array_namespace__(), "
        f"whose functions use the device of x"
    )


def as_type(*given: Any) -> np.dtype[Any]:
    """Return the dtype to which arrays, dtypes and numbers promote; numbers are weak.

    Raises
    ------
    InvalidRequest
        If there is none, or nothing but numbers.
    """
    strong, weak = [], []
    for value in given:
        if isinstance(value, GpuRef):
            strong.append(value.dtype)
        elif isinstance(value, bool | int | float | complex):
            weak.append(value)
        else:
            strong.append(as_dtype(value))
    if not strong:
        raise InvalidRequest(f"result_type of {given!r}: allowed are arrays and dtypes, and numbers beside them")
    kinds = {dtype_name(dtype) for dtype in strong}
    narrow = kinds & set(_NARROW)
    if len(kinds) == 1 and narrow and not any(isinstance(value, complex) for value in weak):
        return strong[0]
    wide = [np.dtype(np.float32) if dtype_name(dtype) in _NARROW and len(kinds) > 1 else dtype for dtype in strong]
    found = np.result_type(*wide, *weak)
    if len(narrow) == 1 and found == np.float32 and "float32" not in kinds:
        return as_dtype(narrow.pop())
    return as_dtype(found)


def common(function: str, arrays: Any) -> tuple[list[GpuRef], np.dtype[Any]]:
    """Return a sequence of arrays as a list, and the dtype to which they promote; refuses an empty one."""
    if isinstance(arrays, GpuRef) or not isinstance(arrays, list | tuple):
        raise InvalidRequest(f"{function} of {type(arrays).__name__}; allowed: a list or tuple of GpuRefs")
    found = [handle(function, x) for x in arrays]
    if not found:
        raise InvalidRequest(f"{function} of no arrays; allowed: at least one")
    return found, as_type(*found)


def cast_to(x: GpuRef, dtype: np.dtype[Any]) -> GpuRef:
    """Return an array with a dtype: itself where it has it."""
    return x if x.dtype == dtype else x.device.copy(x, dtype=dtype)


def forward(x: GpuRef) -> GpuRef:
    """Return an array without negative strides: itself, or a copy."""
    return x.device.copy(x) if any(n > 1 and s < 0 for n, s in zip(x.shape, x.strides, strict=True)) else x


def as_axis(function: str, axis: object, ndim: int) -> int:
    """Return an axis counted from the front, or refuse it."""
    if isinstance(axis, bool | GpuRef) or not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        allowed = f"integers from {-ndim} to {ndim - 1}" if ndim else "none, for an array without axes"
        raise InvalidAxis(f"{function} with axis={axis!r} for an array of {ndim} axes; allowed: {allowed}")
    return int(axis) % ndim


def as_axes(function: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Return one or several axes counted from the front, each at most once; None are all."""
    if axis is None:
        return tuple(range(ndim))
    found = tuple(as_axis(function, i, ndim) for i in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(found)) < len(found):
        raise InvalidRequest(f"{function} with axis={axis!r}: an axis is named twice")
    return found
