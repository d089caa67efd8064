"""When the lanes of devices worked at which message: read from the workers' memory, while a trace runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._lib.sender import Core, SpanReader

if TYPE_CHECKING:
    from ..device import Device
    from ..system import System

__all__ = ["LaneSpans"]

_PERIOD = 0.001  # seconds; a lane's ring holds 2048 messages


class LaneSpans:
    """Has the lanes of a System's devices note when they work, and collects it in a thread, until `stop`.

    Attributes
    ----------
    lost : int
        At the end: messages whose times came faster than they were read, or after `limit`.
    """

    def __init__(self, system: System, limit: int) -> None:
        self._system = system
        self._limit = limit
        self.lost = 0
        self._readers: dict[Device, dict[int, SpanReader]] = {}
        self._found: dict[tuple[Core, int, int], tuple[int, int]] = {}
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="atomr_native-trace", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            self._look()

    def _look(self) -> None:
        for device in list(self._system._devices.values()):
            core = device._core
            readers = self._readers.get(device)
            if readers is None:
                readers = self._readers[device] = {}
                core.trace(True)
            for lane in list(core.lane_names):
                reader = readers.get(lane)
                if reader is None:
                    reader = readers[lane] = SpanReader(core, lane)
                for ticket, began, ended in reader.read():
                    if len(self._found) < self._limit:
                        self._found[core, lane, ticket] = (began, ended)
                    else:
                        self.lost += 1

    def stop(self) -> dict[tuple[Core, int, int], tuple[int, int]]:
        """End it; returns begin and end (CLOCK_MONOTONIC, nanoseconds) by core, lane and ticket.

        Whatever was resolved before the call is in it.
        """
        self._ended.set()
        self._thread.join()
        self._look()
        for device, readers in self._readers.items():
            device._core.trace(False)
            self.lost += sum(reader.lost for reader in readers.values())
        self._readers.clear()
        found, self._found = self._found, {}
        return found
