"""Kernels that turn tensors: through tiles in shared memory, so that both sides are read and written by whole lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop over tiles.

    Attributes
    ----------
    task : Task
    kind : str
        C type of indices.
    shape, steps
        Extents, and the strides of each array by its number.
    axes, whole
        Axes of both sides of a tile, the innermost first, and how many elements these have.
    side : int
        Elements along both sides of a tile.
    counts : list of int
        Tiles along both sides.
    inner, rest
        Extents of the axes outside of tiles, and these axes.
    """

    task: Task
    kind: str
    shape: Sequence[int]
    steps: Mapping[int, Sequence[int]]
    axes: tuple[list[int], list[int]]
    whole: Sequence[int]
    side: int
    counts: Sequence[int]
    inner: Sequence[int]
    rest: Sequence[int]

    @property
    def out(self) -> int:
        """The number of the result."""
        return len(self.task.arrays) - 1

    @property
    def has_pairs(self) -> bool:
        """Whether two neighbours of 16 bits are moved at once: of one input, and where none are cut apart."""
        arrays, sides = self.task.arrays, (self.axes[0][0], self.axes[1][0])
        if self.out != 1 or self.task.updated or any(itemsize(array.dtype) != 2 for array in arrays):
            return False
        if any(self.shape[axis] % 2 for axis in sides):
            return False
        return all(
            step >= 0 and (step % 2 == 0 or axis == own)
            for own, taken in zip(sides, (self.steps[0], self.steps[1]), strict=True)
            for axis, step in enumerate(taken)
        )

    def along(self, which: int, numbers: Sequence[int]) -> list[str]:
        """Return statements that find the places of operands at an index of one side, ``iu`` or ``iv``."""
        own, name = self.axes[which][::-1], ("iu", "iv")[which]
        taken = {f"{name}{i}": [self.steps[i][axis] for axis in own] for i in numbers}
        return offsets([self.shape[axis] for axis in own], taken, name, self.kind)

    def _tiles(self, lanes: int, tile: str, load: Sequence[str], store: Sequence[str]) -> list[str]:
        """Return the loop around what a block does with a tile."""
        kind, counts = self.kind, self.counts
        total = math.prod(self.inner) * counts[0] * counts[1]
        places = {f"o{i}": tuple(taken[axis] for axis in self.rest) or (0,) for i, taken in self.steps.items()}
        return [
            tile,
            f"const unsigned int lane = threadIdx.x % {lanes}u, row = threadIdx.x / {lanes}u;",
            f"for ({kind} t = ({kind})blockIdx.x; t < {total}u; t += gridDim.x) {{",
            f"const {kind} first_v = t % {counts[1]}u * {self.side}u;",
            f"const {kind} first_u = t / {counts[1]}u % {counts[0]}u * {self.side}u;",
            f"const {kind} outer = t / {counts[0] * counts[1]}u;",
            *offsets(self.inner, places, "outer", kind),
            *("{", *load, "}", "SYNC();", "{", *store, "}", "SYNC();"),
            "}",
        ]

    def _guard(self) -> str:
        """Return the condition that an index is inside the tensors."""
        pairs = zip(("iu", "iv"), self.whole, strict=True)
        inside = " && ".join(f"{name} < {n}u" for name, n in pairs if n % self.side)
        return f"if ({inside}) " if inside else ""

    def single(self) -> list[str]:
        """Return statements that move one element at a time."""
        task, kind, side, out, guard = self.task, self.kind, self.side, self.out, self._guard()
        arrays = task.arrays
        size, dtype = itemsize(arrays[0].dtype), STORAGE[arrays[0].dtype]
        reads = [*range(1, out), *([out] if task.updated else [])]
        stored = [*reads, *([] if out in reads else [out])]
        rows = f"for (unsigned int r = row; r < {side}u; r += {THREADS // side}u) {{"
        load = [
            f"const {kind} iu = first_u + lane;",
            *self.along(0, [0]),
            *("#pragma unroll 4", rows),
            f"const {kind} iv = first_v + r;",
            *self.along(1, [0]),
            f"{guard}tile[r][lane] = p0[o0 + iu0 + iv0];",
            "}",
        ]
        store = [
            f"const {kind} iv = first_v + lane;",
            *self.along(1, stored),
            *("#pragma unroll 4", rows),
            f"const {kind} iu = first_u + r;",
            *self.along(0, stored),
            f"{guard}{{",
            f"const {dtype} x0 = tile[lane][r];",
            *(f"const {STORAGE[arrays[i].dtype]} x{i} = p{i}[o{i} + iu{i} + iv{i}];" for i in reads),
            *task.value,
            *task.finish,
            f"p{out}[o{out} + iu{out} + iv{out}] = {task.stored};",
            "}",
            "}",
        ]
        # Threads that read a column touch all banks: rows begin one bank after each other.
        return self._tiles(side, f"SHARED {dtype} tile[{side}][{side + max(1, 4 // size)}];", load, store)

    def pairs(self) -> list[str]:
        """Return statements that move neighbours of 16 bits at once: squares of 2 x 2 are turned on their way in."""
        task, kind, side, guard = self.task, self.kind, self.side, self._guard()
        half, dtype = side // 2, STORAGE[task.arrays[0].dtype]
        across = self.steps[0][self.axes[1][0]]
        load = [
            f"const {kind} iu = first_u + 2u * lane;",
            *self.along(0, [0]),
            *("#pragma unroll 4", f"for (unsigned int r = row; r < {half}u; r += {THREADS // half}u) {{"),
            f"const {kind} iv = first_v + 2u * r;",
            *self.along(1, [0]),
            f"{guard}{{",
            f"const {kind} at = o0 + iu0 + iv0;",
            "const unsigned int a = *(const unsigned int *)(p0 + at);",
            f"const unsigned int b = *(const unsigned int *)(p0 + at + {across}u);",
            "pair[2u * lane][r] = (a & 0xffffu) | b << 16;",
            "pair[2u * lane + 1u][r] = a >> 16 | (b & 0xffff0000u);",
            "}",
            "}",
        ]
        finished = [*task.value, *task.finish]
        store = [
            f"const {kind} iv = first_v + 2u * lane;",
            *self.along(1, [1]),
            *("#pragma unroll 4", f"for (unsigned int r = row; r < {side}u; r += {THREADS // half}u) {{"),
            f"const {kind} iu = first_u + r;",
            *self.along(0, [1]),
            f"{guard}{{",
            "const unsigned int both = pair[r][lane];",
            "unsigned int made;",
            f"{{ const {dtype} x0 = ({dtype})(both & 0xffffu);",
            *finished,
            f"made = (unsigned short)({task.stored}); }}",
            f"{{ const {dtype} x0 = ({dtype})(both >> 16);",
            *finished,
            f"made |= (unsigned int)(unsigned short)({task.stored}) << 16; }}",
            "*(unsigned int *)(p1 + o1 + iu1 + iv1) = made;",
            "}",
            "}",
        ]
        return self._tiles(half, f"SHARED unsigned int pair[{side}][{half + 1}];", load, store)


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
    loop = _Loop(task, kind, shape, steps, axes, whole, side, counts, inner, rest)
    body = loop.single()
    if loop.has_pairs:
        wide = [*loop.pairs(), "return;"]
        body = [f"if ((((u64)p0 | (u64)p{out}) & 3) == 0) {{", *wide, "}", *body]
    pointers = [f"const {STORAGE[a.dtype]} *p{i}" for i, a in enumerate(arrays[:-1])]
    pointers.append(f"{STORAGE[arrays[out].dtype]} *p{out}")
    numbers = [f"{'double' if s == 'float64' else 'long long'} s{j}" for j, s in enumerate(task.scalars)]
    lines = [
        f"KERNEL turn({', '.join((*pointers, *numbers))}) {{",
        "AWAIT_LAUNCH();",
        *(f"p{i} -= {n}u;" for i in steps if (n := low(shape, steps[i]))),
        *body,
        "}",
    ]
    arguments: list[Argument] = [("operand", i) for i in range(len(arrays))]
    arguments += [("float64" if s == "float64" else "int64", j) for j, s in enumerate(task.scalars)]
    grid = max(1, min(tiles, target.sm_count * _BLOCKS))
    return "\n".join(lines) + "\n", Launch("turn", (grid, 1, 1), (THREADS, 1, 1), 0, tuple(arguments))
