"""Products with functions that Numba has compiled: the launch of their kernel."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....builders.context import Built
from ....builders.cuda.codegen import next_power
from ....builders.cuda.context import CudaContext
from ....builders.cuda.shipped import numbers, program
from ....builders.cuda.target import Argument
from ....plans.spec import PlanSpec
from ..attributes import CompiledAttributes
from .rows import BLOCKS, steps

__all__ = ["build_compiled"]

_THREADS: Final = 256
#: The most threads that add up a row of a product with a vector.
_TEAM: Final = 32


def build_compiled(spec: PlanSpec[CompiledAttributes], context: CudaContext) -> Built:
    """Build ``sparse.semiring_compiled``: operands ``values, indices, offsets, x, out``."""
    values, _, _, x, out = spec.operands
    if 0 in out.shape:
        return Built("noop")
    rows, columns = out.shape[0], out.shape[1] if len(out.shape) == 2 else 1
    team = min(_TEAM, next_power(values.shape[0] // rows)) if columns == 1 else 1
    start = int(np.float64(float.fromhex(spec.attributes.start)).view(np.uint64))
    pointers: tuple[Argument, ...] = tuple(("operand", i) for i in range(5))
    arguments = (
        *pointers,
        *numbers(team, rows, columns, values.shape[0], x.shape[0], start, *steps(x), *steps(out)),
    )
    grid = max(1, min(-(-rows * columns * team // _THREADS), context.target.sm_count * BLOCKS))
    return program(spec, [("products", (grid, 1, 1), _THREADS, arguments)], context.target)
