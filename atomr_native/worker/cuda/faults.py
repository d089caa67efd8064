"""Kernels that make the GPU fault, for tests of recovery."""

from __future__ import annotations

from typing import Final, Literal

from ...builders.cuda.cubin import compile_cubin
from ...builders.cuda.target import Argument, KernelProgram, Launch, Target
from ...errors import InvalidRequest
from ...plans.spec import FreeAttributes, PlanSpec

__all__ = ["KINDS", "build_fault"]

#: Code of the one thread, by the name of the fault; `x` is the operand, if the message has one.
KINDS: Final = {
    "illegal address": "*(volatile int *)64 = 1;",
    "misaligned address": "*(volatile unsigned long long *)((char *)cells + one) = 1;",
    "trap": 'asm volatile("trap;");',
    "assert": "assert(one == 0);",
    "endless": 'for (;;) asm volatile("nanosleep.u32 1000;");',
    # Within mapped memory, where it is not detected.
    "out of bounds": "for (long long i = 0; i < {nbytes}ll; i++) x[{offset}ll + i] ^= 0x5a;",
    # No fault of the device: what a library reports of its work, of which the message fails late.
    "info": "*(int *)x = {info};",
    # No fault: work that ends after a given time on the device.
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


def build_fault(spec: PlanSpec[FreeAttributes], target: Target) -> KernelProgram:
    """Build ``test.gpu_fault``: at most one operand, and ``how``, a key of `KINDS`.

    ``"out of bounds"`` changes ``nbytes`` bytes that begin ``offset`` bytes after the operand's first, ``"slow"`` takes
    ``milliseconds``, ``"info"`` leaves ``info`` in its operand.

    Raises
    ------
    InvalidRequest
        For an unknown kind.
    """
    given = dict(spec.attributes)
    how = given["how"]
    if how not in KINDS:
        raise InvalidRequest(f"unknown fault {how!r}; allowed: {', '.join(KINDS)}")
    numbers = {name: int(given.get(name, 0)) for name in ("nbytes", "offset", "milliseconds", "info")}
    source = _SOURCE.format(body=KINDS[how].format(**numbers))
    operand: Argument = ("operand", 0) if spec.operands else ("uint64", 0)
    launch = Launch("fault", (1, 1, 1), (1, 1, 1), 0, (operand,))
    info: tuple[Literal["operand"], int] | None = ("operand", 0) if how == "info" else None
    return KernelProgram(compile_cubin(source, target.arch), (launch,), source=source, info=info)
