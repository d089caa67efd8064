"""Activations, plain and gated, forward and backward, on CUDA: see docs/libraries/fused.md for the formulas.

Arrays are rows of neighbours; a block of 256 threads has 2**shift of them next to each other on a row, and each has
two groups of eight elements, both of which it loads before it computes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import NARROW, aligned, element, mapped
from ....compile.numba.device.intrinsics import fast_exp2, reciprocal

__all__ = ["activate", "activate_backward"]

_THREADS: Final = 256
_NUMBERS: Final = ("int64",)
#: Of what the tail of the normal distribution is made, for elements of 16 bits.
_SCALE: Final = 0.275
_TAIL: Final = (
    0.10970158129930496, 0.10996692627668381, 0.09823527932167053, 0.10349446535110474, 0.0041550155729055405,
    0.1296313852071762, -0.05518558248877525,
)  # fmt: skip

Kernel = tuple[Any, tuple[str, ...]]


def _exponential(dtype: str) -> Any:
    """Return a device function to exp(x): by the GPU's instruction where elements have 16 bits."""
    real, unit = element(dtype).real, np.float32(math.log2(math.e))
    return inlined((lambda x: fast_exp2(unit * x)) if dtype in NARROW else (lambda x: real(math.exp(x))))


def _sigmoids(dtype: str) -> Any:
    """Return a device function to the logistic function of x and of -x, neither of which overflows or cancels."""
    real = element(dtype).real
    one, zero, narrow, exponential = real(1), real(0), real is np.float32, _exponential(dtype)

    @inlined
    def sigmoids(x: Any) -> Any:
        small = exponential(-abs(x))
        large = reciprocal(one + small) if narrow else one / (one + small)
        small = small * large
        return (large, small) if x >= zero else (small, large)

    return sigmoids


def _silu(dtype: str) -> tuple[Any, Any]:
    sigmoids, zero = _sigmoids(dtype), element(dtype).real(0)

    @inlined
    def value(x: Any) -> Any:
        return x * sigmoids(x)[0]

    @inlined
    def slope(x: Any) -> Any:
        up, down = sigmoids(x)
        steep = up * down
        return up + x * steep if steep != zero else up  # not infinity by zero

    return value, slope


def _squared_relu(dtype: str) -> tuple[Any, Any]:
    zero = element(dtype).real(0)

    @inlined
    def value(x: Any) -> Any:
        return zero if x <= zero else x * x

    @inlined
    def slope(x: Any) -> Any:
        return zero if x <= zero else x + x

    return value, slope


def _normal(dtype: str) -> Any:
    """Return a device function to exp(-x * x / 2), and to the normal distribution function of x.

    The latter, where elements have 16 bits: for negative x a polynomial of 1 / (1 - c * x) times the former, as is that
    of C. Hastings ("Approximations for Digital Computers", 1955), but fitted for the least relative error, 2.3e-6.
    """
    real = element(dtype).real
    zero, one, half, root, exponential = real(0), real(1), real(0.5), real(math.sqrt(0.5)), _exponential(dtype)
    c, (c1, c2, c3, c4, c5, c6, c7) = real(_SCALE), map(real, _TAIL)

    @inlined
    def exact(x: Any) -> Any:
        return exponential(-half * (x * x)), half * real(math.erfc(-x * root))

    @inlined
    def fitted(x: Any) -> Any:
        power, t = exponential(-half * (x * x)), reciprocal(one + c * abs(x))
        tail = power * (t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * (c6 + t * c7)))))))
        return power, one - tail if x >= zero else tail

    return fitted if dtype in NARROW else exact


def _gelu(dtype: str) -> tuple[Any, Any]:
    real = element(dtype).real
    zero, density, normal = real(0), real(1 / math.sqrt(2 * math.pi)), _normal(dtype)

    @inlined
    def value(x: Any) -> Any:
        return x * normal(x)[1]

    @inlined
    def slope(x: Any) -> Any:
        power, whole = normal(x)
        steep = density * power
        return whole + x * steep if steep != zero else whole

    return value, slope


def _gelu_tanh(dtype: str) -> tuple[Any, Any]:
    real = element(dtype).real
    sigmoids, zero, one = _sigmoids(dtype), real(0), real(1)
    first, third = real(2 * math.sqrt(2 / math.pi)), real(0.044715)
    thrice = real(3 * 0.044715)

    @inlined
    def value(x: Any) -> Any:
        return x * sigmoids(first * (x * (one + third * (x * x))))[0]

    @inlined
    def slope(x: Any) -> Any:
        square = x * x
        up, down = sigmoids(first * (x * (one + third * square)))
        steep = up * down
        return up + x * (steep * (first * (one + thrice * square))) if steep != zero else up

    return value, slope


_CURVES: Final = {"silu": _silu, "squared_relu": _squared_relu, "gelu": _gelu, "gelu_tanh": _gelu_tanh}


