"""The request of incomplete factorizations in the pattern of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import check_choice
from ..._support.public import public
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.calls import form_of
from ...plans.lowering import Lowered, Request, read, written
from .attributes import FactorAttributes
from .matrix import check_parts
from .spec import check_out
from .triangular import DTYPES

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401  (named by the base class)

__all__ = ["FACTOR", "ROUTINES", "SparseFactorRequest"]

ROUTINES: Final = ("ilu0", "ic0")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFactorRequest(Request["GpuRef"]):
    """Values of incomplete factors in the pattern of a square csr matrix A, checked when it is made.

    Parameters
    ----------
    routine : str
        ``ilu0``: L, whose diagonal of ones is not stored, below the diagonal, and U on it and above; the product L U
        has A's elements at A's places.  ``ic0``: L below and on the diagonal, and its conjugate transpose above; L
        times that has A's elements there.
    values, indices, offsets, shape
        The arrays and the shape of A, or of a batch; values float32, float64, complex64 or complex128.
    out
        The values of the factors, in A's pattern; allocated if missing.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Notes
    -----
    Rows must be in order without duplicates, as `Sparse.coalesce` makes them; a row that is not gets NaN.  A pivot that
    is 0 or not stored gives infinities or NaN, and so does an ``ic0`` of a matrix that is not positive definite enough;
    there is no error, as in BLAS.  ``ic0`` reads the lower triangle, and its pattern is to be symmetric: elements above
    the diagonal without a counterpart become 0.  Equal messages give equal bits.

    Examples
    --------
    >>> a = device.sparse.matrix(np.array([[2.0, 4.0], [1.0, 5.0]]))
    >>> request = an.SparseFactorRequest(
    ...     routine="ilu0", shape=a.shape, values=a.values, indices=a.indices, offsets=a.offsets
    ... )
    >>> device.sparse.tell(request).numpy()
    array([2. , 4. , 0.5, 3. ])
    """

    routine: str
    shape: tuple[int, int]
    values: Any
    indices: Any
    offsets: Any
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("routine", self.routine, ROUTINES)
        shape, count, batch = check_parts("csr", self.shape, self.values, self.indices, self.offsets, None)
        if shape[0] != shape[1]:
            raise InvalidRequest(f"shape={shape}; {self.routine} takes a square matrix")
        dtype = as_dtype(self.values.dtype)
        if dtype_name(dtype) not in DTYPES:
            raise InvalidRequest(f"values has dtype {dtype_name(dtype)}; allowed: {', '.join(DTYPES)}")
        names = ("values", "indices", "offsets")
        out = check_out(self, (count,) if batch is None else (batch, count), [dtype], names)
        return Lowered(
            op=f"sparse.{self.routine}",
            operands=(*(read(name, getattr(self, name)) for name in names), written("out", self.out, out)),
            collect=itemgetter("out"),
            attributes=FactorAttributes(n=shape[0], dtype=dtype_name(dtype), batch=batch),
        )


FACTOR: Final = form_of(SparseFactorRequest, "values indices offsets out", "routine shape")
