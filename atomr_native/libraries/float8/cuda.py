"""Launches of the float8 kernels: see `atomr_native.libraries.float8.kernels.quantize`."""

from __future__ import annotations

import math
from typing import Final

from ...builders.blocks import fold_axes
from ...builders.context import Built
from ...builders.cuda.codegen import next_power
from ...builders.cuda.context import CudaContext
from ...builders.cuda.shipped import Grid, numbers, program
from ...builders.cuda.target import Argument
from ...dtypes import as_dtype
from ...errors import Unsupported
from ...plans.spec import OperandSpec, PlanSpec
from .attributes import DequantizeAttributes, QuantizeAttributes

__all__ = ["build_dequantize", "build_quantize"]

_TILE: Final = 128
_THREADS: Final = 256
_BLOCKS: Final = 4  # of a multiprocessor, where each leaves a result behind: as many as run at once
_MOST: Final = 2**16 - 1  # blocks of a grid from top to bottom
_WIDEST: Final = 2**31 - 1  # and from left to right
_HELD: Final = 32  # elements of a row that a thread keeps
_SHIFTS: Final = {0: 62, 1: 0, 128: 7}  # rows or columns that share a scale, 0 for all, as a power of two


def _steps(operand: OperandSpec) -> tuple[int, ...]:
    """Return the strides of an operand in elements."""
    itemsize = as_dtype(operand.dtype).itemsize
    return tuple(stride // itemsize for stride in operand.strides)


def _matrix(
    shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]
) -> tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]]:
    """Return two arrays of a shape as matrices with elements in the same places.

    Returns
    -------
    tuple
        (Rows, columns, columns of the last row), and the steps of each array.

    Raises
    ------
    Unsupported
        If there is no such matrix.
    """
    if math.prod(shape) == 0:
        return (0, 0, 0), (0, 1), (0, 1)
    folded, (a, b) = fold_axes(shape or (1,), (first or (1,), second or (1,)))
    if len(folded) > 2:
        raise Unsupported(
            f"an array of shape {shape} and steps {first} beside one of steps {second}: their axes do not fold into "
            f"a matrix; copy it first"
        )
    if len(folded) == 2:
        rows, columns = folded
        if a[1] != 1 and a[0] == 1:  # columns are what lies together
            rows, columns, a, b = columns, rows, a[::-1], b[::-1]
        return (rows, columns, columns), (a[0], a[1]), (b[0], b[1])
    count = folded[0]
    if count <= _TILE:
        return (1, count, count), (count * a[0], a[0]), (count * b[0], b[0])
    rows = -(-count // _TILE)
    return (rows, _TILE, count - (rows - 1) * _TILE), (_TILE * a[0], a[0]), (_TILE * b[0], b[0])


def _grid(rows: int, columns: int, most: int = _WIDEST) -> Grid:
    """Return a grid of a block for each tile, or of as many blocks as there may be."""
    across = max(1, min(-(-columns // _TILE), most))
    return across, max(1, min(-(-rows // _TILE), most // across, _MOST)), 1


def _row_threads(columns: int) -> int:
    """Return the threads of a block that has a row: a power of two, 32 to 512."""
    return min(512, max(32, next_power(-(-columns // _HELD))))


def build_quantize(spec: PlanSpec[QuantizeAttributes], context: CudaContext) -> Built:
    """Build ``float8.quantize``: operands as `QuantizeRequest` lowers to, no scalars."""
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    operands, how = spec.operands, spec.attributes
    x, q = operands[at["x"]], operands[at["out"]]
    shape, transposed = x.shape, "transposed_out" in at

    def pointer(name: str) -> Argument:
        return "operand", at.get(name, at["out"])  # one that the kernel does not use points to something, too

    def steps(name: str) -> tuple[int, ...]:
        return _steps(operands[at[name]]) if name in at else (0, 0)

    if how.scaling == "tensor" and not transposed:
        extents, xs, qs = _matrix(shape, _steps(x), _steps(q))
    else:
        extents, xs, qs = (shape[0], shape[1], shape[1]), _steps(x)[:2], _steps(q)[:2]  # type: ignore[assignment]
    if how.scaling == "outer":
        rows, columns, _ = extents
        arguments = (*map(pointer, ("x", "out", "scale_out")), *numbers(rows, columns, *xs, *qs, steps("scale_out")[0]))
        return program(
            spec, [("rows", (max(1, min(rows, _WIDEST)), 1, 1), _row_threads(columns), arguments)], context.target
        )
    if how.amax == "recorded":
        grid = _grid(extents[0], extents[1], _BLOCKS * context.target.sm_count)
        length = operands[at["state_history"]].shape[0]
        names = ("x", "out", "transposed_out", "state_scale", "scale_out", "state_history", "state_position")
        sizes = (length, how.margin, *extents, *xs, *qs, *steps("transposed_out"))
        return program(spec, [("record", grid, _THREADS, (*map(pointer, names), *numbers(*sizes)))], context.target)
    few = _grid(extents[0], extents[1], 2 * _BLOCKS * context.target.sm_count)
    count = few[0] * few[1]
    partials: Argument = ("workspace", 0)
    whole = how.scaling == "tensor"
    scale_steps = (0, 0) if whole else steps("scale_out")
    turned_steps = (0, 0) if whole else steps("transposed_scale_out")
    cast = (
        "cast",
        _grid(extents[0], extents[1]),
        _THREADS,
        (
            pointer("x"), pointer("out"), pointer("transposed_out"),
            pointer("scale" if how.amax == "given" else "scale_out"),
            pointer("scale_out"), pointer("transposed_scale_out"), partials,
            *numbers(count, *extents, *xs, *qs, *steps("transposed_out"), *scale_steps, *turned_steps),
        ),
    )  # fmt: skip
    launches = [cast]
    if whole and how.amax == "now":
        launches.insert(0, ("amax", few, _THREADS, (pointer("x"), partials, *numbers(*extents, *xs))))
    return program(spec, launches, context.target, -(-count * 4 // 256) * 256)


def build_dequantize(spec: PlanSpec[DequantizeAttributes], context: CudaContext) -> Built:
    """Build ``float8.dequantize``: operands q, scale, out; no scalars."""
    q, scale, out = spec.operands
    shape, blocks = q.shape, spec.attributes.blocks
    if blocks == (0, 0):
        extents, qs, outs = _matrix(shape, _steps(q), _steps(out))
        steps: tuple[int, ...] = (0, 0)
    else:
        extents, qs, outs = (shape[0], shape[1], shape[1]), _steps(q)[:2], _steps(out)[:2]  # type: ignore[assignment]
        steps = _steps(scale)
    per = tuple(_SHIFTS[block] for block in blocks)
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in range(3))
    arguments = (*pointers, *numbers(*extents, *qs, *steps, *per, *outs))
    return program(spec, [("dequantize", _grid(extents[0], extents[1]), _THREADS, arguments)], context.target)
