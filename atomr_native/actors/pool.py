"""Several actors of one kind behind one address."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._lib.actor_cell import BOUNDED, PUT, SHUT, Envelope, current_cell
from .._lib.guard import Lock, shielded
from .._support.checks import as_integer, check_choice
from .._support.public import public
from ..errors import ActorStopped, InvalidRequest
from ..plans.retry import as_retries
from ._family import check_constructor
from ._handlers import handler
from ._retry import deadline_after, pass_on, send_until
from .actor import Actor
from .answer import Answer, open_answer
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
_POINTS = 64  # points of each actor on the ring of keys


class _Head(Actor):
    """The parent of a pool's actors: it supervises them, and records those that have stopped for good."""

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
        self._pool.drop(message.ref)


@public
class Pool:
    """Routes each message to one of several actors, or to all; made by `System.pool` or `Context.pool`.

    Routing happens in the sender's thread, without an intermediate hop.  Messages of one sender to one actor stay in
    order.  An actor that stops for good leaves the pool; a message that reaches it too late goes to another actor.

    Parameters
    ----------
    size : int
        Number of actors.
    routing : {"round_robin", "least_loaded", "by_key", "broadcast"}
        To each in turn; to the actor with the fewest waiting and running messages; by a key of the message, so the same
        actor handles all messages of a key (consistent hashing: a resize moves few keys); to all.
    key : callable, optional
        For ``"by_key"``: returns the key of a message, which must be hashable.
    name : str, optional
        Name of the pool; the actors are called ``<name>/1`` and so on.
    supervision, mailbox
        Options of each actor, as for `System.spawn`.
    devices : sequence of Device, optional
        Each actor gets one of them as its constructor's argument ``device``: the one with the fewest actors of the
        pool.  `System.pool` also takes names.

    Attributes
    ----------
    head : ActorRef
        The parent of the actors; watch it to watch the pool.
    options : dict
        Keyword arguments of the actors' constructor.
    devices : tuple
        The devices that its actors share, empty without ``devices=``.
    """

    head: ActorRef

    def __init__(self, kind: type[Actor], args: tuple[Any, ...], size: int, options: dict[str, Any]) -> None:
        routing: Routing = options.pop("routing", "round_robin")
        self._key: Callable[[Any], Hashable] | None = options.pop("key", None)
        self._supervision: Supervision | None = options.pop("supervision", None)
        self._mailbox: Mailbox | None = options.pop("mailbox", None)
        devices = options.pop("devices", None)
        check_choice("routing", routing, _ROUTINGS)
        if devices is not None and (not isinstance(devices, Sequence) or not devices or isinstance(devices, str)):
            raise InvalidRequest(f"devices={devices!r}; allowed: one or more devices")
        if (routing == "by_key") != callable(self._key):
            raise InvalidRequest("key= is a function of the message, and goes with routing='by_key'")
        _check_size(size)
        self.routing = routing
        self._kind, self._args, self.options = kind, args, options
        self.devices: tuple[Any, ...] = () if devices is None else tuple(devices)
        self._places: dict[ActorRef, Any] = {}
        self._lock = Lock()
        self._numbers = itertools.count(1)
        self._turn = itertools.count()
        self._refs: tuple[ActorRef, ...] = ()
        self._ring: tuple[list[int], list[ActorRef]] = ([], [])

    def options_on(self, device: Any) -> dict[str, Any]:
        """Return the keyword arguments of the constructor of an actor on a device; None without `devices`."""
        return self.options if device is None else {**self.options, "device": device}

    # ---- its actors

    @property
    def refs(self) -> tuple[ActorRef, ...]:
        """The actors, oldest first."""
        return self._refs

    @property
    def size(self) -> int:
        """Number of actors."""
        return len(self._refs)

    @shielded
    def resize(self, size: int) -> None:
        """Change the number of actors.  Does not wait.

        Actors that leave finish their queued messages.
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
                device = self._next_device(refs)
                options = self.options_on(device)
                cell = family.spawn(self._kind, self._args, options, name, self._supervision, self._mailbox)
                if device is not None:
                    self._places[cell.ref] = device
                refs = (*refs, cell.ref)
                self.head.tell(cell.ref)
            self._set(refs)
        for ref in leaving:
            ref.stop()

    def _next_device(self, refs: tuple[ActorRef, ...]) -> Any:
        """Return the device with the fewest actors of the pool; None if they have none."""
        if not self.devices:
            return None
        self._places = {ref: device for ref, device in self._places.items() if ref in refs}
        taken = list(self._places.values())
        return min(self.devices, key=lambda device: sum(each is device for each in taken))

    @shielded
    def drop(self, ref: ActorRef) -> None:
        """Route no more messages to an actor that has stopped.  Internal."""
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
        """Return the actor that would get a message.

        Raises
        ------
        ActorStopped
            If there is none left.
        """
        points, owners = self._ring  # may be older or newer than `_refs`
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
        if self.routing == "broadcast" and (refs := self._refs):
            sent = [ref.tell(message) for ref in refs]
            return all(sent)
        cell = current_cell()
        return self.deliver(Envelope(message, None if cell is None else cell.ref))

    def ask(self, message: object, timeout: float | None = None, *, retry: int = 0) -> Answer:
        """Ask one actor, or all; then the answer is the list of their answers, or the first error.

        With `retry`, a message that has failed since a device restarted is sent again, so often at most, to the actor
        whose turn it is then; see `ActorRef.ask`.
        """
        deadline, retries = deadline_after(timeout), as_retries(retry)
        if self.routing == "broadcast" and (refs := self._refs):
            return _all([ref.ask(message, timeout, retry=retries) for ref in refs])
        cell = current_cell()
        sender = None if cell is None else cell.ref
        answer = open_answer("")
        answer.deadline = deadline
        if retries:
            answer.cell = self.head.cell
            send_until(self.deliver, message, sender, retries, lambda: open_answer(""), pass_on(answer))
        else:
            self.deliver(Envelope(message, sender, answer))
        return answer

    def deliver(self, envelope: Envelope, bound: int = BOUNDED) -> bool:
        """Put an envelope into the mailbox of its actor.  Internal."""
        while True:
            try:
                ref = self.pick(envelope.message)
            except ActorStopped as error:
                return self.head.cell.give_up(envelope, error)
            if envelope.answer is not None:
                envelope.answer.cell = ref.cell
            result = ref.cell.enqueue(envelope, bound)
            if result != SHUT:
                return result == PUT or ref.cell.refused(envelope, result)
            self.drop(ref)

    # ---- its end

    def stop(self) -> None:
        """Stop all actors after their queued messages.  Does not wait."""
        self.head.stop()

    def kill(self) -> None:
        """Stop all actors after their current messages.  Does not wait."""
        self.head.kill()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have stopped; return False when `timeout` (seconds) passes."""
        return self.head.join(timeout)

    def __repr__(self) -> str:
        return f"<Pool {self.head.path!r} of {self.size}, {self.routing}>"


@shielded
def spawn_pool(parent: Cell, kind: type[Actor], args: tuple[Any, ...], size: int, options: dict[str, Any]) -> Pool:
    """Spawn a pool below an actor."""
    options = dict(options)
    name = options.pop("name", None)
    supervision, mailbox = options.get("supervision"), options.get("mailbox")
    pool = Pool(kind, args, size, options)
    parent.tree.prepare(kind, name, supervision, mailbox)
    check_constructor(kind, args, pool.options_on(next(iter(pool.devices), None)))
    pool.head = parent.family.spawn(_Head, (pool,), {}, name, None, Mailbox(None)).ref
    pool.resize(size)
    return pool


def _check_size(size: object) -> None:
    as_integer("size", size, 1, _MAX_SIZE)


def _load(ref: ActorRef) -> int:
    return ref.cell.load


def _hash(key: Hashable) -> int:
    """Return a hash that is the same in every run, for text, bytes and numbers."""
    data = key if isinstance(key, bytes) else repr(key).encode() if isinstance(key, str | int | float) else None
    if data is None:
        data = str(hash(key)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def _all(answers: list[Answer]) -> Answer:
    """Return an answer that is resolved when all given ones are."""
    made = open_answer("a message to a pool")
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