def activate(curve: str, dtype: str, gated: bool) -> Kernel:
    """Return the kernel of ``curve(gate)``, or of ``curve(gate) * up``, which begins `up_at` elements after `up`."""
    pointer, itemsize, _, get, put, _, load, store = element(dtype)
    value, _ = _CURVES[curve](dtype)

    @inlined
    def product(g: Any, u: Any) -> Any:
        return value(g) * u

    plain, both = mapped(value, 1), mapped(product, 2)

    def activate(
        gate: Any, up: Any, out: Any, up_at: Any, rows: Any, columns: Any, shift: Any, gs: Any, us: Any, os: Any
    ) -> None:
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        fast = aligned(gate, 0, gs, itemsize) and aligned(up, up_at, us, itemsize) and aligned(out, 0, os, itemsize)
        first = (cuda.blockIdx.x * wide * 2 + (thread & (wide - 1))) * 8
        row = cuda.blockIdx.y * tall + (thread >> shift)
        while row < rows:
            column = first
            while column < columns:
                other = column + wide * 8
                if fast and other + 8 <= columns:
                    at = row * gs
                    g, h = load(gate, at + column), load(gate, at + other)
                    if gated:
                        at = row * us + up_at
                        u, v = load(up, at + column), load(up, at + other)
                        g, h = both(g, u), both(h, v)
                    else:
                        g, h = plain(g), plain(h)
                    at = row * os
                    store(out, at + column, g)
                    store(out, at + other, h)
                else:
                    for i in range(2):
                        place = other if i else column
                        left = columns - place
                        g = get(gate, row * gs + place, left, fast)
                        if gated:
                            u = get(up, row * us + up_at + place, left, fast)
                            put(out, row * os + place, both(g, u), left, fast)
                        else:
                            put(out, row * os + place, plain(g), left, fast)
                column += cuda.gridDim.x * wide * 16
            row += cuda.gridDim.y * tall

    return activate, (pointer,) * 3 + _NUMBERS * 7


def activate_backward(curve: str, dtype: str, gated: bool) -> Kernel:
    """Return the kernel of the gradients: of the gate and, `dup_at` elements after `dup`, of the gated value."""
    pointer, itemsize, _, get, put, _, load, store = element(dtype)
    value, slope = _CURVES[curve](dtype)

    @inlined
    def plain(d: Any, g: Any) -> Any:
        return d * slope(g)

    @inlined
    def of_gate(d: Any, g: Any, u: Any) -> Any:
        return d * u * slope(g)

    @inlined
    def of_up(d: Any, g: Any) -> Any:
        return d * value(g)

    gradient, gate_gradient, up_gradient = mapped(plain, 2), mapped(of_gate, 3), mapped(of_up, 2)

    def activate_backward(
        dy: Any, gate: Any, up: Any, dgate: Any, dup: Any, up_at: Any, dup_at: Any, rows: Any, columns: Any, shift: Any,
        ds: Any, gs: Any, us: Any, dgs: Any, dus: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        fast = aligned(dy, 0, ds, itemsize) and aligned(gate, 0, gs, itemsize) and aligned(up, up_at, us, itemsize)
        fast = fast and aligned(dgate, 0, dgs, itemsize) and aligned(dup, dup_at, dus, itemsize)
        first = (cuda.blockIdx.x * wide * 2 + (thread & (wide - 1))) * 8
        row = cuda.blockIdx.y * tall + (thread >> shift)
        while row < rows:
            column = first
            while column < columns:
                other = column + wide * 8
                if fast and other + 8 <= columns:
                    at = row * ds
                    d, e = load(dy, at + column), load(dy, at + other)
                    at = row * gs
                    g, h = load(gate, at + column), load(gate, at + other)
                    if gated:
                        at = row * us + up_at
                        u, v = load(up, at + column), load(up, at + other)
                        at = row * dus + dup_at
                        store(dgate, row * dgs + column, gate_gradient(d, g, u))
                        store(dup, at + column, up_gradient(d, g))
                        store(dgate, row * dgs + other, gate_gradient(e, h, v))
                        store(dup, at + other, up_gradient(e, h))
                    else:
                        store(dgate, row * dgs + column, gradient(d, g))
                        store(dgate, row * dgs + other, gradient(e, h))
                else:
                    for i in range(2):
                        place = other if i else column
                        left = columns - place
                        d = get(dy, row * ds + place, left, fast)
                        g = get(gate, row * gs + place, left, fast)
                        if gated:
                            u = get(up, row * us + up_at + place, left, fast)
                            put(dgate, row * dgs + place, gate_gradient(d, g, u), left, fast)
                            put(dup, row * dus + dup_at + place, up_gradient(d, g), left, fast)
                        else:
                            put(dgate, row * dgs + place, gradient(d, g), left, fast)
                column += cuda.gridDim.x * wide * 16
            row += cuda.gridDim.y * tall

    return activate_backward, (pointer,) * 5 + _NUMBERS * 10
