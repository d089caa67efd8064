"""The bytes of temporaries: a block that belongs to one recorded plan, or to several that never run at once."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

import numpy as np

from .._lib.guard import Lock, shielded
from .._lib.sender import VOLATILE, Core
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import layout_of

if TYPE_CHECKING:
    from .plan import RecordedPlan

__all__ = ["Temporaries"]

_BYTES: Final = np.dtype(np.uint8)


class Temporaries:
    """A block of device memory, as large as the plan that needs most of it.

    It is an operand of each message of its plans, which writes it: so their messages run one after the other.

    Parameters
    ----------
    core : Core
        The device.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self._lock = Lock()
        self._block: GpuRef | None = None
        self._plans: weakref.WeakSet[RecordedPlan] = weakref.WeakSet()

    @property
    def nbytes(self) -> int:
        """How large the block is."""
        return 0 if self._block is None else self._block.nbytes

    @shielded
    def add(self, plan: RecordedPlan, needed: int) -> tuple[GpuRef, ...]:
        """Return bytes of the block for a plan that uses it from now on; a block that is too small is replaced.

        Raises
        ------
        OutOfMemory
        """
        with self._lock:
            if needed > self.nbytes:
                self._replace(needed)
            self._plans.add(plan)
            return self.part(needed)

    def part(self, needed: int) -> tuple[GpuRef, ...]:
        """Return the first bytes of the block; nothing where none are needed."""
        if not needed or self._block is None:
            return ()
        return (self._block.view_as(layout_of((needed,), _BYTES), 0),)

    def _replace(self, nbytes: int) -> None:
        """Give all plans another block, which outlives the worker: its bytes mean nothing between messages."""
        while True:
            block: GpuRef = self.core.empty(GpuRef, layout_of((nbytes,), _BYTES), VOLATILE)
            if self.core.keep(block.allocation):
                break
        self._block = block
        for plan in list(self._plans):
            plan.move_temporaries()
