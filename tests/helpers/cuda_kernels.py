"""Kernels in CUDA C++: a source, and making them for devices that are not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import atomr_native as an
from atomr_native.libraries.kernel import cuda_kernel

__all__ = ["HEADERS", "OPTIONS", "SOURCE", "kernel_of"]

SOURCE = """
#include "factor.cuh"
struct Pair { int a; double b; };
template <class T> __global__ void scale(T *x, const T *__restrict__ y, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = y[i] * factor * FACTOR;
}
extern "C" __global__ void types(double *out, signed char c, unsigned short s, bool flag, unsigned long long big,
                                 Pair p) {
  out[0] = c; out[1] = s; out[2] = flag; out[3] = (double)big; out[4] = p.a + p.b;
}
"""
HEADERS = {"factor.cuh": "#define FACTOR 2"}

#: What `Device.cuda_kernel` gives by default.
OPTIONS: dict[str, Any] = {
    "parameters": None, "options": (), "headers": None, "include": (), "link": (), "writes": None, "overwrites": (),
    "actor": "kernels", "cluster": None, "cooperative": False, "overlaps": False,
}  # fmt: skip


def kernel_of(source: str, name: str, capability: tuple[int, int] = (9, 0), **options: Any) -> an.CudaKernel:
    """Make a kernel for a device that is not there."""
    device: Any = SimpleNamespace(kind="cuda", compute_capability=lambda: capability, kernel_actor=lambda _: None)
    return cuda_kernel.make(device, source, name, **(OPTIONS | options))
