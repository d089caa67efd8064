"""Gathers and sequences as CUDA kernels."""

from __future__ import annotations

import math
from typing import Literal

from ....builders.context import Built
from ....builders.cuda.codegen import (
    THREADS,
    alignment,
    broadcast_strides,
    convert,
    index_type,
    kernels,
    offsets,
    reach,
)
from ....builders.cuda.context import CudaContext
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Launch
from ....plans.spec import PlanSpec
from ..attributes import TakeAttributes

__all__ = ["build_sequence", "build_take"]

#: Blocks for each multiprocessor.
_BLOCKS = 32


def _grid(elements: int, sm_count: int) -> tuple[int, int, int]:
    return (max(1, min(-(-elements // THREADS), sm_count * _BLOCKS)), 1, 1)


def build_take(spec: PlanSpec[TakeAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.take``: operands ``x, indices, out``, no scalars.

    An index out of bounds writes nothing, and is told to the message, which fails.
    """
    x, indices, out = spec.operands
    axis = spec.attributes.axis
    shape = out.shape
    if math.prod(shape) == 0:
        return Built("noop")
    count, steps = x.shape[axis], list(broadcast_strides(x, x.shape))
    stride, places = steps[axis], list(broadcast_strides(indices, indices.shape))
    if spec.attributes.along:
        steps[axis] = 0
    else:
        places = [0] * axis + places + [0] * (len(x.shape) - axis - 1)
        steps[axis : axis + 1] = [0] * len(indices.shape)
    # Offsets count from the lowest element along the axes that they go through; along the taken one from its first.
    low = sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)
    first = sum((n - 1) * -step for n, step in zip(shape, places, strict=True) if step < 0)
    kind = index_type(math.prod(shape), reach(shape, tuple(steps)), reach(shape, tuple(places)))
    text = [
        f"KERNEL take(const {STORAGE[x.dtype]} *x, const {STORAGE[indices.dtype]} *at, "
        f"{STORAGE[out.dtype]} *__restrict__ out, int *__restrict__ info) {{",
        "AWAIT_LAUNCH();",
        f"x -= {low}u;",
        f"at -= {first}u;",
        f"for ({kind} i = ({kind})thread_index(); i < {math.prod(shape)}u; i += ({kind})thread_count()) {{",
        *offsets(shape, {"from": steps, "where": places}, "i", kind),
        f"const {STORAGE[indices.dtype]} given = at[where];",
        # In the index's own type a count may not be representable: 64 bits of the right sign hold both.
        *(
            [f"const long long place = (u64)given < {count}ull ? (long long)given : -1;"]
            if indices.dtype.startswith("u")
            else [f"const long long place = given < 0 ? (long long)given + {count}ll : (long long)given;"]
        ),
        f"if (place < 0 || place >= {count}ll) {{ *info = 1; continue; }}",
        f"out[i] = x[(long long)from + place * {stride}ll];",
        "}",
        "}",
    ]
    clear = ["KERNEL clear(int *__restrict__ info) {", "AWAIT_LAUNCH();", "*info = 0;", "}"]
    launches = [
        Launch("clear", (1, 1, 1), (1, 1, 1), 0, (("workspace", 0),)),
        Launch(
            "take",
            _grid(math.prod(shape), context.target.sm_count),
            (THREADS, 1, 1),
            0,
            (("operand", 0), ("operand", 1), ("operand", 2), ("workspace", 0)),
        ),
    ]
    return kernels(
        "\n".join([*clear, *text]) + "\n",
        launches,
        context.target,
        dtypes={x.dtype, indices.dtype},
        alignments=[alignment(o.dtype) for o in spec.operands],
        workspace=4,
        info=("workspace", 0),
    )


def build_sequence(spec: PlanSpec, context: CudaContext) -> Built:
    """Build ``elementwise.sequence``: operand ``out``, scalars ``start, step``."""
    (out,) = spec.operands
    (total,) = out.shape
    if total == 0:
        return Built("noop")
    whole = spec.scalars[0] == "int64"
    number = "long long" if whole else "double"
    value = "(long long)((u64)s0 + (u64)s1 * i)" if whole else "s0 + s1 * (double)i"
    source: Literal["int64", "float64"] = "int64" if whole else "float64"
    text = [
        f"KERNEL sequence({STORAGE[out.dtype]} *__restrict__ out, {number} s0, {number} s1, const u64 total) {{",
        "AWAIT_LAUNCH();",
        "for (u64 i = thread_index(); i < total; i += thread_count()) {",
        f"const {number} value = {value};",
        f"out[i] = {convert(source, out.dtype, 'value')};",
        "}",
        "}",
    ]
    launch = Launch(
        "sequence",
        _grid(total, context.target.sm_count),
        (THREADS, 1, 1),
        0,
        (("operand", 0), (source, 0), (source, 1), ("uint64", total)),
    )
    return kernels(
        "\n".join(text) + "\n", [launch], context.target, dtypes={source, out.dtype}, alignments=[alignment(out.dtype)]
    )
