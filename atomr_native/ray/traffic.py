"""Which of a process's messages over nodes are at work: collectives, or a transfer between two GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Traffic"]


class Traffic:
    """Lets collectives run beside each other, and a transfer alone.

    A GPU runs all of them one after the other.  So a transfer that has begun in both of its processes waits for nothing
    that waits for it: what came before has ended, and what comes later follows in both.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # and not that of the condition: see `Link.lock`
        self._change = threading.Condition(self._lock)
        self._collectives = 0
        self._transfer = False

    @contextmanager
    def collective(self) -> Iterator[None]:
        """Run one rank's part of a collective.  Waits while there is a transfer."""
        with self._lock:
            while self._transfer:
                self._change.wait()
            self._collectives += 1
        try:
            yield
        finally:
            with self._lock:
                self._collectives -= 1
                self._change.notify_all()

    def begin(self, seconds: float) -> bool:
        """Begin a transfer when nothing else is at work; return False if that is not so within `seconds`."""
        with self._lock:
            if not self._change.wait_for(lambda: not self._transfer and not self._collectives, seconds):
                return False
            self._transfer = True
            return True

    def end(self) -> None:
        """End the transfer."""
        with self._lock:
            self._transfer = False
            self._change.notify_all()
