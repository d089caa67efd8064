"""The functors of epilogues: their names, and each in NumPy, in the dtype of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["CALLS", "FUNCTIONS"]

#: Functions of the language by the names that NumPy and PyTorch give them, each with its functor.
CALLS: Final = {
    name: name
    for name in (
        "abs", "sqrt", "exp", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hardswish", "log", "rsqrt",
        "erf", "softplus", "leaky_relu", "clamp", "fma"
    )
} | {"maximum": "max", "minimum": "min"}  # fmt: skip

Array = np.ndarray[Any, Any]


def _sigmoid(x: Array) -> Array:
    made: Array = x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x))
    return made


def _gelu(x: Array) -> Array:
    from scipy.special import erf

    kind = x.dtype.type
    made: Array = kind(0.5) * x * (kind(1) + erf(x * kind(math.sqrt(0.5))))
    return made


def _gelu_tanh(x: Array) -> Array:
    kind = x.dtype.type
    inner = kind(math.sqrt(2 / math.pi)) * x * (kind(1) + kind(0.044715) * x * x)
    made: Array = kind(0.5) * x * (kind(1) + np.tanh(inner))
    return made


def _hardswish(x: Array) -> Array:
    kind = x.dtype.type
    made: Array = x * np.clip(x + kind(3), kind(0), kind(6)) * kind(1 / 6)
    return made


def _erf(x: Array) -> Array:
    from scipy.special import erf

    made: Array = erf(x)
    return made


def _softplus(x: Array) -> Array:
    made: Array = np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))
    return made


#: By the names of `kernels.kernel.FUNCTORS`.
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "hardswish": _hardswish,
    "log": np.log,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "erf": _erf,
    "softplus": _softplus,
    "leaky_relu": lambda x, slope: np.where(x < 0, slope * x, x),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "fma": lambda x, y, z: x * y + z,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
}
