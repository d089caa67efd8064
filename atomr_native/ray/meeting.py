"""Where the ranks of a communicator over nodes meet: an actor on the node of rank 0.

Each rank sends its own calls.  Small arrays come along: when all ranks have come to a call, a communicator of host
devices runs it, so its results are those of one System, bit for bit.  Large arrays stay where they are: the ranks get
each other's names of them, take what they need (`exchange`), and meet again.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..actors._handlers import handler
from ..actors.actor import Actor
from ..actors.answer import ReplyTo, bare
from ..actors.messages import Terminated
from ..actors.ref import ActorRef
from ..communicators.request import CollectiveRequest, Lowered, lower
from ..errors import ActorStopped, AskTimeout, AtomrError, InvalidRequest, NodeLost
from ..libraries.collective.attributes import Step
from ..system import System
from .arrays import as_bytes, from_bytes
from .directory import LOST

__all__ = ["MEET", "MOST_RANKS", "Call", "Data", "Given", "Go", "Join", "Meeting", "Stamp"]

MOST_RANKS = 16  # host devices of a System
_LOOK = 0.5  # seconds between looks at the nodes of ranks that are missing

#: One building of a communicator: which life of the meeting, and the generation.
Stamp = tuple[str, int]


@dataclass(frozen=True)
class Data:
    """An array as bytes."""

    blob: bytes
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: np.ndarray[Any, Any], dtype: str) -> Data:
        """Return an array as bytes."""
        return cls(as_bytes(array).tobytes(), array.shape, dtype)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array."""
        return from_bytes(np.frombuffer(self.blob, np.uint8), self.shape, self.dtype)


@dataclass(frozen=True)
class Given:
    """The name of an array of a rank, from which the others take what they need."""

    node: str
    incarnation: int
    ident: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Go:
    """The ranks agree on a call, and run it.

    Attributes
    ----------
    step : Step
        The collective, as of a communicator of one System.
    given : tuple
        The array of each rank: `Given`, `Data`, or None.
    shapes : tuple
        The shape of each rank's result; None for a rank without.
    """

    step: Step
    given: tuple[Given | Data | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]


#: The call by which ranks meet again: each brings what the others may take, or an error.
MEET = "meet"


@dataclass(frozen=True)
class Join:
    """A rank has begun; `seat` ends with its process.  Answered by the `Stamp` of its calls."""

    rank: int
    seat: ActorRef


@dataclass(frozen=True)
class Call:
    """One collective of one rank.

    Attributes
    ----------
    stamp, rank
        Of which building of the communicator, by which rank.
    what : tuple
        Kind, operation, factor and root, on which all ranks agree.
    data : Data, Given, AtomrError or None
        What the rank gives; an error if it cannot take part.
    counts : tuple of int, optional
        Of ``all_to_all``: rows for each rank.
    """

    stamp: Stamp
    rank: int
    what: tuple[str, str, float | None, int]
    data: Data | Given | AtomrError | None = None
    counts: tuple[int, ...] | None = None


@dataclass
class _Open:
    call: Call
    reply: ReplyTo


@dataclass
class _Rank:
    node: str
    seat: ActorRef | None = None
    calls: deque[_Open] = field(default_factory=deque)


