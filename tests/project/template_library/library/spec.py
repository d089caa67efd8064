"""Rules of blends, as functions of layouts."""

from __future__ import annotations

from typing import Any, Final

from ...arrays.operands import check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest

__all__ = ["DTYPES", "check_pair"]

#: Dtypes of blends.
DTYPES: Final = ("float32", "float64")


def check_pair(x: Any, y: Any) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of a blend of `x` and `y`.

    Raises
    ------
    InvalidRequest
        If the dtypes or shapes differ, or the dtype is not one of `DTYPES`.
    """
    check_input("x", x)
    check_input("y", y)
    dtype = dtype_name(as_dtype(x.dtype))
    if dtype not in DTYPES:
        raise InvalidRequest(f"x has dtype {dtype}; allowed: {', '.join(DTYPES)}")
    if as_dtype(y.dtype) != as_dtype(x.dtype) or tuple(y.shape) != tuple(x.shape):
        raise InvalidRequest(
            f"y is {dtype_name(as_dtype(y.dtype))}{list(y.shape)}; allowed: {dtype}{list(x.shape)}, the layout of x"
        )
    return dtype, tuple(x.shape)
