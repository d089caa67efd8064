"""The fused actor, ``device.fused``: operations of training and inference that each are one pass over memory.

Requests and their rules are in `ActivationRequest` and its like; docs/fused.md has the formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from . import kernels
from ._fused_norms import NormGradient, NormGradientRequest, NormRequest, NormResult
from ._fused_optimizers import AdamWRequest, SgdRequest
from ._fused_positions import DropoutRequest, RopeRequest
from ._fused_spec import ActivationGradientRequest, ActivationRequest, GatedGradient, Made
from ._operands import check_handle
from .dtypes import DTYPES
from .errors import InvalidRequest
from .library_actor import LibraryActor

if TYPE_CHECKING:
    from .gpu_ref import GpuRef
    from .plan import Plan
    from .plan_spec import PlanSpec
    from .reply import Reply

__all__ = [
    "ActivationGradientRequest",
    "ActivationRequest",
    "AdamWRequest",
    "DropoutRequest",
    "Fused",
    "GatedGradient",
    "NormGradient",
    "NormGradientRequest",
    "NormRequest",
    "NormResult",
    "RopeRequest",
    "SgdRequest",
]

Request = (
    ActivationRequest
    | ActivationGradientRequest
    | AdamWRequest
    | DropoutRequest
    | NormGradientRequest
    | NormRequest
    | RopeRequest
    | SgdRequest
)


class Fused(LibraryActor):
    """Fused operations on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the handles that were given, or new ones, which are their own
    futures.  None waits for the device, except that the first call of a structure waits for its kernels and its plan,
    and that a full mailbox blocks or raises as the System was told.  All raise `InvalidRequest` before anything is
    enqueued, `Unsupported`, `LibraryError`, `OutOfMemory` and `MailboxFull`.
    """

    def __init__(self, device: Any, name: str = "fused") -> None:
        super().__init__(device, name)

    # ------------------------------------------------------------------------------------------ activations

    def silu(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``x * sigmoid(x)``; see `ActivationRequest`."""
        return cast("GpuRef", self.tell(ActivationRequest(x=x, out=out)))

    def silu_backward(self, dy: GpuRef, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the gradient of `silu` by x; see `ActivationGradientRequest`."""
        return cast("GpuRef", self.tell(ActivationGradientRequest(dy=dy, x=x, out=out)))

    def squared_relu(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``max(x, 0)**2``; see `ActivationRequest`."""
        return cast("GpuRef", self.tell(ActivationRequest(x=x, curve="squared_relu", out=out)))

    def squared_relu_backward(self, dy: GpuRef, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the gradient of `squared_relu` by x; see `ActivationGradientRequest`."""
        return cast("GpuRef", self.tell(ActivationGradientRequest(dy=dy, x=x, curve="squared_relu", out=out)))

    def swiglu(self, gate: GpuRef, up: GpuRef | None = None, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``silu(gate) * up``; without `up`, `gate` is one array of both along the last axis.

        See `ActivationRequest`.
        """
        return cast("GpuRef", self.tell(ActivationRequest(x=gate, up=up, gated=True, out=out)))

    def swiglu_backward(
        self,
        dy: GpuRef,
        gate: GpuRef,
        up: GpuRef | None = None,
        *,
        out: GpuRef | None = None,
        up_out: GpuRef | None = None,
    ) -> GatedGradient:
        """Send both gradients of `swiglu`; see `ActivationGradientRequest`."""
        request = ActivationGradientRequest(dy=dy, x=gate, up=up, gated=True, out=out, up_out=up_out)
        return cast("GatedGradient", self.tell(request))

    def geglu(
        self, gate: GpuRef, up: GpuRef | None = None, *, approximate: str = "none", out: GpuRef | None = None
    ) -> GpuRef:
        """Send ``gelu(gate) * up``, as `swiglu`: by erf, or with `approximate` ``"tanh"``."""
        request = ActivationRequest(x=gate, up=up, gated=True, curve=_gelu(approximate), out=out)
        return cast("GpuRef", self.tell(request))

    def geglu_backward(
        self,
        dy: GpuRef,
        gate: GpuRef,
        up: GpuRef | None = None,
        *,
        approximate: str = "none",
        out: GpuRef | None = None,
        up_out: GpuRef | None = None,
    ) -> GatedGradient:
        """Send both gradients of `geglu`; see `ActivationGradientRequest`."""
        request = ActivationGradientRequest(
            dy=dy, x=gate, up=up, gated=True, curve=_gelu(approximate), out=out, up_out=up_out
        )
        return cast("GatedGradient", self.tell(request))

    # ------------------------------------------------------------------------------------------ norms

    def rms_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        residual: GpuRef | None = None,
        eps: float = 1e-5,
        *,
        out: GpuRef | None = None,
        residual_out: GpuRef | None = None,
    ) -> Any:
        """Send ``weight * x / sqrt(mean(x**2) + eps)`` over the last axis, of ``x + residual`` if that is given.

        Returns the norm, and with `residual` a `NormResult`.  See `NormRequest`.
        """
        request = NormRequest(x=x, weight=weight, residual=residual, eps=eps, out=out, residual_out=residual_out)
        return self.tell(request)

    def rms_norm_backward(
        self, dy: GpuRef, x: GpuRef, weight: GpuRef, residual: GpuRef | None = None, eps: float = 1e-5, **out: Any
    ) -> NormGradient:
        """Send the gradients of `rms_norm`; see `NormGradientRequest`, also for the outputs in `out`."""
        request = NormGradientRequest(dy=dy, x=x, weight=weight, residual=residual, eps=eps, **out)
        return cast("NormGradient", self.tell(request))

    def layer_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        bias: GpuRef | None = None,
        residual: GpuRef | None = None,
        eps: float = 1e-5,
        *,
        out: GpuRef | None = None,
        residual_out: GpuRef | None = None,
    ) -> Any:
        """Send ``weight * (x - mean(x)) / sqrt(var(x) + eps) + bias`` over the last axis, as `rms_norm`."""
        request = NormRequest(
            x=x, weight=weight, bias=bias, residual=residual, eps=eps, layer=True, out=out, residual_out=residual_out
        )
        return self.tell(request)

    def layer_norm_backward(
        self,
        dy: GpuRef,
        x: GpuRef,
        weight: GpuRef,
        residual: GpuRef | None = None,
        eps: float = 1e-5,
        *,
        biased: bool = True,
        **out: Any,
    ) -> NormGradient:
        """Send the gradients of `layer_norm`; see `NormGradientRequest`, also for the outputs in `out`."""
        request = NormGradientRequest(
            dy=dy, x=x, weight=weight, residual=residual, eps=eps, layer=True, biased=biased, **out
        )
        return cast("NormGradient", self.tell(request))

    # ------------------------------------------------------------------------------------------ optimizers

    def adamw(
        self, param: GpuRef, grad: GpuRef, m: GpuRef, v: GpuRef, *, step: int, master: GpuRef | None = None,
        **numbers: float,
    ) -> GpuRef:  # fmt: skip
        """Send a step of AdamW in place, and return `param`; `numbers` are those of `AdamWRequest`."""
        request = AdamWRequest(param=param, grad=grad, m=m, v=v, step=step, master=master, **numbers)
        return cast("GpuRef", self.tell(request))

    def sgd_momentum(
        self, param: GpuRef, grad: GpuRef, m: GpuRef, *, nesterov: bool = False, master: GpuRef | None = None,
        **numbers: float,
    ) -> GpuRef:  # fmt: skip
        """Send a step of SGD with momentum in place, and return `param`; `numbers` are those of `SgdRequest`."""
        request = SgdRequest(param=param, grad=grad, m=m, nesterov=nesterov, master=master, **numbers)
        return cast("GpuRef", self.tell(request))

    # ------------------------------------------------------------------------------------------ places

    def rope(
        self,
        x: GpuRef,
        positions: GpuRef,
        theta: float = 10000.0,
        *,
        interleaved: bool = False,
        inverse: bool = False,
        out: GpuRef | None = None,
    ) -> GpuRef:
        """Send the rotary embedding of x, or with `inverse` the way back, which is its gradient; see `RopeRequest`."""
        request = RopeRequest(x=x, positions=positions, theta=theta, interleaved=interleaved, inverse=inverse, out=out)
        return cast("GpuRef", self.tell(request))

    def dropout(self, x: GpuRef, p: float, seed: int, offset: int = 0, *, out: GpuRef | None = None) -> GpuRef:
        """Send dropout; the same call on the result's gradient is its gradient.  See `DropoutRequest`."""
        return cast("GpuRef", self.tell(DropoutRequest(x=x, p=p, seed=seed, offset=offset, out=out)))

    # ------------------------------------------------------------------------------------------ messages

    def plan(self, request: Request) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts only.

        ``plan.tell(x, out=y)``: what is read by position, what is written by the names of the request's fields, scalars
        by name, with the request's values where a call has none.  Waits for the compiler, not for the worker.
        """
        made = _made(request)
        spec = self._spec(made)
        return self._plan(spec, made.signature(spec, [number for _, _, number in made.scalars]))

    def tell(self, request: Request) -> Any:
        """Send a request and return its result at once."""
        return self._request(request, False)

    def ask(self, request: Request) -> Reply:
        """Send a request and return its reply, whose value is what `tell` returns."""
        return cast("Reply", self._request(request, True))

    def _spec(self, made: Made) -> PlanSpec:
        if self.device.name == "host":
            return made.spec()
        code = kernels.machine_code(made.module, made.parts, self.device._compute_capability())
        return made.spec((("entries", code.entries), ("code", code.code)))

    def _request(self, request: Request, reply: bool) -> Any:
        made = _made(request)
        for operand in made.operands:
            check_handle(operand.name, operand.given)
        spec = self._spec(made)
        plan = self._plan(spec, made.signature(spec))
        refs = {o.name: self._empty(o.shape, DTYPES[o.dtype]) if o.given is None else o.given for o in made.operands}
        result = made.collect(refs)
        answer = self._send(plan, tuple(refs.values()), tuple(s[2] for s in made.scalars), reply, result)
        return answer if reply else result


def _made(request: object) -> Made:
    if not isinstance(request, Request):
        allowed = ", ".join(kind.__name__ for kind in get_args(Request))
        raise InvalidRequest(f"{type(request).__name__} is no request of Fused; allowed: {allowed}")
    return request.made()


def _gelu(approximate: str) -> str:
    if approximate not in ("none", "tanh"):
        raise InvalidRequest(f"approximate={approximate!r}; allowed: 'none', 'tanh'")
    return "gelu" if approximate == "none" else "gelu_tanh"
