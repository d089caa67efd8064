"""Who is told of messages: nobody by default, and then no code here runs.

The native part holds one callback, or None, which it compares before each send.  What an observer returns for a
message travels with it as its mark, so that an actor looks at its message only, never at who observes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .._lib import actor_cell, sender

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..plan import Plan
    from ..reply import Reply

__all__ = ["Mark", "Observer", "add", "remove", "when_resolved"]

_log = logging.getLogger("atomr_native.observe")
_lock = threading.Lock()
_observers: tuple[Observer, ...] = ()


class Mark(Protocol):
    """What an observer keeps of one message."""

    def begin(self, cell: Cell) -> None:
        """Note that the handler is about to be called, in this thread."""

    def leave(self) -> None:
        """Note that the handler has returned or is suspended, in the same thread."""

    def end(self, failed: bool) -> None:
        """Note that the message is handled."""


class Observer(Protocol):
    """Who is told of messages, in the sender's thread."""

    def sent(self, cell: Cell, envelope: Any) -> Mark | None:
        """Note a message to an actor that is about to be put into its mailbox; None: of no interest."""

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        """Note a message to a device; without `reply`, it was told."""


class _Marks:
    """The marks of one message, of which none may harm it."""

    __slots__ = ("_marks",)

    def __init__(self, marks: list[Mark]) -> None:
        self._marks = marks

    def begin(self, cell: Cell) -> None:
        for mark in self._marks:
            _guard(mark.begin, cell)

    def leave(self) -> None:
        for mark in reversed(self._marks):
            _guard(mark.leave)

    def end(self, failed: bool) -> None:
        for mark in self._marks:
            _guard(mark.end, failed)

    def of(self, kind: type[Any], owner: object) -> Any:
        """Return the mark of a kind that an observer has made, or None."""
        return next((m for m in self._marks if isinstance(m, kind) and getattr(m, "owner", None) is owner), None)


def _guard(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception:
        _log.exception("an observer of messages failed")
        return None


def _sent(cell: Any, envelope: Any) -> _Marks | None:
    marks = [mark for each in _observers if (mark := _guard(each.sent, cell, envelope)) is not None]
    return _Marks(marks) if marks else None


def _sent_to_device(plan: Any, reply: Any, ticket: int) -> None:
    for each in _observers:
        _guard(each.sent_to_device, plan, reply, ticket)


def add(observer: Observer) -> None:
    """Have an observer told from now on."""
    global _observers
    with _lock:
        _observers = (*_observers, observer)
        actor_cell.observe(_sent)
        sender.observe(_sent_to_device)


def remove(observer: Observer) -> None:
    """Have it told no more; of messages that it has marked it still is."""
    global _observers
    with _lock:
        _observers = tuple(each for each in _observers if each is not observer)
        if not _observers:
            actor_cell.observe(None)
            sender.observe(None)


class _Ticket:
    """A message to a device by its number: unlike the reply, it is not one who waits for it."""

    def __init__(self, core: Any, lane: int, ticket: int) -> None:
        self.core, self.lane, self.ticket = core, lane, ticket

    def done(self) -> bool:
        return bool(self.core.resolved(self.lane, self.ticket))


def when_resolved(plan: Plan, ticket: int, action: Callable[[], object]) -> None:
    """Call back, once, when a message to a device is resolved; in the device's own thread, or at once."""
    waiting = _Ticket(plan.core, plan.lane, ticket)
    plan.device._wakers.call_when_done(waiting, lambda _: _guard(action))
