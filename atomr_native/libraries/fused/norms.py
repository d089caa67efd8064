"""Requests of the fused actor: RMS norm and layer norm, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._support.checks import check_flag
from ..._support.public import public
from ...arrays.operands import check_disjoint
from ...compile.shipped import Part
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, ShippedKernels, read
from .attributes import NormAttributes
from .spec import FLOATS, check_float, check_like, check_number, output

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["NormGradient", "NormGradientRequest", "NormRequest", "NormResult"]

_EPS = 1e-5
_HELD = 8192  # elements of a row that a block keeps, at most


@public
class NormResult(NamedTuple):
    """Outputs of a norm with a residual.

    Attributes
    ----------
    out : GpuRef
        The norm.
    residual : GpuRef
        ``x + residual``, of which it is the norm.

    Examples
    --------
    >>> x, weight = device.put(np.ones((2, 4))), device.put(np.ones(4))
    >>> made = device.fused.rms_norm(x, weight, residual=x)
    >>> float(made.residual.numpy().max())
    2.0
    """

    out: GpuRef
    residual: GpuRef


@public
class NormGradient(NamedTuple):
    """Gradients of a norm.

    Attributes
    ----------
    x : GpuRef
        Of x, and of the residual.
    weight : GpuRef
    bias : GpuRef or None

    Examples
    --------
    >>> x, weight = device.put(np.ones((2, 4))), device.put(np.ones(4))
    >>> made = device.fused.rms_norm_backward(x, x, weight)
    >>> made.x.shape, made.weight.shape, made.bias
    ((2, 4), (4,), None)
    """

    x: GpuRef
    weight: GpuRef
    bias: GpuRef | None = None


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class NormRequest(Request[Any]):
    """A norm over the last axis; checked when it is made.

    Parameters
    ----------
    x
        float32, float16, bfloat16 or float64, of one axis at least.
    weight
        What normed elements are multiplied by, of x's last extent; of any of these dtypes.
    bias
        With `layer`: what is added after that, as `weight`.
    residual
        Added to x first, of its dtype and shape; the sum, rounded to that dtype, is normed and is a result.
    eps : float
        Added to the mean square or the variance.
    layer : bool
        Whether it is a layer norm; else it is an RMS norm.
    out, residual_out
        Where results go; allocated if missing.  `residual_out` may be `x` or `residual` itself.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, weight = device.put(np.array([[1.0, 3.0]])), device.put(np.ones(2))
    >>> request = an.NormRequest(x=x, weight=weight, layer=True, eps=0.0)
    >>> device.fused.tell(request).numpy()
    array([[-1.,  1.]])
    """

    x: Any
    weight: Any
    bias: Any = None
    residual: Any = None
    eps: float = _EPS
    layer: bool = False
    out: Any = None
    residual_out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, shape, weights = _norm(self.x, self.weight, self.layer)
        eps = check_number("eps", self.eps, 0.0, float("inf"))
        inputs: list[Operand] = [read("x", self.x)]
        if self.residual is not None:
            check_like("residual", self.residual, dtype, shape)
            inputs.append(read("residual", self.residual))
        inputs.append(read("weight", self.weight))
        if self.bias is not None:
            if not self.layer:
                raise InvalidRequest("bias goes with layer=True: an RMS norm has none")
            check_like("bias", self.bias, weights, (shape[-1],))
            inputs.append(read("bias", self.bias))
        outputs = [output("out", self.out, dtype, shape, tuple(inputs))]
        if self.residual is not None:
            outputs.append(output("residual_out", self.residual_out, dtype, shape, tuple(inputs), in_place=True))
            if self.out is not None and self.residual_out is not None:
                check_disjoint([("residual_out", self.residual_out)], [("out", self.out)])
        elif self.residual_out is not None:
            raise InvalidRequest("residual_out goes with residual")
        kinds = (("layer", self.layer), ("residual", self.residual is not None), ("biased", self.bias is not None))
        part = Part("norm", (("dtype", dtype), ("weights", weights), *kinds))
        return Lowered(
            op="fused.norm",
            operands=(*inputs, *outputs),
            collect=itemgetter("out") if self.residual is None else _norm_result,
            attributes=NormAttributes(layer=self.layer),
            scalars=(Scalar("eps", "float64", eps),),
            code=ShippedKernels("fused.norms", (part,)),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class NormGradientRequest(Request[NormGradient]):
    """Gradients of a `NormRequest`; checked when it is made.

    Parameters
    ----------
    dy
        Gradient of the norm.
    x
        What was normed: x, or the sum with the residual.
    weight, eps, layer
        As they were.
    biased : bool
        Whether there was a bias, whose gradient is wanted.
    residual
        Gradient of the sum by its other uses, which is added to that of x; of its dtype and shape.
    out, weight_out, bias_out
        Where the gradients go; allocated if missing.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, weight = device.put(np.array([[1.0, 3.0]])), device.put(np.ones(2))
    >>> request = an.NormGradientRequest(dy=x, x=x, weight=weight, layer=True, biased=True)
    >>> device.fused.tell(request).bias.numpy()
    array([1., 3.])
    """

    dy: Any
    x: Any
    weight: Any
    residual: Any = None
    eps: float = _EPS
    layer: bool = False
    biased: bool = False
    out: Any = None
    weight_out: Any = None
    bias_out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, shape, weights = _norm(self.x, self.weight, self.layer)
        eps = check_number("eps", self.eps, 0.0, float("inf"))
        check_like("dy", self.dy, dtype, shape)
        inputs = [read("dy", self.dy), read("x", self.x), read("weight", self.weight)]
        if self.residual is not None:
            check_like("residual", self.residual, dtype, shape)
            inputs.append(read("residual", self.residual))
        if not isinstance(self.biased, bool) or (self.biased and not self.layer):
            raise InvalidRequest(f"biased={self.biased!r}; allowed: False, and with layer=True also True")
        outputs = [
            output("out", self.out, dtype, shape, tuple(inputs)),
            output("weight_out", self.weight_out, weights, (shape[-1],), tuple(inputs)),
        ]
        if self.biased:
            outputs.append(output("bias_out", self.bias_out, weights, (shape[-1],), tuple(inputs)))
        elif self.bias_out is not None:
            raise InvalidRequest("bias_out goes with biased=True")
        check_disjoint([(o.name, o.given) for o in outputs if o.given is not None], [])
        kinds = (("layer", self.layer), ("residual", self.residual is not None))
        biased, types = ("biased", self.biased), (("dtype", dtype), ("weights", weights))
        held = shape[-1] <= _HELD and dtype != "float64"
        parts = (
            *(
                [Part("norm_gradients", (*types, *kinds, biased))]
                if held
                else [Part("norm_backward", (*types, *kinds)), Part("weight_partial", (types[0], biased))]
            ),
            Part("weight_finish", (*types, biased)),
        )
        return Lowered(
            op="fused.norm_backward",
            operands=(*inputs, *outputs),
            collect=_norm_gradient,
            attributes=NormAttributes(layer=self.layer),
            scalars=(Scalar("eps", "float64", eps),),
            code=ShippedKernels("fused.norm_gradients", parts),
        )


def _norm_result(arrays: Mapping[str, Any]) -> NormResult:
    return NormResult(arrays["out"], arrays["residual_out"])


def _norm_gradient(arrays: Mapping[str, Any]) -> NormGradient:
    return NormGradient(arrays["out"], arrays["weight_out"], arrays.get("bias_out"))


def _norm(x: Any, weight: Any, layer: object) -> tuple[str, tuple[int, ...], str]:
    """Return x's dtype and shape and the weight's dtype."""
    dtype = check_float("x", x)
    shape = tuple(x.shape)
    if not shape:
        raise InvalidRequest("x has shape (); allowed: one axis at least")
    check_flag("layer", layer)
    weights = check_float("weight", weight, FLOATS)
    check_like("weight", weight, dtype_name(as_dtype(weight.dtype)), (shape[-1],))
    return dtype, shape, weights
