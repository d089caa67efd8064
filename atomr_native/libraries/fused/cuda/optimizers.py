"""Launches of the optimizers' kernels: see `atomr_native.libraries.fused.kernels.optimizers`."""

from __future__ import annotations

import math
from typing import Final

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....builders.cuda.shipped import numbers, program
from ....builders.cuda.target import Argument, Target
from ....plans.spec import PlanSpec
from ..attributes import SgdAttributes, ShippedAttributes

__all__ = ["build_adamw", "build_sgd"]

_THREADS: Final = 256
_EIGHTS: Final = 8 * _THREADS
_BLOCKS: Final = 8  # of a multiprocessor


def _build(
    name: str, spec: PlanSpec[ShippedAttributes], target: Target, state: int, scalars: tuple[Argument, ...]
) -> Built:
    operands = spec.operands
    count = math.prod(operands[1].shape)
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in range(2 + state))
    master: Argument = ("operand", min(2 + state, len(operands) - 1))  # without master weights it is not used
    grid = (max(1, min(-(-count // _EIGHTS), _BLOCKS * target.sm_count)), 1, 1)
    return program(spec, [(name, grid, _THREADS, (*pointers, master, *scalars, *numbers(count)))], target)


def build_adamw(spec: PlanSpec[ShippedAttributes], context: CudaContext) -> Built:
    """Build ``fused.adamw``: grad, param, m, v, master if there; lr, beta1, beta2, eps, weight_decay, step."""
    return _build("adamw", spec, context.target, 2, (*(("float64", i) for i in range(5)), ("int64", 5)))


def build_sgd(spec: PlanSpec[SgdAttributes], context: CudaContext) -> Built:
    """Build ``fused.sgd``: operands grad, param, m, master if there; scalars lr, momentum, weight_decay."""
    return _build("sgd", spec, context.target, 1, tuple(("float64", i) for i in range(3)))
