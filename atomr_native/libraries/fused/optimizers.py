"""Requests of the fused actor: steps of AdamW and of SGD with momentum, in place."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ..._support.checks import as_integer, check_flag
from ..._support.public import public
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output, is_contiguous
from ...compile.shipped import Part
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Operand, Request, Scalar, ShippedKernels, read, written
from .attributes import SgdAttributes, ShippedAttributes
from .spec import FLOATS, check_number

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef  # noqa: F401 - the result of requests

__all__ = ["AdamWRequest", "SgdRequest", "adamw_scalars", "sgd_scalars", "state_operands"]

_INFINITY: Final = float("inf")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class AdamWRequest(Request["GpuRef"]):
    """One step of AdamW, in place; checked when it is made.

    ``m = beta1 * m + (1 - beta1) * g``, ``v = beta2 * v + (1 - beta2) * g**2``, and ``param -= lr * (m / (1 -
    beta1**step) / (sqrt(v / (1 - beta2**step)) + eps) + weight_decay * param)``: Algorithm 2 of Loshchilov and Hutter,
    "Decoupled Weight Decay Regularization" (2019).  Arrays are contiguous and of one shape.  Numbers travel in the
    message: changing them costs nothing.

    Parameters
    ----------
    param
        float32, or bfloat16 with `master`.
    grad
        float32, float16, bfloat16 or float64.
    m, v
        Running means of the gradient and of its square; float32, zeros in the beginning.
    step : int
        Number of this step, from 1 on.
    lr, beta1, beta2, eps, weight_decay : float
    master
        float32 weights of a bfloat16 `param`, which is then their rounding.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> param, grad = device.put(np.ones(2, "float32")), device.put(np.ones(2, "float32"))
    >>> m, v = device.zeros((2,), "float32"), device.zeros((2,), "float32")
    >>> request = an.AdamWRequest(param=param, grad=grad, m=m, v=v, step=1, lr=0.5, weight_decay=0.0)
    >>> device.fused.tell(request).numpy()
    array([0.5, 0.5], dtype=float32)
    """

    param: Any
    grad: Any
    m: Any
    v: Any
    step: int
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    master: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, gradient, operands = state_operands(self.param, self.grad, {"m": self.m, "v": self.v}, self.master)
        options = (("dtype", dtype), ("gradient", gradient), ("master", self.master is not None))
        return Lowered(
            op="fused.adamw",
            operands=operands,
            collect=itemgetter("param"),
            attributes=ShippedAttributes(),
            scalars=adamw_scalars(self),
            code=ShippedKernels("fused.optimizers", (Part("adamw", options),)),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SgdRequest(Request["GpuRef"]):
    """One step of SGD with momentum, in place; checked when it is made.

    ``m = momentum * m + g; param -= lr * (m + weight_decay * param)``, with `nesterov` ``g + momentum * m`` in the
    place of m.  The decay is decoupled, as AdamW's: it is no part of the momentum, as it is in ``torch.optim.SGD``.

    Parameters
    ----------
    param, grad, master
        As for `AdamWRequest`.
    m
        The momentum; float32, zeros in the beginning.
    lr, momentum, weight_decay : float
        Travel in the message: changing them costs nothing.
    nesterov : bool
        Whether the step looks ahead.

    Raises
    ------
    InvalidRequest
        For what cannot work; the message names the value and the allowed ones.

    Examples
    --------
    >>> param, grad, m = (device.put(np.ones(2, "float32")) for _ in range(3))
    >>> device.fused.tell(an.SgdRequest(param=param, grad=grad, m=m, lr=0.5, momentum=1.0)).numpy()
    array([0., 0.], dtype=float32)
    """

    param: Any
    grad: Any
    m: Any
    lr: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False
    master: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype, gradient, operands = state_operands(self.param, self.grad, {"m": self.m}, self.master)
        check_flag("nesterov", self.nesterov)
        options = (("dtype", dtype), ("gradient", gradient), ("master", self.master is not None))
        return Lowered(
            op="fused.sgd",
            operands=operands,
            collect=itemgetter("param"),
            attributes=SgdAttributes(nesterov=self.nesterov),
            scalars=sgd_scalars(self),
            code=ShippedKernels("fused.optimizers", (Part("sgd", (*options, ("nesterov", self.nesterov))),)),
        )


def adamw_scalars(request: Any) -> tuple[Scalar, ...]:
    """Check and return the numbers of a step of AdamW."""
    step = as_integer("step", request.step, 1, 2**53 - 1)
    numbers = (
        ("lr", check_number("lr", request.lr, 0.0, _INFINITY)),
        ("beta1", check_number("beta1", request.beta1, 0.0, 1.0, below=True)),
        ("beta2", check_number("beta2", request.beta2, 0.0, 1.0, below=True)),
        ("eps", check_number("eps", request.eps, 0.0, _INFINITY)),
        ("weight_decay", check_number("weight_decay", request.weight_decay, 0.0, _INFINITY)),
    )
    return (*(Scalar(name, "float64", number) for name, number in numbers), Scalar("step", "int64", step))


def sgd_scalars(request: Any) -> tuple[Scalar, ...]:
    """Check and return the numbers of a step of SGD with momentum."""
    numbers = (
        ("lr", check_number("lr", request.lr, 0.0, _INFINITY)),
        ("momentum", check_number("momentum", request.momentum, 0.0, 1.0)),
        ("weight_decay", check_number("weight_decay", request.weight_decay, 0.0, _INFINITY)),
    )
    return tuple(Scalar(name, "float64", number) for name, number in numbers)


def state_operands(param: Any, grad: Any, state: dict[str, Any], master: Any) -> tuple[str, str, tuple[Operand, ...]]:
    """Return the dtypes of parameter and gradient, and the operands: gradient, parameter, state, master weights."""
    dtype = dtype_name(as_dtype(check_output("param", param).dtype))
    allowed = ("bfloat16",) if master is not None else ("float32",)
    if dtype not in allowed:
        raise InvalidRequest(
            f"param has dtype {dtype}; allowed: float32 without master weights, bfloat16 with float32 ones (master)"
        )
    kinds = {"grad": FLOATS, "param": allowed} | dict.fromkeys((*state, "master"), ("float32",))
    arrays = {"grad": grad, "param": param, **state} | ({} if master is None else {"master": master})
    operands = []
    for name, array in arrays.items():
        check_input(name, array)
        found, shape = dtype_name(as_dtype(array.dtype)), tuple(array.shape)
        if found not in kinds[name] or shape != tuple(param.shape):
            raise InvalidRequest(
                f"{name} has dtype {found} and shape {shape}; allowed: {', '.join(kinds[name])} of {tuple(param.shape)}"
            )
        if not is_contiguous(array):
            raise InvalidRequest(
                f"{name} has shape {shape} and strides {tuple(array.strides)}; allowed: contiguous arrays"
            )
        fresh = Fresh(shape, as_dtype(array.dtype))
        operands.append(read(name, array) if name == "grad" else written(name, array, fresh, updated=True))
    check_disjoint([(o.name, o.given) for o in operands[1:]], [("grad", grad)])
    return dtype, dtype_name(as_dtype(grad.dtype)), tuple(operands)
