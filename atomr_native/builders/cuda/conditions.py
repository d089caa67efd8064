"""Kernels that decide, on a GPU, what conditional nodes of its graphs run."""

from __future__ import annotations

from typing import Final

from .cubin import compile_cubin
from .target import KernelProgram, Launch, Target

__all__ = ["build_conditions"]

# What cython/cuda/graph_build.c launches.  Bodies of a branch are numbered; `mask` says which of the four have steps.
_SOURCE: Final = """\
typedef unsigned long long u64;
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);
static __device__ __forceinline__ long long decided(const void *flag, u64 width, u64 is_signed) {
  if (width == 1) return is_signed ? *(const signed char *)flag : *(const unsigned char *)flag;
  if (width == 2) return is_signed ? *(const short *)flag : *(const unsigned short *)flag;
  if (width == 4) return is_signed ? *(const int *)flag : (long long)*(const unsigned int *)flag;
  return *(const long long *)flag;
}
extern "C" __global__ void branch(const void *flag, u64 width, u64 is_signed, u64 truth, u64 begin, u64 mask, u64 first,
                                  u64 second, u64 third, u64 fourth) {
  const long long value = decided(flag, width, is_signed);
  const u64 chosen = truth ? (u64)(value == 0) : (u64)value;
  const u64 handles[4] = {first, second, third, fourth};
  for (int i = 0; i < 4; i++)
    if (mask >> i & 1) cudaGraphSetConditional(handles[i], chosen == begin + i);
}
extern "C" __global__ void loop(const void *flag, u64 width, u64 handle, u64 begins, u64 *count, u64 limit,
                                u64 *reached, u64 number) {
  const u64 rounds = begins ? 0 : *count + 1;
  int runs = decided(flag, width, 0) != 0;
  if (runs && rounds == limit) *reached = number;
  if (*reached) runs = 0;
  *count = rounds;
  cudaGraphSetConditional(handle, runs);
}
"""


def build_conditions(target: Target) -> KernelProgram:
    """Return the kernels: that of branches, then that of loops.  Waits for the compiler."""
    launches = tuple(Launch(name, (1, 1, 1), (1, 1, 1), 0, ()) for name in ("branch", "loop"))
    return KernelProgram(compile_cubin(_SOURCE, target.arch), launches, source=_SOURCE)
