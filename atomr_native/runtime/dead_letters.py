"""Messages that failed, or were not delivered, without a holder of their reply."""

from __future__ import annotations

import contextlib
import logging
import reprlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from .._lib.guard import Lock, shielded_service
from .._support.log_events import log_fields
from .._support.public import public
from ..errors import AtomrError, DependencyFailed, DeviceFault, GpuRefStale, InvalidRequest

__all__ = ["DeadLetter", "DeadLetters"]

_log = logging.getLogger("atomr_native.dead_letters")


@public
@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed, or was not delivered, without a holder of its reply.

    Attributes
    ----------
    device, ticket
        Those of a message to a device; ``""`` and 0 for a message to a Python actor.
    actor : str
        The receiving actor; for a Python actor its path, such as ``"/trainer"``.
    error : AtomrError
        The cause.
    text : str
        A short description of a message to a Python actor.
    sender : str or None
        The path of the sending actor.
    message : object
        The message itself, for subscribers only; stored letters keep no message alive.
    """

    device: str
    actor: str
    ticket: int
    error: AtomrError
    text: str = ""
    sender: str | None = None
    message: object = None


@dataclass
class DeadLetters:
    """The last failures without a waiting caller, oldest first; `total` counts all."""

    total: int = 0
    _letters: deque[DeadLetter] = field(default_factory=lambda: deque(maxlen=10_000))
    _lock: Lock = field(default_factory=Lock)
    _subscribers: list[Callable[[DeadLetter], object]] = field(default_factory=list)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._letters.copy()))

    def __len__(self) -> int:
        return len(self._letters)

    @shielded_service
    def add(self, letter: DeadLetter) -> int:
        """Store a letter and pass it to the subscribers; return the number of letters so far."""
        with self._lock:
            self._letters.append(letter if letter.message is None else replace(letter, message=None))
            self.total += 1
            total, subscribers = self.total, tuple(self._subscribers)
        for subscriber in subscribers:
            try:
                subscriber(letter)
            except Exception:
                _log.exception("a subscriber of dead letters failed")
        return total

    @shielded_service
    def subscribe(self, subscriber: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Call a function with each letter; return a function that ends the subscription.

        The function runs in the thread in which the message failed, so it must be short.  To notify an actor, pass
        ``ref.try_tell``: a full mailbox then drops letters instead of blocking.
        """
        if not callable(subscriber):
            raise InvalidRequest(f"subscriber {subscriber!r} is not callable; it is called with each DeadLetter")
        with self._lock:
            self._subscribers.append(subscriber)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(subscriber)

        return end

    def clear(self) -> None:
        """Drop the stored letters; the count continues."""
        self._letters.clear()

    def of_device(self, device: str, actor: str, ticket: int, error: AtomrError) -> tuple[DeadLetter, int]:
        """Store the letter of a message to a device; return it, and the number of letters so far, for `report`."""
        letter = DeadLetter(device, actor, ticket, error)
        return letter, self.add(letter)

    @staticmethod
    def report(letter: DeadLetter, total: int) -> None:
        """Log the letter of a message to a device; for those of a death, the supervisor's line is enough."""
        if total <= 10 or total & (total - 1) == 0:  # a flood is logged at powers of two
            _log.log(logging.DEBUG if _is_of_a_death(letter.error) else logging.WARNING,
                     "message %d of %r on %s failed, and its reply was dropped: %s (%d such)",
                     letter.ticket, letter.actor, letter.device, letter.error, total,
                     extra=log_fields("dead_letter", actor=letter.actor, device=letter.device,
                                      cause=letter.error))  # fmt: skip

    def of_actor(self, actor: str, message: object, sender: str | None, error: AtomrError) -> None:
        """Store the letter of a message to a Python actor, and log it."""
        letter = DeadLetter("", actor, 0, error, _describe(message), sender, message)
        total = self.add(letter)
        if total <= 10 or total & (total - 1) == 0:
            _log.warning("dead letter for %s from %s: %s (%d such): %s", actor, sender or "outside", letter.text, total,
                         error, extra=log_fields("dead_letter", actor=actor, cause=error))  # fmt: skip

    def abandon(self) -> None:
        """In a forked child: replace the lock, which a vanished thread may hold."""
        self._lock = Lock(leaf=True)


def _is_of_a_death(error: BaseException) -> bool:
    """Whether a message of a device failed since a worker died: while it ran, in the queue, or by an operand."""
    while isinstance(error, DependencyFailed):
        error = error.cause
    return isinstance(error, DeviceFault | GpuRefStale)


def _describe(message: object) -> str:
    try:
        return reprlib.repr(message)
    except Exception:
        return f"<{type(message).__name__}>"
