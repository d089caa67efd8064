"""The fused actor, ``device.fused``: operations of training and inference, each one pass over memory.

Requests and their rules are in `ActivationRequest` and its like; docs/libraries/fused.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..._support.checks import check_choice
from ..._support.public import public
from ...plans.actor import LibraryActor
from .forms import ACTIVATION, ACTIVATION_GRADIENT, ADAMW, DROPOUT, FORMS, NORM, NORM_GRADIENT, ROPE, SGD
from .list_forms import ADAMW_LIST, COLLECTIONS, SGD_LIST, list_values
from .optimizer_lists import AdamWListRequest, SgdListRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...plans.lowering import Request
    from ...plans.plan import Plan
    from .request import GatedGradient, NormGradient, NormResult

__all__ = ["Fused"]

#: A collection of parameters.
_Arrays = TypeVar("_Arrays", bound="Sequence[GpuRef] | Mapping[Any, GpuRef]")


@public
class Fused(LibraryActor):
    """Fused operations on one device; messages to it run in order.

    Every method enqueues and returns its results at once: the handles that were given, or new ones, which are their own
    futures.  None waits for the device, except that the first call of a structure waits for its kernels and its plan,
    and that a full mailbox blocks or raises as the System was told.  All raise `InvalidRequest` before anything is
    enqueued, `Unsupported`, `LibraryError`, `OutOfMemory` and `MailboxFull`.  Elements of activations are float32,
    float16, bfloat16 or float64, of any shape; ``out=`` says where a result goes, an input itself among others.
    Methods with ``_backward`` take the gradient of the result first, of its dtype and shape, and then what that took.

    Examples
    --------
    >>> x, weight = device.put(np.array([[3.0, 4.0]])), device.put(np.ones(2))
    >>> device.fused.rms_norm(x, weight, eps=0.5).numpy().round(3)
    array([[0.832, 1.109]])
    >>> device.fused.squared_relu(x, out=x) is x
    True
    >>> x.numpy()
    array([[ 9., 16.]])
    """

    _forms = FORMS

    def __init__(self, device: Any, name: str = "fused") -> None:
        super().__init__(device, name)

    # ------------------------------------------------------------------------------------------ activations

    def silu(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``x * sigmoid(x)``; see `ActivationRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION, (x, None, out, "silu", False))
        return made

    def silu_backward(self, dy: GpuRef, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the gradient of `silu` by x; see `ActivationGradientRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION_GRADIENT, (dy, x, None, out, None, "silu", False))
        return made

    def squared_relu(self, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``max(x, 0)**2``; see `ActivationRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION, (x, None, out, "squared_relu", False))
        return made

    def squared_relu_backward(self, dy: GpuRef, x: GpuRef, *, out: GpuRef | None = None) -> GpuRef:
        """Send the gradient of `squared_relu` by x; see `ActivationGradientRequest`."""
        made: GpuRef = self._calls.send(self, ACTIVATION_GRADIENT, (dy, x, None, out, None, "squared_relu", False))
        return made

    def swiglu(self, gate: GpuRef, up: GpuRef | None = None, *, out: GpuRef | None = None) -> GpuRef:
        """Send ``silu(gate) * up``; without `up`, `gate` is one array of both along the last axis.

        See `ActivationRequest`.
        """
        made: GpuRef = self._calls.send(self, ACTIVATION, (gate, up, out, "silu", True))
        return made

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
        made: GatedGradient = self._calls.send(self, ACTIVATION_GRADIENT, (dy, gate, up, out, up_out, "silu", True))
        return made

    def geglu(
        self, gate: GpuRef, up: GpuRef | None = None, *, approximate: str = "none", out: GpuRef | None = None
    ) -> GpuRef:
        """Send ``gelu(gate) * up``, as `swiglu`: by erf, or with `approximate` ``"tanh"``."""
        made: GpuRef = self._calls.send(self, ACTIVATION, (gate, up, out, _gelu(approximate), True))
        return made

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
        made: GatedGradient = self._calls.send(
            self, ACTIVATION_GRADIENT, (dy, gate, up, out, up_out, _gelu(approximate), True)
        )
        return made

    # ------------------------------------------------------------------------------------------ norms

    @overload
    def rms_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        residual: None = None,
        eps: float = ...,
        *,
        out: GpuRef | None = ...,
        residual_out: None = ...,
    ) -> GpuRef: ...
    @overload
    def rms_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        residual: GpuRef,
        eps: float = ...,
        *,
        out: GpuRef | None = ...,
        residual_out: GpuRef | None = ...,
    ) -> NormResult: ...

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

        Parameters
        ----------
        x : GpuRef
            float32, float16, bfloat16 or float64, of one axis at least.
        weight : GpuRef
            Of x's last extent, and of any of these dtypes.
        residual : GpuRef, optional
            Of x's dtype and shape.
        eps : float
            0 or more.
        out, residual_out : GpuRef, optional
            Where the norm and the sum go; `residual_out` may be `x` or `residual` itself.

        Returns
        -------
        GpuRef or NormResult
            The norm; with `residual` also the sum.
        """
        return self._calls.send(self, NORM, (x, weight, None, residual, out, residual_out, False, eps))

    def rms_norm_backward(
        self,
        dy: GpuRef,
        x: GpuRef,
        weight: GpuRef,
        residual: GpuRef | None = None,
        eps: float = 1e-5,
        *,
        out: GpuRef | None = None,
        weight_out: GpuRef | None = None,
    ) -> NormGradient:
        """Send the gradients of `rms_norm`.

        Parameters
        ----------
        dy : GpuRef
            Gradient of the norm, of x's dtype and shape.
        x : GpuRef
            What was normed: with a residual the sum.
        weight, eps
            As they were.
        residual : GpuRef, optional
            Gradient of the sum by its other uses, which is added to that of x.
        out, weight_out : GpuRef, optional
            Where the gradients of x and weight go.
        """
        made: NormGradient = self._calls.send(
            self, NORM_GRADIENT, (dy, x, weight, residual, out, weight_out, None, False, False, eps)
        )
        return made

    @overload
    def layer_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        bias: GpuRef | None = ...,
        residual: None = None,
        eps: float = ...,
        *,
        out: GpuRef | None = ...,
        residual_out: None = ...,
    ) -> GpuRef: ...
    @overload
    def layer_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        bias: GpuRef | None = ...,
        *,
        residual: GpuRef,
        eps: float = ...,
        out: GpuRef | None = ...,
        residual_out: GpuRef | None = ...,
    ) -> NormResult: ...
    @overload
    def layer_norm(
        self,
        x: GpuRef,
        weight: GpuRef,
        bias: GpuRef | None,
        residual: GpuRef,
        eps: float = ...,
        *,
        out: GpuRef | None = ...,
        residual_out: GpuRef | None = ...,
    ) -> NormResult: ...

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
        """Send ``weight * (x - mean(x)) / sqrt(var(x) + eps) + bias`` over the last axis, as `rms_norm`.

        `bias` has dtype and shape of `weight`; without it nothing is added.  The other parameters, and what is
        returned, are those of `rms_norm`.
        """
        return self._calls.send(self, NORM, (x, weight, bias, residual, out, residual_out, True, eps))

    def layer_norm_backward(
        self,
        dy: GpuRef,
        x: GpuRef,
        weight: GpuRef,
        residual: GpuRef | None = None,
        eps: float = 1e-5,
        *,
        biased: bool = True,
        out: GpuRef | None = None,
        weight_out: GpuRef | None = None,
        bias_out: GpuRef | None = None,
    ) -> NormGradient:
        """Send the gradients of `layer_norm`, as `rms_norm_backward`.

        With `biased`, the default, that of the bias is among them, and goes to `bias_out` where that is given.
        """
        made: NormGradient = self._calls.send(
            self, NORM_GRADIENT, (dy, x, weight, residual, out, weight_out, bias_out, True, biased, eps)
        )
        return made

    # ------------------------------------------------------------------------------------------ optimizers

    @overload
    def adamw(
        self,
        param: GpuRef,
        grad: GpuRef,
        m: GpuRef,
        v: GpuRef,
        *,
        step: int,
        master: GpuRef | None = ...,
        lr: float = ...,
        beta1: float = ...,
        beta2: float = ...,
        eps: float = ...,
        weight_decay: float = ...,
    ) -> GpuRef: ...
    @overload
    def adamw(
        self,
        param: _Arrays,
        grad: Sequence[GpuRef] | Mapping[Any, GpuRef],
        m: Sequence[GpuRef] | Mapping[Any, GpuRef],
        v: Sequence[GpuRef] | Mapping[Any, GpuRef],
        *,
        step: int,
        master: Sequence[GpuRef | None] | Mapping[Any, GpuRef] | None = ...,
        lr: float = ...,
        beta1: float = ...,
        beta2: float = ...,
        eps: float = ...,
        weight_decay: float = ...,
    ) -> _Arrays: ...

    def adamw(
        self,
        param: Any,
        grad: Any,
        m: Any,
        v: Any,
        *,
        step: int,
        master: Any = None,
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> Any:
        """Send a step of AdamW in place, and return `param`.

        Lists, tuples or dicts of arrays are one message with many parameters: see `AdamWListRequest`.

        Parameters
        ----------
        param : GpuRef, or list, tuple or dict of GpuRef
            float32, or bfloat16 with `master`; all arrays of a parameter are contiguous and of its shape.
        grad : GpuRef, or collection as `param`
            float32, float16, bfloat16 or float64.
        m, v : GpuRef, or collection as `param`
            Running means of the gradient and of its square; float32, zeros in the beginning.
        step : int
            Number of this step, from 1 on.
        master : GpuRef, or collection as `param`, optional
            float32 weights of a bfloat16 `param`, which is then their rounding.  None in a list, or a key that is
            missing in a dict, stands for a parameter without them.
        lr, eps, weight_decay : float
            0 or more.
        beta1, beta2 : float
            From 0 to less than 1.
        """
        if isinstance(param, COLLECTIONS):
            lists = {"param": param, "grad": grad, "m": m, "v": v}
            numbers = {
                "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay, "step": step
            }  # fmt: skip
            self._calls.send(self, ADAMW_LIST, list_values(AdamWListRequest, lists, master, numbers))
            return param
        return self._calls.send(self, ADAMW, (param, grad, m, v, master, lr, beta1, beta2, eps, weight_decay, step))

    @overload
    def sgd_momentum(
        self,
        param: GpuRef,
        grad: GpuRef,
        m: GpuRef,
        *,
        nesterov: bool = ...,
        master: GpuRef | None = ...,
        lr: float = ...,
        momentum: float = ...,
        weight_decay: float = ...,
    ) -> GpuRef: ...
    @overload
    def sgd_momentum(
        self,
        param: _Arrays,
        grad: Sequence[GpuRef] | Mapping[Any, GpuRef],
        m: Sequence[GpuRef] | Mapping[Any, GpuRef],
        *,
        nesterov: bool = ...,
        master: Sequence[GpuRef | None] | Mapping[Any, GpuRef] | None = ...,
        lr: float = ...,
        momentum: float = ...,
        weight_decay: float = ...,
    ) -> _Arrays: ...

    def sgd_momentum(
        self,
        param: Any,
        grad: Any,
        m: Any,
        *,
        nesterov: bool = False,
        master: Any = None,
        lr: float = 1e-2,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> Any:
        """Send a step of SGD with momentum in place, and return `param`.

        Lists, tuples or dicts of arrays are one message with many parameters: see `SgdListRequest`.

        Parameters
        ----------
        param, grad, master
            As for `adamw`.
        m : GpuRef, or collection as `param`
            The momentum; float32, zeros in the beginning.
        nesterov : bool
            Whether the step looks ahead.
        lr, weight_decay : float
            0 or more.
        momentum : float
            From 0 to 1.
        """
        if isinstance(param, COLLECTIONS):
            lists = {"param": param, "grad": grad, "m": m}
            options = {"nesterov": nesterov, "lr": lr, "momentum": momentum, "weight_decay": weight_decay}
            self._calls.send(self, SGD_LIST, list_values(SgdListRequest, lists, master, options))
            return param
        return self._calls.send(self, SGD, (param, grad, m, master, nesterov, lr, momentum, weight_decay))

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
        """Send the rotary embedding of x, or with `inverse` the way back, which is its gradient.

        Parameters
        ----------
        x : GpuRef
            float32, float16 or bfloat16 of (..., tokens, heads, head dimension), the last one even.
        positions : GpuRef
            int32 or int64, contiguous: of x's shape without the last two axes, or without some of the first ones too.
        theta : float
            Base of the angles' wavelengths, above 0.
        interleaved : bool
            Whether pairs are neighbours; else element i goes with the one half of the head dimension later.
        inverse : bool
        out : GpuRef, optional
            Where the result goes, x itself among others.
        """
        made: GpuRef = self._calls.send(self, ROPE, (x, positions, out, interleaved, inverse, theta))
        return made

    def dropout(self, x: GpuRef, p: float, seed: int, offset: int = 0, *, out: GpuRef | None = None) -> GpuRef:
        """Send dropout; the same call on the result's gradient is its gradient.

        Parameters
        ----------
        x : GpuRef
            float32, float16, bfloat16 or float64, of any shape.
        p : float
            Probability with which an element becomes 0, from 0 to 1; the others are multiplied by ``1 / (1 - p)``.
        seed : int
            Key of the generator, from 0 to 2**63 - 1.
        offset : int
            First counter, from 0 to 2**62 - 1; x uses ``ceil(x.size / 8)``: a program's next step adds as many.
        out : GpuRef, optional
            Where the result goes, x itself among others.
        """
        made: GpuRef = self._calls.send(self, DROPOUT, (x, out, p, seed, offset))
        return made

    # ------------------------------------------------------------------------------------------ messages

    def plan(self, request: Request[Any]) -> Plan:
        """Return the plan of a request, whose arrays lend their layouts only.

        ``plan.tell(x, out=y)``: what is read by position, what is written by the names of the request's fields, scalars
        by name, with the request's values where a call has none, and not held against a request's limits.  Dropout's p
        is two of them: ``threshold``, ``round(p * 2**32)``, and ``scale``, ``1 / (1 - p)``.  Waits for the compiler,
        not for the worker.
        """
        if not isinstance(request, tuple(self._forms)):
            raise self._refused(request)
        return self._plan_of(request)


def _gelu(approximate: str) -> str:
    check_choice("approximate", approximate, ("none", "tanh"))
    return "gelu" if approximate == "none" else "gelu_tanh"
