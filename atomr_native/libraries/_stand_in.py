"""What libraries say of messages that a kernel of CUTLASS computes in their place: layouts, and rules as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from . import load

__all__ = ["ALIGNED", "LARGE", "MEASURED", "Bare", "Rule"]

#: Bytes of which the other way wants rows to be multiples.
ALIGNED: Final = 16
#: Multiplications from which on a product is worth a kernel that must compile.
LARGE: Final = 1 << 33
#: The compute capability on which gains were measured.
MEASURED: Final = (9, 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """When CUTLASS's kernel is taken by itself.

    Attributes
    ----------
    reason : str
        For the plan's notes, after "since".
    applies : callable
        Whether a message is of this kind; each library says of what it is called.
    gain : float or None
        Time of the other way over that of the kernel, as it was measured on compute capability 9.0, the smallest of the
        cases.  None stands for no figure, and each library says from which gain on the kernel is taken.
    """

    reason: str
    applies: Callable[..., bool]
    gain: float | None = None


class Bare(NamedTuple):
    """A layout, without memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    @property
    def turned(self) -> Bare:
        """The transpose of its last two axes."""
        (*m, i, j), (*n, p, q) = self.shape, self.strides
        return Bare((*m, j, i), self.dtype, (*n, q, p))

    def spread(self, kind: str) -> Bare:
        """With the axis of D that a row, a column or a scalar lacks."""
        shape, strides = load("cutlass", "layouts:spread_axes")(self.shape, self.strides, kind)
        return Bare(shape, self.dtype, strides)
