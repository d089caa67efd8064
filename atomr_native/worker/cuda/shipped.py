"""Launches of the kernels in `atomr_native.kernels`, whose machine code comes with the plan."""

from __future__ import annotations

import base64
from typing import Any

from ...dtypes import as_dtype
from .target import Argument, Built, KernelProgram, Launch, Target

__all__ = ["Grid", "numbers", "program"]

Grid = tuple[int, int, int]


def numbers(*values: int) -> tuple[Argument, ...]:
    """Return constants as arguments."""
    return tuple(("uint64", value % 2**64) for value in values)


def program(
    spec: dict[str, Any],
    launches: list[tuple[str, Grid, int, tuple[Argument, ...]]],
    target: Target,
    workspace: int = 0,
) -> Built:
    """Return launches of a plan's kernels: name, grid, threads of a block, arguments."""
    names = dict(map(tuple, spec["entries"]))
    alignments = tuple(as_dtype(operand["dtype"]).itemsize for operand in spec["operands"])
    made = tuple(
        Launch(names[name], grid, (threads, 1, 1), 0, arguments, overlaps=target.overlaps)
        for name, grid, threads, arguments in launches
    )
    return Built("kernels", KernelProgram(base64.b64decode(spec["code"]), made, workspace, alignments))
