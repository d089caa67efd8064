"""RMS norm and layer norm, forward and backward, on CUDA: see docs/fused.md for the formulas.

A block has a row; what it reads again of that row it finds in the cache.  Gradients of weight and bias are sums over
rows in two stages, without atomics: partial sums of some rows each, then those in their order.
"""

from __future__ import annotations

import math
from typing import Any

from .._numba import cuda
from ._elements import aligned, element, mapped
from ._sums import block_sums

__all__ = ["norm", "norm_backward", "weight_finish", "weight_partial"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


def _jit(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(function)


@_jit
def _total(v: Any) -> Any:
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))


def _centred(real: Any) -> Any:
    """Return a device function to a group's deviations from a mean; what is beyond the end stays 0."""
    zero = real(0)

    @_jit
    def centred(v: Any, mean: Any, left: Any) -> Any:
        return (
            v[0] - mean,
            v[1] - mean if left > 1 else zero,
            v[2] - mean if left > 2 else zero,
            v[3] - mean if left > 3 else zero,
            v[4] - mean if left > 4 else zero,
            v[5] - mean if left > 5 else zero,
            v[6] - mean if left > 6 else zero,
            v[7] - mean if left > 7 else zero,
        )

    return centred


def norm(dtype: str, weights: str, *, layer: bool, residual: bool, biased: bool) -> Kernel:
    """Return the kernel of a norm; with `residual`, of the norm of the sum, which is written too."""
    pointer, itemsize, real, get, put, rounded = element(dtype)
    weight_pointer, weight_size, _, weight_get, _, _ = element(weights)
    sums, centre, zero, one = block_sums(real), _centred(real), real(0), real(1)

    @_jit
    def added(a: Any, b: Any) -> Any:
        return rounded(a + b)

    @_jit
    def product(a: Any, b: Any) -> Any:
        return a * b

    @_jit
    def fused(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    add, multiply, multiply_add = mapped(added, 2), mapped(product, 2), mapped(fused, 3)

    def norm(
        x: Any, r: Any, weight: Any, bias: Any, out: Any, total: Any, eps: Any, rows: Any, columns: Any,
        xs: Any, rs: Any, os: Any, ts: Any,
    ) -> None:  # fmt: skip
        first, stride = cuda.threadIdx.x * 8, cuda.blockDim.x * 8
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(total, 0, ts, itemsize)
        weight_fast = aligned(weight, 0, 0, weight_size) and aligned(bias, 0, 0, weight_size)
        count, least = real(columns), real(eps)
        for row in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
            first_sum, second_sum = zero, zero
            for column in range(first, columns, stride):
                left = columns - column
                v = get(x, row * xs + column, left, fast)
                if residual:
                    v = add(v, get(r, row * rs + column, left, fast))
                    put(total, row * ts + column, v, left, fast)
                if layer:
                    first_sum += _total(v)
                else:
                    second_sum += _total(multiply(v, v))
            mean, second = sums(first_sum, second_sum)
            mean = mean / count
            if layer:
                spread = zero
                for column in range(first, columns, stride):
                    left = columns - column
                    v = get(total, row * ts + column, left, fast) if residual else get(x, row * xs + column, left, fast)
                    v = centre(v, mean, left)
                    spread += _total(multiply(v, v))
                second, _ = sums(spread, zero)
            scale = one / real(math.sqrt(second / count + least))
            for column in range(first, columns, stride):
                left = columns - column
                v = get(total, row * ts + column, left, fast) if residual else get(x, row * xs + column, left, fast)
                if layer:
                    v = centre(v, mean, left)
                v = (
                    v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale,
                    v[4] * scale, v[5] * scale, v[6] * scale, v[7] * scale,
                )  # fmt: skip
                w = weight_get(weight, column, left, weight_fast)
                v = multiply_add(v, w, weight_get(bias, column, left, weight_fast)) if biased else multiply(v, w)
                put(out, row * os + column, v, left, fast)

    return norm, (pointer, pointer, weight_pointer, weight_pointer, pointer, pointer, "float64", *_NUMBER * 6)


def norm_backward(dtype: str, weights: str, *, layer: bool, residual: bool) -> Kernel:
    """Return the kernel of the gradient by x; with `residual`, plus the gradient `r` that comes by the sum itself.

    It also writes the mean and the reciprocal deviation of each row, for the gradients of weight and bias.
    """
    pointer, itemsize, real, get, put, _ = element(dtype)
    weight_pointer, weight_size, _, weight_get, _, _ = element(weights)
    statistic = "*float64" if dtype == "float64" else "*float32"
    sums, centre, zero, one = block_sums(real), _centred(real), real(0), real(1)

    @_jit
    def product(a: Any, b: Any) -> Any:
        return a * b

    @_jit
    def plus(a: Any, b: Any) -> Any:
        return a + b

    multiply, add = mapped(product, 2), mapped(plus, 2)

    def norm_backward(
        dy: Any, x: Any, weight: Any, r: Any, dx: Any, statistics: Any, eps: Any, rows: Any, columns: Any,
        ds: Any, xs: Any, rs: Any, dxs: Any,
    ) -> None:  # fmt: skip
        first, stride = cuda.threadIdx.x * 8, cuda.blockDim.x * 8
        fast = aligned(dy, 0, ds, itemsize) and aligned(x, 0, xs, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(dx, 0, dxs, itemsize)
        weight_fast = aligned(weight, 0, 0, weight_size)
        count, least = real(columns), real(eps)
        for row in range(cuda.blockIdx.x, rows, cuda.gridDim.x):
            mean = zero
            if layer:
                for column in range(first, columns, stride):
                    mean += _total(get(x, row * xs + column, columns - column, fast))
                mean, _ = sums(mean, zero)
                mean = mean / count
            spread, along, across = zero, zero, zero
            for column in range(first, columns, stride):
                left = columns - column
                v = get(x, row * xs + column, left, fast)
                if layer:
                    v = centre(v, mean, left)
                d = multiply(get(dy, row * ds + column, left, fast), weight_get(weight, column, left, weight_fast))
                spread += _total(multiply(v, v))
                along += _total(multiply(d, v))
                if layer:
                    across += _total(d)
            spread, along = sums(spread, along)
            if layer:
                across, _ = sums(across, zero)
            scale = one / real(math.sqrt(spread / count + least))
            along = along / count * scale * scale
            across = across / count
            if cuda.threadIdx.x == 0:
                statistics[2 * row] = mean
                statistics[2 * row + 1] = scale

            for column in range(first, columns, stride):
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

    types = (pointer, pointer, weight_pointer, pointer, pointer, statistic, "float64", *_NUMBER * 6)
    return norm_backward, types


def weight_partial(dtype: str, *, biased: bool) -> Kernel:
    """Return the kernel of partial sums: each warp of a block has 256 columns and every so many rows."""
    pointer, itemsize, real, get, _, _ = element(dtype)
    statistic = "*float64" if dtype == "float64" else "*float32"
    zero = real(0)

    @_jit
    def normed(d: Any, v: Any, mean: Any, scale: Any) -> Any:
        return d * ((v - mean) * scale)

    @_jit
    def plus(a: Any, b: Any) -> Any:
        return a + b

    add = mapped(plus, 2)

    @_jit
    def keep(out: Any, at: Any, v: Any, left: Any) -> None:
        if left >= 8:
            out[at], out[at + 1], out[at + 2], out[at + 3] = v[0], v[1], v[2], v[3]
            out[at + 4], out[at + 5], out[at + 6], out[at + 7] = v[4], v[5], v[6], v[7]
        else:
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
        for row in range(part, rows, cuda.gridDim.y * 8):
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
        keep(weight_parts, part * columns + column, of_weight, left)
        if biased:
            keep(bias_parts, part * columns + column, of_bias, left)

    return weight_partial, (pointer, pointer, *(statistic,) * 3, *_NUMBER * 4)


def weight_finish(dtype: str, weights: str, *, biased: bool) -> Kernel:
    """Return the kernel that adds partial sums, one column a thread."""
    real = element(dtype).real
    weight_pointer, _, _, _, put, _ = element(weights)
    statistic = "*float64" if dtype == "float64" else "*float32"
    zero = real(0)

    def weight_finish(weight_parts: Any, bias_parts: Any, dweight: Any, dbias: Any, parts: Any, columns: Any) -> None:
        for column in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, columns,
                            cuda.gridDim.x * cuda.blockDim.x):  # fmt: skip
            a, b = zero, zero
            for part in range(parts):
                a += weight_parts[part * columns + column]
                if biased:
                    b += bias_parts[part * columns + column]
            put(dweight, column, (a, a, a, a, a, a, a, a), 1, False)
            if biased:
                put(dbias, column, (b, b, b, b, b, b, b, b), 1, False)

    return weight_finish, (statistic, statistic, weight_pointer, weight_pointer, *_NUMBER * 2)
