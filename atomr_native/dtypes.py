"""Element types: NumPy's, and the narrow floats of ``ml_dtypes``."""

from __future__ import annotations

import contextlib
from typing import Any

import ml_dtypes
import numpy as np

from .errors import InvalidRequest

__all__ = ["DTYPES", "as_dtype", "dtype_name"]

#: Every element type that device memory can hold, by name.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
} | {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip

_NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}


def as_dtype(dtype: object) -> np.dtype[Any]:
    """Return the NumPy dtype for a name, a scalar type or a dtype.

    Parameters
    ----------
    dtype
        For example ``"bfloat16"``, ``numpy.float32`` or ``numpy.dtype("int8")``.

    Raises
    ------
    InvalidRequest
        If devices do not support it as an element type; the message lists the supported ones.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    if isinstance(dtype, np.dtype) and dtype in _NAMES:
        return dtype
    found: np.dtype[Any] | None = None
    # NumPy converts None to float64, and an array or number, such as a misplaced output, to its dtype.
    if dtype is not None and (isinstance(dtype, type | np.dtype) or not hasattr(dtype, "shape")):
        with contextlib.suppress(TypeError, ValueError):
            found = np.dtype(dtype)  # type: ignore[call-overload]
    if found is None or found not in _NAMES:
        raise InvalidRequest(f"unknown dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
    return found


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of `dtype` in plan specifications."""
    return _NAMES[dtype]
