"""Deadlines for the work of a worker: off by default, the user's choice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._lib.guard import Promise
from ..errors import AtomrError

if TYPE_CHECKING:
    from .._lib.sender import Core
    from ..protocol.messages import Answer
    from .placement import Worker

__all__ = ["Watchdog"]

_QUIET = 5.0  # seconds that a control thread may always take to answer
_QUIET_BUSY = 60.0  # the same, while it reports a long operation


class Watchdog:
    """Finds a message that runs too long, and a worker that does not answer.

    Time counts for the message at the head of each mailbox, from the moment at which nothing is left that it waits for;
    on a GPU it is enqueued long before.  A message of several ranks waits until all of them have come to it.  The clock
    pauses while the worker does control work (building plans, mapping memory), and while a debugger holds it.

    Parameters
    ----------
    name
        The device's name, for messages.
    core
        Its native part.
    limit
        Seconds that one message may run.
    """

    def __init__(self, name: str, core: Core, limit: float) -> None:
        self._name = name
        self._core = core
        self._limit = limit
        core.watch()
        self.reset()

    @property
    def tick(self) -> float:
        """Seconds from one `check` to the next."""
        return max(0.005, min(1.0, self._limit / 4))

    def reset(self) -> None:
        """Reset all state for a new worker."""
        self._last = time.monotonic()
        self._running: dict[int, tuple[int, float]] = {}
        self._asking = False  # whether it has been asked, or could not be asked, whether it answers
        self._ping: Promise[Answer] | None = None
        self._quiet = 0.0
        self.culprit: tuple[int, int] | None = None

    def check(self, worker: Worker) -> str | None:
        """Check the worker; return the reason to end it, or None.  Never waits.

        Calls within half a `tick` of the last check do nothing: each check asks the worker whether it answers, and its
        answer wakes the caller.  `culprit` is the lane and ticket of the message that is the reason, if it is one.
        """
        now = time.monotonic()
        passed = now - self._last
        if passed < self.tick / 2:
            return None
        self._last = now
        if _is_traced(worker.pid):
            return None
        busy = bool(self._core.control_busy)
        for lane, name in list(self._core.lane_names.items()):
            stats = self._core.lane_stats(lane)
            head = stats["completed"] + 1
            ticket, ran = self._running.get(lane, (0, 0.0))
            if stats["claimed"] < head:
                self._running.pop(lane, None)
            elif ticket != head or _awaits_ranks(stats, head) or self._waits(lane, head):
                self._running[lane] = (head, 0.0)
            elif not busy:
                self._running[lane] = (head, ran + passed)
                if ran + passed > self._limit:
                    self.culprit = (lane, head)
                    return f"message {head} of {name!r} ran for more than {self._limit:g} s"
        return self._check_control(worker, passed, max(self._limit, _QUIET_BUSY if busy else _QUIET))

    def _waits(self, lane: int, ticket: int) -> bool:
        """Whether a message waits for messages of other lanes."""
        core = self._core
        return any(core.lane_stats(other)["completed"] < last for other, last in core.dependencies(lane, ticket))

    def _check_control(self, worker: Worker, passed: float, limit: float) -> str | None:
        if not self._asking or (self._ping is not None and self._ping.done()):
            self._asking, self._ping, self._quiet = True, None, 0.0
        else:
            self._quiet += passed
        if self._ping is None:
            with contextlib.suppress(AtomrError):  # its socket is full: it does not read
                self._ping = worker.client.submit("stats", timeout=0.0)
        return f"it did not answer for more than {limit:g} s" if self._quiet > limit else None


def _awaits_ranks(stats: Mapping[str, int], head: int) -> bool:
    """Whether the message at the head waits for other ranks; one that the lane has launched does not."""
    return not stats["started_ns"] and stats["claimed"] == head


def _is_traced(pid: int | None) -> bool:
    """Whether a debugger holds the process; deadlines pause then."""
    if pid is None:
        return False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("TracerPid:"):
                return line.split()[1] != "0"
    return False
