"""Kernels that turn tensors: through tiles in shared memory, so that both sides are read and written by whole lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ....builders.cuda.codegen import THREADS, by_stride, index_type, itemsize, offsets, reach
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from .task import Task, low

__all__ = ["tiled_kernel"]

#: Elements along both axes of a tile below which it is not worth its barriers.
_LEAST: Final = 16
_BLOCKS: Final = 16  # for each multiprocessor


def tiled_kernel(task: Task, extents: Sequence[int], target: Target) -> tuple[str, Launch] | None:
    """Return the kernel of a task without a reduction whose first input is dense along another mode than its output.

    None for any other task.
    """
    arrays = task.arrays
    if task.reduced or not task.inputs or any(array.offset for array in arrays):
        return None
    out = len(arrays) - 1
    order = [arrays[out], *arrays[:-1]]
    shape, found = by_stride([extents[m] for m in task.kept], [array.along(task.kept) for array in order])
    steps = {(out if i == 0 else i - 1): taken for i, taken in enumerate(found)}
    fast = len(shape) - 1
    across = next((axis for axis, step in enumerate(steps[0]) if step == 1 and shape[axis] > 1), fast)
    if across == fast or steps[out][fast] != 1 or steps[0][fast] == 0 or min(shape[across], shape[fast]) < _LEAST:
        return None
    side = 64 if itemsize(arrays[0].dtype) <= 4 else 32
    rest = [axis for axis in range(len(shape)) if axis not in (across, fast)]
    counts = tuple(-(-shape[axis] // side) for axis in (across, fast))
    inner = tuple(shape[axis] for axis in rest) or (1,)
    places = {i: tuple(steps[i][axis] for axis in rest) or (0,) for i in steps}
    tiles = math.prod(inner) * counts[0] * counts[1]
    kind = index_type(tiles, *(reach(shape, taken) for taken in steps.values()))
    reads = [i for i in range(1, len(arrays)) if i < out or task.updated]

    def at(number: int) -> str:
        return f"o{number} + (long long)u * {steps[number][across]}ll + (long long)v_ * {steps[number][fast]}ll"

    dtype = STORAGE[arrays[0].dtype]
    pointers = [f"const {STORAGE[a.dtype]} *p{i}" for i, a in enumerate(arrays[:-1])]
    pointers.append(f"{STORAGE[arrays[out].dtype]} *p{out}")
    numbers = [f"{'double' if s == 'float64' else 'long long'} s{j}" for j, s in enumerate(task.scalars)]
    lines = [
        f"KERNEL turn({', '.join((*pointers, *numbers))}) {{",
        "AWAIT_LAUNCH();",
        f"SHARED {dtype} tile[{side}][{side + 1}];",
        *(f"p{i} -= {n}u;" for i in steps if (n := low(inner, places[i]))),
        f"const unsigned int lane = threadIdx.x % {side}u, row = threadIdx.x / {side}u;",
        f"for ({kind} t = ({kind})blockIdx.x; t < {tiles}u; t += gridDim.x) {{",
        f"const {kind} first_v = t % {counts[1]}u * {side}u, first_u = t / {counts[1]}u % {counts[0]}u * {side}u;",
        f"const {kind} outer = t / {counts[0] * counts[1]}u;",
        *offsets(inner, {f"o{i}": places[i] for i in steps}, "outer", kind),
        f"for (unsigned int r = row; r < {side}u; r += {THREADS // side}u) {{",
        f"const {kind} u = first_u + lane, v_ = first_v + r;",
        f"if (u < {shape[across]}u && v_ < {shape[fast]}u) tile[r][lane] = p0[{at(0)}];",
        "}",
        "SYNC();",
        f"for (unsigned int r = row; r < {side}u; r += {THREADS // side}u) {{",
        f"const {kind} u = first_u + r, v_ = first_v + lane;",
        f"if (u < {shape[across]}u && v_ < {shape[fast]}u) {{",
        f"const {dtype} x0 = tile[lane][r];",
        *(f"const {STORAGE[arrays[i].dtype]} x{i} = p{i}[{at(i)}];" for i in reads),
        *task.value,
        *task.finish,
        f"p{out}[{at(out)}] = {task.stored};",
        "}",
        "}",
        "SYNC();",
        "}",
        "}",
    ]
    arguments: list[Argument] = [("operand", i) for i in range(len(arrays))]
    arguments += [("float64" if s == "float64" else "int64", j) for j, s in enumerate(task.scalars)]
    grid = max(1, min(tiles, target.sm_count * _BLOCKS))
    return "\n".join(lines) + "\n", Launch("turn", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments))
