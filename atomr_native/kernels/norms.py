"""RMS norm and layer norm on CUDA: see docs/fused.md for the formulas.

A block has a row after the other, of which each thread keeps two groups of eight elements, while those of the next row
are on their way; rows that are too long for that are read again, from the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._numba import cuda, inlined
from ._elements import WORDS, aligned, element, mapped
from ._sums import block_sums

__all__ = ["centred", "norm", "registers", "total_of"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


@inlined
def total_of(v: Any) -> Any:
    """Return the sum of a group."""
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))


def centred(real: Any) -> Any:
    """Return a device function to a group's deviations from a mean; what is beyond the end stays 0."""
    zero = real(0)

    @inlined
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


def registers(dtype: str, **_: Any) -> int:
    """Return the registers of a thread: 768 or 512 threads have room on a multiprocessor."""
    return 80 if dtype in ("bfloat16", "float16") else 128


def norm(dtype: str, weights: str, *, layer: bool, residual: bool, biased: bool) -> Kernel:
    """Return the kernel of a norm; with `residual`, of the norm of the sum, which is written too.

    A block keeps rows of not more than two groups for each thread, all of them whole.
    """
    pointer, itemsize, real, get, put, rounded, _, store = element(dtype)
    weight_pointer, weight_size, weight_real, weight_get, _, _, weight_load, _ = element(weights)
    words, numbers = WORDS[dtype]
    sums, centre, zero, one = block_sums(real), centred(real), real(0), real(1)
    keeps = dtype != "float64"  # which needs more registers than there are
    nothing, weight_nothing = (zero,) * 8, (weight_real(0),) * 8
    none = nothing if dtype == "float64" else (np.uint32(0),) * (2 * itemsize)

    @inlined
    def added(a: Any, b: Any) -> Any:
        return rounded(a + b)

    @inlined
    def product(a: Any, b: Any) -> Any:
        return a * b

    @inlined
    def fused(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    add, multiply, multiply_add = mapped(added, 2), mapped(product, 2), mapped(fused, 3)

    @inlined
    def loaded(x: Any, at: Any, there: Any) -> Any:
        return words(x, at) if there else none

    @inlined
    def factors(weight: Any, at: Any, there: Any) -> Any:
        return weight_load(weight, at) if there else weight_nothing

    @inlined
    def kept(out: Any, at: Any, v: Any, there: Any) -> None:
        if there:
            store(out, at, v)

    @inlined
    def scaled(v: Any, scale: Any, w: Any, b: Any) -> Any:
        """Return a group of the result, of deviations from the mean."""
        v = (
            v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale,
            v[4] * scale, v[5] * scale, v[6] * scale, v[7] * scale,
        )  # fmt: skip
        return multiply_add(v, w, b) if biased else multiply(v, w)

    @inlined
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
        count, least = real(columns), real(eps)
        row = np.int64(cuda.blockIdx.x)
        if keeps and fast and weight_fast and columns & 7 == 0 and columns <= 2 * stride:
            second = first + stride
            here, there = first < columns, second < columns
            w, u = factors(weight, first, here), factors(weight, second, there)
            s, t = weight_nothing, weight_nothing
            if biased:
                s, t = factors(bias, first, here), factors(bias, second, there)
            a, b, c, d = none, none, none, none
            if row < rows:
                a, b = loaded(x, row * xs + first, here), loaded(x, row * xs + second, there)
                if residual:
                    c, d = loaded(r, row * rs + first, here), loaded(r, row * rs + second, there)
            while row < rows:
                e, f, g, h = a, b, c, d
                following = row + cuda.gridDim.x
                if following < rows:  # is on its way meanwhile
                    a, b = loaded(x, following * xs + first, here), loaded(x, following * xs + second, there)
                    if residual:
                        c, d = loaded(r, following * rs + first, here), loaded(r, following * rs + second, there)
                v, o = numbers(e), numbers(f)
                if residual:
                    v, o = add(v, numbers(g)), add(o, numbers(h))
                    kept(total, row * ts + first, v, here)
                    kept(total, row * ts + second, o, there)
                if layer:
                    mean, _ = sums(total_of(v) + total_of(o), zero)
                    mean = mean / count
                    v, o = centre(v, mean, columns - first), centre(o, mean, columns - second)
                spread, _ = sums(squares(v) + squares(o), zero)
                scale = one / real(math.sqrt(spread / count + least))
                kept(out, row * os + first, scaled(v, scale, w, s), here)
                kept(out, row * os + second, scaled(o, scale, u, t), there)
                row = following
        while row < rows:
            first_sum, second_sum = zero, zero
            column = first
            while column < columns:
                left = columns - column
                v = get(x, row * xs + column, left, fast)
                if residual:
                    v = add(v, get(r, row * rs + column, left, fast))
                    put(total, row * ts + column, v, left, fast)
                if layer:
                    first_sum += total_of(v)
                else:
                    second_sum += squares(v)
                column += stride
            mean, spread = sums(first_sum, second_sum)
            mean = mean / count
            if layer:
                spread = zero
                column = first
                while column < columns:
                    left = columns - column
                    at = row * ts if residual else row * xs
                    v = get(total if residual else x, at + column, left, fast)
                    spread += squares(centre(v, mean, left))
                    column += stride
                spread, _ = sums(spread, zero)
            scale = one / real(math.sqrt(spread / count + least))
            column = first
            while column < columns:
                left = columns - column
                at = row * ts if residual else row * xs
                v = get(total if residual else x, at + column, left, fast)
                if layer:
                    v = centre(v, mean, left)
                w, s = weight_get(weight, column, left, weight_fast), weight_nothing
                if biased:
                    s = weight_get(bias, column, left, weight_fast)
                put(out, row * os + column, scaled(v, scale, w, s), left, fast)
                column += stride
            row += cuda.gridDim.x

    return norm, (pointer, pointer, weight_pointer, weight_pointer, pointer, pointer, "float64", *_NUMBER * 6)
