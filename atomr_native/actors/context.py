"""What an actor may do beside receiving."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .._lib.actor_cell import LATE, PUT, Envelope, current_cell
from ..errors import InvalidRequest, MailboxFull
from .answer import Answer, ReplyTo, bare
from .ref import ActorRef

if TYPE_CHECKING:
    from ..device import Device
    from ..system import System
    from .actor import Actor
    from .cell import Cell
    from .mailbox import Mailbox
    from .pool import Pool
    from .supervision import Supervision
    from .timers import Timers

__all__ = ["Context"]

_PIPE = 4


class Context:
    """The actor's side of itself: `Actor.context`.  Only its own thread may use it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    def _own(self, what: str) -> Cell:
        cell = self._cell
        if current_cell() is not cell:
            raise InvalidRequest(f"{what} of actor {cell.path} was used in another thread; send it a message instead")
        return cell

    # ---- who and where

    @property
    def self_ref(self) -> ActorRef:
        """The actor's own address, to give to others."""
        return self._cell.ref

    @property
    def parent(self) -> ActorRef | None:
        """Who has spawned it; None for those that the System has."""
        parent = self._cell.parent
        return None if parent is None or parent.parent is None else parent.ref

    @property
    def children(self) -> tuple[ActorRef, ...]:
        """The actors that it has spawned and that have not stopped."""
        return tuple(child.ref for child in self._cell.family.cells())

    @property
    def sender(self) -> ActorRef | None:
        """Which actor has sent the message at work; None if that was no actor."""
        return cast("ActorRef | None", self._cell.envelope().sender)

    @property
    def system(self) -> System:
        """The System."""
        return self._cell.tree.system

    @property
    def timers(self) -> Timers:
        """Messages to itself, later."""
        return self._cell.timers

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the actor, in their text and as ``record.actor``."""
        if self._log is None:
            name = f"atomr_native.actors.{self._cell.kind.__name__}"
            self._log = _Log(logging.getLogger(name), {"actor": self._cell.path})
        return self._log

    # ---- others

    def spawn(
        self,
        kind: type[Actor],
        *args: Any,
        name: str | None = None,
        supervision: Supervision | None = None,
        mailbox: Mailbox | None = None,
        **kwargs: Any,
    ) -> ActorRef:
        """Make a child; see `System.spawn`.  It stops before this actor stops or restarts."""
        return self._own("spawn").family.spawn(kind, args, kwargs, name, supervision, mailbox).ref

    def pool(self, kind: type[Actor], *args: Any, size: int, **options: Any) -> Pool:
        """Make a pool of children; see `System.pool`."""
        from .pool import spawn_pool

        return spawn_pool(self._own("pool"), kind, args, size, options)

    def stop(self, ref: ActorRef | None = None) -> None:
        """Stop an actor, by default this one, after the messages that it has."""
        (self.self_ref if ref is None else ref).stop()

    def watch(self, target: ActorRef | Device, *, escalate: bool = False) -> None:
        """Be told when an actor stops for good, or when a device restarts or ends.

        Parameters
        ----------
        target : ActorRef or Device
            An actor: `Terminated` comes once, at once if it has stopped already. A device: `DeviceRestarted` after
            each restart, and `DeviceEnded` once.
        escalate : bool
            For a device: when it ends, fail with its error instead, so that this actor's supervisor decides.
        """
        cell = self._own("watch")
        if isinstance(target, ActorRef):
            if escalate:
                raise InvalidRequest("escalate=True is for devices; the failures of actors go to their own parents")
            cell.deaths.watch(target)
        else:
            cell.devices.watch(_device(target), escalate=escalate)

    def unwatch(self, target: ActorRef | Device) -> None:
        """Be told nothing more, not even what is in the mailbox already."""
        cell = self._own("unwatch")
        if isinstance(target, ActorRef):
            cell.deaths.unwatch(target)
        else:
            cell.devices.unwatch(_device(target))

    # ---- the message at work

    def reply(self, value: object = None) -> bool:
        """Answer the message at work now; what the handler returns does not count any more.

        A message that was told by an actor is answered with a message to that actor.  False if nobody is there to
        be answered.
        """
        envelope = self._own("reply").envelope()
        if envelope.answer is not None:
            return envelope.answer.resolve(value)
        return envelope.sender is not None and envelope.sender.tell(value)

    def fail(self, error: BaseException) -> bool:
        """Answer the message at work with an error, without failing.  False if nobody has asked."""
        envelope = self._own("fail").envelope()
        if not isinstance(error, BaseException):
            raise InvalidRequest(f"error {error!r} is no exception")
        return envelope.answer is not None and envelope.answer.fail(bare(error))

    def reply_later(self) -> ReplyTo:
        """Take the message at work without answering; the object returned answers, from any thread."""
        cell = self._own("reply_later")
        envelope = cell.envelope()
        _undecided(envelope)
        envelope.deferred = True
        return ReplyTo(cast("Answer | None", envelope.answer), cell)

    def forward(self, target: ActorRef | Pool, message: object = None) -> bool:
        """Pass the message at work, or another in its place, to another actor, which answers it.

        For that actor it comes from who sent it here.  False if it has become a dead letter.
        """
        from .pool import Pool

        envelope = self._own("forward").envelope()
        if not isinstance(target, ActorRef | Pool) or (isinstance(target, Pool) and target.routing == "broadcast"):
            raise InvalidRequest(f"target={target!r}; allowed: an ActorRef, or a Pool that sends to one of its actors")
        _undecided(envelope)
        passed = Envelope(envelope.message if message is None else message, envelope.sender, envelope.answer)
        envelope.deferred = True
        if isinstance(target, Pool):
            return target._send(passed)
        if passed.answer is not None:
            passed.answer.cell = target.cell
        result = target.cell._put(passed)
        return result == PUT or target.cell._refused(passed, result)

    def unhandled(self) -> None:
        """Say that there is no handler for the message at work: a dead letter, or `UnhandledMessage` for who asked."""
        self._own("unhandled").unhandled()

    # ---- waiting states

    def become(self, behavior: Callable[[Any], Any], *, discard_old: bool = True) -> None:
        """Have messages handled by another function from the next one on; a restart goes back to `receive`.

        Parameters
        ----------
        behavior
            Called with each message; what it returns is the answer.
        discard_old : bool
            Replace the behavior of now; else keep it for `unbecome`.
        """
        cell = self._own("become")
        if not callable(behavior):
            raise InvalidRequest(f"behavior {behavior!r} is not callable; it is called with each message")
        if not discard_old:
            cell.stack.append(cell.behavior)
        cell.behave(behavior)

    def unbecome(self) -> None:
        """Go back to the behavior before the last `become` that kept it, or to `receive`."""
        cell = self._own("unbecome")
        if cell.stack:
            cell.behave(cell.stack.pop())
        elif cell.instance is not None:
            cell.behave(cell.instance.receive)

    def stash(self) -> None:
        """Put the message at work aside, unanswered, until `unstash_all`.

        Raises
        ------
        MailboxFull
            When as many are stashed as the mailbox holds; the message at work fails with it.
        """
        cell = self._own("stash")
        envelope = cell.envelope()
        _undecided(envelope)
        if cell.capacity and len(cell.stash) >= cell.capacity:
            raise MailboxFull(
                f"the stash of actor {cell.path} is full ({cell.capacity} messages)", cell.path, cell.capacity
            )
        envelope.deferred = True
        cell.stash.append(Envelope(envelope.message, envelope.sender, envelope.answer))

    def unstash_all(self) -> None:
        """Take the stashed messages next, in their order, before those in the mailbox."""
        self._own("unstash_all").unstash()

    def pipe_to_self(self, answer: Answer | Any, message: Callable[[Any, BaseException | None], object]) -> None:
        """When a reply or an answer comes, send ``message(value, error)`` to this actor; one of the two is None.

        `message` runs in another thread, so it should do nothing but make the message; what it raises is a failure of
        the actor. An actor that was told to stop, but not killed, waits for what is piped to it.
        """
        cell = self._own("pipe_to_self")
        if not callable(message):
            raise InvalidRequest(f"message {message!r} is not callable; it makes a message of a value and an error")
        cell.pipes += 1

        def deliver(done: Any) -> None:
            made, failure = None, None
            try:
                error = done.exception()
                made = message(None, bare(error)) if error is not None else message(done.result(0), None)
            except BaseException as raised:
                failure = bare(raised)
            envelope = Envelope(made, cell.ref, None, _PIPE, failure)
            if cell._put(envelope, LATE) != PUT:
                cell.tree.dead_letter(cell.path, envelope, cell.stopped_error())

        answer.add_done_callback(deliver)


class _Log(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = dict(self.extra or {})
        kwargs["extra"] = {**extra, **kwargs.get("extra", {})}
        return f"{extra.get('actor')}: {msg}", kwargs


def _undecided(envelope: Envelope) -> None:
    if envelope.deferred:
        raise InvalidRequest("this message was already stashed, forwarded, or kept for a later reply")


def _device(target: object) -> Device:
    from ..device import Device

    if not isinstance(target, Device):
        raise InvalidRequest(f"{target!r} cannot be watched; allowed: an ActorRef or a Device")
    return target
