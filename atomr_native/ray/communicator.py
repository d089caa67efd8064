"""Communicators over the nodes of a cluster: the side of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._lib.guard import Lock
from .._support.checks import is_integer, is_real
from ..actors.actor import Actor
from ..arrays.gpu_ref import GpuRef
from ..errors import ActorStopped, AtomrError, InvalidRequest, LibraryError, Unsupported
from ..runtime.addresses import address_of
from . import _peers
from .crossing import Crossing
from .exchange import Exchange
from .meeting import MOST_RANKS
from .rank_messages import MEET, Brought, ByHost, Call, Data, Failed, Given, Go, Here, Join, Stamp

if TYPE_CHECKING:
    from ..actors.ref import ActorRef
    from ..device import Device
    from .peer import Peer

__all__ = ["ClusterCommunicator", "Rank", "check_ranks", "communicator"]

#: Bytes from which an array stays where it is, and the other ranks take from it.
DIRECT = 256 << 10

#: Errors after which ranks go through host memory.
_UNCONNECTED = (Unsupported, LibraryError, ActorStopped)

Reduction = Literal["sum", "prod", "min", "max", "avg"]


class _Seat(Actor):
    """Ends with the process of a rank, which the meeting watches."""


class Rank:
    """What a process knows of one of its ranks: shared by all copies of the communicator there."""

    def __init__(self, peer: Peer) -> None:
        self.lock = Lock()
        self.seat: ActorRef = peer.tree.top().family.spawn(_Seat, (), {}, None, None, None).ref
        self.stamp: Stamp | None = None
        self.by_host: Stamp | None = None  # the generation in which ranks have found that NCCL does not connect them
        self.note = ""


class ClusterCommunicator:
    """Ranks on several nodes that run collectives together; made by `Cluster.communicator`.

    A rank is a device of a node, and each rank sends its own calls: an actor on that node calls a method with the array
    of its device, and all ranks call the same methods in the same order.  It travels in messages and in arguments of
    actors.  Methods wait until all ranks have come.  Results are those of a `Communicator` of one System, with the same
    bits, and arrays are checked as there.

    Ranks that are GPUs meet by NCCL, over all nodes; `notes` says if that is not possible.  Others, and then GPUs as
    well, reduce in host memory: arrays of less than 256 KiB pass through the node of rank 0, and of larger ones the
    ranks take from each other what they need, directly (docs/clusters.md, "Device memory").

    A call that one rank cannot take part in fails on all ranks with that rank's error.  When the node of a rank is
    lost, the calls that wait fail with `NodeLost` on all ranks, and `generation` grows; once the node is back, its
    actors call again, and so do the others.  A call fails at once while a node is lost for good.

    Attributes
    ----------
    ranks : tuple of str
        The node and device of each rank.
    size : int
        The number of ranks.

    Examples
    --------
    >>> import atomr_native as an
    >>> from atomr_native.ray import Cluster
    >>> from atomr_native.ray.in_process import InProcess
    >>> class Sums(an.Actor):
    ...     def receive(self, comm):
    ...         device = self.context.system.device("host")
    ...         return comm.all_reduce(device.put([1.0, 2.0])).numpy().tolist()
    >>> with Cluster(nodes=2, carrier=InProcess()) as cluster:
    ...     comm = cluster.communicator(["node0/host", "node1/host"])
    ...     answers = [cluster.spawn(Sums, node=node).ask(comm) for node in range(2)]
    ...     [answer.result(30) for answer in answers]
    [[2.0, 4.0], [2.0, 4.0]]
    """

    ranks: tuple[str, ...]
    size: int
    _meeting: ActorRef
    _peer: Peer

    def __init__(self) -> None:
        raise TypeError("a ClusterCommunicator is made by a cluster: cluster.communicator(['node0/host', ...])")

    @property
    def generation(self) -> int:
        """Grows each time that the node of a rank is back after a restart.  Waits for the node of rank 0."""
        found: int = self._meeting.ask("generation").result()
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the ranks of this process take a longer way than NCCL's, as far as is known.  Does not wait."""
        found = [self._peer.rank((self._meeting.path, rank)) for rank in self._places()]
        return tuple(dict.fromkeys(each.note for each in found if each.note and each.by_host == each.stamp))

    def all_reduce(
        self, array: GpuRef, out: GpuRef | None = None, *, op: Reduction = "sum", factor: float | None = None
    ) -> GpuRef:
        """Return the reduction of all ranks' arrays, on every rank; see `Communicator.all_reduce`.

        Raises
        ------
        InvalidRequest
            For arrays that do not match, calls of ranks that differ, or an array that is on no rank.
        NodeLost
            If the node of a rank is lost meanwhile, or for good.
        AskTimeout
            If other ranks have not come within the communicator's timeout; a new generation begins.
        AtomrError
            The error of a rank that cannot take part.
        """
        return self._whole("all_reduce", array, out, op=op, factor=factor)

    def reduce(
        self, array: GpuRef, root: int = 0, out: GpuRef | None = None, *, op: Reduction = "sum",
        factor: float | None = None,
    ) -> GpuRef | None:  # fmt: skip
        """Return the reduction on the rank `root`, and None on the others.  Raises as `all_reduce`."""
        return self._call("reduce", array, out, op=op, factor=factor, root=root)

    def reduce_scatter(
        self, array: GpuRef, out: GpuRef | None = None, *, op: Reduction = "sum", factor: float | None = None
    ) -> GpuRef:
        """Return an equal part of the reduction, along the first axis.  Raises as `all_reduce`."""
        return self._whole("reduce_scatter", array, out, op=op, factor=factor)

    def broadcast(
        self, array: GpuRef | None = None, root: int = 0, out: GpuRef | None = None, *, rank: int | None = None
    ) -> GpuRef:
        """Return a copy of the array of the rank `root`; other ranks give none.  Raises as `all_reduce`.

        `rank` is needed on a node with several ranks.
        """
        return self._whole("broadcast", array, out, root=root, rank=rank)

    def scatter(
        self, array: GpuRef | None = None, root: int = 0, out: GpuRef | None = None, *, rank: int | None = None
    ) -> GpuRef:
        """Return an equal part of the array of the rank `root`; as `broadcast`."""
        return self._whole("scatter", array, out, root=root, rank=rank)

    def all_gather(self, array: GpuRef, out: GpuRef | None = None) -> GpuRef:
        """Return all ranks' arrays, joined along the first axis.  Raises as `all_reduce`."""
        return self._whole("all_gather", array, out)

    def gather(self, array: GpuRef, root: int = 0, out: GpuRef | None = None) -> GpuRef | None:
        """Join as `all_gather` does, on the rank `root`; None on the others."""
        return self._call("gather", array, out, root=root)

    def all_to_all(
        self, array: GpuRef, out: GpuRef | None = None, *, counts: Sequence[int] | None = None
    ) -> GpuRef:  # fmt: skip
        """Return this rank's part of every rank's array.  Raises as `all_reduce`.

        `counts` are the rows for each rank; by default all alike.  All ranks give them, or none.
        """
        if counts is not None:
            if not isinstance(counts, Sequence) or not all(map(is_integer, counts)):
                raise InvalidRequest(f"counts={counts!r}; allowed: {self.size} numbers of rows, or None")
            counts = tuple(int(each) for each in counts)
        return self._whole("all_to_all", array, out, counts=counts)

    def barrier(self, *, rank: int | None = None) -> None:
        """Wait until all ranks have come.  `rank` is needed on a node with several ranks.  Raises as `all_reduce`."""
        self._call("barrier", None, None, rank=rank)

    def close(self) -> None:
        """End the communicator for all ranks.  Does not wait; calls fail with `ActorStopped`.  Idempotent."""
        self._meeting.stop()

    # ---- helpers

    def _whole(self, kind: str, array: GpuRef | None, out: GpuRef | None, **options: Any) -> GpuRef:
        found = self._call(kind, array, out, **options)
        assert found is not None  # noqa: S101 - these have a result on every rank
        return found

    def _call(
        self, kind: str, array: GpuRef | None, out: GpuRef | None, *, op: str = "sum", factor: float | None = None,
        root: int = 0, rank: int | None = None, counts: tuple[int, ...] | None = None,
    ) -> GpuRef | None:  # fmt: skip
        if not is_integer(root) or not 0 <= root < self.size:
            raise InvalidRequest(f"root={root!r}; allowed: a rank, from 0 to {self.size - 1}")
        if factor is not None and not is_real(factor):
            raise InvalidRequest(f"factor={factor!r}; allowed: a number, or None")
        mine = self._rank_of(array, rank)
        device = self._device(mine)
        gives = kind != "barrier" and (kind not in ("broadcast", "scatter") or mine == root)
        if gives and array is None:
            raise InvalidRequest(f"{kind}: array=None on rank {mine}, which gives the array; allowed: a GpuRef")
        if out is not None and (not isinstance(out, GpuRef) or out.device is not device):
            raise InvalidRequest(f"out={out!r}; allowed: an array of {self.ranks[mine]}, or None")
        known = self._peer.rank((self._meeting.path, mine))
        with known.lock:  # which keeps the order of this rank's calls
            what = (kind, op, factor, int(root))
            given = array if gives else None
            if self._joined(known, mine) != known.by_host and self._are_gpus and kind != "barrier":
                found = self._by_nccl(known, mine, what, given, out, counts)
                if not isinstance(found, ByHost):
                    return found
            return self._by_host(known, mine, what, given, out, counts)

    def _by_host(
        self, known: Rank, mine: int, what: tuple[str, str, float | None, int], array: GpuRef | None,
        out: GpuRef | None, counts: tuple[int, ...] | None,
    ) -> GpuRef | None:  # fmt: skip
        """Run a call through host memory."""
        device, factor = self._device(mine), what[2]
        data, hold = (None, None) if array is None else self._given(array)
        found = self._send(known, mine, what, data, counts)
        if isinstance(found, ByHost):  # another rank wanted NCCL
            found = self._send(known, mine, what, data, counts)
        if isinstance(found, Go):

            def meet(brought: Any) -> Any:
                return self._send(known, mine, (MEET, "", None, 0), brought, None)

            result = Exchange(self._peer, found, mine, device, factor, meet).run(out)
            del hold
            return result
        return None if found is None else device.put(found.array(), out=out)

    def _by_nccl(
        self, known: Rank, mine: int, what: tuple[str, str, float | None, int], array: GpuRef | None,
        out: GpuRef | None, counts: tuple[int, ...] | None,
    ) -> GpuRef | ByHost | None:  # fmt: skip
        """Run a call by NCCL; `ByHost` if all ranks are to go through host memory."""
        stamp = self._joined(known, mine)
        found = self._send(known, mine, what, None if array is None else _here(array), counts, by_nccl=True)
        if isinstance(found, ByHost):
            known.by_host, known.note = stamp, "through host memory: another rank does not meet by NCCL"
            return found

        def meet(brought: Brought) -> Any:
            return self._send(known, mine, (MEET, "", None, 0), brought, None)

        def report(error: AtomrError | None) -> object:
            known.stamp = None
            return self._meeting.ask(Failed(stamp, mine, error)).result()

        crossing = Crossing(self._peer, self.ranks, stamp, found, mine, self._devices(), meet, report)
        try:
            crossing.connect()
            return crossing.run(array, out, what[2])
        except AtomrError as error:
            if found.stage == "known" or known.stamp != stamp:
                raise
            if not isinstance(error, _UNCONNECTED):
                if found.stage == "connect":
                    report(error)
                raise
            known.by_host, known.note = stamp, f"through host memory, since NCCL does not connect the ranks: {error}"
            return ByHost()

    def _joined(self, known: Rank, rank: int) -> Stamp:
        """Return the stamp of a rank's calls, of which the meeting knows."""
        if known.stamp is None:
            known.stamp = self._meeting.ask(Join(rank, known.seat)).result()
        return known.stamp

    @property
    def _are_gpus(self) -> bool:
        return self.size > 1 and all("/cuda:" in name for name in self.ranks)

    def _given(self, array: GpuRef) -> tuple[Data | Given | AtomrError, object]:
        """Return what a rank gives: a small array itself, and the name of a large one, with its hold."""
        host = self._peer.host
        assert host is not None  # noqa: S101 - `_rank_of` has found a rank here
        try:
            if array.nbytes < DIRECT:
                return Data.of(array.numpy(), array.layout.dtype_name), None
            array.wait()
            return host.give(array)
        except AtomrError as error:
            return error, None

    def _send(
        self, known: Rank, rank: int, what: tuple[str, str, float | None, int], data: Any,
        counts: tuple[int, ...] | None, *, by_nccl: bool = False,
    ) -> Any:  # fmt: skip
        """Make a call, and wait until all ranks have come to it; the caller holds the lock of the rank."""
        stamp = self._joined(known, rank)
        try:
            return self._meeting.ask(Call(stamp, rank, what, data, counts, by_nccl)).result()
        except AtomrError:
            known.stamp = None  # there may be another generation
            raise

    def _rank_of(self, array: GpuRef | None, rank: int | None) -> int:
        host = self._peer.host
        if array is not None:
            if not isinstance(array, GpuRef):
                raise InvalidRequest(f"array={array!r}; allowed: a GpuRef on the device of a rank")
            name = "" if host is None else f"{host.place.node}/{array.device.name}"
            if host is None or array.device.system is not host.system or name not in self.ranks:
                raise InvalidRequest(f"{array!r} is on no rank of this node; the ranks are {', '.join(self.ranks)}")
            return self.ranks.index(name)
        mine = list(self._places())
        if rank is not None:
            if rank not in mine:
                raise InvalidRequest(f"rank={rank!r}; this process has the ranks {mine}")
            return int(rank)
        if len(mine) != 1:
            raise InvalidRequest(f"rank=None; this process has the ranks {mine}, and one of them must be named")
        return mine[0]

    def _places(self) -> dict[int, str]:
        """Return the ranks of this process, with their devices."""
        here = "" if self._peer.host is None else self._peer.host.place.node
        placed = [name.partition("/") for name in self.ranks]
        return {rank: device for rank, (node, _, device) in enumerate(placed) if node == here}

    def _devices(self) -> dict[int, Device]:
        return {rank: self._device(rank) for rank in self._places()}

    def _device(self, rank: int) -> Device:
        host = self._peer.host
        assert host is not None  # noqa: S101 - `_rank_of` has found a rank here
        return host.system.device(self.ranks[rank].partition("/")[2])

    def __reduce__(self) -> tuple[Any, ...]:
        return _resolve, (self._peer.cluster, self.ranks, self._meeting)

    def __repr__(self) -> str:
        return f"<ClusterCommunicator of {', '.join(self.ranks)}>"


