"""Kernels of the user's functions: their launches, for the arrays of a plan."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ....arrays.operands import contiguous_strides
from ....builders.blocks import fold_axes
from ....builders.cuda.codegen import alignment, broadcast_strides
from ....builders.cuda.sequence import Source, Step
from ....builders.cuda.shipped import code_of, numbers
from ....builders.cuda.target import Argument, KernelProgram, Launch, Target
from ....errors import Unsupported
from ....plans.spec import PlanSpec
from ..attributes import MappedAttributes
from ..kernels.axes import AXES
from .steps import Apply

__all__ = ["apply_step"]

_THREADS: Final = 256
_BLOCKS: Final = 16  # for each multiprocessor


def apply_step(apply: Apply, spec: PlanSpec[MappedAttributes], target: Target) -> Step:
    """Return the launch of a function, with its operands and numbers in the message.

    Raises
    ------
    Unsupported
        If the axes of all arrays fold into too many.
    """
    at = {operand.name: i for i, operand in enumerate(spec.operands)}
    names = getattr(spec.attributes, apply.which)
    arrays = [name for name in names if name in at]
    scalars = [spec.attributes.scalar_names.index(name) for name in names if name not in at]
    shape = apply.target.shape
    extra = [broadcast_strides(spec.operands[at[name]], apply.shape) for name in arrays]
    steps = (contiguous_strides(apply.shape, 1), apply.source.strides, apply.target.strides, *extra)
    inside = apply.source.shape
    whole = inside == shape
    extents, folded = fold_axes(shape, steps) if whole else (shape, steps)
    bounds = extents if whole else inside
    if len(extents) > AXES:
        raise Unsupported(
            f"the function {apply.which} with arrays of shape {shape}, whose axes fold into {len(extents)}, and "
            f"kernels take {AXES}; make contiguous copies, of x, out and operands",
            rule="fft.function_axes",
            lifted_by=("layout",),
        )
    missing = AXES - len(extents)
    total = math.prod(shape)
    count = 2 + len(arrays)
    arguments: list[Argument] = [("operand", i) for i in range(count)]
    arguments += [("int64" if spec.scalars[j] == "int64" else "float64", i) for i, j in enumerate(scalars)]
    arguments += [
        *numbers(total, len(extents), int(not whole)),
        ("uint64", int(np.float64(apply.scale).view(np.uint64))),
    ]
    for values, fill in ((extents, 1), (bounds, 1), *((step, 0) for step in folded)):
        arguments += numbers(*((fill,) * missing), *values)
    code = code_of(spec)
    grid = max(1, min(-(-total // _THREADS), _BLOCKS * target.sm_count))
    launch = Launch(
        dict(code.entries)[apply.which], (grid, 1, 1), (_THREADS, 1, 1), 0, tuple(arguments), overlaps=target.overlaps
    )
    dtypes = [apply.source.dtype, apply.target.dtype, *(spec.operands[at[name]].dtype for name in arrays)]
    sizes = [alignment(dtype) for dtype in dtypes]
    sources: tuple[Source, ...] = (
        apply.source.source,
        apply.target.source,
        *(("operand", at[name]) for name in arrays),
    )
    return Step(
        KernelProgram(code.code.data, (launch,), alignments=tuple(sizes)),
        sources,
        tuple(("scalar", j) for j in scalars),
    )
