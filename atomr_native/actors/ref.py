"""Addresses of actors."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import NO_ROOM, PUT, Envelope, RefBase, current_cell
from .._support.public import public
from .._support.registry import find_system
from .._support.timeouts import seconds_of
from ..errors import AtomrError, InvalidRequest, MailboxFull
from ..plans.retry import as_retries, caught_by_restart
from ._loops import mailer_of
from ._retry import deadline_after, deliver_to, pass_on, send_until
from .answer import Answer, open_answer

if TYPE_CHECKING:
    from ..system import System
    from .cell import Cell

__all__ = ["ActorRef"]


@public
class ActorRef(RefBase):
    """The address of an actor; made by `spawn`.  It stays valid when the actor restarts.

    References are equal if they name the same actor; a new actor with the name of a stopped one is different.  A
    pickled reference is a name that resolves in its own System.
    """

    __slots__ = ()
    cell: Cell

    def __init__(self) -> None:
        raise TypeError("an ActorRef is created by system.spawn(...)")

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
        """The actor's System."""
        return self.cell.tree.system

    @property
    def stopped(self) -> bool:
        """Whether it has stopped for good."""
        return self.cell.state == "stopped"

    @property
    def started(self) -> Answer:
        """Resolved when it has been constructed and `pre_start` is done; fails if it stops before."""
        return self.cell.begun

    def ask(
        self, message: object, timeout: float | None = None, *, sender: ActorRef | None = None, retry: int = 0
    ) -> Answer:
        """Send a message, and return its answer.  Enqueues, and waits for room as `tell` does.

        Parameters
        ----------
        message : object
            Any object; do not modify it afterwards.
        timeout : float, optional
            Maximum seconds from now that `result` and ``await`` of the answer wait.
        sender : ActorRef, optional
            As for `tell`.
        retry : int
            How often the message is sent again when it has failed since a device restarted (`DeviceFault`, or a handle
            that is stale by the restart).  By default 0: an actor gets it once.  The actor sees the same message each
            time, so its handler must be repeatable, and should put data of the message anew.

        Returns
        -------
        Answer
            It fails with `ActorStopped` if the actor stops first or has already stopped, with `MailboxFull` if there is
            no room, or with the actor's exception.
        """
        if timeout is not None:
            timeout = seconds_of(timeout)
        if retry:
            return self._ask_again(message, timeout, _sender() if sender is None else sender, as_retries(retry))
        answer: Answer = self._ask(Answer, message, timeout, sender)
        return answer

    def _ask_again(self, message: object, timeout: float | None, sender: ActorRef | None, retries: int) -> Answer:
        answer = open_answer("")
        answer.cell = self.cell
        answer.deadline = deadline_after(timeout)
        deliver = functools.partial(deliver_to, self.cell)
        send_until(deliver, message, sender, retries, lambda: open_answer(""), pass_on(answer))
        return answer

    def try_tell(self, message: object) -> bool:
        """Send if the mailbox has room now; otherwise return False, and the caller keeps the message."""
        cell = self.cell
        return cell.enqueue(Envelope(message, _sender())) == PUT

    async def tell_async(self, message: object) -> bool:
        """Like `tell`, but await room in a full mailbox without blocking the event loop.

        Raises
        ------
        MailboxFull
            If a full mailbox rejects, or has no room within the System's timeout.
        """
        cell = self.cell
        envelope = Envelope(message, _sender())
        return await self._put_async(cell, envelope)

    async def ask_async(self, message: object, timeout: float | None = None, *, retry: int = 0) -> Any:
        """Await room in the mailbox, then the answer; return its value.  Parameters as for `ask`."""
        deadline, retries = deadline_after(timeout), as_retries(retry)
        while True:
            answer = open_answer("")
            answer.cell = self.cell
            answer.deadline = deadline
            await self._put_async(self.cell, Envelope(message, _sender(), answer))
            try:
                return await answer
            except AtomrError as error:
                if not retries or not caught_by_restart(error):
                    raise
            retries -= 1

    async def _put_async(self, cell: Cell, envelope: Envelope) -> bool:
        limit = cell.tree.timeout
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            result = cell.enqueue(envelope)
            if result != NO_ROOM or cell.mailbox.overflow != "block":
                break
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            mailer = mailer_of(loop)
            cell.rooms.append(functools.partial(mailer.settle, future))
            cell.want_room()
            result = cell.enqueue(envelope)  # room may have appeared just before the request was registered
            if result != NO_ROOM:
                break
            left = None if deadline is None else deadline - time.monotonic()
            try:
                await asyncio.wait_for(future, left)
            except TimeoutError:
                break
        if result == PUT:
            return True
        error = cell.refusal(result)
        if envelope.answer is None and isinstance(error, MailboxFull):
            raise error
        return cell.give_up(envelope, error)

    def stop(self) -> None:
        """Stop it after the messages now in its mailbox; it accepts no more from now on.  Does not wait."""
        self.cell.stop(drain=True)

    def kill(self) -> None:
        """Stop it after the current message; those in its mailbox become dead letters at once.  Does not wait.

        A running coroutine is cancelled.  A running thread cannot be cancelled, and finishes its message.
        """
        self.cell.stop(drain=False)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped for good; return False when `timeout` (seconds) passes."""
        return self.cell.ended.wait(timeout)

    async def join_async(self) -> None:
        """Wait until it has stopped for good, without blocking the running event loop."""
        await self.cell.ended.settled()

    def stats(self) -> dict[str, Any]:
        """Return its counters: messages processed and failed, restarts, messages waiting, state."""
        return self.cell.stats()

    def __reduce__(self) -> tuple[Any, ...]:
        naming = self.cell.tree.naming
        if naming is not None:
            return naming(self.cell)
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


def ref_to(cell: Cell) -> ActorRef:
    """Return the address of an actor."""
    made = ActorRef.__new__(ActorRef)
    made.cell = cell
    return made


def _sender() -> ActorRef | None:
    cell = current_cell()
    return None if cell is None else cell.ref


def _resolve(token: str, path: str, uid: int) -> ActorRef:
    system: System | None = find_system(token)
    ref = None if system is None else system.find(path)
    if ref is None or ref.cell.uid != uid:
        raise InvalidRequest(
            f"the reference to actor {path!r} does not resolve here: it has stopped, or belongs to another System"
        )
    return ref
