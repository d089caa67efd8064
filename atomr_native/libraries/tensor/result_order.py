"""The order in which a new result lies, where that is free: the one that a product writes without a permutation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...arrays.operands import ArrayLayout, contiguous_strides
from ...dtypes import dtype_name
from ...plans.lowering import Operand
from ...plans.spec import OVERWRITE, WRITE, OperandSpec
from .modes import Modes
from .path import Contraction, contractions
from .products import groups_of

if TYPE_CHECKING:
    from .spec import EinsumProblem

__all__ = ["ORDERS", "new_result"]

#: Orders of a new result: as in C, or as the last step writes it the fastest.
ORDERS: Final = ("C", "any")


def _as_they_lie(modes: Modes, own: Modes, array: ArrayLayout | None) -> Modes:
    """Return modes of a tensor, the one with the largest stride first; of an intermediate result as they are."""
    if array is None:
        return tuple(m for m in dict.fromkeys(own) if m in modes)
    steps: dict[int, int] = {}
    for mode, n, step in zip(own, array.shape, array.strides, strict=True):
        steps[mode] = steps.get(mode, 0) + (abs(step) if n > 1 else 0)
    return tuple(sorted(modes, key=lambda m: -steps.get(m, 0)))


def _order(step: Contraction, extents: Sequence[int], operands: Sequence[ArrayLayout]) -> Modes:
    """Return the modes of a step's result, from the outermost: of the batch, of the larger operand, of the other."""
    arrays = [operands[i] if i < len(operands) else None for i in step.operands]
    groups = groups_of(step)
    if groups is None:
        return _as_they_lie(step.output, step.inputs[0], arrays[0])

    def size(modes: Modes) -> int:
        return math.prod(extents[m] for m in modes)

    sides = [(groups.m, step.inputs[0], arrays[0]), (groups.n, step.inputs[1], arrays[1])]
    sides.sort(key=lambda side: -size(side[0]))
    first, second = (_as_they_lie(*side) for side in sides)
    return (*_as_they_lie(groups.batch, *sides[0][1:]), *first, *second)


def new_result(problem: EinsumProblem, operands: Sequence[ArrayLayout], added: ArrayLayout | None) -> Operand:
    """Return the result as an operand that the message allocates, as what is added lies, or as suits the last step."""
    shape, dtype = problem.out
    modes = problem.subscripts.output
    if added is None:
        order = _order(contractions(problem.subscripts, problem.path.steps)[-1], problem.extents, operands)
    else:
        order = _as_they_lie(modes, modes, added)
    axes = [modes.index(mode) for mode in order]
    whole = tuple(shape[axis] for axis in axes)
    along = dict(zip(axes, contiguous_strides(whole, dtype.itemsize), strict=True))
    strides = tuple(along[axis] for axis in range(len(shape)))
    return Operand(OperandSpec("out", dtype_name(dtype), shape, strides, WRITE | OVERWRITE), None, whole)
