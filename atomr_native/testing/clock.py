"""A clock that moves only on command."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from ..actors.clock import Scheduled
from ..errors import InvalidRequest

__all__ = ["FakeClock"]


class FakeClock:
    """A manual clock for a System's actors: ``System(clock=FakeClock())``.

    Timers, pauses before restarts and restart budgets use it; the timeouts of ask, result and close do not.

    Parameters
    ----------
    start : float
        Initial time, seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)
        self._heap: list[Scheduled] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._advancing = threading.Lock()

    def now(self) -> float:
        """Return the current time in seconds."""
        return self._now

    def call_at(self, when: float, action: Callable[[], object]) -> Scheduled:
        """Schedule `action` for the `advance` that reaches this time."""
        with self._lock:
            item = Scheduled(when, next(self._order), action)
            heapq.heappush(self._heap, item)
            return item

    def advance(self, seconds: float) -> int:
        """Move forward, and call the due actions in order, each at its time; return their number."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise InvalidRequest(f"seconds={seconds!r}; a clock moves forward by a non-negative number")
        called = 0
        with self._advancing:
            end = self._now + seconds
            while (item := self._next(end)) is not None:
                called += item.action is not None
                item.run()
            self._now = end
        return called

    def _next(self, end: float) -> Scheduled | None:
        with self._lock:
            if not self._heap or self._heap[0].when > end:
                return None
            item = heapq.heappop(self._heap)
            self._now = max(self._now, item.when)
            return item

    def next_due(self) -> float | None:
        """Return the time of the next action; None if there is none."""
        with self._lock:
            return min((item.when for item in self._heap if item.action is not None), default=None)

    def close(self) -> None:
        """Drop all scheduled actions."""
        with self._lock:
            self._heap.clear()
