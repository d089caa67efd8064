"""Operations of an actor beyond receiving."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .._lib.actor_cell import LATE, PUT, Envelope
from .._support.public import public
from ..errors import InvalidRequest, MailboxFull
from ._envelopes import PIPE
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


@public
class Context:
    """An actor's own operations: `Actor.context`.  Only its thread may use it."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    # ---- identity

    @property
    def self_ref(self) -> ActorRef:
        """The actor's own address, to pass to others."""
        return self._cell.ref

    @property
    def parent(self) -> ActorRef | None:
        """The actor that spawned it; None if the System did."""
        parent = self._cell.parent
        return None if parent is None or parent.parent is None else parent.ref

    @property
    def children(self) -> tuple[ActorRef, ...]:
        """Its children that have not stopped."""
        return tuple(child.ref for child in self._cell.family.cells())

    @property
    def sender(self) -> ActorRef | None:
        """The actor that sent the current message; None if it was not an actor."""
        return cast("ActorRef | None", self._cell.envelope().sender)

    @property
    def system(self) -> System:
        """The System."""
        return self._cell.tree.system

    @property
    def timers(self) -> Timers:
        """Timers for messages to itself."""
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
        """Spawn a child; see `System.spawn`.  It stops before this actor stops or restarts."""
        return self._cell.own("spawn").family.spawn(kind, args, kwargs, name, supervision, mailbox).ref

    def pool(self, kind: type[Actor], *args: Any, size: int, **options: Any) -> Pool:
        """Spawn a pool of children; see `System.pool`."""
        from .pool import spawn_pool

        return spawn_pool(self._cell.own("pool"), kind, args, size, options)

    def stop(self, ref: ActorRef | None = None) -> None:
        """Stop an actor, by default this one, after its queued messages."""
        (self.self_ref if ref is None else ref).stop()

    def watch(self, target: ActorRef | Device, *, escalate: bool = False) -> None:
        """Get a message when an actor stops for good, or when a device restarts or ends.

        Parameters
        ----------
        target : ActorRef or Device
            For an actor, `Terminated` comes once, or at once if it has already stopped.  For a device,
            `DeviceRestarted` comes after each restart, and `DeviceEnded` once.
        escalate : bool
            For a device: when it ends, fail with its error instead, and let this actor's supervisor decide.
        """
        cell = self._cell.own("watch")
        if isinstance(target, ActorRef):
            if escalate:
                raise InvalidRequest("escalate=True is for devices; the failures of actors go to their own parents")
            cell.deaths.watch(target)
        else:
            cell.devices.watch(_device(target), escalate=escalate)

    def unwatch(self, target: ActorRef | Device) -> None:
        """End a watch; drop even its messages that are already in the mailbox."""
        cell = self._cell.own("unwatch")
        if isinstance(target, ActorRef):
            cell.deaths.unwatch(target)
        else:
            cell.devices.unwatch(_device(target))

    # ---- the current message

    def reply(self, value: object = None) -> bool:
        """Answer the current message now; the handler's return value is then ignored.

        A message told by an actor is answered with a message to that actor.  Return False if there is no receiver for
        the answer.
        """
        envelope = self._cell.own("reply").envelope()
        if envelope.answer is not None:
            return envelope.answer.resolve(value)
        return envelope.sender is not None and envelope.sender.tell(value)

    def fail(self, error: BaseException) -> bool:
        """Answer the current message with an error, without failing.  Return False if it was not asked."""
        envelope = self._cell.own("fail").envelope()
        if not isinstance(error, BaseException):
            raise InvalidRequest(f"error {error!r} is not an exception")
        return envelope.answer is not None and envelope.answer.fail(bare(error))

    def reply_later(self) -> ReplyTo:
        """Keep the current message unanswered; the returned object answers it, from any thread."""
        cell = self._cell.own("reply_later")
        envelope = cell.envelope()
        _undecided(envelope)
        envelope.deferred = True
        return ReplyTo(cast("Answer | None", envelope.answer), cell)

    def forward(self, target: ActorRef | Pool, message: object = None) -> bool:
        """Pass the current message, or a replacement, to another actor, which answers it.

        The original sender remains its sender.  Return False if it became a dead letter.
        """
        from .pool import Pool

        envelope = self._cell.own("forward").envelope()
        if not isinstance(target, ActorRef | Pool) or (isinstance(target, Pool) and target.routing == "broadcast"):
            raise InvalidRequest(f"target={target!r}; allowed: an ActorRef, or a Pool that sends to one of its actors")
        _undecided(envelope)
        passed = Envelope(envelope.message if message is None else message, envelope.sender, envelope.answer)
        envelope.deferred = True
        if isinstance(target, Pool):
            return target.deliver(passed)
        if passed.answer is not None:
            passed.answer.cell = target.cell
        result = target.cell.enqueue(passed)
        return result == PUT or target.cell.refused(passed, result)

    def unhandled(self) -> None:
        """Report that the current message has no handler: it is a dead letter; an ask gets `UnhandledMessage`."""
        self._cell.own("unhandled").unhandled()

    # ---- waiting states

    def become(self, behavior: Callable[[Any], Any], *, discard_old: bool = True) -> None:
        """Handle messages by another function, from the next one on; a restart returns to `receive`.

        Parameters
        ----------
        behavior
            Called with each message; its return value is the answer.
        discard_old : bool
            Replace the current behavior; otherwise keep it for `unbecome`.
        """
        cell = self._cell.own("become")
        if not callable(behavior):
            raise InvalidRequest(f"behavior {behavior!r} is not callable; it is called with each message")
        if not discard_old:
            cell.stack.append(cell.behavior)
        cell.behave(behavior)

    def unbecome(self) -> None:
        """Return to the behavior that the last `become` kept, or to `receive`."""
        cell = self._cell.own("unbecome")
        if cell.stack:
            cell.behave(cell.stack.pop())
        elif cell.instance is not None:
            cell.behave(cell.instance.receive)

    def stash(self) -> None:
        """Stash the current message, unanswered, until `unstash_all`.

        Raises
        ------
        MailboxFull
            If the stash is as full as the mailbox's capacity; the current message fails with it.
        """
        cell = self._cell.own("stash")
        envelope = cell.envelope()
        _undecided(envelope)
        if cell.capacity and len(cell.stash) >= cell.capacity:
            raise MailboxFull(
                f"the stash of actor {cell.path} is full ({cell.capacity} messages)", cell.path, cell.capacity
            )
        envelope.deferred = True
        cell.stash.append(Envelope(envelope.message, envelope.sender, envelope.answer))

    def unstash_all(self) -> None:
        """Handle the stashed messages next, in their order, before those in the mailbox."""
        self._cell.own("unstash_all").unstash()

    def pipe_to_self(self, answer: Answer | Any, message: Callable[[Any, BaseException | None], object]) -> None:
        """When a reply or an answer is resolved, send ``message(value, error)`` to this actor; one of the two is None.

        `message` runs in another thread, so it should only build the message; its exceptions are failures of the
        actor.  A stopping actor waits for piped results; a killed one does not.
        """
        cell = self._cell.own("pipe_to_self")
        if not callable(message):
            raise InvalidRequest(f"message {message!r} is not callable; it makes a message from a value and an error")
        cell.pipes += 1

        def deliver(done: Any) -> None:
            made, failure = None, None
            try:
                error = done.exception()
                made = message(None, bare(error)) if error is not None else message(done.result(0), None)
            except BaseException as raised:
                failure = bare(raised)
            envelope = Envelope(made, cell.ref, None, PIPE, failure)
            if cell.enqueue(envelope, LATE) != PUT:
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

    if not isinstance(target, Device) and not getattr(type(target), "watchable", False):
        raise InvalidRequest(f"{target!r} cannot be watched; allowed: an ActorRef or a Device")
    return cast("Device", target)
