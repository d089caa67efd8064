"""Kernels that turn tensors: through tiles in shared memory, so that both sides are read and written by whole lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ....builders.cuda.codegen import THREADS, by_stride, index_type, itemsize, offsets, reach
from ....builders.cuda.prelude import STORAGE
from ....builders.cuda.target import Argument, Launch, Target
from .task import Task, low

__all__ = ["sides_of", "tiled_kernel"]

#: Elements along both sides of a tile below which it is not worth its barriers.
_LEAST: Final = 16
_BLOCKS: Final = 16  # for each multiprocessor


def sides_of(shape: Sequence[int], source: Sequence[int], out: Sequence[int], side: int) -> tuple[list[int], list[int]]:
    """Return the axes of both sides of tiles, the innermost first: of the input, and of the output.

    Each side begins with the axis along which its tensor is dense, and has the next ones as long as tiles would stay
    empty at their ends; so tensors of many small axes fill whole tiles, too.
    """
    sides: tuple[list[int], list[int]] = ([], [])
    orders = [
        sorted(range(len(shape)), key=lambda axis: (steps[axis] == 0, abs(steps[axis]))) for steps in (source, out)
    ]
    while True:
        grown = False
        for own, order in zip(sides, orders, strict=True):
            n = math.prod(shape[axis] for axis in own)
            if n >= side and -(-n // side) * side <= n * 9 // 8:
                continue
            axis = next((axis for axis in order if axis not in sides[0] and axis not in sides[1]), None)
            if axis is not None:
                own.append(axis)
                grown = True
        if not grown:
            return sides


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
    if across == fast or steps[out][fast] != 1 or steps[0][fast] == 0:
        return None
    size = itemsize(arrays[0].dtype)
    side = 64 if size <= 4 else 32
    axes = sides_of(shape, steps[0], steps[out], side)
    whole = [math.prod(shape[axis] for axis in own) for own in axes]
    if axes[0][0] != across or axes[1][0] != fast or min(whole) < _LEAST:
        return None
    counts = [-(-n // side) for n in whole]
    rest = [axis for axis in range(len(shape)) if axis not in axes[0] and axis not in axes[1]]
    inner = tuple(shape[axis] for axis in rest) or (1,)
    tiles = math.prod(inner) * counts[0] * counts[1]
    kind = index_type(tiles, *whole, *(reach(shape, taken) for taken in steps.values()))
    reads = [*range(1, out), *([out] if task.updated else [])]
    inside = " && ".join(f"{name} < {n}u" for name, n in zip(("iu", "iv"), whole, strict=True) if n % side)
    guard = f"if ({inside}) " if inside else ""

    def along(which: int, numbers: Sequence[int]) -> list[str]:
        """Return statements that find the places of operands at an index of one side, ``iu`` or ``iv``."""
        own, name = axes[which][::-1], ("iu", "iv")[which]
        taken = {f"{name}{i}": [steps[i][axis] for axis in own] for i in numbers}
        return offsets([shape[axis] for axis in own], taken, name, kind)

    dtype = STORAGE[arrays[0].dtype]
    pointers = [f"const {STORAGE[a.dtype]} *p{i}" for i, a in enumerate(arrays[:-1])]
    pointers.append(f"{STORAGE[arrays[out].dtype]} *p{out}")
    numbers = [f"{'double' if s == 'float64' else 'long long'} s{j}" for j, s in enumerate(task.scalars)]
    stored = [*reads, *([] if out in reads else [out])]
    rows = f"for (unsigned int r = row; r < {side}u; r += {THREADS // side}u) {{"
    lines = [
        f"KERNEL turn({', '.join((*pointers, *numbers))}) {{",
        "AWAIT_LAUNCH();",
        # Threads that read a column touch all banks: rows begin one bank after each other.
        f"SHARED {dtype} tile[{side}][{side + max(1, 4 // size)}];",
        *(f"p{i} -= {n}u;" for i in steps if (n := low(shape, steps[i]))),
        f"const unsigned int lane = threadIdx.x % {side}u, row = threadIdx.x / {side}u;",
        f"for ({kind} t = ({kind})blockIdx.x; t < {tiles}u; t += gridDim.x) {{",
        f"const {kind} first_v = t % {counts[1]}u * {side}u, first_u = t / {counts[1]}u % {counts[0]}u * {side}u;",
        f"const {kind} outer = t / {counts[0] * counts[1]}u;",
        *offsets(inner, {f"o{i}": tuple(steps[i][axis] for axis in rest) or (0,) for i in steps}, "outer", kind),
        "{",
        f"const {kind} iu = first_u + lane;",
        *along(0, [0]),
        "#pragma unroll 4",
        rows,
        f"const {kind} iv = first_v + r;",
        *along(1, [0]),
        f"{guard}tile[r][lane] = p0[o0 + iu0 + iv0];",
        "}",
        "}",
        "SYNC();",
        "{",
        f"const {kind} iv = first_v + lane;",
        *along(1, stored),
        "#pragma unroll 4",
        rows,
        f"const {kind} iu = first_u + r;",
        *along(0, stored),
        f"{guard}{{",
        f"const {dtype} x0 = tile[lane][r];",
        *(f"const {STORAGE[arrays[i].dtype]} x{i} = p{i}[o{i} + iu{i} + iv{i}];" for i in reads),
        *task.value,
        *task.finish,
        f"p{out}[o{out} + iu{out} + iv{out}] = {task.stored};",
        "}",
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