class _Late:
    """The first rank has waited too long."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Look:
    """Time to look at the nodes of missing ranks."""


class Meeting(Actor):
    """Runs the calls of ranks on several nodes.

    Parameters
    ----------
    ranks : tuple of str
        The node and device of each rank.
    timeout : float, optional
        Seconds that a rank waits for the others.
    """

    def __init__(self, ranks: tuple[str, ...], timeout: float | None) -> None:
        from .cluster import Cluster

        self._names, self._timeout = ranks, timeout
        self._cluster = Cluster.join()
        self._ranks = [_Rank(name.partition("/")[0]) for name in ranks]
        lives = self._cluster.lives()
        self._stamp: Stamp = (os.urandom(8).hex(), 1 + sum(lives[n][1] - 1 for n in {r.node for r in self._ranks}))
        self._cause: AtomrError | None = None
        self._number = 0
        # Arrays that are only checked take no pages, and so no memory.
        self._system = System(isolation="thread", standby="off", memory_limit=1 << 46)
        try:
            self._comm = self._system.communicator([f"host:{rank}" for rank in range(len(ranks))])
        except BaseException:
            self._system.close(0.0)
            raise

    def post_stop(self) -> None:
        """Fail the calls that wait, and end the devices."""
        for rank in self._ranks:
            for each in rank.calls:
                each.reply.fail(ActorStopped("the communicator has ended"))
        self._system.close(1.0)

    @handler
    def on_join(self, message: Join) -> Stamp:
        """Seat a rank; answer with its stamp."""
        rank = self._ranks[message.rank]
        if rank.seat != message.seat:
            if rank.seat is not None:
                self._rebuild(NodeLost(f"rank {message.rank} has begun anew on {rank.node}", rank.node))
            rank.seat = message.seat
            self.context.watch(message.seat)
        return self._stamp

    @handler
    def on_terminated(self, message: Terminated) -> None:
        """Fail the calls that wait for a rank whose process has ended."""
        for number, rank in enumerate(self._ranks):
            if rank.seat == message.ref:
                rank.seat = None
                self._rebuild(NodeLost(f"rank {number} was lost with {rank.node}", rank.node))

    @handler
    def on_call(self, message: Call) -> None:
        """Run a call once all ranks have come to it."""
        reply = self.context.reply_later()
        if message.stamp != self._stamp:
            reply.fail(self._cause or NodeLost("the communicator was built anew", self._ranks[0].node))
            return
        self._ranks[message.rank].calls.append(_Open(message, reply))
        if all(rank.calls for rank in self._ranks):
            self.context.timers.cancel("late")
            self._number += 1
            self._meet([rank.calls.popleft() for rank in self._ranks])
            if any(rank.calls for rank in self._ranks):
                self._wait()
        elif sum(len(rank.calls) for rank in self._ranks) == 1:
            self._wait()
        self._look()

    @handler
    def on_generation(self, message: str) -> int:  # noqa: ARG002 - the only text that it gets
        """Answer with the generation."""
        return self._stamp[1]

    @handler
    def on_late(self, message: _Late) -> None:
        """Fail the calls that have waited too long."""
        if message.number == self._number:
            missing = [number for number, rank in enumerate(self._ranks) if not rank.calls]
            came = next(rank.calls[0].call.what[0] for rank in self._ranks if rank.calls)
            self._rebuild(AskTimeout(f"{came}: ranks {missing} have not come to it within {self._timeout:g} s"))

    @handler
    def on_look(self, message: _Look) -> None:  # noqa: ARG002
        """Look at the nodes of missing ranks again."""
        self._look()

    def _wait(self) -> None:
        if self._timeout is not None:
            self.context.timers.start_once(self._timeout, _Late(self._number), key="late")

    def _look(self) -> None:
        """Fail the calls that wait for a node that will not come back; look again while others are missing."""
        missing = [rank for rank in self._ranks if rank.seat is None]
        if not missing or not any(rank.calls for rank in self._ranks):
            return
        lives = self._cluster.lives()
        for rank in missing:
            if lives[rank.node][0] == LOST:
                self._rebuild(NodeLost(f"{rank.node} is lost, and with it a rank", rank.node))
                return
        self.context.timers.start_once(_LOOK, _Look(), key="look")

    def _rebuild(self, error: AtomrError) -> None:
        """Fail the calls that wait, and begin a new generation."""
        self._stamp, self._cause = (self._stamp[0], self._stamp[1] + 1), error
        self._number += 1
        self.context.timers.cancel("late")
        for rank in self._ranks:
            waiting, rank.calls = rank.calls, deque()
            for each in waiting:
                each.reply.fail(error)

    def _meet(self, calls: list[_Open]) -> None:
        try:
            results: list[Any] = self._run([each.call for each in calls])
        except AtomrError as error:
            cause = bare(error)
            for each in calls:
                each.reply.fail(cause)
            return
        for each, result in zip(calls, results, strict=True):
            each.reply.reply(result)

    def _run(self, calls: list[Call]) -> list[Any]:
        """Run a call of all ranks; return the result of each."""
        first = calls[0]
        for call in calls:
            if isinstance(call.data, AtomrError):
                raise call.data
            if call.what != first.what or (call.counts is None) != (first.counts is None):
                raise InvalidRequest(
                    f"rank 0 calls {_text(first)}, and rank {call.rank} calls {_text(call)}; all ranks call the same "
                    f"collectives in the same order"
                )
        kind, op, factor, root = first.what
        given = tuple(call.data for call in calls)
        if kind == MEET:
            return [given] * len(calls)
        devices = self._comm.devices
        direct = any(isinstance(each, Given) for each in given)
        arrays: Any = [
            device.empty(each.shape, each.dtype) if direct or isinstance(each, Given) else device.put(each.array())
            for device, each in zip(devices, given, strict=True)
            if isinstance(each, Data | Given)
        ]
        if kind in ("broadcast", "scatter"):
            arrays = arrays[0]
        counts = None if first.counts is None else [call.counts for call in calls]
        request = CollectiveRequest(kind, arrays, op=op, factor=factor, root=root, counts=counts)  # type: ignore[arg-type]
        if direct:
            return [self._agreed(lower(request, devices), given)] * len(calls)
        found = self._comm.ask(request).result()
        if kind == "barrier":
            return [None] * len(calls)
        if kind in ("reduce", "gather"):
            return [_data(found) if call.rank == root else None for call in calls]
        return [_data(each) for each in found]

    @staticmethod
    def _agreed(lowered: Lowered, given: tuple[Any, ...]) -> Go:
        """Return what the ranks do; the arrays that were checked here have no bytes."""
        outs = [next((use.shape for use in uses if use.name == "out"), None) for uses in lowered.uses]
        if lowered.kind == "broadcast":  # its root has the result already
            outs = [next(each for each in outs if each is not None)] * len(outs) if len(outs) > 1 else [given[0].shape]
        return Go(lowered.step, given, tuple(outs))


def _data(ref: Any) -> Data:
    return Data.of(ref.numpy(), ref.layout.dtype_name)


def _text(call: Call) -> str:
    kind, op, factor, root = call.what
    return f"{kind}(op={op!r}, factor={factor!r}, root={root}{'' if call.counts is None else ', counts='})"
