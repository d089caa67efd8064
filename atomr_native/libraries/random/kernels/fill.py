"""Kernels that fill arrays with random numbers: a thread has the elements of one counter, or one element.

The words of an element depend on seed, stream and the element's position alone: docs/libraries/random.md says how.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import STORAGE, WRITERS, element
from ....compile.numba.device.intrinsics import bits_of, float_of, product
from ....compile.numba.device.philox import philox
from ....compile.numba.device.rounded import double_bits, double_of, floor, product_of, root_of
from .formulas import ATTEMPTS, DRAWS, FINISHES, allowed, below
from .functions import Arithmetic
from .positions import BITS, LIMITS, MOST_ATTEMPTS, PAIRS, QUADS, SINGLES, STORED, computed, per_counter

__all__ = ["DOUBLE", "clear", "fill", "integers", "reject"]

Kernel = tuple[Any, tuple[str, ...]]

_WORD: Final = 0xFFFFFFFF
_TERMS: Final = 200


@inlined
def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


@inlined
def _single_bits(value: Any) -> Any:
    return np.int64(bits_of(value))


@inlined
def _single_of(bits: Any) -> Any:
    return float_of(bits & _WORD)


@inlined
def _to_single(value: Any) -> Any:
    return np.float32(value)


@inlined
def _to_double(value: Any) -> Any:
    return np.float64(value)


@inlined
def _to_int(value: Any) -> Any:
    return np.int64(value)


_multiply: Final = product_of(np.float64)


@inlined
def _search(u: Any, first: Any, a: Any, b: Any) -> Any:
    count, term, total = 0.0, first, first
    while u >= total and count < _TERMS:
        count += 1.0
        term = _multiply(term, a + b / count)
        total += term
    return count


_ARITHMETIC: Final = {
    np.float32: Arithmetic(
        np.float32, inlined, product_of(np.float32), root_of(np.float32), None, _select, _single_bits, _single_of,
        _to_single, _to_int, None,
    ),
    np.float64: Arithmetic(
        np.float64, inlined, _multiply, root_of(np.float64), floor, _select, double_bits, double_of, _to_double,
        _to_int, _search,
    ),
}  # fmt: skip
#: Operations on float64 in a kernel.
DOUBLE: Final = _ARITHMETIC[np.float64]


def _writer(dtype: str) -> tuple[str, Any]:
    """Return the type of a pointer to elements, and the function from a number to what is stored."""
    if dtype == "float64":
        return "*float64", inlined(lambda value: np.float64(value))
    if dtype in WRITERS:
        return f"*{STORAGE[dtype]}", WRITERS[dtype][0]
    limit = LIMITS[dtype]
    return f"*{STORED[dtype]}", inlined(lambda value: np.int64(value) if value < limit else np.int64(limit))


def _reader(kind: str, real: Any) -> Any:
    """Return the function from a pointer, a place and a scalar to a parameter."""
    if kind == "number":
        return inlined(lambda pointer, at, number: real(number))
    return inlined(lambda pointer, at, number: real(pointer[at]))


def clear() -> Kernel:
    """Return the kernel that clears the word to which the others report parameters beyond their limits."""

    def clear(report: Any) -> None:
        report[0] = 0

    return clear, ("*int32",)


@inlined
def _place(i: Any, n1: Any, n2: Any, n3: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the place of an element in an array, of four axes with extents n and steps s."""
    d, i = i % n3, i // n3
    c, i = i % n2, i // n2
    b, a = i % n1, i // n1
    return a * s0 + b * s1 + c * s2 + d * s3


