"""Kernels that fill arrays with random numbers: a thread has the elements of one counter, or one element.

The words of an element depend on seed, stream and the element's position alone: docs/libraries/random.md says how.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import STORAGE, WRITERS, element
from ....compile.numba.device.intrinsics import address, bits_of, float_of, store2, store4
from ....compile.numba.device.philox import philox
from ....compile.numba.device.rounded import (
    double_bits,
    double_of,
    floor,
    near_quotient,
    near_root,
    product_of,
    root_of,
)
from . import curand, formulas
from .formulas import ATTEMPTS, allowed, below
from .functions import Arithmetic
from .integers import integers, ranges
from .places import WORD, contiguous_place, shared_words, strided_place
from .positions import (
    BITS,
    LIMITS,
    MOST_ATTEMPTS,
    PAIRS,
    QUADS,
    REJECTING,
    SINGLES,
    STORED,
    computed,
    per_counter,
)  # fmt: skip

__all__ = ["DOUBLE", "clear", "fill", "integers", "ranges", "reject"]

Kernel = tuple[Any, tuple[str, ...]]

#: Registers of a thread that leave room for six blocks on a multiprocessor.
_REGISTERS: Final = 40
_TERMS: Final = 200


@inlined
def _select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


@inlined
def _single_bits(value: Any) -> Any:
    return np.int64(bits_of(value))


@inlined
def _single_of(bits: Any) -> Any:
    return float_of(bits & WORD)


@inlined
def _to_single(value: Any) -> Any:
    return np.float32(np.int32(value))


@inlined
def _word_to_single(word: Any) -> Any:
    return np.float32(np.uint32(word))


@inlined
def _word_to_double(word: Any) -> Any:
    return np.float64(np.uint32(word))


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
        np.float32, inlined, product_of(np.float32), root_of(np.float32), near_quotient, near_root, None, _select,
        _single_bits, _single_of, _to_single, _to_int, _word_to_single, None,
    ),
    np.float64: Arithmetic(
        np.float64, inlined, _multiply, root_of(np.float64), inlined(lambda a, b: a / b), root_of(np.float64), floor,
        _select, double_bits, double_of, _to_double, _to_int, _word_to_double, _search,
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


@inlined
def _store_words(out: Any, at: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    store4(out, at, (np.uint32(a), np.uint32(b), np.uint32(c), np.uint32(d)))


@inlined
def _store_halves(out: Any, at: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    low = np.uint32(np.int64(a) & 0xFFFF | np.int64(b) << 16)
    store2(out, at, (low, np.uint32(np.int64(c) & 0xFFFF | np.int64(d) << 16)))


#: Stores of a counter's elements by one access, and the bytes of an element.
_STORES: Final = {
    "float32": (_store_words, 4),
    "float16": (_store_halves, 2),
    "bfloat16": (_store_halves, 2),
}


def _reader(kind: str, real: Any) -> Any:
    """Return the function from a pointer, a place and a scalar to a parameter."""
    if kind == "number":
        return inlined(lambda pointer, at, number: real(number))
    return inlined(lambda pointer, at, number: real(pointer[at]))


def registers(distribution: str = "", dtype: str = "", plain: bool = False, **_: Any) -> int | None:
    """Return the most registers of a thread, of a kernel that writes four elements by one store."""
    fast = plain and dtype in _STORES and distribution not in REJECTING
    return _REGISTERS if fast and computed(distribution, dtype) is np.float32 else None


def clear() -> Kernel:
    """Return the kernel that clears the word to which the others report parameters beyond their limits."""

    def clear(report: Any) -> None:
        report[0] = 0

    return clear, ("*int32",)


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
    place = contiguous_place if plain else strided_place
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


def fill(
    distribution: str, dtype: str, kinds: tuple[str, ...], plain: bool, given: bool, engine: str = "philox"
) -> Kernel:
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
    engine : str
        As `RandomRequest` has it.
    """
    o, parameters, place, stored, sound, checks, types = _common(distribution, dtype, kinds, plain, given)
    share, methods = per_counter(distribution, dtype), curand if engine == "curand_philox" else formulas
    if distribution == "uniform":
        rounded = element(dtype).rounded if dtype in ("float16", "bfloat16") else inlined(lambda value: value)
        finish = methods.FINISHES[distribution](o, rounded, below(o, dtype))
    else:
        finish = methods.FINISHES[distribution](o, None, None)
    draw = methods.DRAWS[distribution](o, BITS.get(dtype, 0))
    kind, shift, inside = (QUADS, 2, share - 1) if share == 4 else (PAIRS, 1, share - 1)
    four, words = share == 4, shared_words(engine, kind, shift)
    together, size = _STORES.get(dtype, (_store_words, 4))
    fast = plain and dtype in _STORES and four
    last = share * size - 1

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
        low, high = seed & WORD, seed >> 32 & WORD
        skip = start & inside
        step = np.int64(cuda.gridDim.x) * cuda.blockDim.x
        if fast and skip == 0 and address(out) & last == 0:
            a, b, c, d = parameters(
                p0, p1, p2, p3, v0, v1, v2, v3, 0, n1, n2, n3,
                a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
            )  # fmt: skip
            while group < n >> shift:
                z = draw(words((start >> shift) + group, stream, low, high))
                if four:
                    y0, y1 = stored(finish(z[0], a, b, c, d)), stored(finish(z[1], a, b, c, d))
                    y2, y3 = stored(finish(z[2], a, b, c, d)), stored(finish(z[3], a, b, c, d))
                    together(out, group * (last + 1), y0, y1, y2, y3)
                group += step
        while group << shift < n + skip:
            z = draw(words((start >> shift) + group, stream, low, high))
            for j in range(share):
                if four:
                    value = z[0] if j == 0 else z[1] if j == 1 else z[2] if j == 2 else z[3]
                else:
                    value = z[0] if j == 0 else z[1]
                one(
                    out, p0, p1, p2, p3, report, v0, v1, v2, v3, (group << shift) + j - skip, value, n, n1, n2, n3,
                    o0, o1, o2, o3, a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3,
                )  # fmt: skip
            group += step

    return fill, types


def reject(distribution: str, dtype: str, kinds: tuple[str, ...], plain: bool, given: bool) -> Kernel:
    """Return the kernel of a distribution by rejection; parameters as of `fill`."""
    o, parameters, place, stored, sound, checks, types = _common(distribution, dtype, kinds, plain, given)
    calls, make = ATTEMPTS[distribution]
    attempt = make(o)

    @inlined
    def words(number: Any, count: Any, stream: Any, low: Any, high: Any) -> Any:
        a, b, c = number & WORD, number >> 32 & WORD, SINGLES + count * calls
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
        low, high = seed & WORD, seed >> 32 & WORD
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
