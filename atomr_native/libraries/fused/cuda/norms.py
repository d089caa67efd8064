"""Launches of the norms' kernels: see `atomr_native.libraries.fused.kernels.norms`."""

from __future__ import annotations

import math
from typing import Final

from ....builders.context import Built
from ....builders.cuda.codegen import next_power
from ....builders.cuda.context import CudaContext
from ....builders.cuda.shipped import code_of, numbers, program
from ....builders.cuda.target import Argument
from ....builders.cuda.workspace import padded
from ....plans.spec import PlanSpec
from ..attributes import NormAttributes
from .activations import step_of

__all__ = ["build_norm", "build_norm_backward"]

_WIDTH: Final = 8
_THREADS: Final = 256
_MOST: Final = 512  # threads of a block
_KEPT: Final = 2  # groups of a row, that a thread keeps
_RESIDENT: Final = 512  # threads of a multiprocessor that have their registers
_NARROW: Final = 768  # the same for norms of 16 bits, and for gradients of plain RMS norms of them
_PLAIN: Final = 1024  # and for those of them that have no residual and no bias
_LINE: Final = 32  # columns of a block of `weight_finish`
_BLOCKS: Final = 8  # of a multiprocessor
_WARPS: Final = 8  # of a block of `weight_partial`, each with its partial sums
_EPS: Final[Argument] = ("float64", 0)


def _threads(columns: int, groups: int = 1, most: int = _THREADS) -> int:
    """Return the threads of a block for a row, of so many groups each: whole warps, a power of two."""
    return min(most, max(32, next_power(-(-columns // (_WIDTH * groups)))))


def build_norm(spec: PlanSpec[NormAttributes], context: CudaContext) -> Built:
    """Build ``fused.norm``: operands x, residual, weight, bias, out, residual_out (some missing), scalar eps."""
    operands = spec.operands
    at = {operand.name: i for i, operand in enumerate(operands)}
    shape = operands[at["x"]].shape
    rows, columns = math.prod(shape[:-1]), shape[-1]
    stand_ins = {"residual": "x", "bias": "weight", "residual_out": "out"}  # for what the kernel does not use
    names = ["x", "residual", "weight", "bias", "out", "residual_out"]
    found = [at[name if name in at else stand_ins[name]] for name in names]
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in found)
    steps = [step_of(operands[found[i]]) for i in (0, 1, 4, 5)]
    arguments = (*pointers, _EPS, *numbers(rows, columns, *steps))
    threads = _threads(columns, _KEPT, _MOST)
    resident = _RESIDENT
    if operands[at["x"]].dtype in ("bfloat16", "float16"):
        resident = _NARROW if "residual" in at or "bias" in at else _PLAIN
    blocks = max(1, min(rows, resident // threads * context.target.sm_count))
    return program(spec, [("norm", (blocks, 1, 1), threads, arguments)], context.target)


def build_norm_backward(spec: PlanSpec[NormAttributes], context: CudaContext) -> Built:
    """Build ``fused.norm_backward``: operands dy, x, weight, residual, out, weight_out, bias_out; scalar eps."""
    operands = spec.operands
    at = {operand.name: i for i, operand in enumerate(operands)}
    shape = operands[at["x"]].shape
    rows, columns = math.prod(shape[:-1]), shape[-1]
    size = 8 if operands[at["x"]].dtype == "float64" else 4
    held = "norm_gradients" in dict(code_of(spec).entries)
    threads = _threads(columns, _KEPT, _MOST)
    tiles = max(1, -(-columns // (32 * _WIDTH)))
    if held:
        plain = (
            size == 4 and operands[at["x"]].dtype != "float32" and not spec.attributes.layer and "residual" not in at
        )
        parts = max(1, min(rows, max(1, (_NARROW if plain else _RESIDENT) // threads) * context.target.sm_count))
    else:
        groups = max(1, min(-(-rows // _WARPS), _BLOCKS * context.target.sm_count // tiles, 1024))
        parts = groups * _WARPS

    def pointer(name: str, other: str) -> Argument:
        return "operand", at.get(name, at[other])

    weight_at = 0 if held else padded(2 * rows * size)
    bias_at = weight_at + padded(parts * columns * size)
    weight_parts: Argument = ("workspace", weight_at)
    bias_parts: Argument = ("workspace", bias_at if "bias_out" in at else weight_at)
    statistics: Argument = ("workspace", 0)
    steps = {name: step_of(operands[at[name]]) for name in ("dy", "x", "residual", "out") if name in at}
    dy, x = pointer("dy", "dy"), pointer("x", "x")
    inputs = (dy, x, pointer("weight", "weight"), pointer("residual", "x"), pointer("out", "out"))
    extents = numbers(rows, columns, steps["dy"], steps["x"], steps.get("residual", steps["x"]), steps["out"])
    launches: list[tuple[str, tuple[int, int, int], int, tuple[Argument, ...]]]
    if held:
        launches = [("norm_gradients", (parts, 1, 1), threads, (*inputs, weight_parts, bias_parts, _EPS, *extents))]
    else:
        grid = (max(1, min(rows, _BLOCKS * context.target.sm_count)), 1, 1)
        partial = (dy, x, statistics, weight_parts, bias_parts, *numbers(rows, columns, steps["dy"], steps["x"]))
        launches = [
            ("norm_backward", grid, _threads(columns), (*inputs, statistics, _EPS, *extents)),
            ("weight_partial", (tiles, groups, 1), _THREADS, partial),
        ]
    finish = (
        weight_parts, bias_parts, pointer("weight_out", "weight_out"), pointer("bias_out", "weight_out"),
        *numbers(parts, columns),
    )  # fmt: skip
    launches.append(("weight_finish", (max(1, -(-columns // _LINE)), 1, 1), _MOST, finish))
    workspace = bias_at + (padded(parts * columns * size) if "bias_out" in at else 0)
    return program(spec, launches, context.target, max(256, workspace))
