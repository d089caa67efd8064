"""Reductions on CUDA devices."""

from __future__ import annotations

from ....builders.context import Built
from ....builders.cuda import reductions
from ....builders.cuda.context import CudaContext
from ....builders.cuda.sums import Reduction
from ....plans.spec import PlanSpec
from ..attributes import ReduceAttributes

__all__ = ["build_reduce"]


def build_reduce(spec: PlanSpec[ReduceAttributes], context: CudaContext) -> Built:
    """Build ``elementwise.reduce``."""
    x, out = spec.operands
    given = spec.attributes
    return reductions.build_reduce(Reduction(x, out, given.reduction, given.axes, given.accumulate), context.target)
