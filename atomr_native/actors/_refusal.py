"""Handling of messages that a mailbox refuses."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import LATE, NO_ROOM, PUT, CellBase, Envelope, current_cell
from ..errors import ActorStopped, AtomrError, MailboxFull

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from .mailbox import Mailbox
    from .tree import ActorTree

__all__ = ["Refusal"]


class Refusal(CellBase):
    """The part of a cell that runs in the sender's thread when a message is not accepted at once."""

    tree: ActorTree
    path: str
    mailbox: Mailbox
    rooms: deque[Callable[[], object]]
    stopped_error: Callable[[], ActorStopped]

    def refused(self, envelope: Envelope, result: int) -> bool:
        if result == NO_ROOM and self.mailbox.overflow == "block" and _may_wait():
            result = self._insist(envelope)
        return result == PUT or self.give_up(envelope, self.refusal(result))

    def _insist(self, envelope: Envelope) -> int:
        """Wait for room; return the result of the last attempt."""
        limit = self.tree.timeout
        end = None if limit is None else time.monotonic() + limit
        while True:
            result = self.enqueue(envelope)
            if result != NO_ROOM:
                return result
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                return result
            if self.stepper is not None:
                if not self.stepper.step():  # no thread will make room
                    return result
            else:
                self._await_room(left)

    def refusal(self, result: int) -> AtomrError:
        if result != NO_ROOM:
            return self.stopped_error()
        wait = ""
        if self.mailbox.overflow == "block" and _may_wait() and self.tree.timeout:
            wait = f", and had no room within {self.tree.timeout:g} s"
        what = f"the mailbox of actor {self.path} is full ({self.capacity} messages)"
        return MailboxFull(f"{what}{wait}; nothing was sent", self.path, self.capacity)

    def give_up(self, envelope: Envelope, error: AtomrError) -> bool:
        if envelope.answer is not None:
            envelope.answer.fail(error)
        elif isinstance(error, MailboxFull) and current_cell() is None:
            raise error
        else:
            self.tree.dead_letter(self.path, envelope, error)
        return False

    def _evicted(self, envelope: Envelope) -> None:
        if envelope.kind:  # messages of timers and deaths must be delivered, even if a stop was requested meanwhile
            self.enqueue(envelope, LATE)
            return
        error: Any = MailboxFull(
            f"the mailbox of actor {self.path} is full ({self.capacity} messages), and this was its oldest",
            self.path, self.capacity,
        )  # fmt: skip
        if envelope.answer is not None:
            envelope.answer.fail(error)
        else:
            self.tree.dead_letter(self.path, envelope, error)

    def shut(self, system: bool) -> None:
        super().shut(system)
        self._room()  # there will be no room: waiting coroutines try again, and get the reason, as threads do

    def _room(self) -> None:
        for _ in range(len(self.rooms)):
            try:
                self.rooms.popleft()()
            except IndexError:
                return


def _may_wait() -> bool:
    """Whether this thread may wait for room: it belongs to no actor, and runs no event loop."""
    return current_cell() is None and asyncio._get_running_loop() is None
