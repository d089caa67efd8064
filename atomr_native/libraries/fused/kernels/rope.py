"""Rotary position embeddings on CUDA: see docs/libraries/fused.md for the formulas.

A block has a few tokens and all their heads, or as many as it has threads for.  It asks for its elements, computes the
angles of its tokens while they come, each once, by all of its threads, and passes them on through shared memory.  A
thread has a group of eight neighbours, and with it the eight that they are turned with unless pairs are neighbours, of
up to four heads.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import WORDS, aligned, element
from ....compile.numba.device.intrinsics import power_of_two, sine_and_cosine

__all__ = ["rope"]

Kernel = tuple[Any, tuple[str, ...]]
_HEADS: Final = 4  # of a thread
_PAIRS: Final = 256  # of a token, at most, that a block has at once
_ANGLES: Final = 2048  # of all its tokens


# ---------------------------------------------------------------------------------------------- pairs, turned


@inlined
def _first_of(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return the first elements of eight pairs, turned."""
    return (
        a[0] * c[0] - b[0] * s[0], a[1] * c[1] - b[1] * s[1], a[2] * c[2] - b[2] * s[2], a[3] * c[3] - b[3] * s[3],
        a[4] * c[4] - b[4] * s[4], a[5] * c[5] - b[5] * s[5], a[6] * c[6] - b[6] * s[6], a[7] * c[7] - b[7] * s[7],
    )  # fmt: skip


@inlined
def _second_of(a: Any, b: Any, c: Any, s: Any) -> Any:
    return (
        a[0] * s[0] + b[0] * c[0], a[1] * s[1] + b[1] * c[1], a[2] * s[2] + b[2] * c[2], a[3] * s[3] + b[3] * c[3],
        a[4] * s[4] + b[4] * c[4], a[5] * s[5] + b[5] * c[5], a[6] * s[6] + b[6] * c[6], a[7] * s[7] + b[7] * c[7],
    )  # fmt: skip


@inlined
def _neighbours(v: Any, c: Any, s: Any) -> Any:
    """Return four pairs of neighbours, turned."""
    return (
        v[0] * c[0] - v[1] * s[0], v[0] * s[0] + v[1] * c[0], v[2] * c[1] - v[3] * s[1], v[2] * s[1] + v[3] * c[1],
        v[4] * c[2] - v[5] * s[2], v[4] * s[2] + v[5] * c[2], v[6] * c[3] - v[7] * s[3], v[6] * s[3] + v[7] * c[3],
    )  # fmt: skip


@inlined
def _four(table: Any, at: Any, step: Any) -> Any:
    return (
        table[np.uint32(at)], table[np.uint32(at + step)],
        table[np.uint32(at + 2 * step)], table[np.uint32(at + 3 * step)],
    )  # fmt: skip


@inlined
def _eight(table: Any, at: Any, step: Any) -> Any:
    return _four(table, at, step) + _four(table, at + 4 * step, step)


class _Groups:
    """Device functions for a thread's part of one head: a group of neighbours, or two groups whose elements are pairs.

    Attributes
    ----------
    read
        ``read(x, at, pairs, there)``: words of whole groups, aligned; nothing unless they are `there`.
    write
        ``write(out, at, pairs, words, cosines, sines)``: these, turned.
    turn
        ``turn(x, out, at, to, pairs, left, fast, cosines, sines)``: from one array to the other what there is of them.
    angles
        ``angles(table, at, step)``: cosines or sines of a group.
    """

    def __init__(self, dtype: str, interleaved: bool) -> None:
        _, _, _, get, put, _, _, store = element(dtype)
        words, numbers = WORDS[dtype]
        empty = (np.uint32(0),) * (8 if dtype == "float32" else 4)

        @inlined
        def read(x: Any, at: Any, pairs: Any, there: Any) -> Any:
            return (words(x, at), words(x, at + pairs)) if there else (empty, empty)

        @inlined
        def write(out: Any, at: Any, pairs: Any, found: Any, c: Any, s: Any) -> None:
            a, b = numbers(found[0]), numbers(found[1])
            store(out, at, _first_of(a, b, c, s))
            store(out, at + pairs, _second_of(a, b, c, s))

        @inlined
        def turn(x: Any, out: Any, at: Any, to: Any, pairs: Any, left: Any, fast: Any, c: Any, s: Any) -> None:
            a, b = get(x, at, left, fast), get(x, at + pairs, left, fast)
            put(out, to, _first_of(a, b, c, s), left, fast)
            put(out, to + pairs, _second_of(a, b, c, s), left, fast)

        @inlined
        def read_neighbours(x: Any, at: Any, _: Any, there: Any) -> Any:
            return words(x, at) if there else empty

        @inlined
        def write_neighbours(out: Any, at: Any, _: Any, found: Any, c: Any, s: Any) -> None:
            store(out, at, _neighbours(numbers(found), c, s))

        @inlined
        def turn_neighbours(x: Any, out: Any, at: Any, to: Any, _: Any, left: Any, fast: Any, c: Any, s: Any) -> None:
            put(out, to, _neighbours(get(x, at, left, fast), c, s), left, fast)

        if interleaved:
            self.read, self.write, self.turn, self.angles = read_neighbours, write_neighbours, turn_neighbours, _four
        else:
            self.read, self.write, self.turn, self.angles = read, write, turn, _eight


