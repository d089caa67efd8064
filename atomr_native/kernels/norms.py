"""RMS norm and layer norm on CUDA: see docs/fused.md for the formulas.

A block has a row, of which each thread keeps some groups of eight elements; rows that are too long for that are read
again, from the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._numba import cuda
from ._elements import aligned, element, mapped
from ._sums import block_sums

__all__ = ["centred", "norm", "total_of"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


def _jit(function: Any) -> Any:
    return cuda.jit(device=True, forceinline=True)(function)


@_jit
def total_of(v: Any) -> Any:
    """Return the sum of a group."""
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))


def centred(real: Any) -> Any:
    """Return a device function to a group's deviations from a mean; what is beyond the end stays 0."""
    zero = real(0)

    @_jit
    def centred(v: Any, mean: Any, left: Any) -> Any:
        return (
            v[0] - mean if left > 0 else zero,
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
    """Return the kernel of a norm; with `residual`, of the norm of the sum, which is written too.

    A block keeps a row of not more than four groups for each thread, all of them whole.
    """
    pointer, itemsize, real, get, put, rounded, load, store = element(dtype)
    weight_pointer, weight_size, _, weight_get, _, _, weight_load, _ = element(weights)
    sums, centre, zero, one = block_sums(real), centred(real), real(0), real(1)
    nothing = (zero,) * 8

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

    @_jit
    def loaded(x: Any, at: Any, there: Any) -> Any:
        return load(x, at) if there else nothing

    @_jit
    def kept(out: Any, at: Any, v: Any, there: Any) -> None:
        if there:
            store(out, at, v)

    @_jit
    def scaled(v: Any, scale: Any, weight: Any, bias: Any, column: Any, left: Any, quick: Any, fast: Any) -> Any:
        """Return a group of the result, of deviations from the mean."""
        v = (
            v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale,
            v[4] * scale, v[5] * scale, v[6] * scale, v[7] * scale,
        )  # fmt: skip
        w = weight_load(weight, column) if quick else weight_get(weight, column, left, fast)
        if biased:
            b = weight_load(bias, column) if quick else weight_get(bias, column, left, fast)
            return multiply_add(v, w, b)
        return multiply(v, w)

    @_jit
    def squares(v: Any) -> Any:
        return total_of(multiply(v, v))

    def norm(
        x: Any, r: Any, weight: Any, bias: Any, out: Any, total: Any, eps: Any, rows: Any, columns: Any,
        xs: Any, rs: Any, os: Any, ts: Any,
    ) -> None:  # fmt: skip
        first, stride = np.int64(cuda.threadIdx.x) * 8, np.int64(cuda.blockDim.x) * 8
        fast = aligned(x, 0, xs, itemsize) and aligned(out, 0, os, itemsize)
        fast = fast and aligned(r, 0, rs, itemsize) and aligned(total, 0, ts, itemsize)
        weight_fast = aligned(weight, 0, 0, weight_size) and aligned(bias, 0, 0, weight_size)
        quick = fast and weight_fast and columns & 7 == 0 and columns <= 4 * stride
        count, least = real(columns), real(eps)
        i, j, k = first + stride, first + 2 * stride, first + 3 * stride
        row = np.int64(cuda.blockIdx.x)
        while row < rows:
            first_sum, second_sum = zero, zero
            a, b, c, d = nothing, nothing, nothing, nothing
            if quick:
                at = row * xs
                a, b = loaded(x, at + first, first < columns), loaded(x, at + i, i < columns)
                c, d = loaded(x, at + j, j < columns), loaded(x, at + k, k < columns)
                if residual:
                    at = row * rs
                    e, f = loaded(r, at + first, first < columns), loaded(r, at + i, i < columns)
                    g, h = loaded(r, at + j, j < columns), loaded(r, at + k, k < columns)
                    a, b, c, d = add(a, e), add(b, f), add(c, g), add(d, h)
                    at = row * ts
                    kept(total, at + first, a, first < columns)
                    kept(total, at + i, b, i < columns)
                    kept(total, at + j, c, j < columns)
                    kept(total, at + k, d, k < columns)
                if layer:
                    first_sum = (total_of(a) + total_of(b)) + (total_of(c) + total_of(d))
                else:
                    second_sum = (squares(a) + squares(b)) + (squares(c) + squares(d))
            else:
                column = first
                while column < columns:
                    left = columns - column
                    a = get(x, row * xs + column, left, fast)
                    if residual:
                        a = add(a, get(r, row * rs + column, left, fast))
                        put(total, row * ts + column, a, left, fast)
                    if layer:
                        first_sum += total_of(a)
                    else:
                        second_sum += squares(a)
                    column += stride
            mean, second = sums(first_sum, second_sum)
            mean = mean / count
            if layer:
                spread = zero
                if quick:
                    a, b = centre(a, mean, columns - first), centre(b, mean, columns - i)
                    c, d = centre(c, mean, columns - j), centre(d, mean, columns - k)
                    spread = (squares(a) + squares(b)) + (squares(c) + squares(d))
                else:
                    column = first
                    while column < columns:
                        left = columns - column
                        at = row * ts if residual else row * xs
                        a = get(total if residual else x, at + column, left, fast)
                        spread += squares(centre(a, mean, left))
                        column += stride
                second, _ = sums(spread, zero)
            scale = one / real(math.sqrt(second / count + least))
            at = row * os
            if quick:
                if first < columns:
                    store(out, at + first, scaled(a, scale, weight, bias, first, 8, True, True))
                if i < columns:
                    store(out, at + i, scaled(b, scale, weight, bias, i, 8, True, True))
                if j < columns:
                    store(out, at + j, scaled(c, scale, weight, bias, j, 8, True, True))
                if k < columns:
                    store(out, at + k, scaled(d, scale, weight, bias, k, 8, True, True))
            else:
                column = first
                while column < columns:
                    left = columns - column
                    at = row * ts if residual else row * xs
                    a = get(total if residual else x, at + column, left, fast)
                    if layer:
                        a = centre(a, mean, left)
                    a = scaled(a, scale, weight, bias, column, left, False, weight_fast)
                    put(out, row * os + column, a, left, fast)
                    column += stride
            row += cuda.gridDim.x

    return norm, (pointer, pointer, weight_pointer, weight_pointer, pointer, pointer, "float64", *_NUMBER * 6)
