"""Activations, rotary embeddings and dropout on the host device, by NumPy.

Each step is rounded as the kernels do it (`libraries.fused.kernels`); transcendental functions are computed in float64
and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....builders.blocks import blocks
from ....builders.context import Built, HostContext
from ....plans.spec import PlanSpec
from ..attributes import ActivationAttributes

__all__ = ["build_activate", "build_activate_backward", "computed", "real_of"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]
Curve = Callable[[Array], Array]

_BLOCK: Final = 1 << 16  # elements whose temporaries stay in the cache


def real_of(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    """Return the dtype of the arithmetic for a dtype."""
    return np.float64 if dtype == np.float64 else np.float32


def computed(x: Array) -> Array:
    """Return an array as it is computed with."""
    return x.astype(real_of(x.dtype), copy=False)


def _erfc(x: Array) -> Array:
    from scipy.special import erfc

    return np.asarray(erfc(x.astype(np.float64)), x.dtype)


def _exp(x: Array) -> Array:
    return np.asarray(np.exp(x.astype(np.float64)), x.dtype)


def _sigmoids(x: Array) -> tuple[Array, Array]:
    small = _exp(-np.abs(x))
    large = x.dtype.type(1) / (x.dtype.type(1) + small)
    small = small * large
    return np.where(x >= 0, large, small), np.where(x >= 0, small, large)


def _silu(x: Array) -> Array:
    return x * _sigmoids(x)[0]


def _silu_slope(x: Array) -> Array:
    up, down = _sigmoids(x)
    steep = up * down
    return np.where(steep != 0, up + x * steep, up)


def _squared_relu(x: Array) -> Array:
    return np.where(x <= 0, x.dtype.type(0), x * x)


def _squared_relu_slope(x: Array) -> Array:
    return np.where(x <= 0, x.dtype.type(0), x + x)


def _gelu(x: Array) -> Array:
    real = x.dtype.type
    return np.asarray(x * (real(0.5) * _erfc(-x * real(math.sqrt(0.5)))))


def _gelu_slope(x: Array) -> Array:
    real = x.dtype.type
    steep = real(1 / math.sqrt(2 * math.pi)) * _exp(-real(0.5) * (x * x))
    whole = real(0.5) * _erfc(-x * real(math.sqrt(0.5)))
    return np.asarray(np.where(steep != 0, whole + x * steep, whole))


def _gelu_tanh(x: Array) -> Array:
    real = x.dtype.type
    first, third = real(2 * math.sqrt(2 / math.pi)), real(0.044715)
    return np.asarray(x * _sigmoids(first * (x * (real(1) + third * (x * x))))[0])


def _gelu_tanh_slope(x: Array) -> Array:
    real = x.dtype.type
    first, third, thrice = real(2 * math.sqrt(2 / math.pi)), real(0.044715), real(3 * 0.044715)
    square = x * x
    up, down = _sigmoids(first * (x * (real(1) + third * square)))
    steep = up * down
    return np.where(steep != 0, up + x * (steep * (first * (real(1) + thrice * square))), up)


_CURVES: Final[dict[str, tuple[Curve, Curve]]] = {
    "silu": (_silu, _silu_slope),
    "squared_relu": (_squared_relu, _squared_relu_slope),
    "gelu": (_gelu, _gelu_slope),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_slope),
}


def _halves(x: Array, packed: bool) -> tuple[Array, Array]:
    if not packed:
        return x, x
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def build_activate(spec: PlanSpec[ActivationAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.activate``: operands x, up if there is one, out; no scalars."""
    value = _CURVES[spec.attributes.curve][0]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        out = arrays[-1]
        gate, up = arrays[:2] if len(arrays) == 3 else _halves(arrays[0], spec.attributes.gated)
        for index in blocks(out.shape, _BLOCK):
            found = value(computed(gate[index]))
            out[index] = found * computed(up[index]) if spec.attributes.gated else found

    return Built(run)


def build_activate_backward(spec: PlanSpec[ActivationAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.activate_backward``: operands dy, x, up, out, up_out; no scalars."""
    value, slope = _CURVES[spec.attributes.curve]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        dy = arrays[0]
        two = len(arrays) == 5
        gate, up = arrays[1:3] if two else _halves(arrays[1], spec.attributes.gated)
        dgate, dup = arrays[3:] if two else _halves(arrays[2], spec.attributes.gated)
        for index in blocks(dy.shape, _BLOCK):
            d, g = computed(dy[index]), computed(gate[index])
            if spec.attributes.gated:
                u = computed(up[index])
                of_gate, of_up = d * u * slope(g), d * value(g)
                dgate[index] = of_gate
                dup[index] = of_up
            else:
                dgate[index] = d * slope(g)

    return Built(run)
