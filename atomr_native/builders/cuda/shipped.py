"""Launches of shipped kernels (`atomr_native.compile.shipped`), whose machine code comes with the plan."""

from __future__ import annotations

from typing import Any, Literal

from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import PlanSpec, ShippedAttributes, ShippedCode
from ..context import Built
from .target import Argument, KernelProgram, Launch, Target

__all__ = ["Grid", "code_of", "numbers", "program"]

Grid = tuple[int, int, int]


def numbers(*values: int) -> tuple[Argument, ...]:
    """Return constants as arguments."""
    return tuple(("uint64", value % 2**64) for value in values)


def code_of(spec: PlanSpec[Any]) -> ShippedCode:
    """Return the machine code that came with a plan.

    Raises
    ------
    InvalidRequest
        If none came.
    """
    found: ShippedCode | None = spec.attributes.shipped
    if found is None:
        raise InvalidRequest(f"the specification of {spec.op!r} comes without machine code, which GPUs need")
    return found


def program(
    spec: PlanSpec[ShippedAttributes],
    launches: list[tuple[str, Grid, int, tuple[Argument, ...]]],
    target: Target,
    workspace: int = 0,
    info: tuple[Literal["operand", "workspace"], int] | None = None,
) -> Built:
    """Return launches of a plan's kernels: name, grid, threads of a block, arguments; `info` as in `KernelProgram`."""
    code = code_of(spec)
    names = dict(code.entries)
    alignments = tuple(as_dtype(operand.dtype).itemsize for operand in spec.operands)
    made = tuple(
        Launch(names[name], grid, (threads, 1, 1), 0, arguments, overlaps=target.overlaps)
        for name, grid, threads, arguments in launches
    )
    return Built(KernelProgram(code.code.data, made, workspace, alignments, info=info), workspace)
