"""Sums over the threads of a block, in an order that is always the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._numba import cuda, inlined, types
from .._numba_copies import twin

__all__ = ["block_sums"]

_FULL: Final = 0xFFFFFFFF
_WARP: Final = 32
_PARTS: Final = 64  # two of each warp of the largest block
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


def block_sums(real: Any) -> Any:
    """Return a device function to the sums of two numbers over a block; all threads must call it.

    The block has a number of warps that is a power of two.
    """
    kind = types.float64 if real is np.float64 else types.float32

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def sums(a: Any, b: Any) -> Any:
        parts = cuda.shared.array(_PARTS, kind)
        a, b = warp_sum(a, _WARP), warp_sum(b, _WARP)
        warp, warps = cuda.threadIdx.x >> 5, cuda.blockDim.x >> 5
        if cuda.threadIdx.x & (_WARP - 1) == 0:
            parts[2 * warp] = a
            parts[2 * warp + 1] = b
        cuda.syncthreads()
        part = cuda.threadIdx.x & (warps - 1)
        a, b = warp_sum(parts[2 * part], warps), warp_sum(parts[2 * part + 1], warps)
        cuda.syncthreads()
        return a, b

    return sums
