"""Dropout on CUDA by Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._numba import cuda, inlined
from ._elements import aligned, element
from ._intrinsics import product

__all__ = ["dropout", "philox"]

Kernel = tuple[Any, tuple[str, ...]]
_THREADS: Final = 256
_WORD: Final = 0xFFFFFFFF
_FIRST, _SECOND = 0xD2511F53, 0xCD9E8D57  # multipliers
_FIRST_KEY, _SECOND_KEY = 0x9E3779B9, 0xBB67AE85  # increments of the key
_ROUNDS: Final = 10


@inlined
def philox(a: Any, b: Any, c: Any, d: Any, low: Any, high: Any) -> Any:
    """Return the four words of a counter of four words and a key of two, all as int64."""
    for _ in range(_ROUNDS):
        (one, first), (two, second) = product(a, _FIRST), product(c, _SECOND)
        a, b, c, d = second ^ b ^ low, two, first ^ d ^ high, one
        low, high = low + _FIRST_KEY & _WORD, high + _SECOND_KEY & _WORD
    return a, b, c, d


def dropout(dtype: str) -> Kernel:
    """Return the kernel that keeps an element, times `scale`, where its word is at least `threshold`.

    Element i in C order has the word i % 4 of the counter ``offset + i // 4``.
    """
    pointer, itemsize, real, get, put, _, load, store = element(dtype)
    zero = real(0)

    @inlined
    def words(number: Any, low: Any, high: Any) -> Any:
        return philox(number & _WORD, number >> 32 & _WORD, 0, 0, low, high)

    @inlined
    def kept(value: Any, word: Any, threshold: Any, scale: Any, some: Any) -> Any:
        return value * scale if np.uint32(word) >= threshold and some else zero

    @inlined
    def left_over(v: Any, a: Any, b: Any, least: Any, scale: Any, some: Any) -> Any:
        return (
            kept(v[0], a[0], least, scale, some), kept(v[1], a[1], least, scale, some),
            kept(v[2], a[2], least, scale, some), kept(v[3], a[3], least, scale, some),
            kept(v[4], b[0], least, scale, some), kept(v[5], b[1], least, scale, some),
            kept(v[6], b[2], least, scale, some), kept(v[7], b[3], least, scale, some),
        )  # fmt: skip

    def dropout(
        x: Any, out: Any, threshold: Any, factor: Any, seed: Any, offset: Any, rows: Any, columns: Any, shift: Any,
        xs: Any, os: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        least, some = np.uint32(threshold & _WORD), threshold <= _WORD  # all words are below 2**32
        scale, low, high = real(factor), seed & _WORD, seed >> 32 & _WORD
        first = (cuda.blockIdx.x * wide + (thread & (wide - 1))) * 8
        row = cuda.blockIdx.y * tall + (thread >> shift)
        while row < rows:
            column = first
            while column < columns:
                left = columns - column
                at = row * columns + column
                number, skip = offset + (at >> 2), at & 3
                if fast and left >= 8 and skip == 0:
                    v = load(x, row * xs + column)
                    a, b = words(number, low, high), words(number + 1, low, high)
                    store(out, row * os + column, left_over(v, a, b, least, scale, some))
                else:
                    a, b = words(number, low, high), words(number + 1, low, high)
                    if skip != 0:  # rows that begin within a counter
                        c = words(number + 2, low, high)
                        if skip == 1:
                            a, b = (a[1], a[2], a[3], b[0]), (b[1], b[2], b[3], c[0])
                        elif skip == 2:
                            a, b = (a[2], a[3], b[0], b[1]), (b[2], b[3], c[0], c[1])
                        else:
                            a, b = (a[3], b[0], b[1], b[2]), (b[3], c[0], c[1], c[2])
                    v = get(x, row * xs + column, left, False)
                    put(out, row * os + column, left_over(v, a, b, least, scale, some), left, False)
                column += cuda.gridDim.x * wide * 8
            row += cuda.gridDim.y * tall

    return dropout, (pointer, pointer, "int64", "float64", "int64", "int64", *("int64",) * 5)
