"""Sums over the threads of a block, in a fixed order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..api import cuda, inlined, types
from ..copies import twin

__all__ = ["WARPS", "block_moments", "block_sums", "counts", "total_of"]

_FULL: Final = 0xFFFFFFFF
_WARP: Final = 32
WARPS: Final = 16  # of the largest block
_PARTS: Final = 2 * WARPS
_SHOWN: Final = 2 * _PARTS  # buffers for even and odd turns
_THREADS: Final = 1024


def _simulated_warp_sum(value: Any, width: Any) -> Any:
    values = cuda.shared.array(_THREADS, np.float64)
    thread = cuda.threadIdx.x
    values[thread] = value
    cuda.syncthreads()
    found = [type(value)(values[thread ^ lane]) for lane in range(width)]
    cuda.syncthreads()
    while len(found) > 1:
        half = len(found) // 2
        found = [a + b for a, b in zip(found[:half], found[half:], strict=True)]
    return found[0]


@twin(_simulated_warp_sum, cooperates=True)
@inlined
def warp_sum(value: Any, width: Any) -> Any:
    """Return the sum over `width` neighbours, a power of two, of a warp; every thread of the block must call it."""
    distance = width >> 1
    while distance > 0:
        value += cuda.shfl_xor_sync(_FULL, value, distance)
        distance >>= 1
    return value


@inlined
def total_of(v: Any) -> Any:
    """Return the sum of a group."""
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))


def counts(real: Any) -> Any:
    """Return a device function for the number of elements that a warp has of a row, and its reciprocal."""
    zero, one = real(0), real(1)

    @inlined
    def counts(groups: Any, warp: Any) -> Any:
        left = groups - warp * _WARP
        rest = left - cuda.blockDim.x
        count = real((min(max(left, 0), _WARP) + min(max(rest, 0), _WARP)) * 8)
        return (count, one / count) if warp < cuda.blockDim.x >> 5 and left > 0 else (zero, zero)

    return counts


def block_parts(real: Any) -> Any:
    """Return a device function that shares two numbers of each warp with the block; all threads must call it.

    Lanes i and i + 16 get those of warp i, zeros if there is none.  Successive calls alternate between an even and an
    odd `turn`: a block then waits only once per call, since the next call does not overwrite the buffer in use.
    """
    kind, zero = (types.float64 if real is np.float64 else types.float32), real(0)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def parts(a: Any, b: Any, turn: Any) -> Any:
        shown = cuda.shared.array(_SHOWN, kind)
        at = (turn & 1) * _PARTS
        if cuda.threadIdx.x & (_WARP - 1) == 0:
            place = (at + (cuda.threadIdx.x >> 5) * 2) & (_SHOWN - 2)  # visibly non-negative for the compiler
            shown[place] = a
            shown[place | 1] = b
        cuda.syncthreads()
        part = cuda.threadIdx.x & (WARPS - 1)
        place = (at + part * 2) & (_SHOWN - 2)
        there = part < cuda.blockDim.x >> 5
        return shown[place] if there else zero, shown[place | 1] if there else zero

    return parts


def block_sums(real: Any) -> Any:
    """Return a device function for the sums of two numbers over a block, with the rules of `block_parts`."""
    parts = block_parts(real)

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def sums(a: Any, b: Any, turn: Any) -> Any:
        a, b = parts(warp_sum(a, _WARP), warp_sum(b, _WARP), turn)
        return warp_sum(a, WARPS), warp_sum(b, WARPS)

    return sums


def block_moments(real: Any) -> Any:
    """Return a device function for the mean of a row, and the sum of squared deviations from it.

    Each thread has two groups of the row, with zeros for missing elements.  The block waits once, with the rules of
    `block_parts`: warps compute deviations from their own means, which are merged as by T. Chan, G. Golub and R.
    LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).  `ours` and `theirs`
    are the results of `counts` for the thread's warp and for the warp with its lane's number; `inverse` is the
    reciprocal of the row's element count.
    """
    parts, zero = block_parts(real), real(0)

    @inlined
    def spread(v: Any, mean: Any) -> Any:
        a, b, c, d = v[0] - mean, v[1] - mean, v[2] - mean, v[3] - mean
        e, f, g, h = v[4] - mean, v[5] - mean, v[6] - mean, v[7] - mean
        return ((a * a + b * b) + (c * c + d * d)) + ((e * e + f * f) + (g * g + h * h))

    @inlined
    def moments(v: Any, o: Any, here: Any, there: Any, ours: Any, theirs: Any, inverse: Any, turn: Any) -> Any:
        total = warp_sum(total_of(v) + total_of(o), _WARP)
        mean = total * ours[1]
        near = spread(v, mean) if here else zero
        far = spread(o, mean) if there else zero
        total, around = parts(total, warp_sum(near + far, _WARP), turn)
        mean = warp_sum(total, WARPS) * inverse
        away = total * theirs[1] - mean
        return mean, warp_sum(around + away * (away * theirs[0]), WARPS)  # 0 for no elements, whatever the mean

    return moments
