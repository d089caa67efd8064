"""Requests of activations and their gradients, and activations as parts of other graphs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..._support.checks import check_choice
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .draft import Draft
from .spec import ACTIVATIONS, FLOATS, check_given, dtype_of, fresh_of

__all__ = ["ActivationFunctionGradientRequest", "ActivationFunctionRequest", "activated", "check_activation"]


def check_activation(activation: object) -> None:
    """Refuse what is neither None nor an activation."""
    if activation is not None:
        check_choice("activation", activation, ACTIVATIONS)


def _parameters(activation: str) -> dict[str, float]:
    """Return the numbers of an activation's descriptor, so that no version's defaults matter."""
    named = {"elu": "elu_alpha", "softplus": "softplus_beta", "silu": "swish_beta"}
    return {named[activation]: 1.0} if activation in named else {}


def activated(draft: Draft, activation: str, x: int, *, to: int, compute: str) -> int:
    """Add an activation of a tensor; returns its result."""
    mode = f"{ACTIVATIONS[activation]}_fwd"
    return draft.pointwise(mode, x, to=to, compute=compute, reals=_parameters(activation))


def _compute(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationFunctionRequest(Request[Any]):
    """An activation of each element, checked when it is made.

    Parameters
    ----------
    x : GpuRef
        float16, bfloat16, float32 or float64, of any shape and strides; narrow types are computed in float32.
    activation : str
        ``relu``, ``gelu``, ``gelu_tanh``, ``silu``, ``sigmoid``, ``tanh``, ``elu`` or ``softplus``.
    out : GpuRef, optional
        Where the result goes, of x's shape and dtype.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([-1.0, 0.0, 2.0]))
    >>> device.cudnn.tell(an.ActivationFunctionRequest(x=x, activation="relu")).numpy()
    array([0., 0., 2.])
    """

    x: Any
    activation: str
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("activation", self.activation, ACTIVATIONS)
        dtype = dtype_of("x", self.x, FLOATS)
        fresh = fresh_of(self.x.shape, dtype)
        check_given([("out", self.out, fresh)], [("x", self.x)])
        draft = Draft()
        x = draft.whole(draft.read("x", self.x))
        out = draft.whole(draft.write("out", self.out, fresh))
        activated(draft, self.activation, x, to=out, compute=_compute(dtype))
        return draft.lowered("cudnn.activation", itemgetter("out"))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationFunctionGradientRequest(Request[Any]):
    """The gradient of an activation by its input: ``dy * activation'(x)``, checked when it is made.

    Parameters
    ----------
    dy : GpuRef
        The gradient by the activation's result, of x's shape and dtype.
    x : GpuRef
        The activation's input.
    activation, out
        As in `ActivationFunctionRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> dy, x = device.put(np.array([1.0, 1.0, 1.0])), device.put(np.array([-1.0, 0.0, 2.0]))
    >>> device.cudnn.tell(an.ActivationFunctionGradientRequest(dy=dy, x=x, activation="relu")).numpy()
    array([0., 0., 1.])
    """

    dy: Any
    x: Any
    activation: str
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("activation", self.activation, ACTIVATIONS)
        dtype = dtype_of("x", self.x, FLOATS)
        dtype_of("dy", self.dy, (dtype,))
        if tuple(self.dy.shape) != tuple(self.x.shape):
            raise InvalidRequest(f"dy has shape {tuple(self.dy.shape)}; allowed: {tuple(self.x.shape)}, that of x")
        fresh = fresh_of(self.x.shape, dtype)
        check_given([("out", self.out, fresh)], [("dy", self.dy), ("x", self.x)])
        draft = Draft()
        dy = draft.whole(draft.read("dy", self.dy))
        x = draft.whole(draft.read("x", self.x))
        out = draft.whole(draft.write("out", self.out, fresh))
        draft.node(
            "pointwise",
            {"dy": dy, "x": x, "dx": out},
            mode=f"{ACTIVATIONS[self.activation]}_bwd",
            compute=_compute(dtype),
            reals=_parameters(self.activation),
        )
        return draft.lowered("cudnn.activation_backward", itemgetter("out"))
