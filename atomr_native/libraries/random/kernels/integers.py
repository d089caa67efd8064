"""Kernels that fill arrays with random integers: a thread has the elements of one counter, or one element.

Ranges of up to 2**32 numbers are the upper halves of products (D. Lemire, "Fast random integer generation in an
interval", 2019); wider ones are words without the bits that no number of the range has.  A word that would bring a
bias makes the element draw from its own sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.intrinsics import product
from ....compile.numba.device.philox import philox
from .places import WORD, contiguous_place, shared_words, strided_place
from .positions import MOST_ATTEMPTS, QUADS, SINGLES, STORED

__all__ = ["integers", "ranges"]

Kernel = tuple[Any, tuple[str, ...]]


@inlined
def _again(number: Any, stream: Any, low: Any, high: Any, span: Any, least: Any) -> Any:
    a, b, count, upper, lower = number & WORD, number >> 32 & WORD, 0, 0, 0
    found = False
    while not found and count < MOST_ATTEMPTS:
        w = philox(a, b, stream, SINGLES + count, low, high)
        for j in range(4):
            if not found:
                lower, upper = product(w[0] if j == 0 else w[1] if j == 1 else w[2] if j == 2 else w[3], span)
                found = lower >= least
        count += 1
    return upper


@inlined
def _wide(number: Any, stream: Any, low: Any, high: Any, last_low: Any, last_high: Any, mask_high: Any) -> Any:
    a, b, count, lower, upper = number & WORD, number >> 32 & WORD, 0, 0, 0
    found = False
    while not found and count < MOST_ATTEMPTS:
        w = philox(a, b, stream, SINGLES + count, low, high)
        for j in range(2):
            if not found:
                lower, upper = (w[0], w[1] & mask_high) if j == 0 else (w[2], w[3] & mask_high)
                found = upper < last_high or (upper == last_high and lower <= last_low)
        count += 1
    return lower, upper


@inlined
def _mask_of(last_high: Any) -> Any:
    """Return all bits up to the highest one."""
    mask = last_high
    for j in range(5):
        mask |= mask >> (1 << j)
    return mask


def _writer(dtype: str) -> Any:
    """Return the function that stores the sum of two integers, each of two words."""
    mask = (1 << 8 * np.dtype(dtype).itemsize) - 1
    whole = np.dtype(dtype).itemsize == 8

    def put(out: Any, at: Any, least: Any, lower: Any, upper: Any) -> None:
        both = (least & WORD) + lower
        top = (least >> 32 & WORD) + upper + (both >> 32) & WORD
        if whole:
            out[at] = ((top ^ 0x80000000) - 0x80000000 << 32) + (both & WORD)
        else:
            out[at] = both & mask

    return inlined(put)


def integers(dtype: str, plain: bool, given: bool, engine: str = "philox") -> Kernel:
    """Return the kernel of integers from `low` to `low` plus `last`; other parameters as of `fill.fill`."""
    place = contiguous_place if plain else strided_place
    put, words = _writer(dtype), shared_words(engine, QUADS, 2)

    def integers(
        out: Any, from_: Any, least: Any, last: Any, seed: Any, stream: Any, offset: Any, n: Any,
        n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
    ) -> None:  # fmt: skip
        group = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        low, high = seed & WORD, seed >> 32 & WORD
        last_low, last_high = last & WORD, last >> 32 & WORD
        if last_high != 0:
            mask_high = _mask_of(last_high)
            while group < n:
                lower, upper = _wide(start + group, stream, low, high, last_low, last_high, mask_high)
                put(out, place(group, n1, n2, n3, o0, o1, o2, o3), least, lower, upper)
                group += np.int64(cuda.gridDim.x) * cuda.blockDim.x
        else:
            skip = start & 3
            span = last_low + 1
            unfair = (1 << 32) % span
            while group << 2 < n + skip:
                number = (start >> 2) + group
                w = words(number, stream, low, high)
                for j in range(4):
                    i = (group << 2) + j - skip
                    if i >= 0 and i < n:
                        upper = w[0] if j == 0 else w[1] if j == 1 else w[2] if j == 2 else w[3]
                        if last_low != WORD:
                            lower, upper = product(upper, span)
                            if lower < unfair:
                                upper = _again(start + i, stream, low, high, span, unfair)
                        put(out, place(i, n1, n2, n3, o0, o1, o2, o3), least, upper, 0)
                group += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = f"*{STORED[dtype]}"
    types = (pointer, "*int64" if given else pointer, *("int64",) * 13)
    return integers, types


def _limits(dtype: str, kinds: tuple[str, str]) -> Any:
    """Return the function from the bounds of an element to low, the largest number, and whether the range is sound.

    The upper bound is the first number beyond the range in an array, and else the largest one, which of uint64 may have
    the bits of a negative number.
    """
    info = np.iinfo(dtype)
    least, most, wraps = int(info.min), min(int(info.max) + 1, 2**63 - 1), dtype == "uint64"

    def beyond(low: Any, high: Any) -> Any:
        return high - 1, low >= least and high > low and high <= most

    def largest(low: Any, high: Any) -> Any:
        return high, low >= least and (low <= high or (wraps and high < 0))

    return inlined(largest if kinds[1] == "number" else beyond)


def _reader(kind: str) -> Any:
    if kind == "number":
        return inlined(lambda pointer, at, number: number)
    return inlined(lambda pointer, at, number: np.int64(pointer[at]))


def ranges(dtype: str, kinds: tuple[str, str], given: bool, engine: str = "philox") -> Kernel:
    """Return the kernel of integers whose bounds are arrays, or an array and a number.

    Parameters
    ----------
    dtype : str
    kinds : (str, str)
        Of `low` and of the upper bound: ``"number"``, or the dtype of its array, ``"int32"`` or ``"int64"``.
    given, engine
        As of `fill.fill`.
    """
    put, words, limits = _writer(dtype), shared_words(engine, QUADS, 2), _limits(dtype, kinds)
    read0, read1 = (_reader(kind) for kind in kinds)

    def ranges(
        out: Any, p0: Any, p1: Any, from_: Any, report: Any, v0: Any, v1: Any, seed: Any, stream: Any, offset: Any,
        n: Any, n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
        a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, b3: Any,
    ) -> None:  # fmt: skip
        group = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        low, high = seed & WORD, seed >> 32 & WORD
        skip = start & 3
        while group << 2 < n + skip:
            w = words((start >> 2) + group, stream, low, high)
            for j in range(4):
                i = (group << 2) + j - skip
                if i >= 0 and i < n:
                    least = read0(p0, strided_place(i, n1, n2, n3, a0, a1, a2, a3), v0)
                    most, sound = limits(least, read1(p1, strided_place(i, n1, n2, n3, b0, b1, b2, b3), v1))
                    if not sound:
                        report[0] = 1
                        most = least
                    last = most - least
                    last_low, last_high = last & WORD, last >> 32 & WORD
                    lower, upper = w[0] if j == 0 else w[1] if j == 1 else w[2] if j == 2 else w[3], last_high
                    if last_high != 0:
                        lower, upper = _wide(start + i, stream, low, high, last_low, last_high, _mask_of(last_high))
                    elif last_low != WORD:
                        span = last_low + 1
                        rest, lower = product(lower, span)
                        if rest < span:  # which the least number of a fair word is below, too
                            unfair = (1 << 32) % span
                            if rest < unfair:
                                lower = _again(start + i, stream, low, high, span, unfair)
                    put(out, strided_place(i, n1, n2, n3, o0, o1, o2, o3), least, lower, upper)
            group += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = f"*{STORED[dtype]}"
    bounds = (pointer if kind == "number" else f"*{kind}" for kind in kinds)
    return ranges, (pointer, *bounds, "*int64" if given else pointer, "*int32", *("int64",) * 21)
