"""Where the ranks of a communicator over nodes meet: an actor on the node of rank 0.

Each rank sends its own calls.  Small arrays come along: when all ranks have come to a call, a communicator of host
devices runs it, so its results are those of one System, bit for bit.  Large arrays stay where they are: the ranks get
each other's names of them, take what they need (`exchange`), and meet again.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Any

from ..actors._handlers import handler
from ..actors.actor import Actor
from ..actors.answer import ReplyTo, bare
from ..actors.messages import Terminated
from ..actors.ref import ActorRef
from ..communicators.request import CollectiveRequest, Lowered, lower
from ..errors import ActorStopped, AskTimeout, AtomrError, InvalidRequest, LibraryError, NodeLost
from ..system import System
from .directory import LOST
from .rank_messages import MEET, ByHost, Call, Data, Failed, Given, Go, Here, Join, Stamp

__all__ = ["MOST_RANKS", "Meeting"]

MOST_RANKS = 16  # host devices of a System
_LOOK = 0.5  # seconds between looks at the nodes of ranks that are missing
_CAUSE_S = 5.0  # seconds until a failure without a cause is one of the connections between nodes
_KNOWN = 1024  # kinds of calls that are remembered
_CAUSES = 16  # generations whose causes are remembered


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


class _Unexplained:
    """No rank has said what has failed."""


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
        self._spans = self._cluster.peer.spans
        self._ranks = [_Rank(name.partition("/")[0]) for name in ranks]
        lives = self._cluster.lives()
        self._stamp: Stamp = (os.urandom(8).hex(), 1 + sum(lives[n][1] - 1 for n in {r.node for r in self._ranks}))
        self._causes: dict[int, AtomrError] = {}  # by the generation that they ended
        self._asking: list[ReplyTo] = []  # ranks that want to know the cause
        self._connects = True  # the next call by NCCL connects the ranks
        self._known: OrderedDict[tuple[object, ...], None] = OrderedDict()  # calls by NCCL, of this generation
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
        for reply in self._asking:
            reply.fail(ActorStopped("the communicator has ended"))
        self._spans.end(self._stamp)
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
            reply.fail(self._cause_of(message.stamp))
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
    def on_failed(self, message: Failed) -> None:
        """Begin a new generation after a failure by NCCL; answer with its cause."""
        reply = self.context.reply_later()
        if message.stamp == self._stamp and message.error is not None:
            self._rebuild(message.error)
        if message.stamp != self._stamp:
            reply.fail(self._cause_of(message.stamp))
            return
        self._asking.append(reply)
        self.context.timers.start_once(_CAUSE_S, _Unexplained(), key="cause")

    @handler
    def on_unexplained(self, message: _Unexplained) -> None:  # noqa: ARG002
        """Fail with what is known, when no rank has said more."""
        text = "nodes have lost each other"
        self._rebuild(LibraryError("nccl", 0, "disconnected", "a communicator over nodes", text))

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
        bare(error)
        ended = self._stamp
        self._causes[ended[1]] = error
        self._causes.pop(ended[1] - _CAUSES, None)
        self._stamp = (ended[0], ended[1] + 1)
        self._number += 1
        self._connects = True
        self._known.clear()
        self.context.timers.cancel("late")
        self.context.timers.cancel("cause")
        self._spans.end(ended)
        asking, self._asking = self._asking, []
        for reply in asking:
            reply.fail(error)
        for rank in self._ranks:
            waiting, rank.calls = rank.calls, deque()
            for each in waiting:
                each.reply.fail(error)

    def _cause_of(self, stamp: Stamp) -> AtomrError:
        """Return what has ended a generation."""
        known = self._causes.get(stamp[1]) if stamp[0] == self._stamp[0] else None
        return known or NodeLost("the communicator was built anew", self._ranks[0].node)

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
        if kind != "barrier" and len({call.by_nccl for call in calls}) > 1:
            return [ByHost()] * len(calls)
        devices = self._comm.devices
        direct = any(isinstance(each, Given | Here) for each in given)
        arrays: Any = [
            device.empty(each.shape, each.dtype) if direct or not isinstance(each, Data) else device.put(each.array())
            for device, each in zip(devices, given, strict=True)
            if isinstance(each, Data | Given | Here)
        ]
        if kind in ("broadcast", "scatter"):
            arrays = arrays[0]
        counts = None if first.counts is None else [call.counts for call in calls]
        request = CollectiveRequest(kind, arrays, op=op, factor=factor, root=root, counts=counts)  # type: ignore[arg-type]
        if direct:
            agreed = self._agreed(lower(request, devices), given)
            return [self._staged(agreed, factor) if first.by_nccl else agreed] * len(calls)
        found = self._comm.ask(request).result()
        if kind == "barrier":
            return [None] * len(calls)
        if kind in ("reduce", "gather"):
            return [_data(found) if call.rank == root else None for call in calls]
        return [_data(each) for each in found]

    def _staged(self, go: Go, factor: float | None) -> Go:
        """Return what ranks do that meet by NCCL."""
        key = (go.step, go.shapes, factor is None)
        stage = "connect" if self._connects else "known" if key in self._known else "fresh"
        self._connects = False
        self._known[key] = None
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return replace(go, number=self._number, stage=stage, timeout=self._timeout)

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
