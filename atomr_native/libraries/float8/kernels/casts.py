"""Device functions of all float8 kernels: magnitudes of a group of elements, their codes, and decoding."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import WORDS
from ....compile.numba.device.intrinsics import (
    address,
    bits_of,
    first_halves,
    float_of,
    float_of_half,
    halves_of_e4m3,
    halves_of_e5m2,
    larger_halves,
    last_halves,
    swapped,
    to_e4m3,
    to_e5m2,
)
from ....compile.numba.device.scalars import decoder, encoder

__all__ = ["aligned", "all_of", "has_pairs", "meter", "once", "packer", "row_sizes_of", "size_of", "unpacker"]

_SIGNLESS: Final = 0x7FFF7FFF  # of two elements of 16 bits


@inlined
def size_of(value: Any) -> Any:
    """Return the bits of a float32 without its sign: they are ordered as magnitudes, with NaN above infinity."""
    return np.int32(bits_of(value) & 0x7FFFFFFF)


@inlined
def _larger(a: Any, b: Any) -> Any:
    return max(a, b)


@inlined
def _same(size: Any) -> Any:
    return size


def meter(source: str, pairs: bool) -> tuple[Any, Any, Any]:
    """Return device functions: the largest magnitude of eight elements' words, the larger of two, its `size_of`.

    With `pairs`, what they pass around is the magnitudes of two elements of 16 bits.
    """
    _, numbers = WORDS[source]
    if not pairs:

        @inlined
        def largest(words: Any) -> Any:
            v = numbers(words)
            return max(
                max(max(size_of(v[0]), size_of(v[1])), max(size_of(v[2]), size_of(v[3]))),
                max(max(size_of(v[4]), size_of(v[5])), max(size_of(v[6]), size_of(v[7]))),
            )

        return largest, _larger, _same
    narrow = source == "bfloat16"

    @inlined
    def largest_pair(w: Any) -> Any:
        return larger_halves(
            larger_halves(w[0] & _SIGNLESS, w[1] & _SIGNLESS), larger_halves(w[2] & _SIGNLESS, w[3] & _SIGNLESS)
        )

    @inlined
    def size(pair: Any) -> Any:
        half = max(np.int64(pair) & 0xFFFF, np.int64(pair) >> 16)
        return np.int32(half << 16) if narrow else np.int32(bits_of(float_of_half(half)))

    return largest_pair, larger_halves, size


def has_pairs(source: str, pairs: bool) -> bool:
    """Return whether elements are loaded and compared in pairs."""
    return pairs and source != "float32"


def all_of(joined: Any) -> Any:
    """Return a device function to the largest of eight."""

    @inlined
    def all_(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        return joined(joined(joined(a, b), joined(c, d)), joined(joined(e, f), joined(g, h)))

    return all_


def _split(joined: Any) -> Any:
    """Return a device function that combines one of two values with another thread's, which combines the other."""

    @inlined
    def split(low: Any, high: Any, distance: Any) -> Any:
        upper = (cuda.threadIdx.x & distance) != 0
        kept, sent = (high, low) if upper else (low, high)
        return joined(kept, swapped(np.int32(sent), distance))

    return split


def row_sizes_of(pairs: bool, size: Any) -> Any:
    """Return a device function from the maxima of eight rows in each of 16 threads to the maximum of one row.

    That is row i of threads 2 * i and 2 * i + 1.
    """
    joined = larger_halves if pairs else _larger
    split = _split(joined)
    if not pairs:

        @inlined
        def sizes(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
            a, b, c, d = split(a, e, 8), split(b, f, 8), split(c, g, 8), split(d, h, 8)
            found = split(split(a, c, 4), split(b, d, 4), 2)
            return max(found, swapped(found, 1))

        return sizes

    @inlined
    def two(a: Any, b: Any) -> Any:
        return larger_halves(first_halves(a, b), last_halves(a, b))

    @inlined
    def sizes_of_pairs(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        found = split(split(two(a, b), two(e, f), 8), split(two(c, d), two(g, h), 8), 4)
        found = larger_halves(found, swapped(np.int32(found), 2))
        found = larger_halves(found, swapped(np.int32(found), 1))
        found = np.int64(found)
        return size(np.uint32(found >> 16 if cuda.threadIdx.x & 2 != 0 else found & 0xFFFF))

    return sizes_of_pairs


@inlined
def once(value: Any, there: Any) -> Any:
    """Return a float32, which the compiler takes to need another number first."""
    nothing = np.uint32(cuda.gridDim.z - 1)
    return float_of(bits_of(value) ^ np.uint32(there) & nothing)


def packer(dtype: str, saturate: bool, hardware: bool) -> Any:
    """Return a device function from eight elements to their codes, in two words."""
    if hardware and saturate:
        four = to_e4m3 if dtype == "float8_e4m3fn" else to_e5m2

        @inlined
        def convert(v: Any, f: Any) -> Any:
            return four(v[0] * f, v[1] * f, v[2] * f, v[3] * f), four(v[4] * f, v[5] * f, v[6] * f, v[7] * f)

        return convert
    one = encoder(dtype, saturate)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def word(a: Any, b: Any, c: Any, d: Any) -> Any:
        return np.uint32(one(a) | one(b) << 8 | one(c) << 16 | one(d) << 24)

    @inlined
    def pack(v: Any, f: Any) -> Any:
        return word(v[0] * f, v[1] * f, v[2] * f, v[3] * f), word(v[4] * f, v[5] * f, v[6] * f, v[7] * f)

    return pack


@inlined
def aligned(pointer: Any, first: Any, second: Any, itemsize: Any, size: Any) -> Any:
    """Return whether eight elements from any multiple of 8 columns on lie together, at a multiple of `size` bytes."""
    return second == 1 and (address(pointer) | first * itemsize) & (size - 1) == 0


def unpacker(dtype: str, hardware: bool) -> Any:
    """Return a device function from eight codes, in two words, to their values."""
    if hardware:
        halves = halves_of_e4m3 if dtype == "float8_e4m3fn" else halves_of_e5m2

        @inlined
        def convert(w: Any) -> Any:
            a, b, c, d = halves(w[0]), halves(w[0] >> 16), halves(w[1]), halves(w[1] >> 16)
            return (
                float_of_half(a), float_of_half(a >> 16), float_of_half(b), float_of_half(b >> 16),
                float_of_half(c), float_of_half(c >> 16), float_of_half(d), float_of_half(d >> 16),
            )  # fmt: skip

        return convert
    one = decoder(dtype)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def unpack(w: Any) -> Any:
        return (
            one(w[0] & 0xFF), one(w[0] >> 8 & 0xFF), one(w[0] >> 16 & 0xFF), one(w[0] >> 24),
            one(w[1] & 0xFF), one(w[1] >> 8 & 0xFF), one(w[1] >> 16 & 0xFF), one(w[1] >> 24),
        )  # fmt: skip

    return unpack