@inlined
def _at(i: Any, n1: Any, n2: Any, n3: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the place of an element in a contiguous array."""
    return i


class _Common(NamedTuple):
    """Parts that kernels of distributions have in common.

    Attributes
    ----------
    arithmetic : Arithmetic
    parameters, place, stored, sound
        Device functions: an element's parameters and its place, its word, and whether parameters are within limits.
    checks : bool
        Whether parameters are checked, since some are arrays.
    types : tuple of str
        Of a kernel's parameters.
    """

    arithmetic: Arithmetic
    parameters: Any
    place: Any
    stored: Any
    sound: Any
    checks: bool
    types: tuple[str, ...]


def _common(distribution: str, dtype: str, kinds: tuple[str, ...], plain: bool, given: bool) -> _Common:
    real = computed(distribution, dtype)
    o = _ARITHMETIC[real]
    pointer, stored = _writer(dtype)
    read0, read1, read2, read3 = (_reader("number" if kind == "none" else kind, real) for kind in kinds)
    checks = any(kind.startswith("float") for kind in kinds)
    sound = allowed(o, distribution)
    place = _at if plain else _place
    types = (
        pointer,
        *("*float64" if kind == "float64" else "*float32" if kind == "float32" else pointer for kind in kinds),
        "*int64" if given else pointer,
        "*int32" if checks else pointer,
        *("float64" if kind == "number" else "int64" for kind in kinds),
        *("int64",) * 27,
    )

    @inlined
    def parameters(
        p0: Any, p1: Any, p2: Any, p3: Any, v0: Any, v1: Any, v2: Any, v3: Any, i: Any, n1: Any, n2: Any, n3: Any,
        a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, b3: Any,
        c0: Any, c1: Any, c2: Any, c3: Any, d0: Any, d1: Any, d2: Any, d3: Any,
    ) -> Any:  # fmt: skip
        return (
            read0(p0, place(i, n1, n2, n3, a0, a1, a2, a3), v0),
            read1(p1, place(i, n1, n2, n3, b0, b1, b2, b3), v1),
            read2(p2, place(i, n1, n2, n3, c0, c1, c2, c3), v2),
            read3(p3, place(i, n1, n2, n3, d0, d1, d2, d3), v3),
        )

    return _Common(o, parameters, place, stored, sound, checks, types)


def fill(distribution: str, dtype: str, kinds: tuple[str, ...], plain: bool, given: bool) -> Kernel:
    """Return the kernel of a distribution by inversion.

    Parameters
    ----------
    distribution, dtype : str
    kinds : tuple of str
        Of each parameter: ``"number"``, ``"none"``, or the dtype of its array, ``"float32"`` or ``"float64"``.
    plain : bool
        Whether `out` is contiguous and no parameter an array, so that places need no division.
    given : bool
        Whether the offset is in memory.
    """
    o, parameters, place, stored, sound, checks, types = _common(distribution, dtype, kinds, plain, given)
    share = per_counter(distribution, dtype)
    if distribution == "uniform":
        rounded = element(dtype).rounded if dtype in ("float16", "bfloat16") else inlined(lambda value: value)
        finish = FINISHES[distribution](o, rounded, below(o, dtype))
    else:
        finish = FINISHES[distribution](o, None, None)
    draw = DRAWS[distribution](o, BITS.get(dtype, 0))
    kind, shift, inside = (QUADS, 2, share - 1) if share == 4 else (PAIRS, 1, share - 1)
    four = share == 4

    @inlined
    def one(
        out: Any, p0: Any, p1: Any, p2: Any, p3: Any, report: Any, v0: Any, v1: Any, v2: Any, v3: Any,
        i: Any, z: Any, n: Any, n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
        a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, b3: Any,
        c0: Any, c1: Any, c2: Any, c3: Any, d0: Any, d1: Any, d2: Any, d3: Any,
    ) -> None:  # fmt: skip
        if i >= 0 and i < n:
            a, b, c, d = parameters(
                p0, p1, p2, p3, v0, v1, v2, v3, i, n1, n2, n3,
                a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
            )  # fmt: skip
            if checks and not sound(a, b, c, d):
                report[0] = 1
            out[place(i, n1, n2, n3, o0, o1, o2, o3)] = stored(finish(z, a, b, c, d))

    def fill(
        out: Any, p0: Any, p1: Any, p2: Any, p3: Any, from_: Any, report: Any, v0: Any, v1: Any, v2: Any, v3: Any,
        seed: Any, stream: Any, offset: Any, n: Any, n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
        a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, b3: Any,
        c0: Any, c1: Any, c2: Any, c3: Any, d0: Any, d1: Any, d2: Any, d3: Any,
    ) -> None:  # fmt: skip
        group = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        low, high = seed & _WORD, seed >> 32 & _WORD
        skip = start & inside
        while group << shift < n + skip:
            number = (start >> shift) + group
            z = draw(philox(number & _WORD, number >> 32 & (_WORD >> shift), stream, kind, low, high))
            for j in range(share):
                if four:
                    value = z[0] if j == 0 else z[1] if j == 1 else z[2] if j == 2 else z[3]
                else:
                    value = z[0] if j == 0 else z[1]
                one(
                    out, p0, p1, p2, p3, report, v0, v1, v2, v3, (group << shift) + j - skip, value, n, n1, n2, n3,
                    o0, o1, o2, o3, a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
                )  # fmt: skip
            group += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    return fill, types


def reject(distribution: str, dtype: str, kinds: tuple[str, ...], plain: bool, given: bool) -> Kernel:
    """Return the kernel of a distribution by rejection; parameters as of `fill`."""
    o, parameters, place, stored, sound, checks, types = _common(distribution, dtype, kinds, plain, given)
    calls, make = ATTEMPTS[distribution]
    attempt = make(o)

    @inlined
    def words(number: Any, count: Any, stream: Any, low: Any, high: Any) -> Any:
        a, b, c = number & _WORD, number >> 32 & _WORD, SINGLES + count * calls
        first = philox(a, b, stream, c, low, high)
        if calls == 1:
            return first + first
        if calls == 2:
            return first + philox(a, b, stream, c + 1, low, high)
        return first + philox(a, b, stream, c + 1, low, high) + philox(a, b, stream, c + 2, low, high)

    def reject(
        out: Any, p0: Any, p1: Any, p2: Any, p3: Any, from_: Any, report: Any, v0: Any, v1: Any, v2: Any, v3: Any,
        seed: Any, stream: Any, offset: Any, n: Any, n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
        a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, b2: Any, b3: Any,
        c0: Any, c1: Any, c2: Any, c3: Any, d0: Any, d1: Any, d2: Any, d3: Any,
    ) -> None:  # fmt: skip
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        low, high = seed & _WORD, seed >> 32 & _WORD
        while i < n:
            a, b, c, d = parameters(
                p0, p1, p2, p3, v0, v1, v2, v3, i, n1, n2, n3,
                a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
            )  # fmt: skip
            if checks and not sound(a, b, c, d):
                report[0] = 1
            found, value, count = False, 0.0, 0
            while not found and count < MOST_ATTEMPTS:
                found, value = attempt(words(start + i, count, stream, low, high), a, b, c, d)
                count += 1
            out[place(i, n1, n2, n3, o0, o1, o2, o3)] = stored(value)
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    return reject, types


def integers(dtype: str, plain: bool, given: bool) -> Kernel:
    """Return the kernel of integers from `low` to `low` plus `last`; other parameters as of `fill`.

    Ranges of up to 2**32 numbers are the upper halves of products (D. Lemire, "Fast random integer generation in an
    interval", 2019); wider ones are words without the bits that no number of the range has.  A word that would bring a
    bias makes the element draw from its own sequence.
    """
    place = _at if plain else _place
    mask = (1 << 8 * np.dtype(dtype).itemsize) - 1
    whole = np.dtype(dtype).itemsize == 8

    @inlined
    def again(number: Any, stream: Any, low: Any, high: Any, span: Any, least: Any) -> Any:
        a, b, count, upper, lower = number & _WORD, number >> 32 & _WORD, 0, 0, 0
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
    def wide(number: Any, stream: Any, low: Any, high: Any, last_low: Any, last_high: Any, mask_high: Any) -> Any:
        a, b, count, lower, upper = number & _WORD, number >> 32 & _WORD, 0, 0, 0
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
    def put(out: Any, at: Any, least: Any, lower: Any, upper: Any) -> None:
        both = (least & _WORD) + lower
        top = (least >> 32 & _WORD) + upper + (both >> 32) & _WORD
        if whole:
            out[at] = ((top ^ 0x80000000) - 0x80000000 << 32) + (both & _WORD)
        else:
            out[at] = both & mask

    def integers(
        out: Any, from_: Any, least: Any, last: Any, seed: Any, stream: Any, offset: Any, n: Any,
        n1: Any, n2: Any, n3: Any, o0: Any, o1: Any, o2: Any, o3: Any,
    ) -> None:  # fmt: skip
        group = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        low, high = seed & _WORD, seed >> 32 & _WORD
        last_low, last_high = last & _WORD, last >> 32 & _WORD
        if last_high != 0:
            mask_high = last_high
            for j in range(5):
                mask_high |= mask_high >> (1 << j)
            while group < n:
                lower, upper = wide(start + group, stream, low, high, last_low, last_high, mask_high)
                put(out, place(group, n1, n2, n3, o0, o1, o2, o3), least, lower, upper)
                group += np.int64(cuda.gridDim.x) * cuda.blockDim.x
        else:
            skip = start & 3
            span = last_low + 1
            unfair = (1 << 32) % span
            while group << 2 < n + skip:
                number = (start >> 2) + group
                w = philox(number & _WORD, number >> 32 & (_WORD >> 2), stream, QUADS, low, high)
                for j in range(4):
                    i = (group << 2) + j - skip
                    if i >= 0 and i < n:
                        upper = w[0] if j == 0 else w[1] if j == 1 else w[2] if j == 2 else w[3]
                        if last_low != _WORD:
                            lower, upper = product(upper, span)
                            if lower < unfair:
                                upper = again(start + i, stream, low, high, span, unfair)
                        put(out, place(i, n1, n2, n3, o0, o1, o2, o3), least, upper, 0)
                group += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = f"*{STORED[dtype]}"
    types = (pointer, "*int64" if given else pointer, *("int64",) * 13)
    return integers, types
