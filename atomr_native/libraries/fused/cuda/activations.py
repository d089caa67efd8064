"""Launches of fused kernels: activations (`libraries.fused.kernels.activations`), rotary embeddings, dropout."""

from __future__ import annotations

import math
from typing import Final

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....builders.cuda.shipped import Grid, numbers, program
from ....builders.cuda.target import Argument
from ....dtypes import as_dtype
from ....plans.spec import OperandSpec, PlanSpec
from ..attributes import ActivationAttributes, RopeAttributes, ShippedAttributes
from ..spec import row_step

__all__ = [
    "Rows",
    "build_activate",
    "build_activate_backward",
    "build_dropout",
    "build_rope",
    "step_of",
]

_THREADS: Final = 256
_WIDTH: Final = 8
_MOST: Final = 2**31 - 1  # blocks of a grid
_HEADS: Final = 4  # of a token, that a thread turns by the same angles
_PAIRS: Final = 256  # of a head, that a block turns at most
_BLOCKS: Final = 8  # for a multiprocessor: each computes what depends on the pair alone once
_DROPOUT: Final = 12  # the same of dropout, whose keys are computed once: four times as many as there are at once


def step_of(operand: OperandSpec) -> int:
    """Return the stride between rows of an operand in elements."""
    itemsize = as_dtype(operand.dtype).itemsize
    return row_step(operand.name, operand.shape, operand.strides, itemsize)


class Rows:
    """The rows that an elementwise kernel visits: one long row if no operand has gaps.

    Parameters
    ----------
    shape : tuple of int
        Of what one thread after the other works on.
    steps : tuple of int
        Of each operand: elements from row to row.
    each : int
        Groups of eight elements that a thread has at once.
    most : int
        Blocks along a row, at most.
    """

    def __init__(self, shape: tuple[int, ...], steps: tuple[int, ...], each: int, most: int = _MOST) -> None:
        rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
        if rows > 1 and all(step == columns for step in steps):
            rows, columns = 1, rows * columns
        self.steps = (0,) * len(steps) if rows == 1 else steps
        groups = -(-columns // (_WIDTH * each))
        self.shift = min(8, max(0, (groups - 1).bit_length()))
        tall, wide = _THREADS >> self.shift, 1 << self.shift
        across = max(1, min(-(-groups // wide), most))
        self.grid: Grid = (across, max(1, min(-(-rows // tall), _MOST // across, 65535)), 1)
        self.extents = (rows, columns, self.shift)


def build_activate(spec: PlanSpec[ActivationAttributes], context: CudaContext) -> Built:
    """Build ``fused.activate``: operands x, up if there is one, out; no scalars."""
    operands = spec.operands
    two = len(operands) == 3
    shape = operands[-1].shape
    at = (0, 1 if two else 0, len(operands) - 1)
    rows = Rows(shape, tuple(step_of(operands[i]) for i in at), 2)
    up_at = shape[-1] if spec.attributes.gated and not two else 0
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in at)
    arguments = (*pointers, *numbers(up_at, *rows.extents, *rows.steps))
    return program(spec, [("activate", rows.grid, _THREADS, arguments)], context.target)


def build_activate_backward(spec: PlanSpec[ActivationAttributes], context: CudaContext) -> Built:
    """Build ``fused.activate_backward``: operands dy, x, up if there is one, out, up_out with up; no scalars."""
    operands = spec.operands
    two = len(operands) == 5
    shape = operands[0].shape
    at = (0, 1, 2, 3, 4) if two else (0, 1, 1, 2, 2)
    rows = Rows(shape, tuple(step_of(operands[i]) for i in at), 2)
    up_at = shape[-1] if spec.attributes.gated and not two else 0
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in at)
    arguments = (*pointers, *numbers(up_at, up_at, *rows.extents, *rows.steps))
    return program(spec, [("activate_backward", rows.grid, _THREADS, arguments)], context.target)


def build_rope(spec: PlanSpec[RopeAttributes], context: CudaContext) -> Built:
    """Build ``fused.rope``: operands x, positions, out; scalar theta."""
    x, positions, out = spec.operands
    *before, heads, dimension = x.shape
    pairs = dimension // 2
    tokens = math.prod(before) if pairs else 0
    several = 4 if spec.attributes.interleaved else _WIDTH  # pairs of a group
    groups = max(1, -(-pairs // several))
    shift = min((_PAIRS // several).bit_length() - 1, (groups - 1).bit_length())
    wide = 1 << shift
    parts = max(1, -(-heads // _HEADS))
    slabs = -(-parts // (_THREADS // wide))
    parts = -(-parts // slabs)
    line = parts * wide  # threads of a token
    # Full blocks where there are enough of them, else two warps, unless a token has more.
    spread = -(-tokens // (2 * context.target.sm_count))
    each = max(1, min(_THREADS // line, max(-(-64 // line), spread), tokens))
    across = -(-groups // wide)
    blocks = max(1, min(-(-tokens // each), -(-_BLOCKS * context.target.sm_count // (across * slabs)), 65535))
    sign, angles = int(spec.attributes.inverse), max(1, math.prod(positions.shape))
    extents = (tokens, angles, heads, pairs, sign, shift, across, parts, each)
    arguments: tuple[Argument, ...] = (
        ("operand", 0), ("operand", 1), ("float64", 0), ("operand", 2), *numbers(*extents, step_of(x), step_of(out)),
    )  # fmt: skip
    return program(spec, [("rope", (across * slabs, blocks, 1), each * line, arguments)], context.target)


def build_dropout(spec: PlanSpec[ShippedAttributes], context: CudaContext) -> Built:
    """Build ``fused.dropout``: operands x, out; scalars threshold, scale, seed, offset."""
    x, out = spec.operands
    rows = Rows(x.shape, (step_of(x), step_of(out)), 2, _DROPOUT * context.target.sm_count)
    scalars: tuple[Argument, ...] = (("int64", 0), ("float64", 1), ("int64", 2), ("int64", 3))
    arguments: tuple[Argument, ...] = (("operand", 0), ("operand", 1), *scalars, *numbers(*rows.extents, *rows.steps))
    return program(spec, [("dropout", rows.grid, _THREADS, arguments)], context.target)
