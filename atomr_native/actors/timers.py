"""Timers of one actor: delayed messages to itself."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._lib.actor_cell import BEYOND, Envelope
from ..errors import ActorStopped, InvalidRequest
from ._envelopes import TIMER

if TYPE_CHECKING:
    from .cell import Cell
    from .clock import Scheduled

__all__ = ["Timers"]


@dataclass(eq=False, slots=True)
class _Timer:
    key: Hashable
    message: object
    interval: float | None
    when: float
    scheduled: Scheduled | None = None
    queued: bool = False  # its message is waiting in the mailbox


class Timers:
    """Sends messages to the actor itself, once or periodically; `Context.timers`.

    A timer has a key; starting another under the same key replaces it.  All are cancelled when the actor restarts or
    stops.  A cancelled or replaced timer delivers nothing more, not even messages that are already in the mailbox.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._timers: dict[Hashable, _Timer] = {}
        self._anonymous = itertools.count()

    def start_once(self, delay: float, message: object, *, key: Hashable = None) -> Hashable:
        """Send a message after `delay` seconds; return its key, which is generated if none is given."""
        return self._start(key, message, None, _seconds("delay", delay))

    def start_periodic(
        self, interval: float, message: object, *, key: Hashable = None, first: float | None = None
    ) -> Hashable:
        """Send a message every `interval` seconds, beginning after `first` seconds, by default the interval.

        Returns its key.  A tick is skipped while the previous one is in the mailbox.
        """
        interval = _seconds("interval", interval)
        if interval <= 0:
            raise InvalidRequest(f"interval={interval!r}; it must be above 0")
        return self._start(key, message, interval, interval if first is None else _seconds("first", first))

    def _start(self, key: Hashable, message: object, interval: float | None, delay: float) -> Hashable:
        cell = self._cell.own("timers")
        if cell.state in ("stopping", "stopped"):
            raise ActorStopped(f"actor {cell.path} is stopping; it starts no timers")
        if key is None:
            key = ("timer", next(self._anonymous))
        self.cancel(key)
        timer = _Timer(key, message, interval, cell.tree.clock.now() + delay)
        self._timers[key] = timer
        timer.scheduled = cell.tree.clock.call_at(timer.when, lambda: self._fire(timer))
        return key

    def cancel(self, key: Hashable) -> bool:
        """Cancel a timer; return False if there is none with this key."""
        timer = self._timers.pop(key, None)
        if timer is not None and timer.scheduled is not None:
            timer.scheduled.cancel()
        return timer is not None

    def cancel_all(self) -> None:
        """Cancel all."""
        for key in list(self._timers):
            self.cancel(key)

    def is_active(self, key: Hashable) -> bool:
        """Whether a timer has further messages to send, or an undelivered one."""
        return key in self._timers

    def _fire(self, timer: _Timer) -> None:
        """Send the message; runs in the clock's thread."""
        if timer.interval is not None and self._timers.get(timer.key) is timer:
            clock = self._cell.tree.clock
            timer.when = max(timer.when + timer.interval, clock.now())
            timer.scheduled = clock.call_at(timer.when, lambda: self._fire(timer))
            if self._timers.get(timer.key) is not timer:  # cancelled meanwhile
                timer.scheduled.cancel()
        if not timer.queued:
            timer.queued = True
            self._cell.enqueue(Envelope(timer.message, self._cell.ref, None, TIMER, timer), BEYOND)

    def admit(self, timer: _Timer) -> bool:
        """Whether a timer's message is still to be delivered."""
        if self._timers.get(timer.key) is not timer:
            return False
        timer.queued = False
        if timer.interval is None:
            del self._timers[timer.key]
        return True


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise InvalidRequest(f"{name}={value!r}; it must be seconds from 0 to 1e9")
    return float(value)