# ---------------------------------------------------------------------------------------------- the kernel


def registers(dtype: str, **_: Any) -> int:
    """Return the registers of a thread: 768 or 512 threads have room on a multiprocessor."""
    return 128 if dtype == "float32" else 80


def rope(dtype: str, positions: str, *, interleaved: bool) -> Kernel:
    """Return the kernel that rotates each pair of each head of `tokens`, which come in order of their positions.

    Pairs are neighbours if `interleaved`, else i and i + pairs.  A block has `each` tokens at once, 1 << `shift` groups
    of a head, of which a row has `across` times as many, and `parts` times four heads.
    """
    pointer, itemsize = element(dtype)[:2]
    groups = _Groups(dtype, interleaved)
    read, write, turn, angles = groups.read, groups.write, groups.turn, groups.angles
    places, size, apart = (2, 2, 0) if interleaved else (3, 1, 7)

    def rope(
        x: Any, where: Any, theta: Any, out: Any, tokens: Any, cycle: Any, heads: Any, pairs: Any, inverse: Any,
        shift: Any, across: Any, parts: Any, each: Any, xs: Any, os: Any,
    ) -> None:  # fmt: skip
        steps = cuda.shared.array(_PAIRS, np.float32)
        cosines = cuda.shared.array(_ANGLES, np.float32)
        sines = cuda.shared.array(_ANGLES, np.float32)
        thread, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
        block, across = np.uint32(cuda.blockIdx.x), np.uint32(across)
        slab = block // across
        wide = np.uint32(1) << np.uint32(shift)
        unit, line = thread & (wide - 1), thread >> np.uint32(shift)
        mine = line // np.uint32(parts)
        head = (slab * parts + line - mine * np.uint32(parts)) * _HEADS
        chunk = wide << places
        turned = np.uint32(each * chunk)
        first = np.int64(block - slab * across) * chunk  # pair of the block
        pair = first + (unit << places)
        left = (pairs - pair) * size
        sign = np.float32(-1) if inverse != 0 else np.float32(1)
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize) and pairs & apart == 0
        known = False  # by what a step of one position turns each pair
        begin = np.int64(cuda.blockIdx.y) * each
        while begin < tokens:
            token = begin + mine
            row = token * heads + head
            at, to = row * xs + pair * size, row * os + pair * size
            count = min(heads - head, _HEADS) if token < tokens else 0
            whole = count if fast and left >= 8 else 0
            v0, v1 = read(x, at, pairs, whole > 0), read(x, at + xs, pairs, whole > 1)
            v2, v3 = read(x, at + 2 * xs, pairs, whole > 2), read(x, at + 3 * xs, pairs, whole > 3)
            i = thread
            while not known and i - thread < chunk:
                if i < chunk:  # of the group i & (wide - 1), so that neighbours find theirs in different banks
                    number = first + ((i & (wide - 1)) << places) + (i >> np.uint32(shift))
                    rate = math.log2(theta) / np.float64(pairs)
                    steps[i] = np.float32(power_of_two(-np.float64(number) * rate))
                i += threads
                cuda.syncthreads()
            known = True
            i = thread
            while i < turned:
                token = begin + (i >> np.uint32(shift + places))
                if token < tokens:
                    place = np.uint64(token) if token < cycle else np.uint64(token) % np.uint64(cycle)
                    sine, cosine = sine_and_cosine(np.float32(where[place]) * steps[np.uint32(i & (chunk - 1))])
                    cosines[i], sines[i] = cosine, sine * sign
                i += threads
            cuda.syncthreads()
            if count > 0:
                slot = mine * chunk + unit
                c, s = angles(cosines, slot, wide), angles(sines, slot, wide)
                if whole:
                    write(out, to, pairs, v0, c, s)
                    if count > 1:
                        write(out, to + os, pairs, v1, c, s)
                    if count > 2:
                        write(out, to + 2 * os, pairs, v2, c, s)
                    if count > 3:
                        write(out, to + 3 * os, pairs, v3, c, s)
                else:
                    for _ in range(count):
                        turn(x, out, at, to, pairs, left, fast, c, s)
                        at, to = at + xs, to + os
            cuda.syncthreads()
            begin += cuda.gridDim.y * each

    return rope, (pointer, f"*{positions}", "float64", pointer, *("int64",) * 11)
