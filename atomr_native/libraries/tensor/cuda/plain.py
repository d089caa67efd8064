"""Reductions without factors, by the kernels that every library shares."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from ....builders.context import Built
from ....builders.cuda.reductions import build_reduce
from ....builders.cuda.sums import Reduction
from ....dtypes import as_dtype
from ..modes import Modes
from .builder import Builder

__all__ = ["plain_reduction"]


def plain_reduction(builder: Builder, kind: str, dtype: str, reduced: Modes) -> Built | None:
    """Return a reduction without factors if these kernels have it."""
    spec, x, out = builder.spec, builder.inputs[0], builder.out
    if len(spec.operands) != 2 or spec.scalars or builder.target is not out:
        return None
    modes = (*builder.output, *reduced)
    steps = x.along(modes)
    if not reduced or spec.attributes.zero or any(step < 0 for step in steps) or 0 in builder.extents:
        return None
    size = as_dtype(x.dtype).itemsize
    shape = tuple(builder.extents[m] for m in modes)
    source = structs.replace(spec.operands[0], shape=shape, strides=tuple(step * size for step in steps))
    axes = tuple(range(len(builder.output), len(modes)))
    built = build_reduce(Reduction(source, spec.operands[1], kind, axes, dtype), builder.context.target)
    return replace(built, notes=(*builder.notes, "a kernel"))
