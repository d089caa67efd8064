"""Blends on CUDA devices, as a generated kernel."""

from __future__ import annotations

import math

from ...builders.context import Built
from ...builders.cuda.codegen import MapOperand, alignment, broadcast_strides, kernels, map_kernel
from ...builders.cuda.context import CudaContext
from ...plans.spec import PlanSpec

__all__ = ["build_mix"]


def build_mix(spec: PlanSpec, context: CudaContext) -> Built:
    """Build ``blend.mix``: operands ``x, y, out``, scalar ``weight``.  Waits for the compiler."""
    operands = spec.operands
    shape = operands[2].shape
    if math.prod(shape) == 0:
        return Built("noop")
    mapped = [MapOperand(i, o.dtype, broadcast_strides(o, shape), i < 2, i == 2) for i, o in enumerate(operands)]
    kind = "float" if operands[2].dtype == "float32" else "double"
    body = [f"const {kind} w = ({kind})s0;", f"y2 = w * x0 + (({kind})1 - w) * x1;"]
    source, launch = map_kernel(shape, mapped, spec.scalars, [], body, context.target)
    dtypes = {o.dtype for o in mapped}
    return kernels(source, [launch], context.target, dtypes=dtypes, alignments=[alignment(o.dtype) for o in mapped])
