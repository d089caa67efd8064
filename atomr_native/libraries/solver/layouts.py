"""The arrays of a solver's message that LAPACK and cuSOLVER work in: column-major matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.operands import Fresh
from ...dtypes import dtype_name
from ...plans.lowering import Operand
from ...plans.spec import OVERWRITE, WRITE, OperandSpec

__all__ = ["MatrixLayout", "layout_in_batch", "new_matrix"]


class MatrixLayout(NamedTuple):
    """A layout, for its rules."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


def new_matrix(name: str, fresh: Fresh) -> Operand:
    """Return a new output whose matrices are column-major."""
    *batch, rows, columns = fresh.shape
    size = fresh.dtype.itemsize
    steps = [size, size * max(rows, 1)]
    step = size * max(rows, 1) * max(columns, 1)
    for extent in reversed(batch):
        steps.insert(0, step)
        step *= max(extent, 1)
    spec = OperandSpec(name, dtype_name(fresh.dtype), fresh.shape, tuple(steps), WRITE | OVERWRITE)
    return Operand(spec, None, (*batch, columns, rows))


def layout_in_batch(
    operand: Operand, batch: tuple[int, ...], dtype: np.dtype[Any], *, vector: bool = False
) -> MatrixLayout:
    """Return an operand's layout with the axes of batches, and of a vector as one column."""
    shape, strides = operand.spec.shape, operand.spec.strides
    if vector:
        shape, strides = (*shape, 1), (*strides, dtype.itemsize)
    lead = len(batch) + 2 - len(shape)
    steps = [0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True)]
    return MatrixLayout((*batch, *shape[-2:]), (*([0] * lead), *steps, *strides[-2:]), dtype)
