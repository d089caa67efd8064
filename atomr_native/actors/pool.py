"""Several actors of one kind behind one address."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._checks import as_integer, check_choice
from .._lib.actor_cell import BOUNDED, PUT, SHUT, Envelope, current_cell
from ..errors import ActorStopped, InvalidRequest
from ._handlers import handler
from .actor import Actor
from .answer import Answer
from .mailbox import Mailbox
from .messages import Terminated
from .ref import ActorRef
from .supervision import OneForOne, Supervision

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Pool", "spawn_pool"]

Routing: TypeAlias = Literal["round_robin", "least_loaded", "by_key", "broadcast"]
_ROUTINGS = ("round_robin", "least_loaded", "by_key", "broadcast")
_MAX_SIZE = 4096
_POINTS = 64  # of each actor on the ring of keys


class _Head(Actor):
    """The parent of a pool's actors: supervises them, and notes those that have stopped for good."""

    supervision = OneForOne()

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def pre_start(self) -> None:
        for ref in self._pool.refs:
            self.context.watch(ref)

    @handler
    def on_new(self, ref: ActorRef) -> None:
        self.context.watch(ref)

    @handler
    def on_terminated(self, message: Terminated) -> None:
        self._pool._remove(message.ref)


class Pool:
    """Routes each message to one of several actors, or to all; made by `System.pool` or `Context.pool`.

    Routing happens in the sender's thread, with no hop in between.  Messages of one sender to one actor stay in order.
    An actor that stops for good leaves the pool; a message that comes to it too late goes to another.

    Parameters
    ----------
    size : int
        How many actors.
    routing : {"round_robin", "least_loaded", "by_key", "broadcast"}
        To each in turn; to the one with the fewest messages waiting or at work; by a key of the message, so that one
        key is always handled by one actor (by consistent hashing: a resize moves few keys); to all.
    key : callable, optional
        For ``"by_key"``: gives the key of a message, which is hashable.
    name : str, optional
        Of the pool; the actors are called ``<name>/1`` and so on.
    supervision, mailbox
        Of each actor, as for `System.spawn`.

    Attributes
    ----------
    head : ActorRef
        The parent of the actors, to be watched.
    """

    head: ActorRef

    def __init__(self, kind: type[Actor], args: tuple[Any, ...], size: int, options: dict[str, Any]) -> None:
        routing: Routing = options.pop("routing", "round_robin")
        self._key: Callable[[Any], Hashable] | None = options.pop("key", None)
        self._supervision: Supervision | None = options.pop("supervision", None)
        self._mailbox: Mailbox | None = options.pop("mailbox", None)
        check_choice("routing", routing, _ROUTINGS)
        if (routing == "by_key") != callable(self._key):
            raise InvalidRequest("key= is a function of the message, and goes with routing='by_key'")
        _check_size(size)
        self.routing = routing
        self._kind, self._args, self._kwargs = kind, args, options
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._turn = itertools.count()
        self._refs: tuple[ActorRef, ...] = ()
        self._ring: tuple[list[int], list[ActorRef]] = ([], [])

    # ---- its actors

    @property
    def refs(self) -> tuple[ActorRef, ...]:
        """The actors, oldest first."""
        return self._refs

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._refs)

    def resize(self, size: int) -> None:
        """Make it larger or smaller.  Does not wait.

        Actors that leave finish the messages that they have.
        """
        _check_size(size)
        self.head.cell.alive_here()
        leaving: tuple[ActorRef, ...] = ()
        with self._lock:
            refs = self._refs
            if size < len(refs):
                leaving, refs = refs[size:], refs[:size]
            family = self.head.cell.family
            for _ in range(size - len(refs)):
                name = str(next(self._numbers))
                cell = family.spawn(self._kind, self._args, self._kwargs, name, self._supervision, self._mailbox)
                refs = (*refs, cell.ref)
                self.head.tell(cell.ref)
            self._set(refs)
        for ref in leaving:
            ref.stop()

    def _remove(self, ref: ActorRef) -> None:
        with self._lock:
            self._set(tuple(each for each in self._refs if each != ref))

    def _set(self, refs: tuple[ActorRef, ...]) -> None:
        self._refs = refs
        if self.routing == "by_key":
            points = sorted(
                ((_hash(f"{ref.name}:{i}"), ref) for ref in refs for i in range(_POINTS)), key=lambda point: point[0]
            )
            self._ring = ([point for point, _ in points], [ref for _, ref in points])

    # ---- sending

    def pick(self, message: object) -> ActorRef:
        """Return the actor that a message would go to.

        Raises
        ------
        ActorStopped
            If there is none left.
        """
        points, owners = self._ring  # of another moment than `_refs`
        refs = self._refs
        if not (refs if self._key is None else owners):
            raise ActorStopped(f"pool {self.head.path} has no actor left")
        if self._key is not None:
            return owners[bisect.bisect(points, _hash(self._key(message))) % len(owners)]
        turn = next(self._turn)
        if self.routing == "least_loaded":
            start = turn % len(refs)
            return min(refs[start:] + refs[:start], key=_load)
        return refs[turn % len(refs)]

    def tell(self, message: object) -> bool:
        """Send to one actor, or to all; see `ActorRef.tell`."""
        if self.routing == "broadcast":
            sent = [ref.tell(message) for ref in self._refs]
            return all(sent)
        cell = current_cell()
        return self._send(Envelope(message, None if cell is None else cell.ref))

    def ask(self, message: object, timeout: float | None = None) -> Answer:
        """Ask one actor, or all: then the answer is the list of theirs, or the first error."""
        if self.routing == "broadcast":
            return _all([ref.ask(message, timeout) for ref in self._refs])
        cell = current_cell()
        answer = Answer._open("")
        if timeout is not None:
            answer.deadline = time.monotonic() + timeout
        self._send(Envelope(message, None if cell is None else cell.ref, answer))
        return answer

    def _send(self, envelope: Envelope, bound: int = BOUNDED) -> bool:
        while True:
            try:
                ref = self.pick(envelope.message)
            except ActorStopped as error:
                return self.head.cell._give_up(envelope, error)
            if envelope.answer is not None:
                envelope.answer.cell = ref.cell
            result = ref.cell._put(envelope, bound)
            if result != SHUT:
                return result == PUT or ref.cell._refused(envelope, result)
            self._remove(ref)

    # ---- its end

    def stop(self) -> None:
        """Stop all when they have done what they have.  Does not wait."""
        self.head.stop()

    def kill(self) -> None:
        """Stop all after the messages at work.  Does not wait."""
        self.head.kill()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have stopped; False when `timeout` (seconds) is over."""
        return self.head.join(timeout)

    def __repr__(self) -> str:
        return f"<Pool {self.head.path!r} of {self.size}, {self.routing}>"


def spawn_pool(parent: Cell, kind: type[Actor], args: tuple[Any, ...], size: int, options: dict[str, Any]) -> Pool:
    """Make a pool below an actor."""
    options = dict(options)
    name = options.pop("name", None)
    pool = Pool(kind, args, size, options)
    parent.tree.prepare(kind, name, pool._supervision, pool._mailbox)
    pool.head = parent.family.spawn(_Head, (pool,), {}, name, None, Mailbox(None)).ref
    pool.resize(size)
    return pool


def _check_size(size: object) -> None:
    as_integer("size", size, 1, _MAX_SIZE)


def _load(ref: ActorRef) -> int:
    return ref.cell.load


def _hash(key: Hashable) -> int:
    """Return a hash that is the same in every run for text, bytes and numbers."""
    data = key if isinstance(key, bytes) else repr(key).encode() if isinstance(key, str | int | float) else None
    if data is None:
        data = str(hash(key)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def _all(answers: list[Answer]) -> Answer:
    """Return an answer that is resolved when all are."""
    made = Answer._open("a message to a pool")
    if not answers:
        made.resolve([])
        return made
    made.cell = answers[0].cell
    made.deadline = min(answer.deadline for answer in answers)
    left = itertools.count(len(answers) - 1, -1)

    def note(_: Answer) -> None:
        if next(left) == 0:
            errors = (answer.exception() for answer in answers)
            error = next((each for each in errors if each is not None), None)
            if error is None:
                made.resolve([answer.result(0) for answer in answers])
            else:
                made.fail(error)

    for answer in answers:
        answer.add_done_callback(note)
    return made
