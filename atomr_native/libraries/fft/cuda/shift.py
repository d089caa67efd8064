"""Cyclic shifts as one kernel: each element goes to its place in `out`."""

from __future__ import annotations

import math
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import THREADS, alignment, kernels
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Launch
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import ShiftAttributes

__all__ = ["build_shift"]

_BLOCKS: Final = 32  # for each multiprocessor


def build_shift(spec: PlanSpec[ShiftAttributes], context: CudaContext) -> Built:
    """Build ``fft.shift``: operands ``x, out``.  Waits for the compiler."""
    x, out = spec.operands
    total = math.prod(out.shape)
    if total == 0:
        return Built("noop")
    size = as_dtype(out.dtype).itemsize
    order = sorted((axis for axis, n in enumerate(out.shape) if n > 1), key=lambda axis: out.strides[axis])
    wide = "u64" if total >= 2**31 else "unsigned int"
    text = [
        f"KERNEL shift(const {STORAGE[x.dtype]} *__restrict__ x, {STORAGE[out.dtype]} *__restrict__ out) {{",
        "AWAIT_LAUNCH();",
        f"const {wide} step = ({wide})thread_count();",
        f"for (u64 i = thread_index(); i < {total}u; i += step) {{",
        f"{wide} rest = ({wide})i;",
        "long long from = 0, to = 0;",
    ]
    for axis in order:
        n, shift = out.shape[axis], spec.attributes.shifts[axis]
        place = f"i{axis} < {shift} ? i{axis} + {n - shift} : i{axis} - {shift}" if shift else f"i{axis}"
        text += [
            f"const long long i{axis} = (long long)(rest % {n}u); rest /= {n}u;",
            f"to += i{axis} * {out.strides[axis] // size}ll;",
            f"from += ({place}) * {x.strides[axis] // size}ll;",
        ]
    text += ["out[to] = x[from];", "}", "}"]
    grid = max(1, min(-(-total // THREADS), context.target.sm_count * _BLOCKS))
    launch = Launch("shift", (grid, 1, 1), (THREADS, 1, 1), 0, (("operand", 0), ("operand", 1)))
    return kernels(
        "\n".join(text) + "\n",
        [launch],
        context.target,
        dtypes={x.dtype},
        alignments=[alignment(operand.dtype) for operand in spec.operands],
    )
