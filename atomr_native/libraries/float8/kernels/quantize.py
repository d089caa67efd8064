"""Quantisation to float8 and back, on CUDA: see docs/libraries/float8.md for what the results are.

A matrix is worked on in tiles of 128 x 128 elements by blocks of 256 threads.  A thread has 8 elements next to each
other in each of 8 rows that follow each other; 16 threads have a row of the tile.  Tiles that lie inside of an aligned
matrix are loaded by 16 bytes, all of it before anything else is waited for; every other tile goes element by element.
Loops over tiles are ``while`` loops, since the length of a ``range`` takes a division of 64 bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined, types
from ....compile.numba.device.elements import READERS, STORAGE, WORDS, WRITERS
from ....compile.numba.device.intrinsics import (
    block_max,
    first_bytes,
    first_halves,
    from_lane,
    group_max,
    last_bytes,
    last_halves,
    load2,
    store2,
)
from ....compile.numba.device.launch_words import launch_words
from ....compile.numba.device.scalars import FORMATS, decoder, encoder, fresh_scale
from .casts import aligned, all_of, has_pairs, meter, once, packer, row_sizes_of, size_of, unpacker
from .delayed import recorder

__all__ = ["amax", "cast", "dequantize", "record", "rows"]

TILE: Final = 128
_ACROSS: Final = 16  # threads that share a row of a tile
_ONE: Final = np.float32(1.0)
_NONE: Final = np.uint32(0)
_LEAST: Final = np.float32(2.0**-126)  # the least scale whose reciprocal is certainly finite, and a computed scale
_LIFT: Final = np.float32(2.0**64)
_SMALLEST: Final = np.float32(2.0**-85)  # the smallest number of float32, lifted

Kernel = tuple[Any, tuple[str, ...]]


# ---------------------------------------------------------------------------------------------- amax


def amax(source: str, *, pairs: bool) -> Kernel:
    """Return the kernel of a matrix's largest magnitude: one partial result for each block.

    Parameters
    ----------
    source : str
        Dtype of the matrix.
    pairs : bool
        Whether the GPU compares two numbers of 16 bits at once.
    """
    one, _ = READERS[source]
    words, _ = WORDS[source]
    largest, joined, size = meter(source, has_pairs(source, pairs))
    itemsize = 4 if source == "float32" else 2

    def amax(x: Any, partials: Any, rows: Any, columns: Any, last: Any, xr: Any, xc: Any) -> None:
        thread = cuda.threadIdx.x
        whole = rows - 1 if last < columns else rows
        fast = aligned(x, xr, xc, itemsize, 16)
        found = np.int32(0)
        left = cuda.blockIdx.x * TILE
        while left < columns:
            top = cuda.blockIdx.y * TILE
            while top < rows:
                row, column = top + (thread >> 4) * 8, left + (thread & 15) * 8
                if fast and top + TILE <= whole and left + TILE <= columns:
                    at = row * xr + column
                    a, b, c, d = words(x, at), words(x, at + xr), words(x, at + 2 * xr), words(x, at + 3 * xr)
                    at += 4 * xr
                    e, f, g, h = words(x, at), words(x, at + xr), words(x, at + 2 * xr), words(x, at + 3 * xr)
                    low = joined(joined(largest(a), largest(b)), joined(largest(c), largest(d)))
                    high = joined(joined(largest(e), largest(f)), joined(largest(g), largest(h)))
                    found = max(found, size(joined(low, high)))
                else:
                    for r in range(row, min(row + 8, rows)):
                        for c in range(column, min(column + 8, last if r == rows - 1 else columns)):
                            found = max(found, size_of(one(x[r * xr + c * xc])))
                top += cuda.gridDim.y * TILE
            left += cuda.gridDim.x * TILE
        found = block_max(found)
        if thread == 0:
            partials[cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x] = found

    return amax, (f"*{STORAGE[source]}", "*int32", *("int64",) * 5)


@inlined
def _reduced(partials: Any, count: Any) -> Any:
    """Return the largest of partial results, to every thread of a block of 256."""
    found = np.int32(0)
    i = np.int64(cuda.threadIdx.x)
    while i < count:  # four loads at once
        a = partials[i]
        b = partials[i + 256] if i + 256 < count else np.int32(0)
        c = partials[i + 512] if i + 512 < count else np.int32(0)
        d = partials[i + 768] if i + 768 < count else np.int32(0)
        found = max(found, max(max(a, b), max(c, d)))
        i += 1024
    return block_max(found)


# ---------------------------------------------------------------------------------------------- cast


@inlined
def _turned(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the transpose of four words of four bytes."""
    e, f, g, h = first_bytes(a, b), first_bytes(c, d), last_bytes(a, b), last_bytes(c, d)
    return first_halves(e, f), last_halves(e, f), first_halves(g, h), last_halves(g, h)


