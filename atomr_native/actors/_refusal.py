"""What becomes of messages that a mailbox does not take."""

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
    """The half of a cell that runs in the sender's thread, when a message was not taken at once."""

    tree: ActorTree
    path: str
    mailbox: Mailbox
    rooms: deque[Callable[[], object]]
    stopped_error: Callable[[], ActorStopped]

    def _refused(self, envelope: Envelope, result: int) -> bool:
        if result == NO_ROOM and self.mailbox.overflow == "block" and _may_wait():
            result = self._insist(envelope)
        return result == PUT or self._give_up(envelope, self._refusal(result))

    def _insist(self, envelope: Envelope) -> int:
        """Wait for room; returns how the last try ended."""
        limit = self.tree.timeout
        end = None if limit is None else time.monotonic() + limit
        while True:
            result = self._put(envelope)
            if result != NO_ROOM:
                return result
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                return result
            if self.stepper is not None:
                if not self.stepper.step():  # nobody will make room
                    return result
            else:
                self._await_room(left)

    def _refusal(self, result: int) -> AtomrError:
        if result != NO_ROOM:
            return self.stopped_error()
        wait = ""
        if self.mailbox.overflow == "block" and _may_wait() and self.tree.timeout:
            wait = f", and had no room within {self.tree.timeout:g} s"
        what = f"the mailbox of actor {self.path} is full ({self.capacity} messages)"
        return MailboxFull(f"{what}{wait}; nothing was sent", self.path, self.capacity)

    def _give_up(self, envelope: Envelope, error: AtomrError) -> bool:
        if envelope.answer is not None:
            envelope.answer.fail(error)
        elif isinstance(error, MailboxFull) and current_cell() is None:
            raise error
        else:
            self.tree.dead_letter(self.path, envelope, error)
        return False

    def _evicted(self, envelope: Envelope) -> None:
        if envelope.kind:  # a timer's or a death's message must come, also if a stop was asked for meanwhile
            self._put(envelope, LATE)
            return
        error: Any = MailboxFull(
            f"the mailbox of actor {self.path} is full ({self.capacity} messages), and this was its oldest",
            self.path, self.capacity,
        )  # fmt: skip
        if envelope.answer is not None:
            envelope.answer.fail(error)
        else:
            self.tree.dead_letter(self.path, envelope, error)

    def _shut(self, system: bool) -> None:
        super()._shut(system)
        self._room()  # there will be none: coroutines that wait for it try again, and learn why, as threads do

    def _room(self) -> None:
        for _ in range(len(self.rooms)):
            try:
                self.rooms.popleft()()
            except IndexError:
                return


def _may_wait() -> bool:
    """Whether this thread may wait for room: it is no actor's, and runs no event loop."""
    return current_cell() is None and asyncio._get_running_loop() is None
