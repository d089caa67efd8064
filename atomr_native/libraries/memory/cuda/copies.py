"""Fill and copy on CUDA."""

from __future__ import annotations

import math

from ....builders.context import Built
from ....builders.cuda.codegen import MapOperand, alignment, broadcast_strides, convert, kernels, map_kernel
from ....builders.cuda.context import CudaContext
from ....builders.cuda.target import Target
from ....plans.spec import PlanSpec
from ..attributes import CopyAttributes

__all__ = ["build_copy", "build_fill"]


def _map(spec: PlanSpec, body: list[str], target: Target) -> Built:
    """Build a kernel whose last operand is written, and whose others are read."""
    operands = spec.operands
    shape = operands[-1].shape
    if math.prod(shape) == 0:
        return Built("noop")
    last = len(operands) - 1
    mapped = [MapOperand(i, o.dtype, broadcast_strides(o, shape), i < last, i == last) for i, o in enumerate(operands)]
    source, launch = map_kernel(shape, mapped, spec.scalars, [], body, target)
    dtypes = {o.dtype for o in mapped}
    return kernels(source, [launch], target, dtypes=dtypes, alignments=[alignment(o.dtype) for o in mapped])


def build_fill(spec: PlanSpec, context: CudaContext) -> Built:
    """Build ``memory.fill``: operand ``out``, scalars as `libraries.memory.spec.fill_scalars` returns them."""
    dtype = spec.operands[0].dtype
    if dtype.startswith("complex"):
        real = "float" if dtype == "complex64" else "double"
        value = f"make_{'c64' if dtype == 'complex64' else 'c128'}(({real})s0, ({real})s1)"
    else:
        source = spec.scalars[0]
        value = convert("uint64" if dtype.startswith("u") else source, dtype, "s0")
    return _map(spec, [f"y0 = {value};"], context.target)


def build_copy(spec: PlanSpec[CopyAttributes], context: CudaContext) -> Built:
    """Build ``memory.copy``: operands ``src, out``; no scalars, unless it is a copy of consecutive bytes.

    ``staged``: from memory of the host or to it.
    """
    if spec.attributes.raw:
        return Built("transfer" if spec.attributes.staged else "copy")
    source, out = (o.dtype for o in spec.operands)
    value = "(x0 != 0)" if source == "bool" else "x0"
    return _map(spec, [f"y1 = {convert(source, out, value)};"], context.target)
