"""Rotary position embeddings on CUDA: see docs/fused.md for the formulas."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .._numba import cuda
from ._elements import aligned, element

__all__ = ["frequencies", "rope"]

Kernel = tuple[Any, tuple[str, ...]]
_THREADS: Final = 256


def _jit(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(function)


@_jit
def _turned(a: Any, b: Any, angle: Any, sign: Any) -> Any:
    """Return a pair, turned by an angle."""
    cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle)) * sign
    return a * cosine - b * sine, a * sine + b * cosine


def frequencies() -> Kernel:
    """Return the kernel of the angles by which a step of one position turns each pair."""

    def frequencies(out: Any, theta: Any, pairs: Any) -> None:
        for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, pairs,
                       cuda.gridDim.x * cuda.blockDim.x):  # fmt: skip
            out[i] = np.float32(math.pow(theta, -np.float64(i) / np.float64(pairs)))

    return frequencies, ("*float32", "float64", "int64")


def rope(dtype: str, positions: str, *, interleaved: bool) -> Kernel:
    """Return the kernel that turns each pair of a row; a position belongs to `heads` rows, then the next one.

    Pairs are neighbours if `interleaved`, else i and i + pairs.  A thread has four pairs next to each other if they
    are neighbours, else eight.
    """
    pointer, itemsize, _, get, put, _ = element(dtype)

    def rope(
        x: Any, where: Any, steps: Any, out: Any, rows: Any, pairs: Any, heads: Any, tokens: Any, shift: Any,
        inverse: Any, xs: Any, os: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        sign = np.float32(-1) if inverse != 0 else np.float32(1)
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        if not interleaved:
            fast = fast and pairs % 8 == 0
        first = cuda.blockIdx.x * wide + (thread & (wide - 1))
        for row in range(cuda.blockIdx.y * tall + (thread >> shift), rows, cuda.gridDim.y * tall):
            position = np.float32(where[row // heads % tokens])
            if interleaved:
                for pair in range(first * 4, pairs, cuda.gridDim.x * wide * 4):
                    left = (pairs - pair) * 2
                    v = get(x, row * xs + pair * 2, left, fast)
                    a = _turned(v[0], v[1], position * steps[pair], sign)
                    b = _turned(v[2], v[3], position * steps[min(pair + 1, pairs - 1)], sign)
                    c = _turned(v[4], v[5], position * steps[min(pair + 2, pairs - 1)], sign)
                    d = _turned(v[6], v[7], position * steps[min(pair + 3, pairs - 1)], sign)
                    v = (a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1])
                    put(out, row * os + pair * 2, v, left, fast)
            else:
                for pair in range(first * 8, pairs, cuda.gridDim.x * wide * 8):
                    left, last = pairs - pair, pairs - 1
                    v = get(x, row * xs + pair, left, fast)
                    w = get(x, row * xs + pairs + pair, left, fast)
                    a = _turned(v[0], w[0], position * steps[pair], sign)
                    b = _turned(v[1], w[1], position * steps[min(pair + 1, last)], sign)
                    c = _turned(v[2], w[2], position * steps[min(pair + 2, last)], sign)
                    d = _turned(v[3], w[3], position * steps[min(pair + 3, last)], sign)
                    e = _turned(v[4], w[4], position * steps[min(pair + 4, last)], sign)
                    f = _turned(v[5], w[5], position * steps[min(pair + 5, last)], sign)
                    g = _turned(v[6], w[6], position * steps[min(pair + 6, last)], sign)
                    h = _turned(v[7], w[7], position * steps[min(pair + 7, last)], sign)
                    put(out, row * os + pair, (a[0], b[0], c[0], d[0], e[0], f[0], g[0], h[0]), left, fast)
                    put(out, row * os + pairs + pair, (a[1], b[1], c[1], d[1], e[1], f[1], g[1], h[1]), left, fast)

    return rope, (pointer, f"*{positions}", "*float32", pointer, *("int64",) * 8)
