"""A matrix with two numbers in each four as a value: its compressed memory, and its dense memory where that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...._support.checks import is_integer
from ...._support.public import public
from ....arrays.operands import check_input, is_contiguous
from ....dtypes import DTYPES as ALL_DTYPES
from ....dtypes import as_dtype, dtype_name
from ....errors import InvalidRequest

__all__ = ["DTYPES", "StructuredMatrix", "check_extents", "compressed_bytes", "unit_of"]

#: Dtypes that sparse tensor cores multiply, but for float32, of which they keep one number in each two.
DTYPES: Final = ("int8", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_ROUND: Final = 128


def unit_of(dtype: str) -> int:
    """Return the number of which the extents of a compressed matrix are multiples: 32 bytes of elements."""
    return 32 // ALL_DTYPES[dtype].itemsize


def check_extents(shape: object, dtype: str) -> tuple[int, int]:
    """Check a matrix that is compressed; return its shape.

    Raises
    ------
    InvalidRequest
    """
    if dtype not in DTYPES:
        raise InvalidRequest(f"dtype={dtype}; allowed: {', '.join(DTYPES)}")
    if not isinstance(shape, tuple | list) or len(shape) != 2 or not all(is_integer(n) for n in shape):
        raise InvalidRequest(f"shape={shape!r}; allowed: two integers, rows and columns")
    rows, columns = int(shape[0]), int(shape[1])
    unit = unit_of(dtype)
    for name, extent in (("rows", rows), ("columns", columns)):
        if extent < unit or extent % unit:
            raise InvalidRequest(
                f"shape={(rows, columns)} of {dtype} has {extent} {name}; allowed: multiples of {unit}; pad with zeros"
            )
    return rows, columns


def compressed_bytes(shape: tuple[int, int], dtype: str) -> int:
    """Return the bytes that a compressed matrix may take: half of its numbers, and which of each four they are."""
    rows, columns = (-(-n // _ROUND) * _ROUND for n in shape)
    return rows * columns * ALL_DTYPES[dtype].itemsize // 2 + rows * columns // 4


@public
@dataclass(frozen=True, slots=True, eq=False)
class StructuredMatrix:
    """A matrix with at most two numbers in each four of a row, for sparse tensor cores; `Sparse.structured` makes it.

    It owns nothing but handles.  The layout of the compressed memory belongs to the device's library, and to one
    version of it: it is made anew rather than stored.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns: multiples of 16 for 16-bit dtypes, of 32 for 8-bit ones.
    dtype : str
        ``"int8"``, ``"float16"``, ``"bfloat16"``, ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
    compressed : GpuRef
        uint8, as long as `Sparse.structured` makes it.
    dense : GpuRef, optional
        The same matrix with its zeros, where products may take either.

    Raises
    ------
    InvalidRequest
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> w = device.put(np.ones((32, 64), "float16"))
    >>> device.sparse.structured(w, prune="strip")
    <StructuredMatrix (32, 64) float16, dense kept>
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    compressed: Any
    dense: Any = None

    def __post_init__(self) -> None:
        kind = dtype_name(as_dtype(self.dtype))
        shape = check_extents(self.shape, kind)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", ALL_DTYPES[kind])
        compressed = check_input("compressed", self.compressed)
        wanted = (compressed_bytes(shape, kind),)
        if dtype_name(as_dtype(compressed.dtype)) != "uint8" or tuple(compressed.shape) != wanted:
            raise InvalidRequest(
                f"compressed has shape {tuple(compressed.shape)} and dtype {dtype_name(as_dtype(compressed.dtype))}; "
                f"allowed: {wanted} of uint8"
            )
        if not is_contiguous(compressed):
            raise InvalidRequest(f"compressed has strides {tuple(compressed.strides)}; allowed: C order")
        if self.dense is not None:
            dense = check_input("dense", self.dense)
            if tuple(dense.shape) != shape or as_dtype(dense.dtype) != self.dtype:
                raise InvalidRequest(
                    f"dense has shape {tuple(dense.shape)} and dtype {dtype_name(as_dtype(dense.dtype))}; allowed: "
                    f"{shape} of {kind}"
                )

    def __repr__(self) -> str:
        kept = "compressed only" if self.dense is None else "dense kept"
        return f"<StructuredMatrix {self.shape} {dtype_name(self.dtype)}, {kept}>"
