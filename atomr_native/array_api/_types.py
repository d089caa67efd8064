"""Dtypes of the namespace: promotion, kinds and limits.  Nothing here touches a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..dtypes import DTYPES, as_dtype
from ..errors import InvalidRequest
from ._operands import as_type

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "fV",
    "complex floating": "c", "numeric": "iufVc",
}  # fmt: skip


class FloatInfo(NamedTuple):
    """Limits of a floating-point dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


class IntegerInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def _type_of(given: Any) -> np.dtype[Any]:
    return given.dtype if isinstance(given, GpuRef) else as_dtype(given)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the dtype to which arrays and dtypes promote, beside them Python numbers, which are weak."""
    return as_type(*arrays_and_dtypes)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether a dtype, or that of an array, promotes to another one."""
    return as_type(_type_of(from_), _type_of(to)) == _type_of(to)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is another one, is of a kind (``"integral"``, ...), or of one of several of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise InvalidRequest(f"isdtype with kind={kind!r}; allowed: {', '.join(map(repr, _KINDS))}, and dtypes")
        return as_dtype(dtype).kind in _KINDS[kind]
    return as_dtype(dtype) == as_dtype(kind)


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating-point or complex dtype, or of that of an array."""
    dtype = _type_of(type)
    part = DTYPES.get({"complex64": "float32", "complex128": "float64"}.get(dtype.name, ""), dtype)
    if part.kind not in "fV":
        raise InvalidRequest(f"finfo of {dtype}; allowed: floating-point and complex dtypes")
    found: Any = ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]
    return FloatInfo(
        int(found.bits), float(found.eps), float(found.max), float(found.min), float(found.smallest_normal), part
    )


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, or of that of an array."""
    dtype = _type_of(type)
    if dtype.kind not in "iu":
        raise InvalidRequest(f"iinfo of {dtype}; allowed: integer dtypes")
    found = np.iinfo(dtype)
    return IntegerInfo(int(found.bits), int(found.max), int(found.min), dtype)
