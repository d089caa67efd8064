"""Observers of messages.  By default there are none, and no code of this module runs.

The native part holds one callback, or None, which it compares before each send.  An observer's result for a message
travels with it as its mark, so an actor inspects only its message, never the observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .._lib import actor_cell, sender
from .._lib.guard import Lock

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..plans.plan import Plan
    from ..plans.reply import Reply

__all__ = ["Mark", "Observer", "add", "remove", "when_resolved"]

_log = logging.getLogger("atomr_native.observe")
_lock = Lock()
_observers: tuple[Observer, ...] = ()


class Mark(Protocol):
    """An observer's record of one message."""

    def begin(self, cell: Cell) -> None:
        """Record that the handler is about to be called, in this thread."""

    def leave(self) -> None:
        """Record that the handler has returned or is suspended, in the same thread."""

    def end(self, failed: bool) -> None:
        """Record that the message is handled."""


class Observer(Protocol):
    """An observer of messages, called in the sender's thread."""

    def sent(self, cell: Cell, envelope: Any) -> Mark | None:
        """Record a message that is about to enter an actor's mailbox; return its mark, or None to ignore it."""

    def sent_to_device(self, plan: Plan, reply: Reply | None, ticket: int) -> None:
        """Record a message to a device; without `reply`, it was told."""


class _Marks:
    """The marks of one message; their exceptions do not affect it."""

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
        """Return the mark of a kind made by an observer, or None."""
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
    """Add an observer."""
    global _observers
    with _lock:
        _observers = (*_observers, observer)
        actor_cell.observe(_sent)
        sender.observe(_sent_to_device)


def remove(observer: Observer) -> None:
    """Remove an observer; its marks on earlier messages are still called."""
    global _observers
    with _lock:
        _observers = tuple(each for each in _observers if each is not observer)
        if not _observers:
            actor_cell.observe(None)
            sender.observe(None)


class _Ticket:
    """A message to a device by its number; unlike a reply, it does not count as a waiting caller."""

    def __init__(self, core: Any, lane: int, ticket: int) -> None:
        self.core, self.lane, self.ticket = core, lane, ticket

    def done(self) -> bool:
        return bool(self.core.resolved(self.lane, self.ticket))


def when_resolved(plan: Plan, ticket: int, action: Callable[[], object]) -> None:
    """Call back once when a message to a device is resolved, in the device's callback thread, or at once."""
    waiting = _Ticket(plan.core, plan.lane, ticket)
    plan.core.owner.wakers.call_when_done(waiting, lambda _: _guard(action))
