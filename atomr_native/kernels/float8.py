"""Quantisation to float8 and back, on CUDA: see docs/float8.md for what the results are.

A matrix is worked on in tiles of 128 x 128 elements by blocks of 256 threads.  A thread has 8 elements next to each
other in each of 8 rows, 16 rows apart; 16 threads have a row of the tile.  Tiles that lie inside of an aligned matrix
are loaded by 16 bytes, all of it before anything is stored; every other tile goes element by element.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._numba import cuda, types
from ._elements import READERS, STORAGE, WRITERS
from ._intrinsics import (
    address,
    bits_of,
    block_max,
    float_of,
    float_of_half,
    group_max,
    halves_of_e4m3,
    halves_of_e5m2,
    load2,
    store2,
    to_e4m3,
    to_e5m2,
)
from ._scalars import FORMATS, decoder, encoder, fresh_scale, known, power_of_two

__all__ = ["amax", "cast", "dequantize", "rows", "update"]

TILE: Final = 128
_ACROSS: Final = 16  # threads that share a row of a tile
_PITCH: Final = TILE + 4  # of a tile in shared memory: rows that follow each other begin in other banks
_CODES: Final = TILE * _PITCH
_ONE: Final = np.float32(1.0)

Kernel = tuple[Any, tuple[str, ...]]


# ---------------------------------------------------------------------------------------------- elements


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _size_of(value: Any) -> Any:
    """Return the bits of a float32 without its sign: they are ordered as magnitudes, with NaN above infinity."""
    return np.int32(bits_of(value) & 0x7FFFFFFF)


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _largest(v: Any) -> Any:
    """Return the largest magnitude of eight elements."""
    return max(
        max(max(_size_of(v[0]), _size_of(v[1])), max(_size_of(v[2]), _size_of(v[3]))),
        max(max(_size_of(v[4]), _size_of(v[5])), max(_size_of(v[6]), _size_of(v[7]))),
    )


def _packer(dtype: str, saturate: bool, hardware: bool) -> Any:
    """Return a device function from eight elements to their codes, in two words."""
    if hardware and saturate:
        four = to_e4m3 if dtype == "float8_e4m3fn" else to_e5m2

        @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
        def convert(v: Any, f: Any) -> Any:
            return four(v[0] * f, v[1] * f, v[2] * f, v[3] * f), four(v[4] * f, v[5] * f, v[6] * f, v[7] * f)

        return convert
    one = encoder(dtype, saturate)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def word(a: Any, b: Any, c: Any, d: Any) -> Any:
        return np.uint32(one(a) | one(b) << 8 | one(c) << 16 | one(d) << 24)

    @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
    def pack(v: Any, f: Any) -> Any:
        return word(v[0] * f, v[1] * f, v[2] * f, v[3] * f), word(v[4] * f, v[5] * f, v[6] * f, v[7] * f)

    return pack


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _aligned(pointer: Any, first: Any, second: Any, itemsize: Any, size: Any) -> Any:
    """Return whether eight elements from any multiple of 8 columns on lie together, at a multiple of `size` bytes."""
    return second == 1 and address(pointer) % size == 0 and first * itemsize % size == 0


# ---------------------------------------------------------------------------------------------- amax


def amax(source: str) -> Kernel:
    """Return the kernel of a matrix's largest magnitude: one partial result a block."""
    one, eight = READERS[source]
    itemsize = 4 if source == "float32" else 2

    def amax(x: Any, partials: Any, rows: Any, columns: Any, last: Any, xr: Any, xc: Any) -> None:
        thread = cuda.threadIdx.x
        across = (columns + TILE - 1) // TILE
        tiles = across * ((rows + TILE - 1) // TILE)
        whole = rows - 1 if last < columns else rows
        fast = _aligned(x, xr, xc, itemsize, 16)
        found = np.int32(0)
        for tile in range(cuda.blockIdx.x, tiles, cuda.gridDim.x):
            top, left = tile // across * TILE, tile % across * TILE
            row, column = top + thread // _ACROSS, left + thread % _ACROSS * 8
            if fast and top + TILE <= whole and left + TILE <= columns:
                at = row * xr + column
                a, b = eight(x, at), eight(x, at + 16 * xr)
                c, d = eight(x, at + 32 * xr), eight(x, at + 48 * xr)
                e, f = eight(x, at + 64 * xr), eight(x, at + 80 * xr)
                g, h = eight(x, at + 96 * xr), eight(x, at + 112 * xr)
                low = max(max(_largest(a), _largest(b)), max(_largest(c), _largest(d)))
                high = max(max(_largest(e), _largest(f)), max(_largest(g), _largest(h)))
                found = max(found, max(low, high))
            else:
                for r in range(row, min(top + TILE, rows), 16):
                    for c in range(column, min(column + 8, last if r == rows - 1 else columns)):
                        found = max(found, _size_of(one(x[r * xr + c * xc])))
        found = block_max(found)
        if thread == 0:
            partials[cuda.blockIdx.x] = found

    return amax, (f"*{STORAGE[source]}", "*int32", *("int64",) * 5)


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def _reduced(partials: Any, count: Any) -> Any:
    """Return the largest of partial results, to every thread of a block."""
    found = np.int32(0)
    for i in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        found = max(found, partials[i])
    return block_max(found)


# ---------------------------------------------------------------------------------------------- cast


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def _turn(codes: Any, out: Any, top: Any, left: Any, rows: Any, columns: Any, tr: Any, tc: Any) -> None:
    """Write the transpose of a tile of codes; `rows` and `columns` are the matrix's, not its transpose's."""
    thread = cuda.threadIdx.x
    row = thread % _ACROSS * 8
    fast = _aligned(out, tr, tc, 1, 8) and top + row + 8 <= rows
    for column in range(thread // _ACROSS, min(TILE, columns - left), 16):
        at = (left + column) * tr + (top + row) * tc
        if fast:
            words = np.uint32(0), np.uint32(0)
            for i in range(4):
                words = (
                    np.uint32(words[0] | np.int64(codes[(row + i) * _PITCH + column]) << (8 * i)),
                    np.uint32(words[1] | np.int64(codes[(row + i + 4) * _PITCH + column]) << (8 * i)),
                )
            store2(out, at, words)
        else:
            for i in range(min(8, rows - top - row)):
                out[at + i * tc] = codes[(row + i) * _PITCH + column]


def cast(
    source: str, dtype: str, *, saturate: bool, hardware: bool, scaling: str, amax: str, transposed: bool
) -> Kernel:
    """Return the kernel that scales and casts a matrix.

    Parameters
    ----------
    source, dtype : str
        Of the matrix, and of the codes.
    saturate, hardware : bool
        Whether what is too large becomes the largest number; whether the GPU has conversions.
    scaling : str
        ``"tensor"``, ``"vec128"`` or ``"blk128"``.
    amax : str
        With ``"tensor"``: ``"given"``, the scale is `scale_in`; ``"now"``, it is made of the partial results;
        ``"recorded"``, it is `scale_in`, and partial results are written.
    transposed : bool
        Whether a transposed copy is written.
    """
    one, eight = READERS[source]
    itemsize = 4 if source == "float32" else 2
    encode, pack = encoder(dtype, saturate), _packer(dtype, saturate, hardware)
    limit = np.float32(FORMATS[dtype].limit)
    by_row, by_tile = scaling == "vec128", scaling == "blk128"
    computes, records = amax == "now", amax == "recorded"
    shares = computes or records
    held = _CODES if transposed else 1

    @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
    def finish(
        v: Any, q: Any, scale: Any, scales: Any, codes: Any, row: Any, column: Any, top: Any, qr: Any, sr: Any, sc: Any
    ) -> None:
        if by_row:
            scale = fresh_scale(group_max(_largest(v), _ACROSS), limit, _ONE)
            if cuda.threadIdx.x % _ACROSS == 0:
                scales[row * sr + column // TILE * sc] = scale
        words = pack(v, _ONE / scale)
        store2(q, row * qr + column, words)
        if transposed:
            at = (row - top) * _PITCH + column % TILE
            for i in range(4):
                codes[at + i] = words[0] >> (8 * i) & 0xFF
                codes[at + 4 + i] = words[1] >> (8 * i) & 0xFF

    def cast(
        x: Any, q: Any, turned: Any, scale_in: Any, scales: Any, turned_scales: Any, partials: Any, count: Any,
        rows: Any, columns: Any, last: Any, xr: Any, xc: Any, qr: Any, qc: Any, tr: Any, tc: Any, sr: Any, sc: Any,
        ur: Any, uc: Any,
    ) -> None:  # fmt: skip
        codes = cuda.shared.array(held, types.uint8)
        thread = cuda.threadIdx.x
        across = (columns + TILE - 1) // TILE
        tiles = across * ((rows + TILE - 1) // TILE)
        whole = rows - 1 if last < columns else rows
        fast = _aligned(x, xr, xc, itemsize, 16) and _aligned(q, qr, qc, 1, 8)
        scale = _ONE
        if computes:
            scale = fresh_scale(_reduced(partials, count), limit, _ONE)
        elif not (by_row or by_tile):
            scale = scale_in[0]
        if shares and cuda.blockIdx.x == 0 and thread == 0:
            scales[0] = scale
        found = np.int32(0)
        for tile in range(cuda.blockIdx.x, tiles, cuda.gridDim.x):
            top, left = tile // across * TILE, tile % across * TILE
            row, column = top + thread // _ACROSS, left + thread % _ACROSS * 8
            if fast and top + TILE <= whole and left + TILE <= columns:
                at = row * xr + column
                a, b = eight(x, at), eight(x, at + 16 * xr)
                c, d = eight(x, at + 32 * xr), eight(x, at + 48 * xr)
                e, f = eight(x, at + 64 * xr), eight(x, at + 80 * xr)
                g, h = eight(x, at + 96 * xr), eight(x, at + 112 * xr)
                if by_tile or records:
                    low = max(max(_largest(a), _largest(b)), max(_largest(c), _largest(d)))
                    high = max(max(_largest(e), _largest(f)), max(_largest(g), _largest(h)))
                    found = max(found, max(low, high))
                if by_tile:
                    scale = fresh_scale(block_max(found), limit, _ONE)
                finish(a, q, scale, scales, codes, row, column, top, qr, sr, sc)
                finish(b, q, scale, scales, codes, row + 16, column, top, qr, sr, sc)
                finish(c, q, scale, scales, codes, row + 32, column, top, qr, sr, sc)
                finish(d, q, scale, scales, codes, row + 48, column, top, qr, sr, sc)
                finish(e, q, scale, scales, codes, row + 64, column, top, qr, sr, sc)
                finish(f, q, scale, scales, codes, row + 80, column, top, qr, sr, sc)
                finish(g, q, scale, scales, codes, row + 96, column, top, qr, sr, sc)
                finish(h, q, scale, scales, codes, row + 112, column, top, qr, sr, sc)
            else:
                if by_tile:
                    for r in range(row, min(top + TILE, rows), 16):
                        for c in range(column, min(column + 8, columns)):
                            found = max(found, _size_of(one(x[r * xr + c * xc])))
                    scale = fresh_scale(block_max(found), limit, _ONE)
                for i in range(8):  # every thread of a block has as many rounds as the others, for `group_max`
                    r = row + 16 * i
                    end = min(column + 8, last if r == rows - 1 else columns) if r < rows else 0
                    if by_row:
                        found = np.int32(0)
                        for c in range(column, end):
                            found = max(found, _size_of(one(x[r * xr + c * xc])))
                        scale = fresh_scale(group_max(found, _ACROSS), limit, _ONE)
                        if thread % _ACROSS == 0 and r < rows:
                            scales[r * sr + left // TILE * sc] = scale
                    for c in range(column, end):
                        value = one(x[r * xr + c * xc])
                        if records:
                            found = max(found, _size_of(value))
                        code = encode(value * (_ONE / scale))
                        q[r * qr + c * qc] = code
                        if transposed:
                            codes[(r - top) * _PITCH + c - left] = code
            if by_tile:
                if thread == 0:
                    scales[top // TILE * sr + left // TILE * sc] = scale
                    if transposed:
                        turned_scales[left // TILE * ur + top // TILE * uc] = scale
                found = np.int32(0)
            if transposed:
                cuda.syncthreads()
                _turn(codes, turned, top, left, rows, columns, tr, tc)
                cuda.syncthreads()
        if records:
            found = block_max(found)
            if thread == 0:
                partials[cuda.blockIdx.x] = found

    pointers = (f"*{STORAGE[source]}", "*uint8", "*uint8", "*float32", "*float32", "*float32", "*int32")
    return cast, (*pointers, *("int64",) * 14)


def rows(source: str, dtype: str, *, saturate: bool, hardware: bool) -> Kernel:
    """Return the kernel that scales and casts each row by itself: a block has a row, and reads it twice."""
    one, eight = READERS[source]
    itemsize = 4 if source == "float32" else 2
    encode, pack = encoder(dtype, saturate), _packer(dtype, saturate, hardware)
    limit = np.float32(FORMATS[dtype].limit)

    def rows(
        x: Any, q: Any, scales: Any, number: Any, columns: Any, xr: Any, xc: Any, qr: Any, qc: Any, sr: Any
    ) -> None:
        first = cuda.threadIdx.x * 8
        step = cuda.blockDim.x * 8
        fast = _aligned(x, xr, xc, itemsize, 16) and _aligned(q, qr, qc, 1, 8)
        even = columns // 8 * 8 if fast else 0
        for row in range(cuda.blockIdx.x, number, cuda.gridDim.x):
            found = np.int32(0)
            for c in range(first, even, step):
                found = max(found, _largest(eight(x, row * xr + c)))
            for c in range(even + cuda.threadIdx.x, columns, cuda.blockDim.x):
                found = max(found, _size_of(one(x[row * xr + c * xc])))
            scale = fresh_scale(block_max(found), limit, _ONE)
            if cuda.threadIdx.x == 0:
                scales[row * sr] = scale
            for c in range(first, even, step):
                store2(q, row * qr + c, pack(eight(x, row * xr + c), _ONE / scale))
            for c in range(even + cuda.threadIdx.x, columns, cuda.blockDim.x):
                q[row * qr + c * qc] = encode(one(x[row * xr + c * xc]) * (_ONE / scale))

    return rows, (f"*{STORAGE[source]}", "*uint8", "*float32", *("int64",) * 7)


# ---------------------------------------------------------------------------------------------- delayed scaling


def update(dtype: str, *, latest: bool) -> Kernel:
    """Return the kernel that records an amax, and makes the next scale of the history; one block."""
    limit = np.float32(FORMATS[dtype].limit)

    def update(partials: Any, count: Any, history: Any, length: Any, position: Any, scale: Any, margin: Any) -> None:
        thread = cuda.threadIdx.x
        now = _reduced(partials, count)
        at = position[0] % length
        cuda.syncthreads()  # everybody has read the position
        found = now if known(now) else np.int32(0)
        if not latest:
            for i in range(thread, length, cuda.blockDim.x):
                size = _size_of(history[i])
                if i != at and known(size):
                    found = max(found, size)
            found = block_max(found)
        if thread == 0:
            history[at] = float_of(now)
            position[0] = (at + 1) % length
            if known(found):
                scale[0] = fresh_scale(found, limit, power_of_two(margin))

    return update, ("*int32", "int64", "*float32", "int64", "*int32", "*float32", "int64")


# ---------------------------------------------------------------------------------------------- and back


def _unpacker(dtype: str, hardware: bool) -> Any:
    """Return a device function from eight codes, in two words, to their values."""
    if hardware:
        halves = halves_of_e4m3 if dtype == "float8_e4m3fn" else halves_of_e5m2

        @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
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


def dequantize(dtype: str, target: str, *, hardware: bool) -> Kernel:
    """Return the kernel that multiplies codes by their scales; a scale has `per_row` rows and `per_column` columns."""
    decode, unpack = decoder(dtype), _unpacker(dtype, hardware)
    bits, wide = WRITERS[target]
    itemsize = 4 if target == "float32" else 2

    @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
    def store(out: Any, at: Any, v: Any, s: Any) -> None:
        wide(out, at, (v[0] * s, v[1] * s, v[2] * s, v[3] * s, v[4] * s, v[5] * s, v[6] * s, v[7] * s))

    def dequantize(
        q: Any, scales: Any, out: Any, rows: Any, columns: Any, last: Any, qr: Any, qc: Any, sr: Any, sc: Any,
        per_row: Any, per_column: Any, xr: Any, xc: Any,
    ) -> None:  # fmt: skip
        thread = cuda.threadIdx.x
        across = (columns + TILE - 1) // TILE
        tiles = across * ((rows + TILE - 1) // TILE)
        whole = rows - 1 if last < columns else rows
        fast = _aligned(q, qr, qc, 1, 8) and _aligned(out, xr, xc, itemsize, 16)
        for tile in range(cuda.blockIdx.x, tiles, cuda.gridDim.x):
            top, left = tile // across * TILE, tile % across * TILE
            row, column = top + thread // _ACROSS, left + thread % _ACROSS * 8
            scale = column // per_column * sc
            if fast and top + TILE <= whole and left + TILE <= columns:
                at = row * qr + column
                a, b = load2(q, at), load2(q, at + 16 * qr)
                c, d = load2(q, at + 32 * qr), load2(q, at + 48 * qr)
                e, f = load2(q, at + 64 * qr), load2(q, at + 80 * qr)
                g, h = load2(q, at + 96 * qr), load2(q, at + 112 * qr)
                at = row * xr + column
                store(out, at, unpack(a), scales[row // per_row * sr + scale])
                store(out, at + 16 * xr, unpack(b), scales[(row + 16) // per_row * sr + scale])
                store(out, at + 32 * xr, unpack(c), scales[(row + 32) // per_row * sr + scale])
                store(out, at + 48 * xr, unpack(d), scales[(row + 48) // per_row * sr + scale])
                store(out, at + 64 * xr, unpack(e), scales[(row + 64) // per_row * sr + scale])
                store(out, at + 80 * xr, unpack(f), scales[(row + 80) // per_row * sr + scale])
                store(out, at + 96 * xr, unpack(g), scales[(row + 96) // per_row * sr + scale])
                store(out, at + 112 * xr, unpack(h), scales[(row + 112) // per_row * sr + scale])
            else:
                for r in range(row, min(top + TILE, rows), 16):
                    factor = scales[r // per_row * sr + scale]
                    for c in range(column, min(column + 8, last if r == rows - 1 else columns)):
                        out[r * xr + c * xc] = bits(decode(q[r * qr + c * qc]) * factor)

    return dequantize, ("*uint8", "*float32", f"*{STORAGE[target]}", *("int64",) * 11)
