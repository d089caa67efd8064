"""Tensors as they lie in memory, for builders: operands of a message, and buffers in the workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....builders.blocks import fold_axes
from ....builders.cuda.sequence import Source
from ....dtypes import as_dtype
from ....plans.spec import OperandSpec
from ..modes import Modes

__all__ = ["Array", "dense", "folded", "operand"]


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor; strides and offset are in elements.

    Attributes
    ----------
    source : Source
        An operand, or the number of a buffer: ``("workspace", number)``.
    dtype : str
    modes : tuple of int
        Each once; a mode that it lacks is broadcast.
    strides : tuple of int
    offset : int
        Where the first element is.
    """

    source: Source
    dtype: str
    modes: Modes
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def place(self) -> tuple[Source, int]:
        """Where its first element is: so many bytes behind its source, modulo 2**64, since it may lie before it."""
        return self.source, self.offset * as_dtype(self.dtype).itemsize % 2**64

    def stride(self, mode: int) -> int:
        """Return the elements from one index of a mode to the next; 0 where it is broadcast."""
        return self.strides[self.modes.index(mode)] if mode in self.modes else 0

    def along(self, modes: Modes) -> tuple[int, ...]:
        """Return the strides along modes."""
        return tuple(map(self.stride, modes))

    def at(self, index: dict[int, int]) -> Array:
        """Return the tensor at an index of some modes, which it keeps with one element."""
        return replace(self, offset=self.offset + sum(self.stride(m) * i for m, i in index.items()))


def operand(number: int, given: OperandSpec, modes: Modes, extents: Sequence[int]) -> Array:
    """Return an operand of the message: diagonals are strided, and broadcast axes are left out."""
    size = as_dtype(given.dtype).itemsize
    found: dict[int, int] = {}
    for mode, n, step in zip(modes, given.shape, given.strides, strict=True):
        if n == extents[mode]:
            found[mode] = found.get(mode, 0) + (step // size if n > 1 else 0)
    return Array(("operand", number), given.dtype, tuple(found), tuple(found.values()))


def dense(number: int, dtype: str, modes: Modes, extents: Sequence[int]) -> Array:
    """Return a buffer in which a tensor is contiguous in the order of its modes."""
    strides = tuple(math.prod(extents[m] for m in modes[i + 1 :]) for i in range(len(modes)))
    return Array(("workspace", number), dtype, modes, strides)


def folded(array: Array, modes: Modes, extents: Sequence[int]) -> int | None:
    """Return the one stride of modes in this order, 0 of one element; None where they do not merge."""
    shape, (steps,) = fold_axes(tuple(extents[m] for m in modes), (array.along(modes),))
    if len(shape) > 1:
        return None
    return steps[0] if shape and shape[0] > 1 else 0
