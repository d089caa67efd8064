"""RMS norm and layer norm on CUDA: see docs/libraries/fused.md for the formulas.

A block has a row after the other, of which each thread keeps two groups of eight elements, while those of the next row
are on their way; rows that are too long for that are read again, from the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.elements import NARROW, WORDS, aligned, element, mapped
from ....compile.numba.device.sums import WARPS, block_moments, block_sums, counts, total_of

__all__ = ["centred", "norm", "registers"]

Kernel = tuple[Any, tuple[str, ...]]
_NUMBER = ("int64",)


def centred(real: Any) -> Any:
    """Return a device function for a group's deviations from a mean; elements beyond the end stay 0."""
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


def registers(dtype: str, residual: bool, biased: bool, **_: Any) -> int:
    """Return the registers of a thread: 1024, 768 or 512 threads have room on a multiprocessor."""
    if dtype not in NARROW:
        return 128
    return 80 if residual or biased else 64


def norm(dtype: str, weights: str, *, layer: bool, residual: bool, biased: bool) -> Kernel:
    """Return the kernel of a norm; with `residual`, of the norm of the sum, which is written too.

    A block keeps rows of not more than two groups for each thread, all of them whole.
    """
    pointer, itemsize, real, get, put, rounded, _, store = element(dtype)
    weight_pointer, weight_size, weight_real, weight_get, _, _, weight_load, _ = element(weights)
    words, numbers = WORDS[dtype]
    sums, moments, counted = block_sums(real), block_moments(real), counts(real)
    centre, zero, one = centred(real), real(0), real(1)
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
    def minus(v: Any, mean: Any) -> Any:
        return (
            v[0] - mean, v[1] - mean, v[2] - mean, v[3] - mean, v[4] - mean, v[5] - mean, v[6] - mean, v[7] - mean,
        )  # fmt: skip

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
        row, turn = np.int64(cuda.blockIdx.x), np.int64(0)
        if keeps and fast and weight_fast and columns & 7 == 0 and columns <= 2 * stride:
            second = first + stride
            here, there = first < columns, second < columns
            step = np.int64(cuda.gridDim.x)
            x_at, r_at, total_at, out_at = row * xs, row * rs, row * ts, row * os
            x_step, r_step, total_step, out_step = step * xs, step * rs, step * ts, step * os
            near, far = here & (row < rows), there & (row < rows)
            a, b, c, d = loaded(x, x_at + first, near), loaded(x, x_at + second, far), none, none
            if residual:
                c, d = loaded(r, r_at + first, near), loaded(r, r_at + second, far)
            w, u = factors(weight, first, here), factors(weight, second, there)
            s, t = weight_nothing, weight_nothing
            if biased:
                s, t = factors(bias, first, here), factors(bias, second, there)
            ours = counted(columns >> 3, cuda.threadIdx.x >> 5)
            theirs = counted(columns >> 3, cuda.threadIdx.x & (WARPS - 1))
            inverse = one / count
            while row < rows:
                e, f, g, h = a, b, c, d
                row += step
                x_at += x_step
                near, far = here & (row < rows), there & (row < rows)
                a, b = loaded(x, x_at + first, near), loaded(x, x_at + second, far)  # are on their way meanwhile
                if residual:
                    r_at += r_step
                    c, d = loaded(r, r_at + first, near), loaded(r, r_at + second, far)
                v, o = numbers(e), numbers(f)
                if residual:
                    v, o = add(v, numbers(g)), add(o, numbers(h))
                    kept(total, total_at + first, v, here)
                    kept(total, total_at + second, o, there)
                    total_at += total_step
                if layer:
                    mean, spread = moments(v, o, here, there, ours, theirs, inverse, turn)
                    v, o = minus(v, mean), minus(o, mean)
                else:
                    spread, _ = sums(squares(v) + squares(o), zero, turn)
                turn += 1
                scale = one / real(math.sqrt(spread * inverse + least))
                kept(out, out_at + first, scaled(v, scale, w, s), here)
                kept(out, out_at + second, scaled(o, scale, u, t), there)
                out_at += out_step
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
            mean, spread = sums(first_sum, second_sum, turn)
            turn += 1
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
                spread, _ = sums(spread, zero, turn)
                turn += 1
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
