"""Launches of the norms' kernels: see `atomr_native.kernels.norms`."""

from __future__ import annotations

import math
from typing import Any, Final

from .fused import numbers, program, step_of
from .target import Argument, Built, Target

__all__ = ["build_norm", "build_norm_backward"]

_WIDTH: Final = 8
_THREADS: Final = 256
_BLOCKS: Final = 8  # of a multiprocessor
_WARPS: Final = 8  # of a block of `weight_partial`, each with its partial sums
_EPS: Final[Argument] = ("float64", 0)


def _threads(columns: int) -> int:
    """Return the threads of a block for a row: whole warps, a power of two, 256 at most."""
    return min(_THREADS, max(32, 1 << (-(-columns // _WIDTH) - 1).bit_length()))


def build_norm(spec: dict[str, Any], target: Target) -> Built:
    """Build ``fused.norm``: operands x, residual, weight, bias, out, residual_out (some missing), scalar eps."""
    operands = spec["operands"]
    at = {operand["name"]: i for i, operand in enumerate(operands)}
    shape = tuple(operands[at["x"]]["shape"])
    rows, columns = math.prod(shape[:-1]), shape[-1]
    stand_ins = {"residual": "x", "bias": "weight", "residual_out": "out"}  # for what the kernel does not use
    names = ["x", "residual", "weight", "bias", "out", "residual_out"]
    found = [at[name if name in at else stand_ins[name]] for name in names]
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in found)
    steps = [step_of(operands[found[i]]) for i in (0, 1, 4, 5)]
    grid = (max(1, min(rows, _BLOCKS * target.sm_count)), 1, 1)
    return program(spec, [("norm", grid, _threads(columns), (*pointers, _EPS, *numbers(rows, columns, *steps)))])


def build_norm_backward(spec: dict[str, Any], target: Target) -> Built:
    """Build ``fused.norm_backward``: operands dy, x, weight, residual, out, weight_out, bias_out; scalar eps."""
    operands = spec["operands"]
    at = {operand["name"]: i for i, operand in enumerate(operands)}
    shape = tuple(operands[at["x"]]["shape"])
    rows, columns = math.prod(shape[:-1]), shape[-1]
    size = 8 if operands[at["x"]]["dtype"] == "float64" else 4
    tiles = max(1, -(-columns // (32 * _WIDTH)))
    groups = max(1, min(-(-rows // _WARPS), _BLOCKS * target.sm_count // tiles, 1024))
    parts = groups * _WARPS

    def padded(count: int) -> int:
        return -(-count * size // 256) * 256

    def pointer(name: str, other: str) -> Argument:
        return "operand", at.get(name, at[other])

    weight_at = padded(2 * rows)
    bias_at = weight_at + padded(parts * columns)
    statistics: Argument = ("workspace", 0)
    weight_parts: Argument = ("workspace", weight_at)
    bias_parts: Argument = ("workspace", bias_at if "bias_out" in at else weight_at)
    steps = {name: step_of(operands[at[name]]) for name in ("dy", "x", "residual", "out") if name in at}
    grid = (max(1, min(rows, _BLOCKS * target.sm_count)), 1, 1)
    dy, x = pointer("dy", "dy"), pointer("x", "x")
    gradient = (
        dy, x, pointer("weight", "weight"), pointer("residual", "x"), pointer("out", "out"), statistics, _EPS,
        *numbers(rows, columns, steps["dy"], steps["x"], steps.get("residual", steps["x"]), steps["out"]),
    )  # fmt: skip
    partial = (dy, x, statistics, weight_parts, bias_parts, *numbers(rows, columns, steps["dy"], steps["x"]))
    finish = (
        weight_parts, bias_parts, pointer("weight_out", "weight_out"), pointer("bias_out", "weight_out"),
        *numbers(parts, columns),
    )  # fmt: skip
    launches = [
        ("norm_backward", grid, _threads(columns), gradient),
        ("weight_partial", (tiles, groups, 1), _THREADS, partial),
        ("weight_finish", (max(1, -(-columns // _THREADS)), 1, 1), _THREADS, finish),
    ]
    workspace = bias_at + (padded(parts * columns) if "bias_out" in at else 0)
    return program(spec, launches, max(256, workspace))
