"""Pointwise nodes by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..attributes import NodeSpec

__all__ = ["pointwise"]

Array = np.ndarray[Any, Any]

_SQRT_HALF: Final = math.sqrt(0.5)
_TANH_SCALE: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715


def _erf(x: Array) -> Array:
    from scipy.special import erf

    made: Array = erf(x)
    return made


def _sigmoid(x: Array) -> Array:
    small = np.exp(-abs(x))
    made: Array = np.where(x >= 0, 1, small) / (1 + small)
    return made


def _softplus(x: Array, beta: float) -> Array:
    scaled = x * x.dtype.type(beta)
    made: Array = np.logaddexp(scaled, 0) / x.dtype.type(beta)
    return made


def _gelu(x: Array) -> Array:
    made: Array = x * 0.5 * (1 + _erf(x * _SQRT_HALF))
    return made


def _gelu_tanh(x: Array) -> Array:
    made: Array = 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _CUBIC * x**3)))
    return made


def _gelu_slope(x: Array) -> Array:
    made: Array = 0.5 * (1 + _erf(x * _SQRT_HALF)) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return made


def _gelu_tanh_slope(x: Array) -> Array:
    t = np.tanh(_TANH_SCALE * (x + _CUBIC * x**3))
    made: Array = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _TANH_SCALE * (1 + 3 * _CUBIC * x * x)
    return made


def _swish_slope(x: Array, beta: float) -> Array:
    s = _sigmoid(x * beta)
    made: Array = s * (1 + beta * x * (1 - s))
    return made


def _relu(x: Array) -> Array:
    made: Array = np.where(np.isnan(x), x, np.maximum(x, 0))
    return made


_UNARY: Final[dict[str, Callable[[Array], Array]]] = {
    "abs": np.abs, "ceil": np.ceil, "cos": np.cos, "exp": np.exp, "floor": np.floor, "log": np.log, "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "sqrt": np.sqrt, "tan": np.tan, "erf": _erf,
    "identity": lambda x: x, "reciprocal": lambda x: 1 / x, "logical_not": np.logical_not, "relu_fwd": _relu,
    "tanh_fwd": np.tanh, "sigmoid_fwd": _sigmoid, "gelu_fwd": _gelu, "gelu_approx_tanh_fwd": _gelu_tanh,
}  # fmt: skip
_BINARY: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "add": np.add, "add_square": lambda x, b: x + b * b, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "mul": np.multiply, "pow": np.power, "sub": np.subtract, "cmp_eq": np.equal, "cmp_neq": np.not_equal,
    "cmp_gt": np.greater, "cmp_ge": np.greater_equal, "cmp_lt": np.less, "cmp_le": np.less_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or,
}  # fmt: skip
#: With a number: of x forward, the factor of dy backward.
_FORWARD: Final[dict[str, tuple[str, Callable[[Array, float], Array]]]] = {
    "elu_fwd": ("elu_alpha", lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))),
    "softplus_fwd": ("softplus_beta", _softplus),
    "swish_fwd": ("swish_beta", lambda x, beta: x * _sigmoid(x * beta)),
}
_SLOPES: Final[dict[str, tuple[str, Callable[[Array, float], Array]]]] = {
    "relu_bwd": ("", lambda x, _: x > 0),
    "tanh_bwd": ("", lambda x, _: 1 - np.tanh(x) ** 2),
    "sigmoid_bwd": ("", lambda x, _: _sigmoid(x) * (1 - _sigmoid(x))),
    "gelu_bwd": ("", lambda x, _: _gelu_slope(x)),
    "gelu_approx_tanh_bwd": ("", lambda x, _: _gelu_tanh_slope(x)),
    "elu_bwd": ("elu_alpha", lambda x, a: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0)))),
    "softplus_bwd": ("softplus_beta", lambda x, beta: _sigmoid(x * beta)),
    "swish_bwd": ("swish_beta", _swish_slope),
}


def _shared_heads(x: Array, b: Array) -> Array:
    """Return b repeated where a group of heads shares one of its heads."""
    if x.ndim == b.ndim == 4 and b.shape[1] not in (1, x.shape[1]) and x.shape[1] % b.shape[1] == 0:
        return np.repeat(b, x.shape[1] // b.shape[1], axis=1)
    return b


def pointwise(node: NodeSpec, given: dict[str, Array], _shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the result of a pointwise node."""
    x, mode, reals = given["x"], node.mode, dict(node.reals)
    if mode in _SLOPES:
        name, slope = _SLOPES[mode]
        factor = slope(x, x.dtype.type(reals.get(name, 1.0)))
        return {"dx": given["dy"] * factor}
    if mode in _FORWARD:
        name, function = _FORWARD[mode]
        return {"y": function(x, x.dtype.type(reals.get(name, 1.0)))}
    if mode == "gen_index":
        axis = dict(node.integers)["axis"][0]
        shape = [1] * x.ndim
        shape[axis] = x.shape[axis]
        return {"y": np.broadcast_to(np.arange(x.shape[axis], dtype=np.int32).reshape(shape), x.shape)}
    if mode == "binary_select":
        return {"y": np.where(given["t"].astype(bool), x, given["b"])}
    if mode in _UNARY:
        return {"y": _UNARY[mode](x)}
    return {"y": _BINARY[mode](x, _shared_heads(x, given["b"]))}
