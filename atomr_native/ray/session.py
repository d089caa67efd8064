"""A node's memory of one link: which batch has come, and reports that the link has not confirmed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .wire import Packed

__all__ = ["Session"]

_RESULTS = 256  # results of operations that are kept for calls that come again


class Session:
    """The node's side of a `Link` in one life."""

    def __init__(self, link: str) -> None:
        self.link = link
        self.seen = time.monotonic()
        self.delivering = threading.Lock()
        self.batch = 0
        self.refused: list[int] = []
        self.undone: list[tuple[Any, ...]] = []  # what came besides messages, and is left to do
        self.watched: set[str] = set()
        self.undo: list[Callable[[], object]] = []  # ends of the watches of devices
        self._lock = threading.RLock()  # and not that of the condition: see `Link.lock`
        self._change = threading.Condition(self._lock)
        self._reports: deque[tuple[int, str, Any, Packed | None]] = deque()
        self._last = 0
        self._answered: set[int] = set()  # asks of batches that linger
        self._lingering = 0
        self._closed = False
        self._results: OrderedDict[int, Future[tuple[bool, bytes, Any]]] = OrderedDict()

    def report(self, kind: str, name: Any, packed: Packed | None) -> None:
        """Add a report: an answer, or the end of an actor."""
        with self._lock:
            if self._closed:
                return
            self._last += 1
            self._reports.append((self._last, kind, name, packed))
            if kind in ("answered", "failed"):
                self._answered.add(name)
            self._change.notify_all()

    def linger(self, asked: set[int], acked: int, seconds: float) -> list[Any]:
        """Wait briefly for the answers to some asks; return the reports after number `acked`."""
        with self._lock:
            if asked:
                self._lingering += 1
                try:
                    self._change.wait_for(lambda: asked <= self._answered or self._closed, seconds)
                finally:
                    self._lingering -= 1
                    self._change.notify_all()
            if not self._lingering:
                self._answered.clear()
            return self._after(acked)

    def collect(self, acked: int, seconds: float) -> list[Any]:
        """Wait for reports; return those after number `acked`."""
        with self._lock:
            self._change.wait_for(lambda: self._closed or (self._last > acked and not self._lingering), seconds)
            return self._after(acked)

    def _after(self, acked: int) -> list[Any]:
        while self._reports and self._reports[0][0] <= acked:
            self._reports.popleft()  # and with it the holds of its arrays
        return [(n, kind, name, None if packed is None else packed.data) for n, kind, name, packed in self._reports]

    def outcome(self, number: int) -> tuple[Future[tuple[bool, bytes, Any]], bool]:
        """Return the result of an operation, and whether this call is to run it."""
        with self._lock:
            found = self._results.get(number)
            if found is not None:
                return found, False
            made: Future[tuple[bool, bytes, Any]] = Future()
            self._results[number] = made
            while len(self._results) > _RESULTS and next(iter(self._results.values())).done():
                self._results.popitem(last=False)
            return made, True

    def close(self) -> None:
        """End the waits."""
        with self._lock:
            self._closed = True
            self._reports.clear()
            undo, self.undo = self.undo, []
            self._change.notify_all()
        for each in undo:
            each()
