"""Pools whose actors are on several nodes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from .._lib.actor_cell import Envelope
from .._lib.guard import Lock, shielded
from .._support.checks import as_integer
from ..actors._family import check_constructor
from ..actors._handlers import handler
from ..actors.actor import Actor
from ..actors.mailbox import Mailbox
from ..actors.messages import Terminated
from ..actors.pool import Pool
from ..actors.ref import ActorRef
from ..errors import ActorStopped, AtomrError, InvalidRequest
from . import _peers
from .devices import RemoteDevice

if TYPE_CHECKING:
    from ..actors.tree import ActorTree
    from .cluster import Cluster
    from .peer import Peer

__all__ = ["ClusterPool"]

_MAX_SIZE = 4096


class _Head(Actor):
    """Watches the actors of a pool; ends when the pool was stopped and the last of them has stopped."""

    def __init__(self, pool: ClusterPool) -> None:
        self._pool = pool

    @handler
    def on_new(self, ref: ActorRef) -> None:
        self.context.watch(ref)

    @handler
    def on_terminated(self, message: Terminated) -> None:
        self._pool.drop(message.ref)


class _NoHead:
    """Stands for the head in a copy of a pool in another process."""

    stepper = None

    def __init__(self, path: str, tree: ActorTree) -> None:
        self.path, self.cell, self._tree = path, self, tree

    def give_up(self, envelope: Envelope, error: AtomrError) -> bool:
        """Fail an ask; a tell becomes a dead letter."""
        if envelope.answer is None:
            self._tree.dead_letter(self.path, envelope, error)
        else:
            envelope.answer.fail(error)
        return False


class ClusterPool(Pool):
    """A `Pool` of actors on the nodes of a cluster; made by `Cluster.pool`.

    Each actor is one of the cluster's: it is back after a restart of its node, and leaves the pool with the loss of its
    node.  A pool can be pickled, in messages and in arguments of Ray tasks: the copy routes to the actors that the pool
    has at that moment, leaves out those that stop, and cannot be resized.

    ``routing="least_loaded"`` counts the messages that wait in the sending process and the asks without an answer.

    Attributes
    ----------
    head : ActorRef
        An actor of the process that made the pool; it ends after the pool's last actor.
    nodes : tuple of str
        The nodes that may have its actors.
    """

    _members: tuple[ActorRef, ...] = ()  # those that `stop` has stopped
    _stopping = False

    def __init__(
        self, cluster: Cluster, peer: Peer, kind: type[Actor], args: tuple[Any, ...], size: int, options: dict[str, Any]
    ) -> None:
        self._cluster: Cluster | None = cluster
        self._peer = peer
        self._name: str | None = options.pop("name", None)
        nodes = options.pop("nodes", None)
        devices = options.pop("devices", None)
        if nodes is not None and devices is not None:
            raise InvalidRequest("nodes= and devices= both choose the nodes of the actors; allowed: one of them")
        for name, value in (("nodes", nodes), ("devices", devices)):
            if value is not None and (not isinstance(value, Sequence) or not value or isinstance(value, str)):
                raise InvalidRequest(f"{name}={value!r}; allowed: one or more, in a list, or None")
        super().__init__(kind, args, size, options)
        peer.tree.prepare(kind, self._name, self._supervision, self._mailbox)
        if devices is not None:
            self.devices = tuple(d if isinstance(d, RemoteDevice) else cluster.device(d) for d in devices)
            nodes = [device.node for device in self.devices]
        self.nodes: tuple[str, ...] = tuple(map(peer.node_name, cluster.nodes if nodes is None else nodes))
        check_constructor(kind, args, self.options_on(next(iter(self.devices), None)))
        self._resizing = Lock()
        self._where: dict[ActorRef, int] = {}  # index of the node, or of the device, of each actor
        self.head = peer.tree.top().family.spawn(_Head, (self,), {}, self._name, None, Mailbox(None)).ref
        self._name = self._name or f"{kind.__name__}-pool-{os.urandom(4).hex()}"
        try:
            self.resize(size)
        except BaseException:
            self.stop()
            raise

    def resize(self, size: int) -> None:
        """Change the number of actors.  Waits until their nodes have the new ones.

        Actors that leave finish their queued messages.
        """
        as_integer("size", size, 1, _MAX_SIZE)
        cluster = self._cluster
        if cluster is None:
            raise InvalidRequest(f"{self!r} is a copy; resize the pool in the process that made it")
        with self._resizing:
            if self._stopping:
                raise ActorStopped(f"pool {self._name} has been stopped")
            for _ in range(size - len(self._refs)):
                self._add(cluster)
            self._cut(size)

    def _add(self, cluster: Cluster) -> None:
        refs = self._refs
        taken = Counter(self._where[ref] for ref in refs)
        at = min(range(len(self.nodes)), key=lambda place: taken[place])
        options = self.options_on(self.devices[at] if self.devices else None)
        ref = cluster.spawn(
            self._kind, *self._args, node=self.nodes[at], name=f"{self._name}-{next(self._numbers)}",
            supervision=self._supervision, mailbox=self._mailbox, **options,
        )  # fmt: skip
        self._where[ref] = at
        self._join(ref)
        self.head.tell(ref)

    @shielded
    def _join(self, ref: ActorRef) -> None:
        with self._lock:
            self._set((*self._refs, ref))

    @shielded
    def _cut(self, size: int) -> None:
        with self._lock:
            refs, leaving = self._refs[:size], self._refs[size:]
            self._set(refs)
        for ref in leaving:
            self._where.pop(ref, None)
            ref.stop()

    def drop(self, ref: ActorRef) -> None:
        """Route no more messages to an actor that has stopped.  Internal."""
        super().drop(ref)
        self._where.pop(ref, None)
        if self._stopping and self._cluster is not None and all(each.stopped for each in self._members):
            self.head.stop()

    def _copied(
        self, peer: Peer, kind: type[Actor], options: dict[str, Any], name: str, nodes: tuple[str, ...],
        refs: tuple[ActorRef, ...],
    ) -> None:  # fmt: skip
        super().__init__(kind, (), 1, options)
        self._cluster, self._peer, self._name, self.nodes, self._where = None, peer, name, nodes, {}
        self.head = cast("ActorRef", _NoHead(name, peer.tree))
        self._set(refs)

    # ---- its end

    def stop(self) -> None:
        """Stop all actors after their queued messages.  Does not wait."""
        self._end(lambda ref: ref.stop())

    def kill(self) -> None:
        """Stop all actors after their current messages.  Does not wait."""
        self._end(lambda ref: ref.kill())

    def _end(self, how: Any) -> None:
        self._mark()
        for ref in self._members:
            how(ref)
        if self._cluster is not None and not self._members:
            self.head.stop()

    @shielded
    def _mark(self) -> None:
        with self._lock:
            self._stopping, self._members = True, tuple({*self._members, *self._refs})

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all have stopped; return False when `timeout` (seconds) passes."""
        end = None if timeout is None else time.monotonic() + timeout
        refs = {*self._refs, *self._members}
        return all(ref.join(None if end is None else max(0.0, end - time.monotonic())) for ref in refs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (
            self._peer.cluster, self._kind, self.routing, self._key, self._name, self.nodes, self._refs,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<ClusterPool {self._name!r} of {self.size}, {self.routing}, on {', '.join(dict.fromkeys(self.nodes))}>"


def _copy(
    cluster: str, kind: type[Actor], routing: str, key: Any, name: str, nodes: tuple[str, ...],
    refs: tuple[ActorRef, ...],
) -> ClusterPool:  # fmt: skip
    """Return a pool in another process."""
    made = ClusterPool.__new__(ClusterPool)
    made._copied(_peers.current(cluster), kind, {"routing": routing, "key": key}, name, nodes, refs)  # noqa: SLF001
    return made
