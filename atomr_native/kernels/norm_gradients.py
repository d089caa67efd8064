"""Gradients of RMS norm and layer norm on CUDA: see docs/fused.md for the formulas.

A block has a row after the other, of which each thread keeps two groups of eight elements, while those of the next row
are on their way; rows that are too long for that are read again, from the cache.  Gradients of weight and bias are sums
over rows in two stages, without atomics: partial sums of some rows each, then those, in an order that never changes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._numba import cuda, inlined, types
from ._elements import WORDS, aligned, element, mapped
from ._sums import block_sums
from .norms import centred, total_of

__all__ = ["norm_backward", "norm_gradients", "registers", "weight_finish", "weight_partial"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


def registers(**_: Any) -> int:
    """Return the registers of a thread: blocks of 512 can be launched."""
    return 128


@inlined
def _product(a: Any, b: Any) -> Any:
    return a * b


@inlined
def _plus(a: Any, b: Any) -> Any:
    return a + b


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
    """Return the kernel of the gradient by x, and of a block's partial sums of those by weight and bias.

    With `residual`, the gradient `r` that comes by the sum itself is added to that by x.  A row has not more than two
    groups for each thread.
    """
    pointer, itemsize, real, get, put, *_ = element(dtype)
    weight_pointer, weight_size, _, weight_get, *_ = element(weights)
    words, numbers = WORDS[dtype]
    statistic = "*float64" if dtype == "float64" else "*float32"
    sums, centre, zero, one = block_sums(real), centred(real), real(0), real(1)
    nothing = (zero,) * 8
    none = nothing if dtype == "float64" else (np.uint32(0),) * (2 * itemsize)
    multiply, add = mapped(_product, 2), mapped(_plus, 2)

    @inlined
    def loaded(x: Any, at: Any, there: Any) -> Any:
        return words(x, at) if there else none

    @inlined
    def gradient(d: Any, v: Any, across: Any, along: Any, scale: Any) -> Any:
        return (
            (d[0] - across - v[0] * along) * scale, (d[1] - across - v[1] * along) * scale,
            (d[2] - across - v[2] * along) * scale, (d[3] - across - v[3] * along) * scale,
            (d[4] - across - v[4] * along) * scale, (d[5] - across - v[5] * along) * scale,
            (d[6] - across - v[6] * along) * scale, (d[7] - across - v[7] * along) * scale,
        )  # fmt: skip

    @inlined
    def summed(total: Any, d: Any, v: Any, scale: Any) -> Any:
        return (
            total[0] + d[0] * (v[0] * scale), total[1] + d[1] * (v[1] * scale),
            total[2] + d[2] * (v[2] * scale), total[3] + d[3] * (v[3] * scale),
            total[4] + d[4] * (v[4] * scale), total[5] + d[5] * (v[5] * scale),
            total[6] + d[6] * (v[6] * scale), total[7] + d[7] * (v[7] * scale),
        )  # fmt: skip

    def norm_gradients(
        dy: Any, x: Any, weight: Any, r: Any, dx: Any, weight_parts: Any, bias_parts: Any, eps: Any, rows: Any,
        columns: Any, ds: Any, xs: Any, rs: Any, dxs: Any,
    ) -> None:  # fmt: skip
        first = np.int64(cuda.threadIdx.x) * 8
        second = first + np.int64(cuda.blockDim.x) * 8
        left, rest = columns - first, columns - second
        fast = aligned(dy, 0, ds, itemsize) and aligned(x, 0, xs, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(dx, 0, dxs, itemsize)
        quick = fast and columns & 7 == 0
        weight_fast = aligned(weight, 0, 0, weight_size)
        count, least = real(columns), real(eps)
        w, u = weight_get(weight, first, left, weight_fast), weight_get(weight, second, rest, weight_fast)
        of_weight, more_of_weight, of_bias, more_of_bias = nothing, nothing, nothing, nothing
        row = np.int64(cuda.blockIdx.x)
        a, b, c, d = none, none, none, none
        if quick and row < rows:
            a, b = loaded(x, row * xs + first, left > 0), loaded(x, row * xs + second, rest > 0)
            c, d = loaded(dy, row * ds + first, left > 0), loaded(dy, row * ds + second, rest > 0)
        while row < rows:
            following = row + cuda.gridDim.x
            if quick:
                e, f, g, h = a, b, c, d
                if following < rows:
                    a, b = loaded(x, following * xs + first, left > 0), loaded(x, following * xs + second, rest > 0)
                    c, d = loaded(dy, following * ds + first, left > 0), loaded(dy, following * ds + second, rest > 0)
                v, o, k, m = numbers(e), numbers(f), numbers(g), numbers(h)
            else:
                v, o = get(x, row * xs + first, left, fast), get(x, row * xs + second, rest, fast)
                k, m = get(dy, row * ds + first, left, fast), get(dy, row * ds + second, rest, fast)
            dv, do = multiply(k, w), multiply(m, u)
            across = zero
            if layer:
                mean, across = sums(total_of(v) + total_of(o), total_of(dv) + total_of(do))
                mean, across = mean / count, across / count
                v, o = centre(v, mean, left), centre(o, mean, rest)
            spread, along = sums(
                total_of(multiply(v, v)) + total_of(multiply(o, o)),
                total_of(multiply(dv, v)) + total_of(multiply(do, o)),
            )
            scale = one / real(math.sqrt(spread / count + least))
            along = along / count * scale * scale
            of_weight, more_of_weight = summed(of_weight, k, v, scale), summed(more_of_weight, m, o, scale)
            if biased:
                of_bias, more_of_bias = add(of_bias, k), add(more_of_bias, m)
            dv, do = gradient(dv, v, across, along, scale), gradient(do, o, across, along, scale)
            if residual:
                dv = add(dv, get(r, row * rs + first, left, fast))
                do = add(do, get(r, row * rs + second, rest, fast))
            put(dx, row * dxs + first, dv, left, fast)
            put(dx, row * dxs + second, do, rest, fast)
            row = following
        at = np.int64(cuda.blockIdx.x) * columns
        _keep(weight_parts, at + first, of_weight, left)
        _keep(weight_parts, at + second, more_of_weight, rest)
        if biased:
            _keep(bias_parts, at + first, of_bias, left)
            _keep(bias_parts, at + second, more_of_bias, rest)

    kinds = (pointer, pointer, weight_pointer, pointer, pointer, statistic, statistic, "float64")
    return norm_gradients, (*kinds, *_NUMBER * 6)


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
        row = np.int64(cuda.blockIdx.x)
        while row < rows:
            mean = zero
            if layer:
                column = first
                while column < columns:
                    mean += total_of(get(x, row * xs + column, columns - column, fast))
                    column += stride
                mean, _ = sums(mean, zero)
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
            spread, along = sums(spread, along)
            if layer:
                across, _ = sums(across, zero)
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
    def added(parts_of: Any, column: Any, columns: Any, parts: Any) -> Any:
        """Return the sum of every 16th partial result, four loads at once."""
        a, b, c, d = zero, zero, zero, zero
        part = np.int64(cuda.threadIdx.x >> 5)
        while part < parts:
            a += parts_of[part * columns + column]
            b += parts_of[(part + 16) * columns + column] if part + 16 < parts else zero
            c += parts_of[(part + 32) * columns + column] if part + 32 < parts else zero
            d += parts_of[(part + 48) * columns + column] if part + 48 < parts else zero
            part += 64
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
