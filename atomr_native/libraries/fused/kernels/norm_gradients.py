"""Gradients of RMS norm and layer norm on CUDA: see docs/libraries/fused.md for the formulas.

A block has a row after the other, of which each thread keeps two groups of eight elements, while those of the next row
are on their way; rows that are too long for that are read again, from the cache.  Gradients of weight and bias are sums
over rows in two stages, without atomics: partial sums of some rows each, then those, in an order that never changes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....compile.numba.api import cuda, inlined, types
from ....compile.numba.device.elements import NARROW, WORDS, aligned, element, mapped
from ....compile.numba.device.sums import block_sums, total_of
from .norms import centred

__all__ = ["norm_backward", "norm_gradients", "registers", "weight_finish", "weight_partial"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


def registers(dtype: str, layer: bool, residual: bool, **_: Any) -> int:
    """Return the registers of a thread: 768 or 512 threads have room on a multiprocessor."""
    return 80 if _lean(dtype, layer, residual) else 128


def _lean(dtype: str, layer: bool, residual: bool) -> bool:
    """Return whether a thread has few registers."""
    return dtype in NARROW and not layer and not residual


@inlined
def _product(a: Any, b: Any) -> Any:
    return a * b


@inlined
def _plus(a: Any, b: Any) -> Any:
    return a + b


@inlined
def _fused(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


@inlined
def _keep(out: Any, at: Any, v: Any, left: Any) -> None:
    """Write the elements of a group that are there."""
    if left >= 8:
        out[at], out[at + 1], out[at + 2], out[at + 3] = v[0], v[1], v[2], v[3]
        out[at + 4], out[at + 5], out[at + 6], out[at + 7] = v[4], v[5], v[6], v[7]
    elif left > 0:
        out[at] = v[0]
        if left > 1:
            out[at + 1] = v[1]
        if left > 2:
            out[at + 2] = v[2]
        if left > 3:
            out[at + 3] = v[3]
        if left > 4:
            out[at + 4] = v[4]
        if left > 5:
            out[at + 5] = v[5]
        if left > 6:
            out[at + 6] = v[6]


def norm_gradients(dtype: str, weights: str, *, layer: bool, residual: bool, biased: bool) -> Kernel:
    """Return the kernel of the gradient of x, and of a block's partial sums of the gradients of weight and bias.

    With `residual`, the gradient `r` that comes by the sum itself is added to that by x.  A row has not more than two
    groups for each thread.
    """
    pointer, weight_pointer = element(dtype).pointer, element(weights).pointer
    itemsize, weight_size, real = element(dtype).itemsize, element(weights).itemsize, element(dtype).real
    statistic = "*float64" if dtype == "float64" else "*float32"
    quickly, slowly = (_rows(dtype, weights, layer, residual, biased, quick) for quick in (True, False))

    def norm_gradients(
        dy: Any, x: Any, weight: Any, r: Any, dx: Any, weight_parts: Any, bias_parts: Any, eps: Any, rows: Any,
        columns: Any, ds: Any, xs: Any, rs: Any, dxs: Any,
    ) -> None:  # fmt: skip
        fast = aligned(dy, 0, ds, itemsize) and aligned(x, 0, xs, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(dx, 0, dxs, itemsize)
        weight_fast = aligned(weight, 0, 0, weight_size)
        least = real(eps)
        if fast and weight_fast and columns & 7 == 0:
            quickly(dy, x, weight, r, dx, weight_parts, bias_parts, least, rows, columns, ds, xs, rs, dxs)
        else:
            slowly(dy, x, weight, r, dx, weight_parts, bias_parts, least, rows, columns, ds, xs, rs, dxs)

    kinds = (pointer, pointer, weight_pointer, pointer, pointer, statistic, statistic, "float64")
    return norm_gradients, (*kinds, *_NUMBER * 6)


def _rows(dtype: str, weights: str, layer: bool, residual: bool, biased: bool, quick: bool) -> Any:
    """Return the loop of a block over its rows; `quick` if all groups are whole and aligned.

    Quick rows have the words of the next one on their way.  The weight is read for each row, twice, from the first
    cache: its registers are those of another block.  Lean threads keep a row's words while the block waits for sums,
    not its elements.
    """
    _, itemsize, real, get, put, _, _, store = element(dtype)
    _, _, weight_real, weight_get, _, _, weight_load, _ = element(weights)
    words, numbers = WORDS[dtype]
    sums, centre, zero, one = block_sums(real), centred(real), real(0), real(1)
    nothing, weight_nothing = (zero,) * 8, (weight_real(0),) * 8
    none = nothing if dtype == "float64" else (np.uint32(0),) * (2 * itemsize)
    lean, early = _lean(dtype, layer, residual) and quick, residual and quick and not layer
    part_store = element("float64" if dtype == "float64" else "float32").store
    multiply, multiply_add, add = mapped(_product, 2), mapped(_fused, 3), mapped(_plus, 2)

    @inlined
    def loaded(x: Any, at: Any, there: Any) -> Any:
        return words(x, at) if there else none

    @inlined
    def same(a: Any, unknown: Any) -> Any:
        return a[0] ^ unknown, a[1] ^ unknown, a[2] ^ unknown, a[3] ^ unknown

    @inlined
    def factors(weight: Any, at: Any, left: Any) -> Any:
        if quick:
            return weight_load(weight, at) if left > 0 else weight_nothing
        return weight_get(weight, at, left, False)

    @inlined
    def scaled(v: Any, scale: Any) -> Any:
        return (
            v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale,
            v[4] * scale, v[5] * scale, v[6] * scale, v[7] * scale,
        )  # fmt: skip

    @inlined
    def gradient(d: Any, v: Any, across: Any, along: Any) -> Any:
        return (
            d[0] - across - v[0] * along, d[1] - across - v[1] * along,
            d[2] - across - v[2] * along, d[3] - across - v[3] * along,
            d[4] - across - v[4] * along, d[5] - across - v[5] * along,
            d[6] - across - v[6] * along, d[7] - across - v[7] * along,
        )  # fmt: skip

    @inlined
    def written(dx: Any, at: Any, v: Any, left: Any) -> None:
        if not quick:
            put(dx, at, v, left, False)
        elif left > 0:
            store(dx, at, v)

    @inlined
    def summed(parts: Any, at: Any, v: Any, left: Any) -> None:
        if not quick:
            _keep(parts, at, v, left)
        elif left > 0:
            part_store(parts, at, v)

    @inlined
    def rows_of_block(
        dy: Any, x: Any, weight: Any, r: Any, dx: Any, weight_parts: Any, bias_parts: Any, least: Any, rows: Any,
        columns: Any, ds: Any, xs: Any, rs: Any, dxs: Any,
    ) -> None:  # fmt: skip
        first, stride = np.int64(cuda.threadIdx.x) * 8, np.int64(cuda.blockDim.x) * 8
        second, left = first + stride, columns - first
        rest = left - stride
        row, step, turn = np.int64(cuda.blockIdx.x), np.int64(cuda.gridDim.x), np.int64(0)
        d_at, x_at, r_at, out_at = row * ds, row * xs, row * rs, row * dxs
        d_step, x_step, r_step, out_step = step * ds, step * xs, step * rs, step * dxs
        of_weight, more_of_weight, of_bias, more_of_bias = nothing, nothing, nothing, nothing
        a, b, c, d, p, q = none, none, none, none, none, none
        if quick:
            near, far = (left > 0) & (row < rows), (rest > 0) & (row < rows)
            a, b = loaded(x, x_at + first, near), loaded(x, x_at + second, far)
            c, d = loaded(dy, d_at + first, near), loaded(dy, d_at + second, far)
            if early:
                p, q = loaded(r, r_at + first, near), loaded(r, r_at + second, far)
        inverse = one / real(columns)
        while row < rows:
            row += step
            if quick:
                e, f, g, h, i, j = a, b, c, d, p, q
                x_at += x_step
                d_at += d_step
                if early:
                    r_at += r_step
                near, far = (left > 0) & (row < rows), (rest > 0) & (row < rows)
                a, b = loaded(x, x_at + first, near), loaded(x, x_at + second, far)
                c, d = loaded(dy, d_at + first, near), loaded(dy, d_at + second, far)
                if early:
                    p, q = loaded(r, r_at + first, near), loaded(r, r_at + second, far)
                v, o, k, m = numbers(e), numbers(f), numbers(g), numbers(h)
            else:
                v, o = get(x, x_at + first, left, False), get(x, x_at + second, rest, False)
                k, m = get(dy, d_at + first, left, False), get(dy, d_at + second, rest, False)
                x_at += x_step
                d_at += d_step
            dv = multiply(k, factors(weight, first, left))
            do = multiply(m, factors(weight, second, rest))
            across = zero
            if layer:
                mean, across = sums(total_of(v) + total_of(o), total_of(dv) + total_of(do), turn)
                turn += 1
                mean, across = mean * inverse, across * inverse
                v, o = centre(v, mean, left), centre(o, mean, rest)
            spread, along = sums(
                total_of(multiply(v, v)) + total_of(multiply(o, o)),
                total_of(multiply(dv, v)) + total_of(multiply(do, o)),
                turn,
            )
            turn += 1
            scale = one / real(math.sqrt(spread * inverse + least))
            along = along * inverse * scale * scale * scale
            if biased:
                of_bias, more_of_bias = add(of_bias, k), add(more_of_bias, m)
            if lean:  # which the compiler cannot know to be the same elements, and to be worth a register each
                unknown = np.uint32(cuda.gridDim.z - 1)
                v, o = numbers(same(e, unknown)), numbers(same(f, unknown))
                k, m = numbers(same(g, unknown)), numbers(same(h, unknown))
            k, m = scaled(k, scale), scaled(m, scale)
            of_weight, more_of_weight = multiply_add(k, v, of_weight), multiply_add(m, o, more_of_weight)
            if layer:
                across = across * scale
            dv = gradient(multiply(k, factors(weight, first, left)), v, across, along)
            do = gradient(multiply(m, factors(weight, second, rest)), o, across, along)
            if early:
                dv, do = add(dv, numbers(i)), add(do, numbers(j))
            elif residual:
                dv = add(dv, get(r, r_at + first, left, quick))
                do = add(do, get(r, r_at + second, rest, quick))
                r_at += r_step
            written(dx, out_at + first, dv, left)
            written(dx, out_at + second, do, rest)
            out_at += out_step
        at = np.int64(cuda.blockIdx.x) * columns
        summed(weight_parts, at + first, of_weight, left)
        summed(weight_parts, at + second, more_of_weight, rest)
        if biased:
            summed(bias_parts, at + first, of_bias, left)
            summed(bias_parts, at + second, more_of_bias, rest)

    return rows_of_block


def norm_backward(dtype: str, weights: str, *, layer: bool, residual: bool) -> Kernel:
    """Return the kernel of the gradient by x; with `residual`, plus the gradient `r` that comes by the sum itself.

    It also writes the mean and the reciprocal deviation of each row, for the gradients of weight and bias.
    """
    pointer, itemsize, real, get, put, *_ = element(dtype)
    weight_pointer, weight_size, _, weight_get, *_ = element(weights)
    statistic = "*float64" if dtype == "float64" else "*float32"
    sums, centre, zero, one = block_sums(real), centred(real), real(0), real(1)

    multiply, add = mapped(_product, 2), mapped(_plus, 2)

    def norm_backward(
        dy: Any, x: Any, weight: Any, r: Any, dx: Any, statistics: Any, eps: Any, rows: Any, columns: Any,
        ds: Any, xs: Any, rs: Any, dxs: Any,
    ) -> None:  # fmt: skip
        first, stride = np.int64(cuda.threadIdx.x) * 8, np.int64(cuda.blockDim.x) * 8
        fast = aligned(dy, 0, ds, itemsize) and aligned(x, 0, xs, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(dx, 0, dxs, itemsize)
        weight_fast = aligned(weight, 0, 0, weight_size)
        count, least = real(columns), real(eps)
        row, turn = np.int64(cuda.blockIdx.x), np.int64(0)
        while row < rows:
            mean = zero
            if layer:
                column = first
                while column < columns:
                    mean += total_of(get(x, row * xs + column, columns - column, fast))
                    column += stride
                mean, _ = sums(mean, zero, turn)
                turn += 1
                mean = mean / count
            spread, along, across = zero, zero, zero
            column = first
            while column < columns:
                left = columns - column
                v = get(x, row * xs + column, left, fast)
                if layer:
                    v = centre(v, mean, left)
                d = multiply(get(dy, row * ds + column, left, fast), weight_get(weight, column, left, weight_fast))
                spread += total_of(multiply(v, v))
                along += total_of(multiply(d, v))
                if layer:
                    across += total_of(d)
                column += stride
            spread, along = sums(spread, along, turn)
            turn += 1
            if layer:
                across, _ = sums(across, zero, turn)
                turn += 1
            scale = one / real(math.sqrt(spread / count + least))
            along = along / count * scale * scale
            across = across / count
            if cuda.threadIdx.x == 0:
                statistics[2 * row] = mean
                statistics[2 * row + 1] = scale
            column = first
            while column < columns:
                left = columns - column
                v = get(x, row * xs + column, left, fast)
                d = multiply(get(dy, row * ds + column, left, fast), weight_get(weight, column, left, weight_fast))
                v = (
                    (d[0] - across - (v[0] - mean) * along) * scale, (d[1] - across - (v[1] - mean) * along) * scale,
                    (d[2] - across - (v[2] - mean) * along) * scale, (d[3] - across - (v[3] - mean) * along) * scale,
                    (d[4] - across - (v[4] - mean) * along) * scale, (d[5] - across - (v[5] - mean) * along) * scale,
                    (d[6] - across - (v[6] - mean) * along) * scale, (d[7] - across - (v[7] - mean) * along) * scale,
                )  # fmt: skip
                if residual:
                    v = add(v, get(r, row * rs + column, left, fast))
                put(dx, row * dxs + column, v, left, fast)
                column += stride
            row += cuda.gridDim.x

    return norm_backward, (pointer, pointer, weight_pointer, pointer, pointer, statistic, "float64", *_NUMBER * 6)


def weight_partial(dtype: str, *, biased: bool) -> Kernel:
    """Return the kernel of partial sums: each warp of a block has 256 columns and every so many rows."""
    pointer, itemsize, real, get, *_ = element(dtype)
    statistic = "*float64" if dtype == "float64" else "*float32"
    zero = real(0)

    @inlined
    def normed(d: Any, v: Any, mean: Any, scale: Any) -> Any:
        return d * ((v - mean) * scale)

    add = mapped(_plus, 2)

    def weight_partial(
        dy: Any, x: Any, statistics: Any, weight_parts: Any, bias_parts: Any, rows: Any, columns: Any, ds: Any, xs: Any
    ) -> None:
        column = (cuda.blockIdx.x * 32 + (cuda.threadIdx.x & 31)) * 8
        left = columns - column
        if left <= 0:
            return
        part = cuda.blockIdx.y * 8 + (cuda.threadIdx.x >> 5)
        fast = aligned(dy, 0, ds, itemsize) and aligned(x, 0, xs, itemsize)
        of_weight = (zero, zero, zero, zero, zero, zero, zero, zero)
        of_bias = (zero, zero, zero, zero, zero, zero, zero, zero)
        row = np.int64(part)
        while row < rows:
            mean, scale = statistics[2 * row], statistics[2 * row + 1]
            d, v = get(dy, row * ds + column, left, fast), get(x, row * xs + column, left, fast)
            v = (
                normed(d[0], v[0], mean, scale), normed(d[1], v[1], mean, scale), normed(d[2], v[2], mean, scale),
                normed(d[3], v[3], mean, scale), normed(d[4], v[4], mean, scale), normed(d[5], v[5], mean, scale),
                normed(d[6], v[6], mean, scale), normed(d[7], v[7], mean, scale),
            )  # fmt: skip
            of_weight = add(of_weight, v)
            if biased:
                of_bias = add(of_bias, d)
            row += cuda.gridDim.y * 8
        _keep(weight_parts, part * columns + column, of_weight, left)
        if biased:
            _keep(bias_parts, part * columns + column, of_bias, left)

    return weight_partial, (pointer, pointer, *(statistic,) * 3, *_NUMBER * 4)


def weight_finish(dtype: str, weights: str, *, biased: bool) -> Kernel:
    """Return the kernel that adds partial sums: a block of 512 threads has 32 columns."""
    real = element(dtype).real
    weight_pointer, _, _, _, put, *_ = element(weights)
    statistic = "*float64" if dtype == "float64" else "*float32"
    zero = real(0)

    kind = types.float64 if real is np.float64 else types.float32

    @inlined
    def one(parts_of: Any, part: Any, column: Any, columns: Any, parts: Any) -> Any:
        return parts_of[part * columns + column] if part < parts else zero

    @inlined
    def added(parts_of: Any, column: Any, columns: Any, parts: Any) -> Any:
        """Return the sum of every 16th partial result, eight loads at once."""
        a, b, c, d = zero, zero, zero, zero
        part = np.int64(cuda.threadIdx.x >> 5)
        while part < parts:
            e = one(parts_of, part + 64, column, columns, parts)
            f = one(parts_of, part + 80, column, columns, parts)
            g = one(parts_of, part + 96, column, columns, parts)
            h = one(parts_of, part + 112, column, columns, parts)
            a += one(parts_of, part, column, columns, parts) + e
            b += one(parts_of, part + 16, column, columns, parts) + f
            c += one(parts_of, part + 32, column, columns, parts) + g
            d += one(parts_of, part + 48, column, columns, parts) + h
            part += 128
        return (a + b) + (c + d)

    def weight_finish(weight_parts: Any, bias_parts: Any, dweight: Any, dbias: Any, parts: Any, columns: Any) -> None:
        of_weight = cuda.shared.array(512, kind)
        of_bias = cuda.shared.array(512 if biased else 1, kind)
        thread = cuda.threadIdx.x
        column = cuda.blockIdx.x * 32 + (thread & 31)
        if column < columns:
            of_weight[thread] = added(weight_parts, column, columns, parts)
            if biased:
                of_bias[thread] = added(bias_parts, column, columns, parts)
        cuda.syncthreads()
        if thread < 32 and column < columns:
            a, b = zero, zero
            for i in range(16):
                a += of_weight[i * 32 + thread]
                if biased:
                    b += of_bias[i * 32 + thread]
            put(dweight, column, (a, a, a, a, a, a, a, a), 1, False)
            if biased:
                put(dbias, column, (b, b, b, b, b, b, b, b), 1, False)

    return weight_finish, (statistic, statistic, weight_pointer, weight_pointer, *_NUMBER * 2)
