"""A computation with a result known bit by bit, by which a worker proves its device before the lanes run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...builders.cuda.cubin import compile_cubin
from ...builders.cuda.target import KernelProgram, Launch, Target
from ...errors import LibraryError

if TYPE_CHECKING:
    from ..._lib.cuda import CudaBackend

__all__ = ["build_proof", "expected", "prove"]

_THREADS: Final = 128
_ROUNDS: Final = 4
_BYTES: Final = 1 << 20
_GOLDEN, _MIX = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93

#: Integer mixing, fused multiply-adds in both precisions, an exchange through shared memory behind a barrier.  The
#: operands of the float32 multiply-add lie between 1 and 2, so float64 holds the sum exactly, and NumPy can round it
#: once.
_SOURCE: Final = f"""\
typedef unsigned long long u64;
typedef unsigned int u32;
extern "C" __global__ void prove(u64 *out) {{
  __shared__ u64 all[{_THREADS}];
  const u32 i = blockIdx.x * {_THREADS}u + threadIdx.x;
  u64 h = ((u64)i + 1) * {_GOLDEN:#x}ull;
  for (int round = 0; round < {_ROUNDS}; round++) {{
    h = (h ^ (h >> 32)) * {_MIX:#x}ull;
    const float a = __uint_as_float(0x3f800000u | (u32)(h & 0x7fffff));
    const float b = __uint_as_float(0x3f800000u | (u32)(h >> 20 & 0x7fffff));
    const float c = __uint_as_float(0x3f800000u | (u32)(h >> 40 & 0x7fffff));
    h ^= (u64)__float_as_uint(fmaf(a, b, c)) << 13;
    h += (u64)fma((double)(h & 0x3ffffff), (double)(h >> 26 & 0x3ffffff), 1.0);
  }}
  all[threadIdx.x] = h;
  __syncthreads();
  out[i] = h + all[{_THREADS - 1} - threadIdx.x];
}}
"""


def build_proof(target: Target) -> KernelProgram:
    """Build the computation: one operand, for as many 64-bit words as `expected` returns."""
    launch = Launch("prove", (target.sm_count, 1, 1), (_THREADS, 1, 1), 0, (("operand", 0),))
    return KernelProgram(compile_cubin(_SOURCE, target.arch), (launch,), source=_SOURCE)


@lru_cache(maxsize=4)
def expected(sm_count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the result as the CPU computes it."""

    def unit(words: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        bits = (words & np.uint64(0x7FFFFF)).astype(np.uint32) | np.uint32(0x3F800000)
        return bits.view(np.float32).astype(np.float64)

    with np.errstate(over="ignore"):
        h = np.arange(1, sm_count * _THREADS + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        for _ in range(_ROUNDS):
            h = (h ^ (h >> np.uint64(32))) * np.uint64(_MIX)
            fused = (unit(h) * unit(h >> np.uint64(20)) + unit(h >> np.uint64(40))).astype(np.float32)
            h ^= fused.view(np.uint32).astype(np.uint64) << np.uint64(13)
            h += (h & np.uint64(0x3FFFFFF)) * (h >> np.uint64(26) & np.uint64(0x3FFFFFF)) + np.uint64(1)
        blocks = h.reshape(sm_count, _THREADS)
        return (blocks + blocks[:, ::-1]).reshape(-1)


def prove(backend: CudaBackend, target: Target, address: int) -> None:
    """Compute it, send bytes there and back, and let the device write to the worker's memory.  Waits for the results.

    Parameters
    ----------
    backend
        The device.
    target
        What it is.
    address
        Address of a mebibyte of its memory.

    Raises
    ------
    LibraryError
        If the device computes or stores anything else.
    """
    sent = (np.arange(_BYTES // 8, dtype=np.uint64) * np.uint64(_GOLDEN)).view(np.uint8)
    _round_trip(backend, address, sent)
    wanted = expected(target.sm_count)
    found = np.zeros_like(wanted)
    backend.run(backend.load(build_proof(target)), address)
    backend.copy_now(found.ctypes.data, address, found.nbytes)
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        i = int(wrong[0])
        _refuse(f"{wrong.size} of {wanted.size} words are wrong; word {i} is {int(found[i]):#018x} "
                f"instead of {int(wanted[i]):#018x}")  # fmt: skip
    backend.beat()


def _round_trip(backend: CudaBackend, address: int, sent: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    back = np.zeros_like(sent)
    backend.copy_now(address, sent.ctypes.data, sent.nbytes)
    backend.copy_now(back.ctypes.data, address, back.nbytes)
    if not np.array_equal(sent, back):
        _refuse(f"{int((sent != back).sum())} of {sent.size} bytes came back changed")


def _refuse(detail: str) -> None:
    raise LibraryError("cuda", 0, "WrongAnswer", "the known-answer computation", detail)
