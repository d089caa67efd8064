"""The BLAS actor, ``device.blas``: the classic routines of level 1, 2 and 3 that a fused matmul does not cover.

Requests and their rules are `BlasRequest`; the same module serves every kind of device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ..._support.options import check_options
from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import FORMS, ROUTINE
from .request import (
    ROUTINE_OPTIONS,
    BlasOptions,
    BlasRequest,
    GemmOptions,
    GemvOptions,
    SymmOptions,
    SyrkOptions,
    TrmmOptions,
    TrsmOptions,
)

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.plan import Plan

__all__ = ["Blas"]


@public
class Blas(LibraryActor):
    """Vector and matrix routines on one device; messages to it run in order.

    Every method enqueues and returns its result at once: the handle that was given, or a new one, which is its own
    future.  None waits for the device, except that the first call of a structure waits for its plan, and that a full
    mailbox blocks or raises as the System was told.  Parameters and errors are those of `BlasRequest`.

    Examples
    --------
    >>> x, y = device.put(np.arange(3.0)), device.put(np.ones(3))
    >>> device.blas.axpy(x, y, alpha=2.0) is y
    True
    >>> y.numpy()
    array([1., 3., 5.])
    >>> float(device.blas.dot(x, y).numpy())
    13.0
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "blas") -> None:
        super().__init__(device, name)

    def axpy(self, x: GpuRef, y: GpuRef, *, alpha: complex = 1.0) -> GpuRef:
        """Send ``y += alpha * x``; returns y."""
        return self._routine("axpy", x=x, out=y, alpha=alpha)

    def scal(self, x: GpuRef, alpha: complex) -> GpuRef:
        """Send ``x *= alpha``; returns x."""
        return self._routine("scal", out=x, alpha=alpha)

    def dot(self, x: GpuRef, y: GpuRef, *, conj: bool = False, out: GpuRef | None = None) -> GpuRef:
        """Send ``sum(x * y)``, with `conj` ``sum(conj(x) * y)``."""
        return self._routine("dot", x=x, y=y, conj=conj, out=out)

    def nrm2(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the Euclidean norm of x."""
        return self._routine("nrm2", x=x, out=out)

    def gemv(self, a: GpuRef, x: GpuRef, **options: Unpack[GemvOptions]) -> GpuRef:
        """Send ``alpha * op(A) @ x + beta * out``; options: alpha, beta, trans, conj, out."""
        return self._routine("gemv", a=a, x=x, **options)

    def ger(self, x: GpuRef, y: GpuRef, a: GpuRef, *, alpha: complex = 1.0, conj: bool = False) -> GpuRef:
        """Send ``A += alpha * outer(x, y)``, with `conj` ``outer(x, conj(y))``; returns A."""
        return self._routine("ger", x=x, y=y, out=a, alpha=alpha, conj=conj)

    def symm(self, a: GpuRef, b: GpuRef, **options: Unpack[SymmOptions]) -> GpuRef:
        """Send ``alpha * A @ B + beta * out`` with a symmetric A; options: alpha, beta, side, lower, out."""
        return self._routine("symm", a=a, b=b, **options)

    def syrk(self, a: GpuRef, out: GpuRef, **options: Unpack[SyrkOptions]) -> GpuRef:
        """Send ``alpha * op(A) @ op(A).T + beta * out`` into one triangle; options: alpha, beta, trans, lower."""
        return self._routine("syrk", a=a, out=out, **options)

    def trmm(self, a: GpuRef, b: GpuRef, **options: Unpack[TrmmOptions]) -> GpuRef:
        """Send ``alpha * op(A) @ B`` with a triangular A; options: alpha, side, lower, trans, conj, unit, out."""
        return self._routine("trmm", a=a, b=b, **options)

    def trsm(self, a: GpuRef, b: GpuRef, **options: Unpack[TrsmOptions]) -> GpuRef:
        """Solve ``op(A) @ X = alpha * B`` with a triangular A; X replaces B, which is returned.

        Options: alpha, side, lower, trans, conj, unit.
        """
        return self._routine("trsm", a=a, out=b, **options)

    def geam(self, a: GpuRef, b: GpuRef | None = None, **options: Unpack[GemmOptions]) -> GpuRef:
        """Send ``alpha * op(A) + beta * op(B)``; options: alpha, beta, trans, conj, trans_b, conj_b, out."""
        return self._routine("geam", a=a, b=b, **options)

    def gemm(self, a: GpuRef, b: GpuRef, **options: Unpack[GemmOptions]) -> GpuRef:
        """Send ``alpha * op(A) @ op(B) + beta * out``; options: alpha, beta, trans, conj, trans_b, conj_b, out.

        `Device.blas_lt` has the same for more dtypes, with epilogues.
        """
        return self._routine("gemm", a=a, b=b, **options)

    def plan(self, routine: str, **options: Unpack[BlasOptions]) -> Plan:
        """Return the plan of a routine: ``plan.tell(..., out=)``.

        Operands given here lend their layouts only.  `alpha` and `beta` are defaults that each message may replace;
        whether `beta` is 0 is part of the plan.
        """
        check_options("a routine", options, BlasOptions.__optional_keys__)
        return self._plan_of(BlasRequest(routine=routine, **options), handles=True)

    def _routine(
        self,
        routine: str,
        a: Any = None,
        b: Any = None,
        x: Any = None,
        y: Any = None,
        out: Any = None,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        trans: bool = False,
        conj: bool = False,
        trans_b: bool = False,
        conj_b: bool = False,
        side: str = "left",
        lower: bool = True,
        unit: bool = False,
        **unknown: Any,
    ) -> GpuRef:
        if unknown:
            check_options(routine, unknown, ROUTINE_OPTIONS[routine].__optional_keys__)
        made: GpuRef = self._calls.send(
            self, ROUTINE, (a, b, x, y, out, routine, trans, conj, trans_b, conj_b, side, lower, unit, alpha, beta)
        )
        return made
