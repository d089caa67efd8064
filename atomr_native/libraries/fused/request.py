"""Requests of the fused actor for activations, and the names of all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..._support.checks import check_choice, check_flag
from ..._support.public import public
from ...arrays.operands import check_disjoint
from ...compile.shipped import Part
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, ShippedKernels, read
from .attributes import ActivationAttributes
from .norms import NormGradient, NormGradientRequest, NormRequest, NormResult
from .optimizers import AdamWRequest, SgdRequest
from .positions import DropoutRequest, RopeRequest
from .spec import check_float, check_like, output

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = [
    "CURVES",
    "ActivationGradientRequest",
    "ActivationRequest",
    "AdamWRequest",
    "DropoutRequest",
    "GatedGradient",
    "NormGradient",
    "NormGradientRequest",
    "NormRequest",
    "NormResult",
    "RopeRequest",
    "SgdRequest",
]

CURVES: Final = ("silu", "squared_relu", "gelu", "gelu_tanh")


@public
class GatedGradient(NamedTuple):
    """Gradients of a gated activation.

    Attributes
    ----------
    gate : GpuRef
        Of the gate; of both, as one array of twice the last extent, where gate and up came as one.
    up : GpuRef or None

    Examples
    --------
    >>> gate, up = device.put(np.ones((2, 4))), device.put(np.ones((2, 4)))
    >>> made = device.fused.swiglu_backward(up, gate, up)
    >>> made.gate.shape, made.up.shape
    ((2, 4), (2, 4))
    """

    gate: GpuRef
    up: GpuRef | None = None


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRequest(Request["GpuRef"]):
    """``curve(x)``, or with `gated` ``curve(x) * up``; checked when it is made.

    Parameters
    ----------
    x
        float32, float16, bfloat16 or float64, of any shape; the gate, if `gated`.
    curve : str
        ``"silu"``, ``"squared_relu"``, ``"gelu"`` (by erf) or ``"gelu_tanh"``.
    gated : bool
    up
        As x; None if `gated` and x is one array of gate and up, in this order along the last axis.
    out
        Where the result goes, x or up themselves among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> request = an.ActivationRequest(x=device.put(np.array([-1.0, 2.0])), curve="squared_relu")
    >>> device.fused.tell(request).numpy()
    array([0., 4.])
    """

    x: Any
    curve: str = "silu"
    gated: bool = False
    up: Any = None
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, shape, inputs = _activation(self.x, self.up, self.curve, self.gated)
        packed = self.gated and self.up is None
        out = output("out", self.out, dtype, shape, inputs, in_place=not packed)
        options = (("curve", self.curve), ("dtype", dtype), ("gated", self.gated))
        return Lowered(
            op="fused.activate",
            operands=(*inputs, out),
            collect=itemgetter("out"),
            attributes=ActivationAttributes(curve=self.curve, gated=self.gated),
            code=ShippedKernels("fused.activations", (Part("activate", options),)),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationGradientRequest(Request[Any]):
    """Gradients of an `ActivationRequest`, all in one pass; checked when it is made.

    Parameters
    ----------
    dy
        Gradient of the result, of its dtype and shape.
    x, curve, gated, up
        As they were.
    out, up_out
        Where the gradients of x and up go, dy, x and up themselves among others; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, dy = device.put(np.array([-1.0, 2.0])), device.put(np.ones(2))
    >>> request = an.ActivationGradientRequest(dy=dy, x=x, curve="squared_relu")
    >>> device.fused.tell(request).numpy()
    array([0., 4.])
    """

    dy: Any
    x: Any
    curve: str = "silu"
    gated: bool = False
    up: Any = None
    out: Any = None
    up_out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, shape, arrays = _activation(self.x, self.up, self.curve, self.gated)
        check_like("dy", self.dy, dtype, shape)
        inputs = (read("dy", self.dy), *arrays)
        outputs: tuple[Operand, ...] = (output("out", self.out, dtype, tuple(self.x.shape), inputs, in_place=True),)
        if self.up is not None:
            outputs += (output("up_out", self.up_out, dtype, shape, inputs, in_place=True),)
            if self.out is not None and self.up_out is not None:
                check_disjoint([("up_out", self.up_out)], [("out", self.out)])
        elif self.up_out is not None:
            raise InvalidRequest("up_out goes with up; the gradient of gate and up as one array is out")
        options = (("curve", self.curve), ("dtype", dtype), ("gated", self.gated))
        return Lowered(
            op="fused.activate_backward",
            operands=(*inputs, *outputs),
            collect=_gated_gradient if self.gated else itemgetter("out"),
            attributes=ActivationAttributes(curve=self.curve, gated=self.gated),
            code=ShippedKernels("fused.activations", (Part("activate_backward", options),)),
        )


def _gated_gradient(arrays: Mapping[str, Any]) -> GatedGradient:
    return GatedGradient(arrays["out"], arrays.get("up_out"))


def _activation(x: Any, up: Any, curve: str, gated: bool) -> tuple[str, tuple[int, ...], tuple[Operand, ...]]:
    """Return the dtype and shape of a result, and the inputs."""
    check_choice("curve", curve, CURVES)
    check_flag("gated", gated)
    name = "x, the gate," if gated else "x"
    dtype = check_float(name, x)
    shape = tuple(x.shape)
    if up is not None:
        if not gated:
            raise InvalidRequest("up goes with gated=True")
        check_like("up", up, dtype, shape)
        return dtype, shape, (read("x", x), read("up", up))
    if gated:
        if not shape or shape[-1] % 2:
            raise InvalidRequest(f"{name} has shape {shape}; without up the last extent must be even: gate, then up")
        shape = (*shape[:-1], shape[-1] // 2)
    return dtype, shape, (read("x", x),)
