"""Draws of cuRAND's generators on a GPU."""

from __future__ import annotations

import math
from typing import Final

from ..._lib import curand
from ...builders.context import Built
from ...builders.cuda.codegen import MapOperand, kernels, map_kernel
from ...builders.cuda.context import CudaContext, library_file
from ...builders.cuda.sequence import SequenceProgram, Step
from ...dtypes import as_dtype
from ...plans.spec import PlanSpec
from .attributes import DrawAttributes
from .curand import describe

__all__ = ["build_draw"]

_MEMORY: Final = "cuRAND holds the state of its generator in memory of its own, beside that of the device"
_SCALED: Final = "a pass over the result brings it between low and high"


def build_draw(spec: PlanSpec[DrawAttributes], context: CudaContext) -> Built:
    """Build ``random.draw``: operand out; scalars low and high or the parameters, seed, offset.  Waits for cuRAND.

    Raises
    ------
    Unsupported
        Without cuRAND, and for what it refuses.
    OutOfMemory
        If there is no memory for the generator.
    """
    out = spec.operands[0]
    if math.prod(out.shape) == 0:
        return Built("noop")
    curand.load(library_file("curand"))
    draw = curand.Draw(context.backend, describe(spec))
    if not spec.attributes.scaled:
        return Built(draw, notes=(_MEMORY,))
    real = "float" if out.dtype == "float32" else "double"
    count = math.prod(out.shape)
    source, launch = map_kernel(
        (count,),
        [MapOperand(0, out.dtype, (1,), True, True)],
        ("float64", "float64"),
        (),
        [f"const {real} low = ({real})s0, width = ({real})s1 - low;", "y0 = low + width * x0;"],
        context.target,
    )
    scale = kernels(source, [launch], context.target, dtypes={out.dtype}, alignments=[as_dtype(out.dtype).itemsize]).run
    program = SequenceProgram(
        (
            Step(draw, (("operand", 0),), (("scalar", 2), ("scalar", 3))),
            Step(scale, (("operand", 0),), (("scalar", 0), ("scalar", 1))),
        ),
        notes=(_MEMORY, _SCALED),
    )
    return Built(program, notes=program.notes)
