"""Runs of a plan on scratch memory, for problems of the tuner: what operands hold, and how long a launch takes.

The launches that are measured get no scalars: who makes the runs puts constants there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...dtypes import DTYPES, as_dtype
from ...plans.spec import OperandSpec, PlanSpec
from .context import CudaContext
from .tuner import Candidate

__all__ = ["Trials"]

_TILE: Final = 4 << 20
#: Integers that operands hold, from the first and below the second, by the kind of dtype.
_INTEGERS: Final = {"b": (0, 2), "u": (0, 2), "i": (-8, 8)}


def _span(operand: OperandSpec) -> tuple[int, int]:
    """Return the bytes before an operand's first element that it reaches over, and all of these."""
    low = sum((n - 1) * -step for n, step in zip(operand.shape, operand.strides, strict=True) if step < 0)
    high = sum((n - 1) * step for n, step in zip(operand.shape, operand.strides, strict=True) if step > 0)
    return low, low + high + as_dtype(operand.dtype).itemsize


class Trials:
    """What a problem of the tuner says of the memory of a plan, see `tuner.Problem`; a base class.

    Attributes
    ----------
    context : CudaContext
    spec : PlanSpec
    runs : dict
        What `CudaBackend.prepare` made of each candidate's program, by the candidate's choice.
    """

    def __init__(self, context: CudaContext, spec: PlanSpec[Any]) -> None:
        self.context = context
        self.spec = spec
        self.runs: dict[tuple[int, ...], Any] = {}

    def operand_bytes(self) -> list[int]:
        """Return the bytes that each operand reaches over."""
        return [_span(operand)[1] for operand in self.spec.operands]

    def tiles(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return numbers of ordinary size, since the GPU's clock depends on them."""
        rng = np.random.default_rng(0)
        found = []
        for operand in self.spec.operands:
            dtype = DTYPES[operand.dtype]
            count = _TILE // dtype.itemsize
            limits = _INTEGERS.get(dtype.kind)
            values = rng.standard_normal(count) if limits is None else rng.integers(*limits, count)
            found.append(values.astype(dtype).view(np.uint8))
        return found

    def time(self, candidate: Candidate, addresses: list[int], sets: int, launches: int, workspace: int) -> float:
        """Return microseconds of a launch."""
        lows = [_span(operand)[0] for operand in self.spec.operands]
        places = [address + lows[i % len(lows)] for i, address in enumerate(addresses)]
        run = self.runs[candidate.choice]
        return self.context.backend.measure(run, places, sets, launches, workspace, candidate.workspace)
