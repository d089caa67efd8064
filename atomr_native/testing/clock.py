"""A clock that stands still until the test moves it."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from ..actors.clock import Scheduled
from ..errors import InvalidRequest

__all__ = ["FakeClock"]


class FakeClock:
    """Time for a System's actors, moved by hand: ``System(clock=FakeClock())``.

    Timers, pauses before restarts and restart budgets follow it; the timeouts of ask, result and close do not.

    Parameters
    ----------
    start : float
        What `now` says at first, seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = float(start)
        self._heap: list[Scheduled] = []
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._advancing = threading.Lock()

    def now(self) -> float:
        """Return the seconds that it shows."""
        return self._now

    def call_at(self, when: float, action: Callable[[], object]) -> Scheduled:
        """Have `action` called by the `advance` that reaches this time."""
        with self._lock:
            item = Scheduled(when, next(self._order), action)
            heapq.heappush(self._heap, item)
            return item

    def advance(self, seconds: float) -> int:
        """Move on, and call what becomes due on the way, in order, each at its time; returns how many those were."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise InvalidRequest(f"seconds={seconds!r}; a clock moves on by a number from 0")
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
        """Return when something is due next; None if nothing is."""
        with self._lock:
            return min((item.when for item in self._heap if item.action is not None), default=None)

    def close(self) -> None:
        """Forget everything that was to be called."""
        with self._lock:
            self._heap.clear()
