"""Waiting for large copies, whose end can be predicted.

A wake-up takes a tenth of a millisecond on many machines, a tenth of the time in which 64 MiB cross the bus.  So a
thread that waits for a copy sleeps until shortly before the predicted end, and then spins.  The lane is woken then,
too, since the waiting thread is likely to send its next message at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .._lib.sender import Core

if TYPE_CHECKING:
    from ..plans.reply import Reply

__all__ = ["Pace"]

_EARLY = 2e-4  # seconds before the predicted end at which spinning begins
_LATE = 0.2  # fraction of the predicted time for which spinning continues after it
_FORGET = 0.99  # factor on the best rate with each copy, since old rates may be out of date


class Pace:
    """The rate of copies in one direction.

    Parameters
    ----------
    core
        The device's native part.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._best = 0.0  # bytes a second

    def wait(self, reply: Reply, nbytes: int, began: float, timeout: float | None) -> bool:
        """Wait for a copy that was sent no earlier than `began`; return False when `timeout` seconds pass first."""
        end = None if timeout is None else time.monotonic() + timeout
        if self._best:
            foreseen = nbytes / self._best
            self._until(reply, began + foreseen - _EARLY, end, spin=None)
            if not reply.done() and (end is None or time.monotonic() < end):
                self._core.rouse(reply.lane, began + foreseen + _EARLY)
            self._until(reply, began + foreseen * (1 + _LATE) + _EARLY, end, spin=foreseen * _LATE + 2 * _EARLY)
        if not reply.wait(None if end is None else max(0.0, end - time.monotonic())):
            return False
        self._best = max(self._best * _FORGET, nbytes / (time.monotonic() - began))
        return True

    def _until(self, reply: Reply, until: float, end: float | None, spin: float | None) -> None:
        left = (until if end is None else min(until, end)) - time.monotonic()
        if left > 0:
            self._core.wait_ticket(reply.lane, reply.ticket, left, spin)
