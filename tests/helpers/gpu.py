"""Faults of a GPU, and what its driver says of its memory."""

from __future__ import annotations

import ctypes
import functools
import itertools
from typing import Any

import scripts

import atomr_native as an
from atomr_native.plans.spec import READ, WRITE, OperandSpec, PlanSpec

#: What the driver calls each fault.
CODES = {
    "illegal address": (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "misaligned address": (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
    "trap": (719, "CUDA_ERROR_LAUNCH_FAILED"),
    "assert": (710, "CUDA_ERROR_ASSERT"),
}
_numbers = itertools.count()
_PREAMBLE = """
import ctypes, os, time
d = ctypes.CDLL(os.environ.get("ATOMR_NATIVE_CUDA") or "libcuda.so.1")
def call(name, *arguments):
    status = getattr(d, name)(*arguments)
    if status: raise SystemExit(f"{name} returned {status}")
context, free, total, at = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
"""


def visible() -> int:
    """Count the GPUs that this process may see."""
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value


@functools.cache
def open_driver(*, context: bool) -> None:
    """Have what the driver keeps in this process until its end (pipes, sockets) there before anybody counts.

    Without a GPU, or with hidden ones, the driver keeps it too; without a driver there is nothing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        if context:
            raise
        return
    status = driver.cuInit(0)
    if context:
        assert status == 0
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0


def gpu_plan(actor: Any, how: str, *refs: an.GpuRef, access: int = READ | WRITE, **attributes: Any) -> an.Plan:
    """A plan of ``test.gpu_fault``, which no other is the same as; see ``worker/cuda/faults.py``."""
    operands = tuple(
        OperandSpec(f"x{i}", r.layout.dtype_name, r.shape, r.strides, access) for i, r in enumerate(refs)
    )  # fmt: skip
    numbered = (("how", how), ("number", next(_numbers)), *attributes.items())
    plan: an.Plan = actor._plan(PlanSpec("test.gpu_fault", operands, (), numbered))
    return plan


def gpu_fault(actor: Any, how: str, *refs: an.GpuRef, access: int = READ | WRITE, **attributes: Any) -> Any:
    """Send such a message; its reply."""
    return gpu_plan(actor, how, *refs, access=access, **attributes).ask(*refs)


def free_memory() -> int:
    """Bytes that the driver would give to another process."""
    return int(scripts.run(_PREAMBLE + "print(free.value)"))


def hold_memory(leave: int) -> Any:
    """Start a process that takes all memory of the GPU but `leave` bytes, and keeps it until it is killed."""
    process = scripts.start(
        _PREAMBLE
        + f"""
left = free.value - {leave}
while left > 0:
    piece = min(left, 1 << 30)
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(piece))
    left -= piece
print("full", flush=True)
time.sleep(600)
"""
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "full\n", process.communicate()
    return process