@inlined
def _place(codes: Any, column: Any, low: Any, high: Any) -> None:
    """Put codes of eight rows of a column into shared memory.

    The 16 threads that have a row would meet in one bank, had each column its groups of rows in the same places.
    """
    group = cuda.threadIdx.x >> 4 ^ column >> 3
    codes[column * _ACROSS + group] = np.uint64(low) | np.uint64(high) << np.uint64(32)


def _tiles(
    source: str, dtype: str, saturate: bool, hardware: bool, pairs: bool, scaling: str, amax: str, transposed: bool
) -> Any:
    """Return a device function that scales and casts a matrix; options as `cast` has them.

    With ``amax="recorded"``, the scale is `scale_in`, and what is returned to a thread is the largest magnitude of its
    elements.
    """
    one, _ = READERS[source]
    words, numbers = WORDS[source]
    itemsize = 4 if source == "float32" else 2
    encode, pack = encoder(dtype, saturate), packer(dtype, saturate, hardware)
    limit = np.float32(FORMATS[dtype].limit)
    by_row, by_tile = scaling == "vec128", scaling == "blk128"
    whole_scale = not (by_row or by_tile)
    computes, records = whole_scale and amax == "now", amax == "recorded"
    shares = computes or records
    two = has_pairs(source, pairs)
    largest, joined, size = meter(source, two)
    all_, row_sizes = all_of(joined), row_sizes_of(two, size)
    held = TILE * _ACROSS if transposed else 1
    nothing = (_NONE,) * (itemsize * 2)

    @inlined
    def put(q: Any, at: Any, w: Any, factor: Any) -> Any:
        found = pack(numbers(w), factor)
        store2(q, at, found)
        return found

    @inlined
    def turn(codes: Any, out: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, at: Any, tr: Any
    ) -> None:  # fmt: skip
        """Write the transpose of a tile, which begins `at` elements after `out`."""
        first = (cuda.threadIdx.x & 15) * 8
        low, high = _turned(a[0], b[0], c[0], d[0]), _turned(e[0], f[0], g[0], h[0])
        _place(codes, first, low[0], high[0])
        _place(codes, first + 1, low[1], high[1])
        _place(codes, first + 2, low[2], high[2])
        _place(codes, first + 3, low[3], high[3])
        low, high = _turned(a[1], b[1], c[1], d[1]), _turned(e[1], f[1], g[1], h[1])
        _place(codes, first + 4, low[0], high[0])
        _place(codes, first + 5, low[1], high[1])
        _place(codes, first + 6, low[2], high[2])
        _place(codes, first + 7, low[3], high[3])
        cuda.syncthreads()
        column, group = cuda.threadIdx.x >> 4, cuda.threadIdx.x & 15
        for i in range(8):
            found = codes[(column + 16 * i) * _ACROSS + (group ^ (column + 16 * i) >> 3)]
            words = (np.uint32(found & np.uint64(0xFFFFFFFF)), np.uint32(found >> np.uint64(32)))
            store2(out, at + (column + 16 * i) * tr + group * 8, words)
        cuda.syncthreads()

    @inlined
    def tiles(
        x: Any, q: Any, turned: Any, scale_in: Any, scales: Any, turned_scales: Any, partials: Any, count: Any,
        rows: Any, columns: Any, last: Any, xr: Any, xc: Any, qr: Any, qc: Any, tr: Any, tc: Any, sr: Any, sc: Any,
        ur: Any, uc: Any,
    ) -> Any:  # fmt: skip
        codes = cuda.shared.array(held, types.uint64)
        thread = cuda.threadIdx.x
        whole = rows - 1 if last < columns else rows
        fast = aligned(x, xr, xc, itemsize, 16) and aligned(q, qr, qc, 1, 8)
        if transposed:
            fast = fast and aligned(turned, tr, tc, 1, 8)
        scale, lift, waits = _ONE, _ONE, computes
        if whole_scale and not computes:
            scale = scale_in[0]
            if -_LEAST < scale < _LEAST:  # its reciprocal may be infinite: numbers and scale are lifted, one by one
                lift, fast = _LIFT, False
        a, b, c, d, e, f, g, h = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
        found = np.int32(0)
        left = cuda.blockIdx.x * TILE
        while left < columns:
            top = cuda.blockIdx.y * TILE
            while top < rows:
                row, column = top + (thread >> 4) * 8, left + (thread & 15) * 8
                inside = fast and top + TILE <= whole and left + TILE <= columns
                if inside:
                    at = row * xr + column
                    a, b, c, d = words(x, at), words(x, at + xr), words(x, at + 2 * xr), words(x, at + 3 * xr)
                    at += 4 * xr
                    e, f, g, h = words(x, at), words(x, at + xr), words(x, at + 2 * xr), words(x, at + 3 * xr)
                if waits:  # for the partial results, while elements are on their way
                    scale, waits = fresh_scale(_reduced(partials, count), limit, _ONE), False
                if inside:
                    if by_tile or records:
                        most = all_(
                            largest(a), largest(b), largest(c), largest(d),
                            largest(e), largest(f), largest(g), largest(h),
                        )  # fmt: skip
                        found = max(found, size(most))
                    if by_tile:
                        scale = fresh_scale(block_max(found), limit, _ONE)
                    at = row * qr + column
                    if by_row:
                        most = row_sizes(
                            largest(a), largest(b), largest(c), largest(d),
                            largest(e), largest(f), largest(g), largest(h),
                        )  # fmt: skip
                        scale = fresh_scale(most, limit, _ONE)
                        if thread & 1 == 0:
                            scales[(row + (thread & 15) // 2) * sr + (left >> 7) * sc] = scale
                        factor, lane = _ONE / scale, thread & 16
                        put(q, at, a, from_lane(factor, lane))
                        put(q, at + qr, b, from_lane(factor, lane + 2))
                        put(q, at + 2 * qr, c, from_lane(factor, lane + 4))
                        put(q, at + 3 * qr, d, from_lane(factor, lane + 6))
                        at += 4 * qr
                        put(q, at, e, from_lane(factor, lane + 8))
                        put(q, at + qr, f, from_lane(factor, lane + 10))
                        put(q, at + 2 * qr, g, from_lane(factor, lane + 12))
                        put(q, at + 3 * qr, h, from_lane(factor, lane + 14))
                    else:
                        factor = _ONE / scale
                        if records:  # or some loads would be issued when others were worked on
                            factor = once(factor, most)
                        i, j = put(q, at, a, factor), put(q, at + qr, b, factor)
                        k, m = put(q, at + 2 * qr, c, factor), put(q, at + 3 * qr, d, factor)
                        at += 4 * qr
                        n, o = put(q, at, e, factor), put(q, at + qr, f, factor)
                        r, s = put(q, at + 2 * qr, g, factor), put(q, at + 3 * qr, h, factor)
                        if transposed:
                            turn(codes, turned, i, j, k, m, n, o, r, s, left * tr + top, tr)
                else:
                    if by_tile:
                        for line in range(row, min(row + 8, rows)):
                            for place in range(column, min(column + 8, columns)):
                                found = max(found, size_of(one(x[line * xr + place * xc])))
                        scale = fresh_scale(block_max(found), limit, _ONE)
                    for i in range(8):  # every thread of a block has as many rounds as the others, for `group_max`
                        line = row + i
                        end = min(column + 8, last if line == rows - 1 else columns) if line < rows else 0
                        if by_row:
                            found = np.int32(0)
                            for place in range(column, end):
                                found = max(found, size_of(one(x[line * xr + place * xc])))
                            scale = fresh_scale(group_max(found, _ACROSS), limit, _ONE)
                            if thread & 15 == 0 and line < rows:
                                scales[line * sr + (left >> 7) * sc] = scale
                        divisor = scale * lift
                        if divisor == 0:  # by which zeros stay zeros
                            divisor = _SMALLEST
                        for place in range(column, end):
                            value = one(x[line * xr + place * xc])
                            if records:
                                found = max(found, size_of(value))
                            code = encode(value * lift * (_ONE / divisor))
                            q[line * qr + place * qc] = code
                            if transposed:
                                turned[place * tr + line * tc] = code
                if by_tile:
                    if thread == 0:
                        scales[(top >> 7) * sr + (left >> 7) * sc] = scale
                        if transposed:
                            turned_scales[(left >> 7) * ur + (top >> 7) * uc] = scale
                    found = np.int32(0)
                top += cuda.gridDim.y * TILE
            left += cuda.gridDim.x * TILE
        if shares and cuda.blockIdx.x == 0 and cuda.blockIdx.y == 0 and thread == 0:
            scales[0] = scale
        return found

    return tiles


def cast(
    source: str, dtype: str, *, saturate: bool, hardware: bool, pairs: bool, scaling: str, amax: str, transposed: bool
) -> Kernel:
    """Return the kernel that scales and casts a matrix.

    Parameters
    ----------
    source, dtype : str
        Of the matrix, and of the codes.
    saturate, hardware : bool
        Whether what is too large becomes the largest number; whether the GPU has conversions.
    pairs : bool
        Whether the GPU compares two numbers of 16 bits at once.
    scaling : str
        ``"tensor"``, ``"vec128"`` or ``"blk128"``.
    amax : str
        With ``"tensor"``: ``"given"``, the scale is `scale_in`; ``"now"``, it is made of the partial results.
    transposed : bool
        Whether a transposed copy is written.
    """
    tiles = _tiles(source, dtype, saturate, hardware, pairs, scaling, amax, transposed)

    def cast(
        x: Any, q: Any, turned: Any, scale_in: Any, scales: Any, turned_scales: Any, partials: Any, count: Any,
        rows: Any, columns: Any, last: Any, xr: Any, xc: Any, qr: Any, qc: Any, tr: Any, tc: Any, sr: Any, sc: Any,
        ur: Any, uc: Any,
    ) -> None:  # fmt: skip
        tiles(
            x, q, turned, scale_in, scales, turned_scales, partials, count,
            rows, columns, last, xr, xc, qr, qc, tr, tc, sr, sc, ur, uc,
        )  # fmt: skip

    pointers = (f"*{STORAGE[source]}", "*uint8", "*uint8", "*float32", "*float32", "*float32", "*int32")
    return cast, (*pointers, *("int64",) * 14)


def record(
    source: str, dtype: str, *, saturate: bool, hardware: bool, pairs: bool, transposed: bool, latest: bool
) -> Kernel:
    """Return the kernel of delayed scaling: it casts by `scale`, records the amax, and makes the next `scale`.

    Parameters as of `cast`; with `latest` the next scale is made of this amax alone.
    """
    tiles = _tiles(source, dtype, saturate, hardware, pairs, "tensor", "recorded", transposed)
    before, after = recorder(dtype, latest)

    def record(
        x: Any, q: Any, turned: Any, scale: Any, scales: Any, history: Any, position: Any, length: Any, margin: Any,
        rows: Any, columns: Any, last: Any, xr: Any, xc: Any, qr: Any, qc: Any, tr: Any, tc: Any,
    ) -> None:  # fmt: skip
        words = launch_words()
        before(words, history, length, position)
        found = tiles(
            x, q, turned, scale, scales, scales, words, 0, rows, columns, last, xr, xc, qr, qc, tr, tc, 0, 0, 0, 0
        )
        after(words, found, history, length, position, scale, margin)

    pointers = (f"*{STORAGE[source]}", "*uint8", "*uint8", "*float32", "*float32", "*float32", "*int32")
    return record, (*pointers, *("int64",) * 11)


def rows(source: str, dtype: str, *, saturate: bool, hardware: bool, pairs: bool) -> Kernel:
    """Return the kernel that scales and casts each row by itself.

    A block has a row.  Up to 32 elements for each of its threads stay in registers; longer rows are read twice.
    """
    one, _ = READERS[source]
    words, numbers = WORDS[source]
    itemsize = 4 if source == "float32" else 2
    encode, pack = encoder(dtype, saturate), packer(dtype, saturate, hardware)
    limit = np.float32(FORMATS[dtype].limit)
    largest, joined, size = meter(source, has_pairs(source, pairs))
    nothing = (_NONE,) * (itemsize * 2)

    @inlined
    def put(q: Any, at: Any, w: Any, factor: Any) -> None:
        store2(q, at, pack(numbers(w), factor))

    def rows(
        x: Any, q: Any, scales: Any, number: Any, columns: Any, xr: Any, xc: Any, qr: Any, qc: Any, sr: Any
    ) -> None:
        first = np.int64(cuda.threadIdx.x * 8)
        step = np.int64(cuda.blockDim.x * 8)
        fast = aligned(x, xr, xc, itemsize, 16) and aligned(q, qr, qc, 1, 8)
        even = columns & -8 if fast else 0
        held = fast and columns <= 4 * step
        row = np.int64(cuda.blockIdx.x)
        while row < number:
            found = np.int32(0)
            a, b, c, d = nothing, nothing, nothing, nothing
            at = row * xr + first
            if held:
                if first < even:
                    a = words(x, at)
                if first + step < even:
                    b = words(x, at + step)
                if first + 2 * step < even:
                    c = words(x, at + 2 * step)
                if first + 3 * step < even:
                    d = words(x, at + 3 * step)
                found = size(joined(joined(largest(a), largest(b)), joined(largest(c), largest(d))))
            else:
                i = first
                while i < even:
                    found = max(found, size(largest(words(x, row * xr + i))))
                    i += step
            i = even + cuda.threadIdx.x
            while i < columns:
                found = max(found, size_of(one(x[row * xr + i * xc])))
                i += cuda.blockDim.x
            scale = fresh_scale(block_max(found), limit, _ONE)
            factor = _ONE / scale
            if cuda.threadIdx.x == 0:
                scales[row * sr] = scale
            at = row * qr + first
            if held:
                if first < even:
                    put(q, at, a, factor)
                if first + step < even:
                    put(q, at + step, b, factor)
                if first + 2 * step < even:
                    put(q, at + 2 * step, c, factor)
                if first + 3 * step < even:
                    put(q, at + 3 * step, d, factor)
            else:
                i = first
                while i < even:
                    put(q, row * qr + i, words(x, row * xr + i), factor)
                    i += step
            i = even + cuda.threadIdx.x
            while i < columns:
                q[row * qr + i * qc] = encode(one(x[row * xr + i * xc]) * factor)
                i += cuda.blockDim.x
            row += cuda.gridDim.x

    return rows, (f"*{STORAGE[source]}", "*uint8", "*float32", *("int64",) * 7)


# ---------------------------------------------------------------------------------------------- and back


def dequantize(dtype: str, target: str, *, hardware: bool) -> Kernel:
    """Return the kernel that multiplies codes by their scales, of 2**per_row rows and 2**per_column columns each."""
    decode, unpack = decoder(dtype), unpacker(dtype, hardware)
    bits, wide = WRITERS[target]
    itemsize = 4 if target == "float32" else 2

    @inlined
    def store(out: Any, at: Any, v: Any, s: Any) -> None:
        wide(out, at, (v[0] * s, v[1] * s, v[2] * s, v[3] * s, v[4] * s, v[5] * s, v[6] * s, v[7] * s))

    def dequantize(
        q: Any, scales: Any, out: Any, rows: Any, columns: Any, last: Any, qr: Any, qc: Any, sr: Any, sc: Any,
        per_row: Any, per_column: Any, xr: Any, xc: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        whole = rows - 1 if last < columns else rows
        fast = aligned(q, qr, qc, 1, 8) and aligned(out, xr, xc, itemsize, 16)
        left = cuda.blockIdx.x * TILE
        while left < columns:
            top = cuda.blockIdx.y * TILE
            while top < rows:
                row, column = top + (thread >> 4) * 8, left + (thread & 15) * 8
                scale = (column >> per_column) * sc
                if fast and top + TILE <= whole and left + TILE <= columns:
                    at = row * qr + column
                    a, b, c, d = load2(q, at), load2(q, at + qr), load2(q, at + 2 * qr), load2(q, at + 3 * qr)
                    at += 4 * qr
                    e, f, g, h = load2(q, at), load2(q, at + qr), load2(q, at + 2 * qr), load2(q, at + 3 * qr)
                    s, t = scales[(row >> per_row) * sr + scale], scales[(row + 1 >> per_row) * sr + scale]
                    u, v = scales[(row + 2 >> per_row) * sr + scale], scales[(row + 3 >> per_row) * sr + scale]
                    i, j = scales[(row + 4 >> per_row) * sr + scale], scales[(row + 5 >> per_row) * sr + scale]
                    k, m = scales[(row + 6 >> per_row) * sr + scale], scales[(row + 7 >> per_row) * sr + scale]
                    at = row * xr + column
                    store(out, at, unpack(a), s)
                    store(out, at + xr, unpack(b), t)
                    store(out, at + 2 * xr, unpack(c), u)
                    store(out, at + 3 * xr, unpack(d), v)
                    at += 4 * xr
                    store(out, at, unpack(e), i)
                    store(out, at + xr, unpack(f), j)
                    store(out, at + 2 * xr, unpack(g), k)
                    store(out, at + 3 * xr, unpack(h), m)
                else:
                    for r in range(row, min(row + 8, rows)):
                        factor = scales[(r >> per_row) * sr + scale]
                        for c in range(column, min(column + 8, last if r == rows - 1 else columns)):
                            out[r * xr + c * xc] = bits(decode(q[r * qr + c * qc]) * factor)
                top += cuda.gridDim.y * TILE
            left += cuda.gridDim.x * TILE

    return dequantize, ("*uint8", "*float32", f"*{STORAGE[target]}", *("int64",) * 11)
