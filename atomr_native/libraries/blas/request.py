"""The request of the BLAS actor, and the keyword options of its methods."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..._support.public import public
from ...dtypes import dtype_name
from ...plans.lowering import Lowered, Request, read, written
from .._factors import FACTORS, factor_scalars, split_factors
from .attributes import BlasAttributes
from .spec import ROUTINES, resolve

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "ROUTINE_OPTIONS",
    "BlasOptions",
    "BlasRequest",
    "GemmOptions",
    "GemvOptions",
    "SymmOptions",
    "SyrkOptions",
    "TrmmOptions",
    "TrsmOptions",
]


class _Scaled(TypedDict, total=False):
    alpha: complex


class GemvOptions(_Scaled, total=False):
    """Of `Blas.gemv`."""

    beta: complex
    trans: bool
    conj: bool
    out: GpuRef | None


class GemmOptions(GemvOptions, total=False):
    """Of `Blas.gemm` and `Blas.geam`."""

    trans_b: bool
    conj_b: bool


class SymmOptions(_Scaled, total=False):
    """Of `Blas.symm`."""

    beta: complex
    side: str
    lower: bool
    out: GpuRef | None


class SyrkOptions(_Scaled, total=False):
    """Of `Blas.syrk`."""

    beta: complex
    trans: bool
    lower: bool


class TrsmOptions(_Scaled, total=False):
    """Of `Blas.trsm`."""

    side: str
    lower: bool
    trans: bool
    conj: bool
    unit: bool


class TrmmOptions(TrsmOptions, total=False):
    """Of `Blas.trmm`."""

    out: GpuRef | None


class BlasOptions(_Scaled, total=False):
    """Of `Blas.plan`."""

    a: GpuRef | None
    b: GpuRef | None
    x: GpuRef | None
    y: GpuRef | None
    out: GpuRef | None
    beta: complex
    trans: bool
    conj: bool
    trans_b: bool
    conj_b: bool
    side: str
    lower: bool
    unit: bool


#: Options of the methods that take any, by routine.
ROUTINE_OPTIONS: Final[dict[str, Any]] = {
    "gemv": GemvOptions, "symm": SymmOptions, "syrk": SyrkOptions, "trmm": TrmmOptions, "trsm": TrsmOptions,
    "geam": GemmOptions, "gemm": GemmOptions,
}  # fmt: skip


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class BlasRequest(Request["GpuRef"]):
    """A call of a classic BLAS routine, checked when it is made.

    Parameters
    ----------
    routine : str
        ``axpy`` out += alpha x; ``scal`` ``out *= alpha``; ``dot`` out = sum(x y), with `conj` sum(conj(x) y);
        ``nrm2`` ``out = sqrt(sum(abs(x)**2))``; ``gemv`` out = alpha op(A) x + beta out; ``ger`` out += alpha x y^T,
        with `conj` x y^H; ``symm`` out = alpha A B + beta out, A symmetric (on the right: B A); ``syrk`` out = alpha
        op(A) op(A)^T + beta out, in one triangle, and the other stays as it is; ``trmm`` out = alpha op(A) B, A
        triangular (right: B op(A)); ``trsm`` solves op(A) X = alpha out (right: X op(A) = alpha out), and X replaces
        out; ``geam`` out = alpha op(A) + beta op(B); ``gemm`` out = alpha op(A) op(B) + beta out.
    a, b, x, y
        Operands: matrices of two axes, one of them dense; vectors with any positive stride.  One dtype for all:
        float32, float64, complex64 or complex128.  Axes in front are batches, equal, or broadcast where an operand
        lacks them or has 1; the routine is done for each.
    out
        The result, with all axes of batches; allocated if missing where it is not updated.
    alpha, beta
        Factors; they travel with the message.  Whether `beta` is 0 belongs to the plan, and ``beta=0`` never reads out.
    trans, conj, trans_b, conj_b : bool
        op: the transpose, the conjugate, or both.
    side : str
        ``"left"`` or ``"right"``.
    lower, unit : bool
        Which triangle of A (of out, for ``syrk``) is read; whether its diagonal is taken as ones.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> a, x = device.put(np.eye(3)), device.put(np.arange(3.0))
    >>> device.blas.tell(an.BlasRequest(routine="gemv", a=a, x=x, alpha=2.0)).numpy()
    array([0., 2., 4.])
    """

    routine: str
    a: Any = None
    b: Any = None
    x: Any = None
    y: Any = None
    out: Any = None
    alpha: complex = 1.0
    beta: complex = 0.0
    trans: bool = False
    conj: bool = False
    trans_b: bool = False
    conj_b: bool = False
    side: str = "left"
    lower: bool = True
    unit: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        problem = resolve(self)
        reads = ((name, getattr(self, name)) for name in ROUTINES[self.routine][0])
        operands = [read(name, array) for name, array in reads if array is not None]
        operands.append(written("out", self.out, problem.out, updated=problem.updates))
        is_complex = problem.dtype.kind == "c"
        return Lowered(
            op=f"blas.{self.routine}",
            operands=tuple(operands),
            collect=itemgetter("out"),
            attributes=BlasAttributes(
                dtype=dtype_name(problem.dtype),
                batch=problem.batch,
                adds=bool(self.beta != 0),
                trans=bool(self.trans),
                conj=bool(self.conj),
                trans_b=bool(self.trans_b),
                conj_b=bool(self.conj_b),
                side=self.side,
                lower=bool(self.lower),
                unit=bool(self.unit),
            ),
            scalars=factor_scalars(self.alpha, self.beta, is_complex=is_complex),
            numbers=FACTORS,
            convert=split_factors if is_complex else None,
        )
