"""Time for actors: timers, pauses before restarts, restart budgets."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from .._lib.guard import shielded

__all__ = ["Clock", "Scheduled", "SystemClock"]

_FEW = 64

_log = logging.getLogger("atomr_native.actors")


class Scheduled:
    """An action at a given time; `cancel` is final when it returns, unless the action is running."""

    __slots__ = ("action", "order", "when")

    def __init__(self, when: float, order: int, action: Callable[[], object]) -> None:
        self.when, self.order = when, order
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Cancel the action.  Idempotent."""
        self.action = None

    def run(self) -> None:
        """Run the action, unless it was cancelled."""
        action, self.action = self.action, None
        if action is not None:
            try:
                action()
            except Exception:
                _log.exception("a timer failed")

    def __lt__(self, other: Scheduled) -> bool:
        return (self.when, self.order) < (other.when, other.order)


class Clock(Protocol):
    """The interface of a clock for a System; `testing.FakeClock` is another implementation."""

    def now(self) -> float:
        """Return the seconds since a fixed moment; never goes back."""

    def call_at(self, when: float, action: Callable[[], object]) -> Scheduled:
        """Call `action` at a time, or soon after; it must be short and must not wait."""

    def close(self) -> None:
        """Drop all scheduled actions.  Idempotent."""


class SystemClock:
    """The monotonic clock, with a thread that starts on first use."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._heap: list[Scheduled] = []
        self._order = itertools.count()
        self._most = _FEW  # number of actions from which on cancelled ones are dropped
        self._thread: threading.Thread | None = None
        self._closed = False

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    @shielded
    def call_at(self, when: float, action: Callable[[], object]) -> Scheduled:
        """Call `action` in the clock's thread; never after `close`."""
        item = Scheduled(when, next(self._order), action)
        with self._change:
            if self._closed:
                item.cancel()
                return item
            heapq.heappush(self._heap, item)
            if len(self._heap) > self._most:
                self._heap = [each for each in self._heap if each.action is not None]
                heapq.heapify(self._heap)
                self._most = max(_FEW, 2 * len(self._heap))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="atomr_native-timers", daemon=True)
                self._thread.start()
            elif self._heap[0] is item:
                self._change.notify()
        return item

    @shielded
    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closed = True
            self._heap.clear()
            self._change.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._closed:
                    while self._heap and self._heap[0].action is None:
                        heapq.heappop(self._heap)
                    left = self._heap[0].when - self.now() if self._heap else None
                    if left is not None and left <= 0:
                        break
                    self._change.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
                if self._closed:
                    return
                item = heapq.heappop(self._heap)
            item.run()
