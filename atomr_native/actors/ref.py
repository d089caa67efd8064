"""Addresses of actors."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import NO_ROOM, PUT, Envelope, RefBase, current_cell
from ..errors import InvalidRequest, MailboxFull
from ._loops import mailer_of
from .answer import Answer

if TYPE_CHECKING:
    from ..system import System
    from .cell import Cell

__all__ = ["ActorRef"]


class ActorRef(RefBase):
    """The address of an actor; made by `spawn`.  It stays the same when the actor restarts.

    References are equal when they name the same actor: one that took over the name of a stopped one is another.
    A pickled reference is a name that resolves in its own System.
    """

    __slots__ = ()
    cell: Cell

    def __init__(self) -> None:
        raise TypeError("an ActorRef is made by spawning: system.spawn(...)")

    @classmethod
    def _to(cls, cell: Cell) -> ActorRef:
        made = cls.__new__(cls)
        made.cell = cell
        return made

    @property
    def name(self) -> str:
        """Its name, unique among the actors of its parent."""
        return self.cell.name

    @property
    def path(self) -> str:
        """The names from the top, such as ``"/trainer/worker"``."""
        return self.cell.path

    @property
    def system(self) -> System:
        """Whose actor it is."""
        return self.cell.tree.system

    @property
    def stopped(self) -> bool:
        """Whether it has stopped for good."""
        return self.cell.state == "stopped"

    @property
    def started(self) -> Answer:
        """Resolved when it has been constructed and `pre_start` is done; fails if it stops before."""
        return self.cell.begun

    def ask(self, message: object, timeout: float | None = None, *, sender: ActorRef | None = None) -> Answer:
        """Send a message that is to be answered.  Enqueues, and waits for room as `tell` does.

        Parameters
        ----------
        message : object
            Anything; it should not be changed afterwards.
        timeout : float, optional
            Seconds from now that `result` and ``await`` of the answer wait at most.
        sender : ActorRef, optional
            As for `tell`.

        Returns
        -------
        Answer
            It fails with `ActorStopped` if the actor stops first, which is at once if it has stopped already, with
            `MailboxFull` if there is no room, or with what the actor raised.
        """
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
            raise InvalidRequest(f"timeout={timeout!r}; it must be a number of seconds, or None")
        answer: Answer = self._ask(Answer, message, timeout, sender)
        return answer

    def try_tell(self, message: object) -> bool:
        """Send if the mailbox has room now; else return False, and the message is the caller's again."""
        cell = self.cell
        return cell._put(Envelope(message, _sender())) == PUT

    async def tell_async(self, message: object) -> bool:
        """Like `tell`, and where the mailbox is full, await room without blocking the event loop.

        Raises
        ------
        MailboxFull
            When a full mailbox rejects, or has had no room within the System's timeout.
        """
        cell = self.cell
        envelope = Envelope(message, _sender())
        return await self._put_async(cell, envelope)

    async def ask_async(self, message: object, timeout: float | None = None) -> Any:
        """Await room in the mailbox, then the answer; returns its value."""
        answer = Answer._open("")
        answer.cell = self.cell
        if timeout is not None:
            answer.deadline = time.monotonic() + timeout
        await self._put_async(self.cell, Envelope(message, _sender(), answer))
        return await answer

    async def _put_async(self, cell: Cell, envelope: Envelope) -> bool:
        limit = cell.tree.timeout
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            result = cell._put(envelope)
            if result != NO_ROOM or cell.mailbox.overflow != "block":
                break
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            mailer = mailer_of(loop)
            cell.rooms.append(functools.partial(mailer.settle, future))
            cell._want_room()
            result = cell._put(envelope)  # there may have been room just before the wish was known
            if result != NO_ROOM:
                break
            left = None if deadline is None else deadline - time.monotonic()
            try:
                await asyncio.wait_for(future, left)
            except TimeoutError:
                break
        if result == PUT:
            return True
        error = cell._refusal(result)
        if envelope.answer is None and isinstance(error, MailboxFull):
            raise error
        return cell._give_up(envelope, error)

    def stop(self) -> None:
        """Stop it when the messages that are in its mailbox now are done; takes none from here on.  Does not wait."""
        self.cell.stop(drain=True)

    def kill(self) -> None:
        """Stop it after the message at work; those in its mailbox become dead letters at once.  Does not wait.

        A coroutine that is at work is cancelled.  A thread that is at work cannot be, and comes to its end by itself.
        """
        self.cell.stop(drain=False)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped for good; False when `timeout` (seconds) is over."""
        return self.cell.ended.wait(timeout)

    async def join_async(self) -> None:
        """Wait until it has stopped for good, without blocking the running event loop."""
        await self.cell.ended.settled()

    def stats(self) -> dict[str, Any]:
        """Return its counters: messages processed and failed, restarts, messages waiting, state."""
        return self.cell.stats()

    def __reduce__(self) -> tuple[Any, ...]:
        return _resolve, (self.system.token, self.path, self.cell.uid)

    def __copy__(self) -> ActorRef:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ActorRef:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and other.cell is self.cell

    def __hash__(self) -> int:
        return hash(self.cell)

    def __repr__(self) -> str:
        return f"<ActorRef {self.path!r}{', stopped' if self.stopped else ''}>"


def _sender() -> ActorRef | None:
    cell = current_cell()
    return None if cell is None else cell.ref


def _resolve(token: str, path: str, uid: int) -> ActorRef:
    from ..system import find_system

    system = find_system(token)
    ref = None if system is None else system.find(path)
    if ref is None or ref.cell.uid != uid:
        raise InvalidRequest(
            f"the reference to actor {path!r} does not resolve here: it has stopped, or belongs to another System"
        )
    return ref
