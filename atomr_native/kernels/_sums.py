"""Sums over the threads of a block, in an order that is always the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._numba import cuda, types
from .._numba_copies import twin

__all__ = ["block_sums"]

_FULL: Final = 0xFFFFFFFF
_WARP: Final = 32
_PARTS: Final = 64  # two of each warp of the largest block
_THREADS: Final = 1024


def _simulated_warp_sum(value: Any) -> Any:
    values = cuda.shared.array(_THREADS, np.float64)
    thread = cuda.threadIdx.x
    values[thread] = value
    cuda.syncthreads()
    found = [type(value)(values[thread ^ lane]) for lane in range(_WARP)]
    cuda.syncthreads()
    while len(found) > 1:
        half = len(found) // 2
        found = [a + b for a, b in zip(found[:half], found[half:], strict=True)]
    return found[0]


@twin(_simulated_warp_sum, cooperates=True)
@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def warp_sum(value: Any) -> Any:
    """Return the sum of what the threads of a warp have; every thread of the block must call it."""
    distance = 16
    while distance > 0:
        value += cuda.shfl_xor_sync(_FULL, value, distance)
        distance //= 2
    return value


def block_sums(real: Any) -> Any:
    """Return a device function to the sums of two numbers over a block of whole warps; all threads must call it."""
    kind = types.float64 if real is np.float64 else types.float32

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def sums(a: Any, b: Any) -> Any:
        parts = cuda.shared.array(_PARTS, kind)
        a, b = warp_sum(a), warp_sum(b)
        warp = cuda.threadIdx.x // _WARP
        if cuda.threadIdx.x % _WARP == 0:
            parts[2 * warp] = a
            parts[2 * warp + 1] = b
        cuda.syncthreads()
        a, b = parts[0], parts[1]
        for i in range(1, cuda.blockDim.x // _WARP):
            a += parts[2 * i]
            b += parts[2 * i + 1]
        cuda.syncthreads()
        return a, b

    return sums
