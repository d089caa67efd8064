"""Copies between devices that are sent again: messages of the same layouts and devices, without most checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._lib.sender import DURABLE, VOLATILE, RanksMessage
from ..arrays.gpu_ref import GpuRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from .owner import SharingDevice

__all__ = ["QuickCopy"]


class QuickCopy(RanksMessage):
    """A copy of all bytes of an array of one layout to another one of that layout, on another device.

    It sends by itself what is as ordinary as the first one, and hands all else to `slowly`, which checks.
    """

    def __init__(
        self, target: SharingDevice, source: GpuRef, pair: Any, direct: bool, slowly: Callable[[GpuRef, GpuRef], object]
    ) -> None:
        owner: SharingDevice = source.allocation.core.owner
        plans, self._rank = pair.copy_plans(source.device, target.device, source.nbytes, direct)
        #: Of the other GPU's segments, as the target reaches them.
        self._reached = target.imports.segments.reached if direct else None
        self._name = owner.name
        self._slowly = slowly
        places = [(0, source.layout)], [(0, source.layout), (1, source.layout)] if direct else [(1, source.layout)]
        count, number = pair.key
        self.arm(count, number, plans, list(places[:: -1 if self._rank else 1]), (), (True, False), True, -1, GpuRef)

    def send(self, source: GpuRef, out: GpuRef) -> None:
        """Send a copy; `source` has this layout and device, and `out` may be anything."""
        reached, near = self._reached, source
        if reached is not None:
            memory = source.allocation
            whole = reached.get((self._name, memory.segment))
            if whole is None or memory.pool not in (VOLATILE, DURABLE):
                self._slowly(source, out)
                return
            near = whole.view_of(GpuRef, source.layout, memory.offset + source.offset)
        self.tell((near, source) if self._rank else (source, near), out=out)

    def _tell_slowly(self, arrays: tuple[GpuRef, GpuRef], out: GpuRef) -> None:
        self._slowly(arrays[self._rank], out)
