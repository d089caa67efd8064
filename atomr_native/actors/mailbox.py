"""Capacity of an actor's mailbox, and its policy when full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._support.checks import check_choice, is_integer
from .._support.public import public
from ..errors import InvalidRequest

__all__ = ["Mailbox"]

_OVERFLOWS = ("block", "reject", "drop_oldest")
_MAX_CAPACITY = 1 << 30


@public
@dataclass(frozen=True, slots=True)
class Mailbox:
    """The mailbox of an actor, for `spawn`.

    System messages (supervision, stop, death watch) have a separate, unbounded queue, and overtake others.

    Parameters
    ----------
    capacity : int or None
        Maximum number of messages; None for no limit.
    overflow : {"block", "reject", "drop_oldest"}
        Policy when it is full: the sender waits for room up to the System's timeout, gets `MailboxFull` at once, or
        displaces the oldest message, which becomes a dead letter.  Actors never wait: an actor's message to a full
        mailbox that blocks or rejects becomes a dead letter, and `tell` returns False.
    """

    capacity: int | None = 1024
    overflow: Literal["block", "reject", "drop_oldest"] = "block"

    def __post_init__(self) -> None:
        size = self.capacity
        if size is not None and not (is_integer(size) and 1 <= size <= _MAX_CAPACITY):
            raise InvalidRequest(f"capacity={size!r}; it must be an integer from 1 to {_MAX_CAPACITY}, or None")
        check_choice("overflow", self.overflow, _OVERFLOWS)
