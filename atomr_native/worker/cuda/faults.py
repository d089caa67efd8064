"""Kernels that make the GPU fault, for tests of recovery."""

from __future__ import annotations

from typing import Any, Final

from ...errors import InvalidRequest
from .nvrtc import compile_cubin
from .target import Argument, KernelProgram, Launch, Target

__all__ = ["KINDS", "build_fault"]

#: What one thread does, by the name of the fault; `x` is the operand, where the message has one.
KINDS: Final = {
    "illegal address": "*(volatile int *)64 = 1;",
    "misaligned address": "*(volatile unsigned long long *)((char *)cells + one) = 1;",
    "trap": 'asm volatile("trap;");',
    "assert": "assert(one == 0);",
    "endless": 'for (;;) asm volatile("nanosleep.u32 1000;");',
    # Within mapped memory, where nothing notices it.
    "out of bounds": "for (long long i = 0; i < {nbytes}ll; i++) x[{offset}ll + i] ^= 0x5a;",
    # No fault: work that ends, once so much time has passed on the device.
    "slow": """\
unsigned long long began, now;
asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
do {{
  asm volatile("nanosleep.u32 1000;");
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
}} while (now - began < {milliseconds}000000ull);""",
}

_SOURCE: Final = """\
__device__ unsigned long long cells[2];
__device__ volatile int one = 1;
extern "C" __global__ void fault(unsigned char *x) {{
{body}
}}
"""


def build_fault(spec: dict[str, Any], target: Target) -> KernelProgram:
    """Build ``test.gpu_fault``: at most one operand, and ``how``, a key of `KINDS`.

    ``"out of bounds"`` changes ``nbytes`` bytes that begin ``offset`` bytes after the operand's first, ``"slow"`` takes
    ``milliseconds``.

    Raises
    ------
    InvalidRequest
        For another kind.
    """
    how = spec["how"]
    if how not in KINDS:
        raise InvalidRequest(f"unknown fault {how!r}; allowed: {', '.join(KINDS)}")
    numbers = {name: int(spec.get(name, 0)) for name in ("nbytes", "offset", "milliseconds")}
    source = _SOURCE.format(body=KINDS[how].format(**numbers))
    operand: Argument = ("operand", 0) if spec["operands"] else ("uint64", 0)
    launch = Launch("fault", (1, 1, 1), (1, 1, 1), 0, (operand,))
    return KernelProgram(compile_cubin(source, target.arch), (launch,), source=source)