def _here(array: GpuRef) -> Here | AtomrError:
    """Return what a rank says of an array that stays with it, once it is written."""
    try:
        array.wait()
    except AtomrError as error:
        return error
    return Here(array.shape, array.layout.dtype_name)


def communicator(peer: Peer, ranks: tuple[str, ...], meeting: ActorRef) -> ClusterCommunicator:
    """Return a communicator in this process."""
    made = ClusterCommunicator.__new__(ClusterCommunicator)
    made.ranks, made.size = ranks, len(ranks)
    made._peer, made._meeting = peer, meeting  # noqa: SLF001 - its constructor
    return made


def _resolve(cluster: str, ranks: tuple[str, ...], meeting: ActorRef) -> ClusterCommunicator:
    return communicator(_peers.current(cluster), ranks, meeting)


def check_ranks(peer: Peer, devices: object) -> tuple[str, ...]:
    """Return the names of ranks.

    Raises
    ------
    InvalidRequest
        For no rank, too many, one that is given twice, or that does not exist.
    """
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise InvalidRequest(f"devices={devices!r}; allowed: a list such as ['node0/host', 'node1/host']")
    found = []
    for each in devices:
        name = str(each) if isinstance(each, str) else f"{getattr(each, 'node', each)!s}/{getattr(each, 'name', '')!s}"
        if name.count("/") != 1:
            raise InvalidRequest(f"device {name!r}; allowed: a node and its device, such as 'node0/host'")
        node, _, device = name.partition("/")
        address = address_of(device)
        node = peer.node_name(node)
        if address.kind == "cuda" and address.number >= peer.nodes[node]:
            raise InvalidRequest(f"device {name!r}: {node} has {peer.nodes[node]} GPUs; see Cluster(gpus=)")
        found.append(f"{node}/{address.name}")
    if len(set(found)) != len(found) or len(found) > MOST_RANKS:
        raise InvalidRequest(f"devices={found}; allowed: up to {MOST_RANKS}, each once")
    return tuple(found)
