"""How much an actor's mailbox holds, and what happens when it is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._checks import check_choice, is_integer
from ..errors import InvalidRequest

__all__ = ["Mailbox"]

_OVERFLOWS = ("block", "reject", "drop_oldest")
_MAX_CAPACITY = 1 << 30


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The mailbox of an actor, for `spawn`.

    System messages (supervision, stop, death watch) have a queue of their own without a bound, and overtake.

    Parameters
    ----------
    capacity : int or None
        Messages that it holds; None for any number.
    overflow : {"block", "reject", "drop_oldest"}
        What a sender meets when it is full: wait for room up to the System's timeout, `MailboxFull` at once, or
        room at the expense of the oldest message, which becomes a dead letter. Actors never wait: when an actor
        sends to a full mailbox that would block or reject, its message becomes a dead letter, and `tell` returns
        False.
    """

    capacity: int | None = 1024
    overflow: Literal["block", "reject", "drop_oldest"] = "block"

    def __post_init__(self) -> None:
        size = self.capacity
        if size is not None and not (is_integer(size) and 1 <= size <= _MAX_CAPACITY):
            raise InvalidRequest(f"capacity={size!r}; it must be an integer from 1 to {_MAX_CAPACITY}, or None")
        check_choice("overflow", self.overflow, _OVERFLOWS)
