"""Working times of devices' lanes by message, read from the workers' memory while a trace runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._lib.sender import Core, SpanReader
from ..system import state_of

if TYPE_CHECKING:
    from ..system import System

__all__ = ["LaneSpans"]

_PERIOD = 0.001  # seconds; a lane's ring holds 2048 messages


class LaneSpans:
    """Makes the lanes of a System's devices record working times, and collects them in a thread, until `stop`.

    Attributes
    ----------
    lost : int
        At the end: messages whose times were overwritten before they were read, or came after `limit`.
    """

    def __init__(self, system: System, limit: int) -> None:
        self._system = system
        self._limit = limit
        self.lost = 0
        self._readers: dict[Core, dict[int, SpanReader]] = {}
        self._found: dict[tuple[Core, int, int], tuple[int, int]] = {}
        self._ended = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="atomr_native-trace", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            self._look()

    def _look(self) -> None:
        for owner in state_of(self._system).states():
            core: Core = owner.core
            readers = self._readers.get(core)
            if readers is None:
                readers = self._readers[core] = {}
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
        """Stop; return begin and end (CLOCK_MONOTONIC, nanoseconds) by core, lane and ticket.

        The result has all messages that were resolved before the call.
        """
        self._ended.set()
        self._thread.join()
        self._look()
        for core, readers in self._readers.items():
            core.trace(False)
            self.lost += sum(reader.lost for reader in readers.values())
        self._readers.clear()
        found, self._found = self._found, {}
        return found
