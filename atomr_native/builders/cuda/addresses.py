"""Kernels that write the addresses of a batch's matrices into device memory, where libraries read them.

A launch carries the addresses as its arguments, so each message brings its own, in the order of its stream: nothing is
kept between messages, which a restart would have to renew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from .codegen import THREADS, kernels
from .target import Argument, KernelProgram, Launch, Target

__all__ = ["address_bytes", "address_kernel", "stepping_kernel"]

_ALIGNMENT = 256


def address_bytes(count: int) -> int:
    """Return the bytes from one array of `count` addresses to the next: ``ATOMR_POINTER_RUN`` of ``cuda_backend.h``."""
    return -(-count * 8 // _ALIGNMENT) * _ALIGNMENT


def _compiled(source: str, launch: Launch, target: Target) -> KernelProgram:
    return cast("KernelProgram", kernels(source, [launch], target, dtypes=(), alignments=()).run)


def address_kernel(runs: Sequence[Sequence[int]], out: int, target: Target) -> KernelProgram:
    """Return a program that writes the addresses of operands into operand `out`: an array for each run of indices."""
    used = sorted({index for run in runs for index in run})
    step = address_bytes(len(runs[0])) // 8
    lines = [
        f"KERNEL addresses({', '.join(f'const char *p{index}' for index in used)}, u64 *out) {{",
        "AWAIT_LAUNCH();",
    ]
    lines += [f"out[{r * step + i}] = (u64)p{index};" for r, run in enumerate(runs) for i, index in enumerate(run)]
    arguments: tuple[Argument, ...] = tuple(("operand", index) for index in (*used, out))
    return _compiled("\n".join([*lines, "}\n"]), Launch("addresses", (1, 1, 1), (1, 1, 1), 0, arguments), target)


def stepping_kernel(jumps: Sequence[Sequence[int]], extents: Sequence[int], target: Target) -> KernelProgram:
    """Return a program for operands (matrices..., out): the addresses of each one's matrices, in C order, into out.

    `extents` are those of the axes of the batch, `jumps` the bytes from one index of each axis to the next, by operand.
    """
    count = math.prod(extents)
    step = address_bytes(count) // 8
    names = [f"p{i}" for i in range(len(jumps))]
    sums = ["".join(f" + i{axis} * {jump}u" for axis, jump in enumerate(one)) for one in jumps]
    lines = [
        f"KERNEL addresses({', '.join(f'const char *{name}' for name in names)}, u64 *out) {{",
        "AWAIT_LAUNCH();",
        f"for (u64 i = thread_index(); i < {count}u; i += thread_count()) {{",
        "u64 left = i;",
        *(f"const u64 i{n} = left % {extents[n]}u; left /= {extents[n]}u;" for n in range(len(extents))[::-1]),
        *(f"out[{r * step}u + i] = (u64){name}{sums[r]};" for r, name in enumerate(names)),
        "}\n}\n",
    ]
    arguments: tuple[Argument, ...] = tuple(("operand", i) for i in range(len(jumps) + 1))
    grid = (max(1, min(-(-count // THREADS), target.sm_count)), 1, 1)
    return _compiled("\n".join(lines), Launch("addresses", grid, (THREADS, 1, 1), 0, arguments), target)
