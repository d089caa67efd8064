"""The request of products with a sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..._support.public import public
from ...dtypes import dtype_name
from ...plans.lowering import Lowered, Request, read, written
from .._factors import FACTORS, factor_scalars, split_factors
from .attributes import ProductAttributes
from .spec import resolve

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = ["SparseProductRequest"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseProductRequest(Request["GpuRef"]):
    """A product with a sparse matrix, checked when it is made.

    Parameters
    ----------
    routine : str
        ``spmv`` out = alpha op(A) x + beta out; ``spmm`` out = alpha op(A) X + beta out, X and out dense matrices;
        ``sddmm`` out = alpha (X Y) + beta `values` at the stored elements of A alone: out is the values of a matrix of
        A's pattern.
    values, indices, offsets, rows
        The arrays of A, as `SparseMatrix` has them.
    format, shape, ordered, longest
        As `SparseMatrix` has them.
    x, y
        Dense operands of the dtype of `values`: a vector for ``spmv``, matrices else, with any strides of 0 or more.
        `y` is for ``sddmm`` only.  With a batch of matrices they may have an axis of as many in front; without it they
        are shared.  The result has it.
    out
        The result; allocated if missing.  Of float16 and bfloat16 it may be float32; of int8 it is int32.
    alpha, beta : number
        Factors; they travel with the message.  Whether `beta` is 0 belongs to the plan, and ``beta=0`` never reads out.
    alpha_at, beta_at : optional
        Arrays of one element and of the dtype of sums, in place of the numbers: both, or none.  Then out is read.
    trans, conj : bool
        op: the transpose, the conjugate, or both; not for ``sddmm``.
    deterministic : bool
        Whether equal messages must give equal bits; refused where no algorithm does.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    Sums are float32 of 16-bit values, int32 of int8, else of the values' dtype.  What is not stored is not multiplied:
    an infinity or NaN in x does not reach rows that have no element in its column.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> request = an.SparseProductRequest(
    ...     routine="spmv", format="csr", shape=a.shape, values=a.values, indices=a.indices, offsets=a.offsets,
    ...     x=device.put(np.ones(2)), alpha=2.0,
    ... )
    >>> device.sparse.tell(request).numpy()
    array([4., 6.])
    """

    routine: str
    format: str
    shape: tuple[int, int]
    values: Any
    indices: Any
    offsets: Any = None
    rows: Any = None
    x: Any = None
    y: Any = None
    out: Any = None
    alpha_at: Any = None
    beta_at: Any = None
    ordered: bool = False
    longest: int | None = None
    trans: bool = False
    conj: bool = False
    deterministic: bool = False
    alpha: complex = 1.0
    beta: complex = 0.0

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        names = ("values", "indices", "rows" if self.format == "coo" else "offsets", "x", "y", "alpha_at", "beta_at")
        operands = [read(name, getattr(self, name)) for name in names if getattr(self, name) is not None]
        updates = self.routine != "sddmm" and (problem.factors or self.beta != 0)
        operands.append(written("out", self.out, problem.out, updated=updates))
        is_complex = problem.compute.kind == "c"
        return Lowered(
            op=f"sparse.{self.routine}",
            operands=tuple(operands),
            collect=itemgetter("out"),
            attributes=ProductAttributes(
                format=self.format,
                shape=problem.shape,
                compute=dtype_name(problem.compute),
                adds=bool(problem.factors or self.beta != 0),
                factors=problem.factors,
                trans=bool(self.trans),
                conj=bool(self.conj),
                deterministic=bool(self.deterministic),
                batch=problem.batch,
                longest=self.longest if self.routine == "spmv" else None,
            ),
            scalars=() if problem.factors else factor_scalars(self.alpha, self.beta, is_complex=is_complex),
            numbers=() if problem.factors else FACTORS,
            convert=split_factors if is_complex and not problem.factors else None,
        )
