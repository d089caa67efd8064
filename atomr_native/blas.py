"""The BLAS actor, ``device.blas``: the classic routines of level 1, 2 and 3 that a fused matmul does not cover.

Requests and their rules are `BlasRequest`; the same module serves every kind of device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ._blas_spec import ROUTINES, BlasRequest, BlasShape, blas_shape, blas_spec
from ._operands import check_handle
from ._signature import signature_of
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .reply import Reply

__all__ = ["Blas", "BlasRequest", "BlasShape", "blas_shape", "blas_spec"]

_SCALARS = ("alpha", "beta", "alpha_imag", "beta_imag")


def _values(shape: BlasShape, alpha: complex, beta: complex) -> tuple[float, ...]:
    first, second = complex(alpha), complex(beta)
    parts = (first.real, second.real, first.imag, second.imag)
    return parts if shape.dtype.kind == "c" else parts[:2]


class Blas(LibraryActor):
    """Vector and matrix routines on one device; messages to it run in order.

    Every method enqueues and returns its result at once: the handle that was given, or a new one, which is its own
    future.  None waits for the device, except that the first call of a structure waits for its plan, and that a full
    mailbox blocks or raises as the System was told.  Parameters and errors are those of `BlasRequest`.
    """

    def __init__(self, device: Any, name: str = "blas") -> None:
        super().__init__(device, name)

    def axpy(self, x: GpuRef, y: GpuRef, *, alpha: complex = 1.0) -> GpuRef:
        """Send ``y += alpha * x``; returns y."""
        return self.tell(BlasRequest(routine="axpy", x=x, out=y, alpha=alpha))

    def scal(self, x: GpuRef, alpha: complex) -> GpuRef:
        """Send ``x *= alpha``; returns x."""
        return self.tell(BlasRequest(routine="scal", out=x, alpha=alpha))

    def dot(self, x: GpuRef, y: GpuRef, *, conj: bool = False, out: GpuRef | None = None) -> GpuRef:
        """Send ``sum(x * y)``, with `conj` ``sum(conj(x) * y)``."""
        return self.tell(BlasRequest(routine="dot", x=x, y=y, conj=conj, out=out))

    def nrm2(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the Euclidean norm of x."""
        return self.tell(BlasRequest(routine="nrm2", x=x, out=out))

    def gemv(self, a: GpuRef, x: GpuRef, **options: Any) -> GpuRef:
        """Send ``alpha * op(A) @ x + beta * out``; options: alpha, beta, trans, conj, out."""
        return self.tell(BlasRequest(routine="gemv", a=a, x=x, **options))

    def ger(self, x: GpuRef, y: GpuRef, a: GpuRef, *, alpha: complex = 1.0, conj: bool = False) -> GpuRef:
        """Send ``A += alpha * outer(x, y)``, with `conj` ``outer(x, conj(y))``; returns A."""
        return self.tell(BlasRequest(routine="ger", x=x, y=y, out=a, alpha=alpha, conj=conj))

    def symm(self, a: GpuRef, b: GpuRef, **options: Any) -> GpuRef:
        """Send ``alpha * A @ B + beta * out`` with a symmetric A; options: alpha, beta, side, lower, out."""
        return self.tell(BlasRequest(routine="symm", a=a, b=b, **options))

    def syrk(self, a: GpuRef, out: GpuRef, **options: Any) -> GpuRef:
        """Send ``alpha * op(A) @ op(A).T + beta * out`` into one triangle; options: alpha, beta, trans, lower."""
        return self.tell(BlasRequest(routine="syrk", a=a, out=out, **options))

    def trmm(self, a: GpuRef, b: GpuRef, **options: Any) -> GpuRef:
        """Send ``alpha * op(A) @ B`` with a triangular A; options: alpha, side, lower, trans, conj, unit, out."""
        return self.tell(BlasRequest(routine="trmm", a=a, b=b, **options))

    def trsm(self, a: GpuRef, b: GpuRef, **options: Any) -> GpuRef:
        """Solve ``op(A) @ X = alpha * B`` with a triangular A; X replaces B, which is returned.

        Options: alpha, side, lower, trans, conj, unit.
        """
        return self.tell(BlasRequest(routine="trsm", a=a, out=b, **options))

    def geam(self, a: GpuRef, b: GpuRef | None = None, **options: Any) -> GpuRef:
        """Send ``alpha * op(A) + beta * op(B)``; options: alpha, beta, trans, conj, trans_b, conj_b, out."""
        return self.tell(BlasRequest(routine="geam", a=a, b=b, **options))

    def gemm(self, a: GpuRef, b: GpuRef, **options: Any) -> GpuRef:
        """Send ``alpha * op(A) @ op(B) + beta * out``; options: alpha, beta, trans, conj, trans_b, conj_b, out.

        `Device.blas_lt` has the same for more dtypes, with epilogues.
        """
        return self.tell(BlasRequest(routine="gemm", a=a, b=b, **options))

    def plan(self, routine: str, **options: Any) -> Plan:
        """Return the plan of a routine: ``plan.tell(..., out=)``; operands given here lend their layouts only."""
        return self._prepared(BlasRequest(routine=routine, **options))[0]

    def tell(self, request: BlasRequest) -> GpuRef:
        """Send a request and return its result at once."""
        return cast("GpuRef", self._request(request, False))

    def ask(self, request: BlasRequest) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _prepared(self, request: BlasRequest) -> tuple[Plan, BlasShape]:
        shape = blas_shape(request)
        for name in ("a", "b", "x", "y", "out"):
            check_handle(name, getattr(request, name))
        spec = blas_spec(request, shape)
        scalars = _SCALARS[: len(spec.scalars)]
        return self._plan(spec, signature_of(spec, scalars, _values(shape, 1.0, 0.0))), shape

    def _request(self, request: BlasRequest, reply: bool) -> Any:
        plan, shape = self._prepared(request)
        result = request.out if request.out is not None else self._empty(shape.shape, shape.out)
        reads = (getattr(request, name) for name in ROUTINES[request.routine][0])
        refs = (*(ref for ref in reads if ref is not None), result)
        answer = self._send(plan, refs, _values(shape, request.alpha, request.beta), reply, result)
        return answer if reply else result
