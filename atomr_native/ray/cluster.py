"""The face of a cluster: the methods of a System, for several nodes."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._lib.guard import Lock, Persisting, shielded
from .._support.checks import as_integer, check_choice, is_integer, is_real
from .._support.timeouts import seconds_of
from ..actors._family import check_constructor
from ..actors.mailbox import Mailbox
from ..actors.ref import ActorRef
from ..actors.supervision import Supervision
from ..errors import ActorStopped, AtomrError, InvalidRequest, NodeLost
from ..runtime.addresses import address_of
from ..system import System
from . import _peers, observe
from .carrier import Carrier, NodeDied, NodeUnavailable
from .devices import RemoteDevice, remote_device
from .nodes import Nodes
from .peer import Peer
from .surroundings import check_outside, is_inside, on_ray
from .wire import pack

if TYPE_CHECKING:
    from types import TracebackType

    from ..actors.actor import Actor
    from ..observe import MetricsServer, Publisher
    from ..runtime.dead_letters import DeadLetters
    from ..runtime.statistics import SystemStats
    from .communicator import ClusterCommunicator
    from .pools import ClusterPool

__all__ = ["Cluster"]

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_MOST_NODES = 4096


class Cluster:
    """A System on each of several nodes, in Ray actors; a context manager.

    It has the methods of a `System`, and its addresses are `ActorRef`.  A node is a supervised child: when its process
    or machine ends, that is a failure with `NodeLost`, and its supervision decides.  A restarted node has the same
    name, and its top-level actors the same addresses.  Makes the nodes, and waits until they are up.

    Parameters
    ----------
    nodes : int
        Number of nodes: ``"node0"``, ``"node1"`` and so on.
    gpus : int
        GPUs of each node: its ``"cuda:0"`` and so on.  A node without GPUs sees none.
    strategy : {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
        Ray's placement of the nodes on machines: on few, on many, on one, each on another.
    cpus : float
        CPUs that Ray reserves for each node.
    memory : int, optional
        Bytes that Ray reserves for each node; four fifths of them are then the memory limit of each host device.
    supervision : Supervision, optional
        The strategy for nodes; by default ``OneForOne()``.
    name : str, optional
        For `join`; unique among the clusters of the Ray cluster.
    options : dict, optional
        Options of each node's `System`.
    placement_group : optional
        An existing placement group of Ray's, whose bundles the nodes take in order, instead of `strategy`.
    carrier : Carrier, optional
        The engine; by default Ray.  ``atomr_native.ray.in_process.InProcess()`` is for tests.

    Raises
    ------
    InvalidRequest
        If an argument is not allowed, an actor of a cluster calls it, or Ray has not got the resources.
    Unsupported
        If Ray is missing or too old, is used by Ray Client, or a node has another version of the package.
    NodeLost
        If a node's process ends each time while it starts.

    Notes
    -----
    Messages of one actor to another are run in order, and each at most once.  Whether a message on its way to a lost
    node has run is not known: its ask fails with `NodeLost`, and ``may_have_run`` is True.

    Examples
    --------
    >>> import atomr_native as an
    >>> from atomr_native.ray import Cluster
    >>> from atomr_native.ray.in_process import InProcess
    >>> class Sum(an.Actor):
    ...     def receive(self, numbers):
    ...         return sum(numbers)
    >>> with Cluster(nodes=2, carrier=InProcess()) as cluster:  # on Ray: without carrier=
    ...     cluster.spawn(Sum, node=1).ask([1, 2, 3]).result(30)
    6
    """

    def __init__(
        self,
        nodes: int = 1,
        gpus: int = 0,
        strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK",
        *,
        cpus: float = 1.0,
        memory: int | None = None,
        supervision: Supervision | None = None,
        name: str | None = None,
        options: dict[str, Any] | None = None,
        placement_group: Any = None,
        carrier: Carrier | None = None,
    ) -> None:
        count = as_integer("nodes", nodes, 1, _MOST_NODES)
        gpus = as_integer("gpus", gpus, 0, 1024)
        check_choice("strategy", strategy, _STRATEGIES)
        if not is_real(cpus) or not 0 <= cpus < 1e6:
            raise InvalidRequest(f"cpus={cpus!r}; it must be a number from 0")
        if memory is not None and not (is_integer(memory) and memory > 0):
            raise InvalidRequest(f"memory={memory!r}; it must be a positive number of bytes, or None")
        if supervision is not None and not isinstance(supervision, Supervision):
            raise InvalidRequest(f"supervision={supervision!r}; allowed: OneForOne(...), AllForOne(...)")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidRequest(f"name={name!r}; it must be a non-empty string, or None")
        if options is not None and not isinstance(options, dict):
            raise InvalidRequest(f"options={options!r}; allowed: a dict of options of System, or None")
        if carrier is not None and not isinstance(carrier, Carrier):
            raise InvalidRequest(f"carrier={carrier!r}; allowed: None for Ray, or InProcess()")
        check_outside()
        chosen = dict(options or {})
        if memory is not None:
            chosen.setdefault("memory_limit", {"host": memory * 4 // 5})
        self._system = System(**{**chosen, "standby": "off", "observe": False})
        self.name = name or f"cluster-{os.urandom(6).hex()}"
        self._closing = Lock()
        self._closed = self._ended = False
        self._closers: list[Callable[[], object]] = []
        names = {f"node{number}": gpus for number in range(count)}
        engine = carrier if carrier is not None else on_ray(self.name)
        made_nodes = Nodes(self._system, engine)
        self._nodes: Nodes | None = made_nodes
        made: Any = engine
        try:
            if carrier is None:
                made.prepare(
                    names, gpus=gpus, cpus=float(cpus), memory=memory, strategy=strategy, group=placement_group
                )  # fmt: skip
            else:
                made.prepare(names)
            self._peer = Peer(self.name, "the program that made the cluster", engine, self._system)
            made_nodes.start(self.name, names, chosen, supervision)
        except BaseException:
            self.close(1.0)
            raise

    @classmethod
    def join(cls, name: str | None = None) -> Cluster:
        """Take part in a cluster that another process of the same Ray cluster has made: a task, an actor, a job.

        On a node, in an actor: the node's own cluster.  To `close` it then is to leave it.

        Parameters
        ----------
        name : str, optional
            The cluster's name; may be left out on its nodes.

        Raises
        ------
        InvalidRequest
            If there is no such cluster.
        """
        for peer in _peers.all_peers():
            inside = is_inside(peer)
            if peer.cluster == name or (name is None and inside):
                return cls._joined(peer)
        if name is None:
            raise InvalidRequest("name=None; a process that is no node gives the name of the cluster: cluster.name")
        if not isinstance(name, str):
            raise InvalidRequest(f"name={name!r}; it must be the name of a cluster: cluster.name")
        on_ray(name)
        return cls._joined(_peers.current(name))

    @classmethod
    def _joined(cls, peer: Peer) -> Cluster:
        made = cls.__new__(cls)
        made._join(peer)  # noqa: SLF001 - its constructor
        return made

    def _join(self, peer: Peer) -> None:
        self.name, self._system, self._peer = peer.cluster, peer.system, peer
        self._closing, self._closers = Lock(), []
        self._closed = self._ended = False
        self._nodes = None  # they are another process's

    # ---- as a System

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self._peer.nodes)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages of this process that were not delivered; `System.dead_letters` of a node has the node's own."""
        return self._system.dead_letters

    def spawn(
        self,
        kind: type[Actor],
        *args: Any,
        node: int | str | None = None,
        name: str | None = None,
        supervision: Supervision | None = None,
        mailbox: Mailbox | None = None,
        **kwargs: Any,
    ) -> ActorRef:
        """Start an actor on a node; see `System.spawn`.  Waits until the node has it, not for its constructor.

        A restart of the node spawns it again, with the same address and arguments.

        Parameters
        ----------
        kind : type
            A subclass of `Actor`.  It is sent by name, or by value if it is defined in the main program.
        *args, **kwargs
            Arguments of its constructor, which must be picklable.
        node : int or str, optional
            The node, by number or name; by default each in turn.
        name, supervision, mailbox
            As for `System.spawn`.

        Raises
        ------
        InvalidRequest
            For a node that does not exist, a name that is taken, an argument that is not allowed or cannot be pickled.
        NodeLost
            If the node is lost.
        ActorStopped
            If the cluster is closed.
        """
        self._check_open()
        self._peer.tree.prepare(kind, name, supervision, mailbox)
        check_constructor(kind, args, kwargs)
        chosen = self._node(self._directory("turn") if node is None else node, turning=node is None)
        key = self._directory("new_key")
        name = name or f"{kind.__name__}-{key[1:]}"
        packed = pack((kind, args, kwargs, name, supervision, mailbox), self._peer)
        link = self._peer.link(chosen)
        self._directory("record", chosen, key, packed.data)
        try:
            made: ActorRef = link.control("spawn", key, packed.data)
        except NodeLost as error:
            if not error.may_have_run or link.lost is not None:
                raise
            made = link.control("spawn", key, packed.data)  # its next life has it, too; the key makes it one actor
        except AtomrError:
            self._directory("forget", chosen, key)
            raise
        return made

    def pool(self, kind: type[Actor], *args: Any, size: int, **options: Any) -> ClusterPool:
        """Start several actors of one kind behind one address, on several nodes; see `System.pool`.

        Waits until the nodes have them.  Each goes to the node, or the device, with the fewest actors of the pool.

        Parameters
        ----------
        kind, *args
            As for `spawn`.
        size : int
            Number of actors.
        nodes : sequence of int or str, optional
            The nodes to choose from, by default all.
        devices : sequence of str or RemoteDevice, optional
            Instead of `nodes`: such as ``["node0/cuda:0", "node1/cuda:0"]``.  Each actor has one of them as its
            constructor's argument ``device``: a `Device` of its own System.
        **options
            ``routing``, ``key``, ``name``, ``supervision``, ``mailbox`` as for `Pool`.

        Raises
        ------
        InvalidRequest, NodeLost, ActorStopped
            As `spawn`.

        Examples
        --------
        >>> import atomr_native as an
        >>> from atomr_native.ray import Cluster
        >>> from atomr_native.ray.in_process import InProcess
        >>> class Length(an.Actor):
        ...     def receive(self, text):
        ...         return len(text)
        >>> with Cluster(nodes=2, carrier=InProcess()) as cluster:
        ...     pool = cluster.pool(Length, size=4)
        ...     [pool.ask("x" * n).result(30) for n in range(5)]
        [0, 1, 2, 3, 4]
        """
        from .pools import ClusterPool

        self._check_open()
        return ClusterPool(self, self._peer, kind, args, size, options)

    def find(self, path: str) -> ActorRef | None:
        """Return the actor of a path such as ``"/node0/trainer/worker"``; None if there is none.  Waits."""
        self._check_open()
        if not isinstance(path, str) or path.strip("/").count("/") < 1:
            raise InvalidRequest(f"path={path!r}; it must be names such as '/node0/trainer/worker'")
        node, _, rest = path.strip("/").partition("/")
        found: ActorRef | None = self._peer.link(self._node(node)).control("find", f"/{rest}")
        return found

    def device(self, name: str) -> RemoteDevice:
        """Return a device of a node; start it on first use.  Waits until it is open.

        Parameters
        ----------
        name : str
            The node and its device: ``"node1/cuda:0"``, ``"node0/host"``.

        Raises
        ------
        InvalidRequest
            For a node or a device that does not exist, or a GPU that the node has not got.
        Unsupported
            If the device cannot run there.
        """
        self._check_open()
        if not isinstance(name, str) or name.count("/") != 1:
            raise InvalidRequest(f"device {name!r}; allowed: a node and its device, such as 'node0/host'")
        node, _, device = name.partition("/")
        node = self._node(node)
        address = address_of(device)
        if address.kind == "cuda" and address.number >= self._peer.nodes[node]:
            raise InvalidRequest(f"device {name!r}: {node} has {self._peer.nodes[node]} GPUs; see Cluster(gpus=)")
        return remote_device(self._peer, node, self._peer.link(node).control("device", address.name))

    def communicator(
        self, devices: Sequence[str | RemoteDevice], *, timeout: float | None = None
    ) -> ClusterCommunicator:
        """Make a communicator whose ranks are devices of nodes; see `ClusterCommunicator`.

        Waits until the node of rank 0 has its meeting place.

        Parameters
        ----------
        devices : sequence of str or RemoteDevice
            At most 16, each once, such as ``["node0/host", "node1/cuda:0"]``; their places are the ranks.
        timeout : float, optional
            Seconds that a rank waits for the others; by default without a limit.

        Raises
        ------
        InvalidRequest
            For no device, a device twice, or one that does not exist.
        NodeLost, ActorStopped
            As `spawn`.
        """
        from .communicator import check_ranks, communicator
        from .meeting import Meeting

        self._check_open()
        ranks = check_ranks(self._peer, devices)
        seconds = None if timeout is None else seconds_of(timeout, limited=True)
        node = ranks[0].partition("/")[0]
        name = f"communicator-{os.urandom(6).hex()}"
        ref = self.spawn(Meeting, ranks, seconds, node=node, name=name, mailbox=Mailbox(None))
        return communicator(self._peer, ranks, ref)

    def stop(self, ref: ActorRef) -> None:
        """Stop an actor after the messages sent to it; as ``ref.stop()``."""
        if not isinstance(ref, ActorRef):
            raise InvalidRequest(f"{ref!r} cannot be stopped; allowed: an ActorRef")
        ref.stop()

    def stats(self) -> dict[str, SystemStats | None]:
        """Return the statistics of each node's System; None for a node that is down or lost.  Waits."""
        self._check_open()
        found: dict[str, SystemStats | None] = {}
        for node, (state, _, _) in self._directory("nodes").items():
            try:
                found[node] = self._peer.link(node).control("stats") if state == "up" else None
            except NodeLost:
                found[node] = None
        return found

    def serve_metrics(self, port: int, *, address: str = "127.0.0.1") -> MetricsServer:
        """Serve the metrics of all nodes over HTTP for Prometheus, with a label ``node``, until the cluster is closed.

        Parameters and errors are those of `atomr_native.observe.serve_metrics`.  A request waits for the nodes.
        """
        self._check_open()
        made = observe.serve_metrics(self, port, address)
        self._closers.append(made.close)
        return made

    def publish(self) -> Publisher:
        """Let ``python -m atomr_native top`` on this machine show the devices and actors of all nodes; call it once.

        Raises
        ------
        Unsupported
            If there is no private folder of this user for the socket; see docs/observability.md.
        """
        self._check_open()
        made = observe.publish(self)
        self._closers.append(made.close)
        return made

    @property
    def token(self) -> str:
        """Identifies it among the programs that `publish`.  Internal."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def peer(self) -> Peer:
        """The part of this process in the cluster.  Internal."""
        return self._peer

    def lives(self) -> dict[str, tuple[str, int, int]]:
        """Return the state of each node, the number of its lives, and its number of GPUs.  Internal."""
        found: dict[str, tuple[str, int, int]] = self._directory("nodes")
        return found

    def close(self, timeout: float = 5.0) -> None:
        """Let messages leave and actors finish, for at most `timeout` seconds, then end all nodes.  Idempotent.

        A cluster that was joined is left; its nodes go on.  An interrupt (Ctrl-C) ends the wait; everything still
        ends, in another thread, and the next `close` waits for that.
        """
        self._close(time.monotonic() + seconds_of(timeout, limited=True))

    @shielded
    def _close(self, deadline: float) -> None:
        with Persisting(), self._closing:
            self._closed = True
            if not self._ended:
                self._end(deadline)
                self._ended = True

    def _end(self, deadline: float) -> None:
        nodes = self._nodes
        if nodes is not None:
            nodes.leave()
        for end in self._closers:
            end()
        peer: Peer | None = getattr(self, "_peer", None)  # none where the constructor failed
        if peer is not None and peer.host is None:
            peer.flush(deadline)
        if nodes is None:
            if peer is not None and peer.host is None:
                peer.close()
                self._system.close(0.0)
            return
        nodes.close(deadline)
        if peer is not None:
            peer.gather()
            peer.close()
        self._system.close(max(0.1, deadline - time.monotonic()))
        nodes.end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(5.0 if kind is None else 0.2)

    # ---- helpers

    def _check_open(self) -> None:
        if self._closed:
            raise ActorStopped(f"cluster {self.name!r} is closed; make a new one")

    def _directory(self, method: str, *args: Any) -> Any:
        while True:
            try:
                return self._peer.caller.directory(method, *args)
            except NodeUnavailable:
                time.sleep(0.02)
            except NodeDied:
                raise ActorStopped(f"cluster {self.name!r} has ended") from None

    def _node(self, node: int | str, *, turning: bool = False) -> str:
        return self._peer.node_name(int(node) % len(self._peer.nodes) if turning and is_integer(node) else node)

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r} of {len(self._peer.nodes)} nodes{', closed' if self._closed else ''}>"
