"""Elements of kernels for all floating-point dtypes: eight at a time, as tuples of the computation type.

Rows are read and written in groups of eight neighbours: 16 bytes at a time if a group is complete and aligned,
otherwise one by one, with zeros beyond the end.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ..api import inlined
from .intrinsics import address, bfloat16_pair, bits_of, float_of, float_of_half, half_of, load4, store4
from .scalars import bfloat16_of

__all__ = ["NARROW", "READERS", "STORAGE", "WORDS", "WRITERS", "Element", "aligned", "element", "mapped"]


#: Dtypes of 16 bits.
NARROW: Final = ("float16", "bfloat16")


class Element(NamedTuple):
    """Device functions for the elements of a dtype.

    Attributes
    ----------
    pointer : str
        Type of a kernel's parameter.
    itemsize : int
    real : type
        Computation type.
    get, put
        ``get(x, at, left, fast)`` and ``put(x, at, values, left, fast)`` for a group with `left` valid elements.
    rounded
        A number rounded to the dtype.
    load, store
        ``load(x, at)`` and ``store(x, at, values)`` for a complete group, aligned to 16 bytes.
    """

    pointer: str
    itemsize: int
    real: Any
    get: Any
    put: Any
    rounded: Any
    load: Any
    store: Any


@inlined
def aligned(pointer: Any, at: Any, step: Any, itemsize: Any) -> Any:
    """Return whether groups of rows that begin `at` elements after a pointer, `step` apart, are aligned to 16 bytes."""
    return ((address(pointer) + at * itemsize) | step * itemsize) & 15 == 0


# ---------------------------------------------------------------------------------------------- one, and eight


@inlined
def _same(word: Any) -> Any:
    return float_of(word)


@inlined
def _upper(word: Any) -> Any:
    return float_of(np.int64(word) << 16)


@inlined
def _half(word: Any) -> Any:
    return float_of_half(word)


@inlined
def _number(value: Any) -> Any:
    return value


@inlined
def _words_float32(x: Any, at: Any) -> Any:
    a, b = load4(x, at * 4), load4(x, at * 4 + 16)
    return a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]


@inlined
def _words_narrow(x: Any, at: Any) -> Any:
    return load4(x, at * 2)


@inlined
def _numbers_float32(a: Any) -> Any:
    return (
        float_of(a[0]), float_of(a[1]), float_of(a[2]), float_of(a[3]),
        float_of(a[4]), float_of(a[5]), float_of(a[6]), float_of(a[7]),
    )  # fmt: skip


@inlined
def _numbers_bfloat16(a: Any) -> Any:
    return (
        float_of(a[0] << 16), float_of(a[0] & 0xFFFF0000), float_of(a[1] << 16), float_of(a[1] & 0xFFFF0000),
        float_of(a[2] << 16), float_of(a[2] & 0xFFFF0000), float_of(a[3] << 16), float_of(a[3] & 0xFFFF0000),
    )  # fmt: skip


@inlined
def _numbers_float16(a: Any) -> Any:
    return (
        float_of_half(a[0]), float_of_half(a[0] >> 16), float_of_half(a[1]), float_of_half(a[1] >> 16),
        float_of_half(a[2]), float_of_half(a[2] >> 16), float_of_half(a[3]), float_of_half(a[3] >> 16),
    )  # fmt: skip


def _loader(words: Any, numbers: Any) -> Any:
    @inlined
    def load(x: Any, at: Any) -> Any:
        return numbers(words(x, at))

    return load


@inlined
def _load_float64(x: Any, at: Any) -> Any:
    return x[at], x[at + 1], x[at + 2], x[at + 3], x[at + 4], x[at + 5], x[at + 6], x[at + 7]


@inlined
def _bits(value: Any) -> Any:
    return bits_of(np.float32(value))


@inlined
def _bfloat16(value: Any) -> Any:
    return bfloat16_of(np.float32(value))


@inlined
def _float16(value: Any) -> Any:
    return half_of(np.float32(value))


@inlined
def _double(value: Any) -> Any:
    return np.float64(value)


@inlined
def _store_float32(out: Any, at: Any, v: Any) -> None:
    store4(out, at * 4, (_bits(v[0]), _bits(v[1]), _bits(v[2]), _bits(v[3])))
    store4(out, at * 4 + 16, (_bits(v[4]), _bits(v[5]), _bits(v[6]), _bits(v[7])))


@inlined
def _store_float64(out: Any, at: Any, v: Any) -> None:
    out[at], out[at + 1], out[at + 2], out[at + 3] = v[0], v[1], v[2], v[3]
    out[at + 4], out[at + 5], out[at + 6], out[at + 7] = v[4], v[5], v[6], v[7]


@inlined
def _bfloat16_pair(low: Any, high: Any) -> Any:
    return bfloat16_pair(np.float32(low), np.float32(high))


@inlined
def _float16_pair(low: Any, high: Any) -> Any:
    return np.uint32(_float16(low) | np.int64(_float16(high)) << 16)


def _narrow_store(pair: Any) -> Any:
    @inlined
    def store(out: Any, at: Any, v: Any) -> None:
        store4(out, at * 2, (pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7])))

    return store


#: For each dtype: pointer, size, type; functions that read and round one element, and load and store eight.
_KINDS: Final = {
    "float32": ("*uint32", 4, np.float32, _same, _bits, _loader(_words_float32, _numbers_float32), _store_float32),
    "bfloat16": (
        "*uint16",
        2,
        np.float32,
        _upper,
        _bfloat16,
        _loader(_words_narrow, _numbers_bfloat16),
        _narrow_store(_bfloat16_pair),
    ),
    "float16": (
        "*uint16",
        2,
        np.float32,
        _half,
        _float16,
        _loader(_words_narrow, _numbers_float16),
        _narrow_store(_float16_pair),
    ),
    "float64": ("*float64", 8, np.float64, _number, _double, _load_float64, _store_float64),
}


#: For float32, bfloat16 and float16: the word type of kernels' pointers; readers of one element from its word, and of
#: eight; loads of the words of eight elements, and their conversion; writers of one element, and of eight.
STORAGE: Final = {dtype: kind[0][1:] for dtype, kind in _KINDS.items() if dtype != "float64"}
READERS: Final = {dtype: (kind[3], kind[5]) for dtype, kind in _KINDS.items() if dtype != "float64"}
WORDS: Final = {
    "float32": (_words_float32, _numbers_float32),
    "bfloat16": (_words_narrow, _numbers_bfloat16),
    "float16": (_words_narrow, _numbers_float16),
    "float64": (_load_float64, _number),
}
WRITERS: Final = {dtype: (kind[4], kind[6]) for dtype, kind in _KINDS.items() if dtype != "float64"}


def element(dtype: str) -> Element:
    """Return the device functions of a dtype: float32, float16, bfloat16 or float64."""
    pointer, itemsize, real, one, bits, load, store = _KINDS[dtype]
    zero = real(0)

    @inlined
    def get(x: Any, at: Any, left: Any, fast: Any) -> Any:
        if fast and left >= 8:
            return load(x, at)
        return (
            one(x[at]) if left > 0 else zero,
            one(x[at + 1]) if left > 1 else zero,
            one(x[at + 2]) if left > 2 else zero,
            one(x[at + 3]) if left > 3 else zero,
            one(x[at + 4]) if left > 4 else zero,
            one(x[at + 5]) if left > 5 else zero,
            one(x[at + 6]) if left > 6 else zero,
            one(x[at + 7]) if left > 7 else zero,
        )

    @inlined
    def put(out: Any, at: Any, v: Any, left: Any, fast: Any) -> None:
        if fast and left >= 8:
            store(out, at, v)
        else:
            if left > 0:
                out[at] = bits(v[0])
            if left > 1:
                out[at + 1] = bits(v[1])
            if left > 2:
                out[at + 2] = bits(v[2])
            if left > 3:
                out[at + 3] = bits(v[3])
            if left > 4:
                out[at + 4] = bits(v[4])
            if left > 5:
                out[at + 5] = bits(v[5])
            if left > 6:
                out[at + 6] = bits(v[6])
            if left > 7:
                out[at + 7] = bits(v[7])

    @inlined
    def rounded(value: Any) -> Any:
        return one(bits(value))

    return Element(pointer, itemsize, real, get, put, rounded, load, store)


def mapped(function: Any, count: int) -> Any:
    """Return a device function that applies a function to each element of `count` groups."""

    @inlined
    def one(a: Any) -> Any:
        return (
            function(a[0]), function(a[1]), function(a[2]), function(a[3]),
            function(a[4]), function(a[5]), function(a[6]), function(a[7]),
        )  # fmt: skip

    @inlined
    def two(a: Any, b: Any) -> Any:
        return (
            function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2]), function(a[3], b[3]),
            function(a[4], b[4]), function(a[5], b[5]), function(a[6], b[6]), function(a[7], b[7]),
        )  # fmt: skip

    @inlined
    def three(a: Any, b: Any, c: Any) -> Any:
        return (
            function(a[0], b[0], c[0]), function(a[1], b[1], c[1]), function(a[2], b[2], c[2]),
            function(a[3], b[3], c[3]), function(a[4], b[4], c[4]), function(a[5], b[5], c[5]),
            function(a[6], b[6], c[6]), function(a[7], b[7], c[7]),
        )  # fmt: skip

    return (one, two, three)[count - 1]
