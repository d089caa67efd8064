"""Custom epilogues that are ready to use, and patterns for one's own: see `CustomEpilogue`.

`silu`, ``x * sigmoid(x)``, and `squared_relu`, ``max(x, 0)**2``, take the product alone, `bias_residual` adds the
operands ``bias``, a row, and ``residual``, a matrix.  ``*_forward`` add ``bias`` first, and store what the activation
gets in ``aux``; ``*_backward`` take that as the operand ``x``, a matrix, and turn a gradient by the output into that by
the input, with the bias gradient.  `relu_gradient` takes a gradient, and the operand ``y``, a matrix that a ReLU has
returned; it is 0 where that is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .custom_epilogue import CustomEpilogue

__all__ = [
    "bias_residual",
    "relu_gradient",
    "silu",
    "silu_backward",
    "silu_forward",
    "squared_relu",
    "squared_relu_backward",
    "squared_relu_forward",
]

_ZERO, _ONE = np.float32(0), np.float32(1)


def _silu(acc: Any) -> Any:
    return acc / (_ONE + math.exp(-acc))


def _silu_forward(acc: Any, bias: Any) -> Any:
    x = acc + bias
    return x / (_ONE + math.exp(-x)), x


def _silu_backward(acc: Any, x: Any) -> Any:
    s = _ONE / (_ONE + math.exp(-x))
    return acc * s * (_ONE + x * (_ONE - s))


# NaN stays NaN, which the `max` of a GPU takes for a number that is missing.


def _squared_relu(acc: Any) -> Any:
    return _ZERO if acc <= _ZERO else acc * acc


def _squared_relu_forward(acc: Any, bias: Any) -> Any:
    x = acc + bias
    return _ZERO if x <= _ZERO else x * x, x


def _squared_relu_backward(acc: Any, x: Any) -> Any:
    return acc * (_ZERO if x <= _ZERO else x + x)


def _relu_gradient(acc: Any, y: Any) -> Any:
    return _ZERO if y <= _ZERO else acc


def _bias_residual(acc: Any, bias: Any, residual: Any) -> Any:
    return acc + bias + residual


silu = CustomEpilogue(_silu)
silu_forward = CustomEpilogue(_silu_forward, {"bias": "row"}, aux=True)
silu_backward = CustomEpilogue(_silu_backward, {"x": "matrix"}, bias_grad=True)
squared_relu = CustomEpilogue(_squared_relu)
squared_relu_forward = CustomEpilogue(_squared_relu_forward, {"bias": "row"}, aux=True)
squared_relu_backward = CustomEpilogue(_squared_relu_backward, {"x": "matrix"}, bias_grad=True)
relu_gradient = CustomEpilogue(_relu_gradient, {"y": "matrix"})
bias_residual = CustomEpilogue(_bias_residual, {"bias": "row", "residual": "matrix"})
