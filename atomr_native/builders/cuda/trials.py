"""Runs of a plan on scratch memory, for problems of the tuner: what operands hold, and how long a launch takes.

The launches that are measured get no scalars: who makes the runs puts constants there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from ...dtypes import DTYPES, as_dtype
from ...errors import LibraryError, Unsupported
from ...plans.spec import OperandSpec
from .context import CudaContext
from .tuner import Candidate

__all__ = ["Reach", "Trials", "reach_of", "tried"]

Made = TypeVar("Made")

_TILE: Final = 4 << 20
#: Integers that operands hold, from the first and below the second, by the kind of dtype.
_INTEGERS: Final = {"b": (0, 2), "u": (0, 2), "i": (-8, 8)}


class Reach(NamedTuple):
    """The memory of an operand: bytes before its first element, all that it reaches over, and its dtype."""

    before: int
    nbytes: int
    dtype: str


def reach_of(operand: OperandSpec) -> Reach:
    """Return the memory of an operand of a specification."""
    low = sum((n - 1) * -step for n, step in zip(operand.shape, operand.strides, strict=True) if step < 0)
    high = sum((n - 1) * step for n, step in zip(operand.shape, operand.strides, strict=True) if step > 0)
    return Reach(low, low + high + as_dtype(operand.dtype).itemsize, operand.dtype)


def tried(make: Callable[[], Made]) -> Made | None:
    """Return what is made; None, if a library refuses it.

    Raises
    ------
    LibraryError
        A failure of the device itself.
    """
    try:
        return make()
    except (Unsupported, LibraryError) as error:
        if isinstance(error, LibraryError) and error.lib == "cuda":
            raise
        return None


class Trials:
    """What a problem of the tuner says of the memory of a plan, see `tuner.Problem`; a base class.

    Attributes
    ----------
    context : CudaContext
    reaches : sequence of Reach
        Of the operands.
    runs : dict
        What `CudaBackend.prepare` made of each candidate's program, by the candidate's choice.
    """

    def __init__(self, context: CudaContext, reaches: Sequence[Reach]) -> None:
        self.context = context
        self.reaches = reaches
        self.runs: dict[tuple[int, ...], Any] = {}

    def operand_bytes(self) -> list[int]:
        """Return the bytes that each operand reaches over."""
        return [reach.nbytes for reach in self.reaches]

    def numbers(self, rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
        """Return numbers for an operand."""
        limits = _INTEGERS.get(dtype.kind)
        return rng.standard_normal(count) if limits is None else rng.integers(*limits, count)

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return numbers of ordinary size, since the GPU's clock depends on them."""
        rng = np.random.default_rng(0)
        found = []
        for reach in self.reaches:
            dtype = DTYPES[reach.dtype]
            values = self.numbers(rng, dtype, _TILE // dtype.itemsize)
            found.append(values.astype(dtype).view(np.uint8))
        return found

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch."""
        offsets = [reach.before for reach in self.reaches]
        places = [address + offsets[i % len(offsets)] for i, address in enumerate(addresses)]
        run = self.runs[candidate.choice]
        return self.context.backend.measure(run, places, sets, launches, workspace, candidate.workspace)
