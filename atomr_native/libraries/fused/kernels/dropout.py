"""Dropout on CUDA by words of Philox4x32-10.

docs/libraries/fused.md says which words and halves belong to an element.  If each element took a whole word of the
generator, its integer arithmetic would cost more time than memory traffic does.  So an element takes half a word, and
half a word of a second call where the first half does not decide: one element in 65536.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import aligned, element
from ....compile.numba.device.intrinsics import upper_half
from ....compile.numba.device.philox import philox

__all__ = ["dropout"]

Kernel = tuple[Any, tuple[str, ...]]
_THREADS: Final = 256
_WORD: Final = 0xFFFFFFFF
_HALF: Final = 0xFFFF


@inlined
def _later(a: Any, b: Any, skip: Any) -> Any:
    """Return four words that begin `skip` halves, from 1 to 7, after the first of two times four words."""
    if skip < 2:
        v, w, x, y, z = a[0], a[1], a[2], a[3], b[0]
    elif skip < 4:
        v, w, x, y, z = a[1], a[2], a[3], b[0], b[1]
    elif skip < 6:
        v, w, x, y, z = a[2], a[3], b[0], b[1], b[2]
    else:
        v, w, x, y, z = a[3], b[0], b[1], b[2], b[3]
    if skip & 1:
        v, w, x, y = v >> 16 | w << 16, w >> 16 | x << 16, x >> 16 | y << 16, y >> 16 | z << 16
    return v, w, x, y


@inlined
def _halves(counter: Any, skip: Any, which: Any, low: Any, high: Any) -> Any:
    """Return eight halves of the words of a counter and the next one, without the first `skip`, as uint32.

    They are the upper ones of elements' words if `which` is 0, the lower ones if it is 1.
    """
    a = philox(counter & _WORD, counter >> 32 & _WORD, 0, which, low, high)
    if skip != 0:
        counter = counter + 1
        a = _later(a, philox(counter & _WORD, counter >> 32 & _WORD, 0, which, low, high), skip)
    return (
        np.uint32(a[0] & _HALF), upper_half(a[0]), np.uint32(a[1] & _HALF), upper_half(a[1]),
        np.uint32(a[2] & _HALF), upper_half(a[2]), np.uint32(a[3] & _HALF), upper_half(a[3]),
    )  # fmt: skip


@inlined
def _open(a: Any, limit: Any) -> Any:
    """Return whether one of eight upper halves equals the threshold's, so that a lower half decides."""
    some = (a[0] == limit) | (a[1] == limit) | (a[2] == limit) | (a[3] == limit)
    return some | (a[4] == limit) | (a[5] == limit) | (a[6] == limit) | (a[7] == limit)


@inlined
def _drop(out: Any, at: Any, upper: Any, lower: Any, limit: Any, least: Any, there: Any) -> None:
    """Drop an element by its lower half, if the upper half does not decide."""
    if upper == limit and lower < least and there:
        out[at] = 0


@inlined
def _settle(
    out: Any, to: Any, left: Any, counter: Any, skip: Any, limit: Any, least: Any, low: Any, high: Any
) -> None:  # fmt: skip
    """Drop elements by their lower halves, among the first `left` of eight."""
    a, b = _halves(counter, skip, 0, low, high), _halves(counter, skip, 1, low, high)
    _drop(out, to, a[0], b[0], limit, least, left > 0)
    _drop(out, to + 1, a[1], b[1], limit, least, left > 1)
    _drop(out, to + 2, a[2], b[2], limit, least, left > 2)
    _drop(out, to + 3, a[3], b[3], limit, least, left > 3)
    _drop(out, to + 4, a[4], b[4], limit, least, left > 4)
    _drop(out, to + 5, a[5], b[5], limit, least, left > 5)
    _drop(out, to + 6, a[6], b[6], limit, least, left > 6)
    _drop(out, to + 7, a[7], b[7], limit, least, left > 7)


def dropout(dtype: str) -> Kernel:
    """Return the kernel that keeps an element, times `scale`, where its word is at least `threshold`.

    Elements that are in doubt are stored as kept, and dropped afterwards: a branch before that would keep the
    compiler from loading elements first and computing then.
    """
    pointer, itemsize, real, get, put, _, load, store = element(dtype)
    zero = real(0)

    @inlined
    def kept(v: Any, a: Any, limit: Any, scale: Any) -> Any:
        return (
            v[0] * scale if a[0] >= limit else zero, v[1] * scale if a[1] >= limit else zero,
            v[2] * scale if a[2] >= limit else zero, v[3] * scale if a[3] >= limit else zero,
            v[4] * scale if a[4] >= limit else zero, v[5] * scale if a[5] >= limit else zero,
            v[6] * scale if a[6] >= limit else zero, v[7] * scale if a[7] >= limit else zero,
        )  # fmt: skip

    def dropout(
        x: Any, out: Any, threshold: Any, factor: Any, seed: Any, offset: Any, rows: Any, columns: Any, shift: Any,
        xs: Any, os: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        tall, wide = _THREADS >> shift, 1 << shift
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        limit, least = np.uint32(threshold >> 16), np.uint32(threshold & _HALF)
        scale, low, high = real(factor), seed & _WORD, seed >> 32 & _WORD
        first = (cuda.blockIdx.x * wide * 2 + (thread & (wide - 1))) * 8
        row = cuda.blockIdx.y * tall + (thread >> shift)
        while row < rows:
            column = first
            while column < columns:
                other = column + wide * 8
                at, to = row * columns + column, row * os + column
                if fast and other + 8 <= columns and at & 7 == 0:
                    v, w = load(x, row * xs + column), load(x, row * xs + other)
                    counter = offset + (at >> 3)
                    a, b = _halves(counter, 0, 0, low, high), _halves(counter + wide, 0, 0, low, high)
                    store(out, to, kept(v, a, limit, scale))
                    store(out, row * os + other, kept(w, b, limit, scale))
                    if _open(a, limit) | _open(b, limit):
                        _settle(out, to, 8, counter, 0, limit, least, low, high)
                        _settle(out, row * os + other, 8, counter + wide, 0, limit, least, low, high)
                else:
                    for i in range(2):
                        place = other if i else column
                        left, at, to = columns - place, row * columns + place, row * os + place
                        counter, skip = offset + (at >> 3), at & 7
                        a = _halves(counter, skip, 0, low, high)
                        v = get(x, row * xs + place, left, fast)
                        put(out, to, kept(v, a, limit, scale), left, fast)
                        if _open(a, limit):
                            _settle(out, to, left, counter, skip, limit, least, low, high)
                column += cuda.gridDim.x * wide * 16
            row += cuda.gridDim.y * tall

    return dropout, (pointer, pointer, "int64", "float64", "int64", "int64", *("int64",) * 5)
