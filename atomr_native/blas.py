"""The BLAS actor, ``device.blas``: the classic routines of level 1, 2 and 3 that a fused matmul does not cover.

Requests and their rules are `BlasRequest`; the same module serves every kind of device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from ._blas_spec import ROUTINES, BlasRequest, BlasShape, blas_shape, blas_spec
from ._checks import check_options
from ._messages import Message, form_of, new
from ._operands import check_handle
from ._options import (
    BlasOptions,
    GemmOptions,
    GemvOptions,
    SymmOptions,
    SyrkOptions,
    TrmmOptions,
    TrsmOptions,
)
from ._signature import signature_of
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .reply import Reply

__all__ = ["Blas", "BlasRequest", "BlasShape", "blas_shape", "blas_spec"]

_SCALARS = ("alpha", "beta", "alpha_imag", "beta_imag")
_FORM: Final = form_of(
    BlasRequest, "a b x y out", "routine trans conj trans_b conj_b side lower unit", numbers="alpha beta"
)

#: Options of the methods that have some.
_OPTIONS: Final[dict[str, Any]] = {
    "gemv": GemvOptions, "symm": SymmOptions, "syrk": SyrkOptions, "trmm": TrmmOptions, "trsm": TrsmOptions,
    "geam": GemmOptions, "gemm": GemmOptions,
}  # fmt: skip


def _parts(alpha: complex, beta: complex) -> tuple[float, ...]:
    """Return the scalars of a complex message."""
    first, second = complex(alpha), complex(beta)
    return first.real, second.real, first.imag, second.imag


class Blas(LibraryActor):
    """Vector and matrix routines on one device; messages to it run in order.

    Every method enqueues and returns its result at once: the handle that was given, or a new one, which is its own
    future.  None waits for the device, except that the first call of a structure waits for its plan, and that a full
    mailbox blocks or raises as the System was told.  Parameters and errors are those of `BlasRequest`.
    """

    _forms = {BlasRequest: _FORM}  # noqa: RUF012 - of the base class

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
        """Return the plan of a routine: ``plan.tell(..., out=)``; operands given here lend their layouts only."""
        check_options("a routine", options, BlasOptions.__optional_keys__)
        return self._prepared(BlasRequest(routine=routine, **options))[0]

    def tell(self, request: BlasRequest) -> GpuRef:
        """Send a request and return its result at once."""
        return cast("GpuRef", self._request(request, False))

    def ask(self, request: BlasRequest) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

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
            check_options(routine, unknown, _OPTIONS[routine].__optional_keys__)
        made: GpuRef = self._calls.send(
            self, _FORM, (a, b, x, y, out, routine, trans, conj, trans_b, conj_b, side, lower, unit, alpha, beta)
        )
        return made

    def _prepared(self, request: BlasRequest) -> tuple[Plan, BlasShape]:
        shape = blas_shape(request)
        for name in ("a", "b", "x", "y", "out"):
            check_handle(name, getattr(request, name))
        spec = blas_spec(request, shape)
        count = len(spec.scalars)
        return self._plan(spec, signature_of(spec, _SCALARS[:count], (1.0, 0.0, 0.0, 0.0)[:count])), shape

    def _message(self, request: BlasRequest) -> Message:
        plan, shape = self._prepared(request)
        result = request.out if request.out is not None else new(shape.shape, shape.out)
        reads = (getattr(request, name) for name in ROUTINES[request.routine][0])
        operands = (*(ref for ref in reads if ref is not None), result)
        return Message(plan, operands, result, ("alpha", "beta"), _parts if shape.dtype.kind == "c" else None)
