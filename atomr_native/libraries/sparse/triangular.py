"""The request of solves with a sparse triangle."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import check_factor, check_flag
from ..._support.public import public
from ...arrays.operands import check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request, Scalar, read, written
from .attributes import SolveAttributes
from .matrix import check_parts
from .spec import check_out

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = ["DTYPES", "SparseSolveRequest"]

DTYPES: Final = ("float32", "float64", "complex64", "complex128")


def _split(alpha: complex) -> tuple[float, float]:
    return complex(alpha).real, complex(alpha).imag


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSolveRequest(Request["GpuRef"]):
    """X of ``op(A) X = alpha B``, of a triangle A, checked when it is made.

    Parameters
    ----------
    values, indices, offsets
        The arrays of A, as `SparseMatrix` has them.
    format, shape
        ``csr``, or ``csc`` with ``trans=True``: the rows of op(A) must lie together.  A is square.
    b
        A vector or a matrix of right sides, of the dtype of `values`: float32, float64, complex64 or complex128; with
        any strides of 0 or more.  Of a batch of matrices (batch, n) or (batch, n, any).
    out
        X, of b's shape; allocated if missing.
    lower : bool
        Which triangle of A is read; what is stored of the other one is passed over.
    trans, conj : bool
        op: the transpose, the conjugate, or both.
    unit : bool
        Whether the diagonal is taken as ones, and not read.
    alpha : number
        Travels with the message.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    Elements of a row need no order, and duplicates add up.  A zero on the diagonal, stored or not, gives infinities or
    NaN, and no error, as in BLAS.  Equal messages give equal bits.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> request = an.SparseSolveRequest(
    ...     format="csr", shape=a.shape, values=a.values, indices=a.indices, offsets=a.offsets,
    ...     b=device.put(np.array([2.0, 9.0])),
    ... )
    >>> device.sparse.tell(request).numpy()
    array([1., 2.])
    """

    format: str
    shape: tuple[int, int]
    values: Any
    indices: Any
    offsets: Any = None
    b: Any = None
    out: Any = None
    lower: bool = True
    trans: bool = False
    conj: bool = False
    unit: bool = False
    alpha: complex = 1.0

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        for name in ("lower", "trans", "conj", "unit"):
            check_flag(name, getattr(self, name), bool | np.bool)
        if self.format not in ("csr", "csc") or (self.format == "csc") != bool(self.trans):
            raise InvalidRequest(
                f"format={self.format!r} with trans={self.trans!r}; allowed: csr with False, csc with True; "
                f"device.sparse.convert makes either"
            )
        shape, _, batch = check_parts(self.format, self.shape, self.values, self.indices, self.offsets, None)
        if shape[0] != shape[1]:
            raise InvalidRequest(f"shape={shape}; a triangle is square")
        dtype = as_dtype(self.values.dtype)
        if dtype_name(dtype) not in DTYPES:
            raise InvalidRequest(f"values has dtype {dtype_name(dtype)}; allowed: {', '.join(DTYPES)}")
        check_factor("alpha", self.alpha, imaginary=dtype.kind == "c")
        b = check_input("b", self.b)
        front = (shape[0],) if batch is None else (batch, shape[0])
        if len(b.shape) not in (len(front), len(front) + 1) or tuple(b.shape[: len(front)]) != front:
            raise InvalidRequest(f"b has shape {tuple(b.shape)}; allowed: {front} or {front} and an axis more")
        if as_dtype(b.dtype) != dtype:
            raise InvalidRequest(f"b has dtype {dtype_name(as_dtype(b.dtype))}; allowed: {dtype_name(dtype)}")
        out = check_out(self, tuple(b.shape), [dtype], ("values", "indices", "offsets", "b"))
        real, imaginary = _split(self.alpha)
        scalars: tuple[Scalar, ...] = (Scalar("alpha", "float64", real, 1.0),)
        if dtype.kind == "c":
            scalars += (Scalar("alpha_imag", "float64", imaginary, 0.0, imaginary_of="alpha"),)
        return Lowered(
            op="sparse.solve",
            operands=(
                *(read(name, getattr(self, name)) for name in ("values", "indices", "offsets", "b")),
                written("out", self.out, out),
            ),
            collect=itemgetter("out"),
            attributes=SolveAttributes(
                format=self.format,
                n=shape[0],
                dtype=dtype_name(dtype),
                lower=bool(self.lower),
                trans=bool(self.trans),
                conj=bool(self.conj),
                unit=bool(self.unit),
                batch=batch,
            ),
            scalars=scalars,
            numbers=("alpha",),
            convert=_split if dtype.kind == "c" else None,
        )
