"""What machine code says of its kernels: which may overlap with the launch before."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cuda_kernels import kernel_of

import atomr_native as an
from atomr_native.compile import cubin, nvrtc

pytestmark = pytest.mark.plain


def test_machine_code_that_is_none() -> None:
    for wrong in (b"", b"\x7fELF", b"\x7fELF" + struct.pack("<Q", 7) * 20):
        with pytest.raises(an.LibraryError, match="cubin"):
            cubin.kernels(wrong)
        with pytest.raises(an.LibraryError, match="cubin"):
            cubin.why_no_overlap(wrong, "f")


WAITING = """
#define WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
__device__ __noinline__ void later(float *x) { WAIT(); x[1] = 1; }
extern "C" __global__ void never(float *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void allows(float *x) { asm volatile("griddepcontrol.launch_dependents;"); x[0] = 1; }
extern "C" __global__ void first(float *x, const float *__restrict__ y, int n) {
  WAIT();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int j = 0; j < n; j++) x[i] += y[j];
}
extern "C" __global__ void prepared(float *x, int n) {
  __shared__ float table[64];
  extern __shared__ float more[];
  if (threadIdx.x < 8) table[threadIdx.x] = __expf(n);
  for (int i = threadIdx.x; i < n; i += 32) more[i] = i;
  __syncthreads();
  WAIT();
  x[threadIdx.x] = table[n & 7] + more[n];
}
extern "C" __global__ void leaves(float *x, int n) {
  if (threadIdx.x >= n) return;
  WAIT();
  x[threadIdx.x] = 1;
}
extern "C" __global__ void skips(float *x, int n) {
  if (n > 3) { WAIT(); x[threadIdx.x] = 1; }
  x[n] = 2;
}
extern "C" __global__ void alone(float *x) {
  __shared__ float y;
  if (threadIdx.x == 0) { WAIT(); y = x[0]; }
  __syncthreads();
  x[threadIdx.x] = y;
}
extern "C" __global__ void reads(float *x, const float *y) {
  const float early = y[threadIdx.x];
  WAIT();
  x[threadIdx.x] = early;
}
extern "C" __global__ void copies(float *x, const float *y) {
  __shared__ alignas(16) float z[4];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(z)), "l"(y));
  asm volatile("cp.async.wait_all;" ::: "memory");
  WAIT();
  x[threadIdx.x] = z[threadIdx.x & 3];
}
extern "C" __global__ void adds(float *x) { atomicAdd(x, 1); WAIT(); x[1] = 1; }
extern "C" __global__ void calls(float *x) { later(x); }
"""
LATE = {
    "never": "it never waits", "allows": "it never waits", "leaves": "it may return", "alone": "some of its threads",
    "skips": "some of its threads", "reads": "it may touch memory", "copies": "it may touch memory",
    "adds": "it may touch memory", "calls": "it may return or call a function",
}  # fmt: skip


@pytest.mark.parametrize("options", [(), ("-G",)], ids=["", "debug"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100a", "sm_120a"])
def test_which_kernels_wait_for_the_launch_before(compiler_cache: Path, arch: str, options: tuple[str, ...]) -> None:
    code = nvrtc.compile_program(WAITING, arch, options=options).code
    assert cubin.why_no_overlap(code, "first") == ""
    if not options:
        assert cubin.why_no_overlap(code, "prepared") == ""
    for name, why in LATE.items():
        assert why in cubin.why_no_overlap(code, name) or (options and cubin.why_no_overlap(code, name)), name


def made(source: str, name: str, capability: tuple[int, int], **options: Any) -> dict[str, Any]:
    """Return what would be sent to a device of a kernel."""
    return msgspec.structs.asdict(kernel_of(source, name, capability, **options).code(()))


def test_kernels_that_overlap_must_wait(compiler_cache: Path) -> None:
    assert made(WAITING, "first", (9, 0), overlaps=True)["awaits"]
    assert not made(WAITING, "first", (9, 0))["awaits"]
    for name in ("leaves", "never"):
        with pytest.raises(an.InvalidRequest, match=rf'{name} cannot overlap .*{LATE[name]}.*"griddepcontrol.wait;"'):
            made(WAITING, name, (9, 0), overlaps=True)


def test_nothing_overlaps_below_hopper(compiler_cache: Path) -> None:
    assert not made('extern "C" __global__ void f(float *x) {}', "f", (8, 0), overlaps=True)["awaits"]
