"""GELU by the tanh approximation, and its derivative, in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["gelu", "times_gelu_gradient"]

Array = np.ndarray[Any, Any]

_GELU_0 = math.sqrt(2.0 / math.pi)
_GELU_1 = 0.044715
#: Beyond this tanh is 1 in float64 too, and GELU is x or 0; clipping there keeps squares finite.
_GELU_FLAT = 12.0


def gelu(x: Array) -> None:
    """X <- gelu(x), by the tanh approximation."""
    np.maximum(x, -_GELU_FLAT, out=x)  # -inf would give 0 * inf
    t = x * x
    np.multiply(t, _GELU_0 * _GELU_1, out=t)
    np.add(t, _GELU_0, out=t)
    np.multiply(t, x, out=t)
    np.tanh(t, out=t)
    np.add(t, 1.0, out=t)
    np.multiply(t, 0.5, out=t)
    np.multiply(x, t, out=x)


def times_gelu_gradient(z: Array, x: Array) -> None:
    """Z <- z * gelu'(x); spoils x."""
    np.clip(x, -_GELU_FLAT, _GELU_FLAT, out=x)
    square = x * x
    t = square * (_GELU_0 * _GELU_1)
    np.add(t, _GELU_0, out=t)
    np.multiply(t, x, out=t)
    np.tanh(t, out=t)
    np.multiply(square, 3.0 * _GELU_0 * _GELU_1, out=square)
    np.add(square, _GELU_0, out=square)
    np.multiply(square, x, out=square)  # x times the derivative of tanh's argument
    np.multiply(t, t, out=x)
    np.subtract(1.0, x, out=x)
    np.multiply(square, x, out=square)
    np.add(t, 1.0, out=t)
    np.add(square, t, out=square)
    np.multiply(square, 0.5, out=square)
    np.multiply(z, square, out=z)
