"""Rotary position embeddings on CUDA: see docs/fused.md for the formulas."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .._numba import cuda, inlined
from ._elements import aligned, element
from ._intrinsics import sine_and_cosine

__all__ = ["frequencies", "rope"]

Kernel = tuple[Any, tuple[str, ...]]
_THREADS: Final = 256


@inlined
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
    pointer, itemsize, _, get, put, _, load, store = element(dtype)

    @inlined
    def turn(position: Any, steps: Any, pair: Any, sign: Any) -> Any:
        sine, cosine = sine_and_cosine(position * steps[pair])
        return cosine, sine * sign

    @inlined
    def first_of(a: Any, b: Any, angles: Any) -> Any:
        """Return the first elements of eight pairs, turned."""
        c, s = angles
        return (
            a[0] * c[0] - b[0] * s[0], a[1] * c[1] - b[1] * s[1], a[2] * c[2] - b[2] * s[2], a[3] * c[3] - b[3] * s[3],
            a[4] * c[4] - b[4] * s[4], a[5] * c[5] - b[5] * s[5], a[6] * c[6] - b[6] * s[6], a[7] * c[7] - b[7] * s[7],
        )  # fmt: skip

    @inlined
    def second_of(a: Any, b: Any, angles: Any) -> Any:
        c, s = angles
        return (
            a[0] * s[0] + b[0] * c[0], a[1] * s[1] + b[1] * c[1], a[2] * s[2] + b[2] * c[2], a[3] * s[3] + b[3] * c[3],
            a[4] * s[4] + b[4] * c[4], a[5] * s[5] + b[5] * c[5], a[6] * s[6] + b[6] * c[6], a[7] * s[7] + b[7] * c[7],
        )  # fmt: skip

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
                    angles = (c0, c1, c2, c3, c4, c5, c6, c7), (s0, s1, s2, s3, s4, s5, s6, s7)
                    head = row
                    if fast and left >= 8:
                        while head + 1 < end:  # two heads at once
                            at = head * xs + pair
                            v, w = load(x, at), load(x, at + pairs)
                            m, n = load(x, at + xs), load(x, at + xs + pairs)
                            at = head * os + pair
                            store(out, at, first_of(v, w, angles))
                            store(out, at + pairs, second_of(v, w, angles))
                            store(out, at + os, first_of(m, n, angles))
                            store(out, at + os + pairs, second_of(m, n, angles))
                            head += 2
                    while head < end:
                        at = head * xs + pair
                        v, w = get(x, at, left, fast), get(x, at + pairs, left, fast)
                        at = head * os + pair
                        put(out, at, first_of(v, w, angles), left, fast)
                        put(out, at + pairs, second_of(v, w, angles), left, fast)
                        head += 1
                pair += cuda.gridDim.x * wide * (4 if interleaved else 8)
            line += cuda.gridDim.y * tall

    return rope, (pointer, f"*{positions}", "*float32", pointer, *("int64",) * 10)
