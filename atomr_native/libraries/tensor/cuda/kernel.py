"""Kernels over tensors: a value from elements of operands, reduced over modes, finished and stored.

Where nothing is reduced, each thread has elements of the result.  Else a few threads share each, and a reduction with
few results is split into parts, which a second kernel adds up.  Which elements meet in which order is fixed by the plan
alone, so that each run has the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....builders.cuda.codegen import (
    THREADS,
    MapOperand,
    alignment,
    by_stride,
    index_type,
    kernels,
    map_kernel,
    offsets,
    reach,
    value_type,
)
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from .task import Task, low
from .tiles import tiled_kernel

__all__ = ["partial_bytes", "task_kernel"]

#: Elements of a thread below which a reduction is not split further.
_LEAST: Final = 16
_MOST_SPLITS: Final = 1024
#: Results that keep a device busy with one thread each.
_MANY: Final = 1 << 16
_BLOCKS: Final = 32  # for each multiprocessor

#: What a reduction begins with, and what it combines `a` and `b` to; for floating types.
_COMBINED: Final = {
    "sum": ("0", "a + b"),
    "prod": ("1", "a * b"),
    "any": ("0", "a || b"),
    "all": ("1", "a && b"),
    "max": ("-INFINITE", "a != a || a > b ? a : b"),
    "min": ("INFINITE", "a != a || a < b ? a : b"),
}


@dataclass(frozen=True, slots=True)
class _Cut:
    """The partition of a reduction: `lanes` threads and `splits` parts for each result."""

    kept: tuple[int, ...]
    kept_steps: tuple[tuple[int, ...], ...]
    reduced: tuple[int, ...]
    reduced_steps: tuple[tuple[int, ...], ...]
    lanes: int
    splits: int

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)

    @property
    def count(self) -> int:
        return math.prod(self.reduced)


def _cut(task: Task, extents: Sequence[int], target: Target) -> _Cut:
    output, others = task.output, (*task.inputs, *task.finals)
    kept, kept_steps = by_stride(
        [extents[m] for m in task.kept], [array.along(task.kept) for array in (output, *others)]
    )
    shape = [extents[m] for m in task.reduced]
    reduced, reduced_steps = by_stride(
        shape, [array.along(task.reduced) for array in task.inputs] or [(0,) * len(shape)]
    )
    outputs, count = math.prod(kept), math.prod(reduced)
    # Threads go along the mode in which the largest input is dense: one of the result's, or one that is reduced.
    sizes = [math.prod(extents[m] for m in (*task.kept, *task.reduced) if array.stride(m)) for array in task.inputs]
    largest = sizes.index(max(sizes)) if sizes else 0
    in_order = reduced_steps[largest][-1] == 1
    across = [steps[-1] for steps in kept_steps[1 : 1 + len(task.inputs)]][largest : largest + 1] == [1]
    if count <= 4 or (across and not in_order) or (outputs >= _MANY and (across or not in_order)):
        lanes = 1
    else:
        lanes = 32 if count <= 1024 or outputs >= 8192 else THREADS
    blocks = -(-outputs * lanes // THREADS)
    splits = min(-(-4 * target.sm_count // max(blocks, 1)), count // (lanes * _LEAST), _MOST_SPLITS)
    return _Cut(kept, kept_steps, reduced, reduced_steps, lanes, max(1, splits))


def partial_bytes(task: Task, extents: Sequence[int], target: Target) -> int:
    """Return the bytes of partial results that a kernel needs as one more operand; 0 without."""
    if not task.reduced:
        return 0
    cut = _cut(task, extents, target)
    return cut.outputs * cut.splits * 16 if cut.splits > 1 else 0


def _combine(reduction: str, dtype: str) -> list[str]:
    """Return the functions `fresh` and `combine` of values."""
    kind = value_type(dtype)
    first, combined = _COMBINED[reduction]
    if dtype.startswith("complex") and reduction in ("sum", "prod"):
        c = STORAGE[dtype]
        first = f"make_{c}({first}, 0)"
        combined = f"{'add' if reduction == 'sum' else 'multiply'}_{c}(a, b)"
    elif dtype == "bool" and reduction in ("sum", "prod"):
        combined = "a || b" if reduction == "sum" else "a && b"
    elif dtype in ("int64", "uint64") and reduction in ("sum", "prod"):
        combined = f"({kind})((u64)a {'+' if reduction == 'sum' else '*'} (u64)b)"
    infinite = {
        "int64": "9223372036854775807ll", "uint64": "18446744073709551615ull", "bool": "1",
        "float32": "bits_float(0x7f800000u)", "float64": "(double)bits_float(0x7f800000u)",
    }.get(dtype, "")  # fmt: skip
    lowest = {"int64": "(-9223372036854775807ll - 1)", "uint64": "0", "bool": "0"}.get(dtype, f"-{infinite}")
    first = first.replace("-INFINITE", lowest).replace("INFINITE", infinite)
    return [
        f"DEVICE {kind} fresh(void) {{ return {first}; }}",
        f"DEVICE {kind} combine({kind} a, {kind} b) {{ return {combined}; }}",
    ]


def _tree(lanes: int, kind: str) -> list[str]:
    if lanes == 1:
        return []
    return [
        f"SHARED {kind} all[{THREADS}];",
        "all[threadIdx.x] = mine;",
        "SYNC();",
        f"for (unsigned int half = {lanes // 2}; half; half >>= 1) {{",
        "if (lane < half) all[threadIdx.x] = combine(all[threadIdx.x], all[threadIdx.x + half]);",
        "SYNC();",
        "}",
        "mine = all[threadIdx.x];",
    ]


def _parameters(task: Task, partial: bool) -> str:
    out = len(task.arrays) - 1
    pointers = [f"const {STORAGE[a.dtype]} *p{i}" for i, a in enumerate(task.arrays[:-1])]
    pointers.append(f"{STORAGE[task.output.dtype]} *p{out}")
    if partial:
        pointers.append(f"{value_type(task.dtype)} *part")
    shifts = [f"u64 shift{i}" for i in range(len(task.arrays))]
    numbers = [f"{'double' if s == 'float64' else 'long long'} s{j}" for j, s in enumerate(task.scalars)]
    return ", ".join((*pointers, *shifts, *numbers))


def _finals(task: Task, cut: _Cut, kind: str) -> list[str]:
    """Return the statements that finish `v` of the result `group`, and store it."""
    first, out = len(task.inputs), len(task.arrays) - 1
    places = {f"o{out}": cut.kept_steps[0]}
    places |= {f"o{first + i}": cut.kept_steps[1 + first + i] for i in range(len(task.finals))}
    lines = offsets(cut.kept, places, "group", kind)
    numbers = [*range(first, first + len(task.finals)), *([out] if task.updated else [])]
    lines += [f"const {STORAGE[task.arrays[i].dtype]} x{i} = p{i}[o{i}];" for i in numbers]
    return [*lines, *task.finish, f"p{out}[o{out}] = {task.stored};"]


def _reducing(task: Task, cut: _Cut, kind: str) -> list[str]:
    value, partial = value_type(task.dtype), cut.splits > 1
    step = -(-cut.count // cut.splits)
    last = (
        [f"if (lane == 0) part[group * ({kind}){cut.splits}u + blockIdx.y] = mine;"]
        if partial
        else ["if (lane == 0) {", f"{value} v = mine;", *_finals(task, cut, kind), "}"]
    )
    # Every thread of a block comes to the barriers, whether it has a result or not.
    return [
        f"KERNEL tensor({_parameters(task, partial)}) {{",
        "AWAIT_LAUNCH();",
        *(f"p{i} += (long long)shift{i};" for i in range(len(task.arrays))),
        f"const {kind} groups = ({kind})(thread_count() / {cut.lanes}u);",
        f"const {kind} lane = threadIdx.x % {cut.lanes}u;",
        f"const {kind} begin = blockIdx.y * ({kind}){step}u;",
        f"const {kind} end = begin + {step}u < {cut.count}u ? begin + {step}u : {cut.count}u;",
        f"for ({kind} top = 0; top < {cut.outputs}u; top += groups) {{",
        f"const {kind} group = top + ({kind})(thread_index() / {cut.lanes}u);",
        f"{value} mine = fresh();",
        f"if (group < {cut.outputs}u) {{",
        *offsets(cut.kept, {f"b{i}": cut.kept_steps[1 + i] for i in range(len(task.inputs))}, "group", kind),
        f"for ({kind} j = begin + lane; j < end; j += {cut.lanes}u) {{",
        *offsets(cut.reduced, {f"r{i}": cut.reduced_steps[i] for i in range(len(task.inputs))}, "j", kind),
        *(f"const {STORAGE[a.dtype]} x{i} = p{i}[b{i} + r{i}];" for i, a in enumerate(task.inputs)),
        *task.value,
        "mine = combine(mine, v);",
        "}",
        "}",
        *_tree(cut.lanes, value),
        f"if (group < {cut.outputs}u) {{",
        *last,
        "}",
        *(["SYNC();"] if cut.lanes > 1 else []),
        "}",
        "}",
    ]


def _finishing(task: Task, cut: _Cut, kind: str) -> list[str]:
    """Return the kernel that combines partial results, a block for each result at a time."""
    value = value_type(task.dtype)
    return [
        f"KERNEL finish({_parameters(task, True)}) {{",
        "AWAIT_LAUNCH();",
        *(f"p{i} += (long long)shift{i};" for i in range(len(task.arrays))),
        "const unsigned int lane = threadIdx.x;",
        f"for ({kind} group = blockIdx.x; group < {cut.outputs}u; group += gridDim.x) {{",
        f"{value} mine = fresh();",
        f"for (unsigned int j = lane; j < {cut.splits}u; j += {THREADS}u)",
        f"mine = combine(mine, part[group * ({kind}){cut.splits}u + j]);",
        *_tree(THREADS, value),
        "if (lane == 0) {",
        f"{value} v = mine;",
        *_finals(task, cut, kind),
        "}",
        "SYNC();",
        "}",
        "}",
    ]


def _map(task: Task, extents: Sequence[int], target: Target) -> tuple[str, Launch]:
    """Return a kernel without a reduction, with wide loads where tensors lie so."""
    out = len(task.arrays) - 1
    shape = [extents[m] for m in task.kept]
    mapped = [
        MapOperand(i, array.dtype, array.along(task.kept), i < out or task.updated, i == out)
        for i, array in enumerate(task.arrays)
    ]
    body = [*task.value, *task.finish, f"y{out} = {task.stored};"]
    return map_kernel(shape or [1], [m if shape else MapOperand(m.number, m.dtype, (0,), m.reads, m.writes)
                                     for m in mapped], task.scalars, (), body, target)  # fmt: skip


def task_kernel(task: Task, extents: Sequence[int], target: Target) -> Any:
    """Compile a task, a `KernelProgram`; its operands are the task's, and partial results.  Waits for the compiler."""
    dtypes = {task.dtype, *(array.dtype for array in task.arrays)}
    alignments = [alignment(array.dtype) for array in task.arrays]
    functions = ("add", "multiply") if any(dtype.startswith("complex") for dtype in dtypes) else ()
    if not task.reduced and not any(array.offset for array in task.arrays):
        source, launch = tiled_kernel(task, extents, target) or _map(task, extents, target)
        return kernels(source, [launch], target, dtypes=dtypes, alignments=alignments, functions=functions).run
    cut = _cut(task, extents, target)
    most = [
        reach(cut.kept, steps) + (reach(cut.reduced, cut.reduced_steps[i - 1]) if 0 < i <= len(task.inputs) else 0)
        for i, steps in enumerate(cut.kept_steps)
    ]
    kind = index_type(cut.count * 2, cut.outputs * max(cut.lanes, cut.splits) * 2, *most)
    lines = [*_combine(task.reduction, task.dtype), *_reducing(task, cut, kind)]
    shifts: list[Argument] = []
    for i, array in enumerate(task.arrays):
        first = low(cut.kept, cut.kept_steps[0 if i == len(task.arrays) - 1 else 1 + i])
        first += low(cut.reduced, cut.reduced_steps[i]) if i < len(task.inputs) else 0
        shifts.append(("uint64", (array.offset - first) % 2**64))
    arguments: list[Argument] = [("operand", i) for i in range(len(task.arrays) + (cut.splits > 1))]
    arguments += [*shifts, *(("float64" if s == "float64" else "int64", j) for j, s in enumerate(task.scalars))]
    blocks = max(1, min(-(-cut.outputs * cut.lanes // THREADS), target.sm_count * _BLOCKS))
    launches = [Launch("tensor", (blocks, cut.splits, 1), (THREADS, 1, 1), 0, tuple(arguments))]
    if cut.splits > 1:
        lines += _finishing(task, cut, kind)
        grid = min(cut.outputs, target.sm_count * _BLOCKS)
        launches.append(Launch("finish", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments)))
        alignments.append(16)
    return kernels(
        "\n".join(lines) + "\n", launches, target, dtypes=dtypes, alignments=alignments, functions=functions
    ).run
