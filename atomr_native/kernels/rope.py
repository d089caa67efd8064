"""Rotary position embeddings on CUDA: see docs/fused.md for the formulas."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .._numba import cuda
from ._elements import aligned, element
from ._intrinsics import sine_and_cosine

__all__ = ["frequencies", "rope"]

Kernel = tuple[Any, tuple[str, ...]]
_THREADS: Final = 256


def _jit(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(function)


@_jit
def _turned(a: Any, b: Any, cosine: Any, sine: Any) -> Any:
    """Return a pair, turned."""
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
    are neighbours, else eight, in `several` heads of a token, whose angles are the same; a token has `parts` of those.
    """
    pointer, itemsize, _, get, put, *_ = element(dtype)

    @_jit
    def turn(position: Any, steps: Any, pair: Any, sign: Any) -> Any:
        sine, cosine = sine_and_cosine(position * steps[pair])
        return cosine, sine * sign

    def rope(
        x: Any, where: Any, steps: Any, out: Any, rows: Any, pairs: Any, heads: Any, tokens: Any, shift: Any,
        inverse: Any, several: Any, parts: Any, xs: Any, os: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        sign = np.float32(-1) if inverse != 0 else np.float32(1)
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        if not interleaved:
            fast = fast and pairs & 7 == 0
        first, last = cuda.blockIdx.x * wide + (thread & (wide - 1)), pairs - 1
        line = cuda.blockIdx.y * tall + (thread >> shift)
        while True:  # over parts of tokens
            token = line // parts
            head = (line - token * parts) * several
            row = token * heads + head
            if row >= rows:
                break
            end = row + min(several, heads - head)
            position = np.float32(where[token % tokens])
            pair = first * (4 if interleaved else 8)
            while pair < pairs:
                p, q, r = min(pair + 1, last), min(pair + 2, last), min(pair + 3, last)
                c0, s0 = turn(position, steps, pair, sign)
                c1, s1 = turn(position, steps, p, sign)
                c2, s2 = turn(position, steps, q, sign)
                c3, s3 = turn(position, steps, r, sign)
                if interleaved:
                    left = (pairs - pair) * 2
                    for at_row in range(row, end):
                        at = at_row * xs + pair * 2
                        v = get(x, at, left, fast)
                        a, b = _turned(v[0], v[1], c0, s0), _turned(v[2], v[3], c1, s1)
                        c, d = _turned(v[4], v[5], c2, s2), _turned(v[6], v[7], c3, s3)
                        v = (a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1])
                        put(out, at_row * os + pair * 2, v, left, fast)
                else:
                    left = pairs - pair
                    p, q, r, t = min(pair + 4, last), min(pair + 5, last), min(pair + 6, last), min(pair + 7, last)
                    c4, s4 = turn(position, steps, p, sign)
                    c5, s5 = turn(position, steps, q, sign)
                    c6, s6 = turn(position, steps, r, sign)
                    c7, s7 = turn(position, steps, t, sign)
                    for at_row in range(row, end):
                        at = at_row * xs + pair
                        v, w = get(x, at, left, fast), get(x, at + pairs, left, fast)
                        a, b = _turned(v[0], w[0], c0, s0), _turned(v[1], w[1], c1, s1)
                        c, d = _turned(v[2], w[2], c2, s2), _turned(v[3], w[3], c3, s3)
                        e, f = _turned(v[4], w[4], c4, s4), _turned(v[5], w[5], c5, s5)
                        g, h = _turned(v[6], w[6], c6, s6), _turned(v[7], w[7], c7, s7)
                        at = at_row * os + pair
                        put(out, at, (a[0], b[0], c[0], d[0], e[0], f[0], g[0], h[0]), left, fast)
                        put(out, at + pairs, (a[1], b[1], c[1], d[1], e[1], f[1], g[1], h[1]), left, fast)
                pair += cuda.gridDim.x * wide * (4 if interleaved else 8)
            line += cuda.gridDim.y * tall

    return rope, (pointer, f"*{positions}", "*float32", pointer, *("int64",) * 10)
