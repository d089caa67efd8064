"""A process's part in a cluster: its links to the nodes, and the names that it resolves."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from .._support.checks import is_integer
from ..actors.mailbox import Mailbox
from ..actors.ref import ActorRef
from ..dtypes import dtype_name
from ..errors import GpuRefStale, InvalidRequest
from . import _peers
from .arrays import Held, resolve_array
from .cell import RemoteCell, resolve_actor
from .communicator import Rank
from .devices import resolve_device
from .events import Events
from .link import Link
from .moving.client import Client
from .pairs import Pairs
from .span import Spans

if TYPE_CHECKING:
    from ..actors.cell import Cell
    from ..actors.tree import ActorTree
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from ..system import System
    from .carrier import Caller
    from .host import Host

__all__ = ["Peer"]


class Peer:
    """A process that takes part in a cluster.

    Parameters
    ----------
    cluster : str
        The cluster's name.
    name : str
        This process in errors.
    caller : Caller
    system : System
        Its own System: for timeouts and dead letters of what it sends; on a node that of the node.
    host : Host, optional
        On a node.
    """

    def __init__(self, cluster: str, name: str, caller: Caller, system: System, host: Host | None = None) -> None:
        self.cluster, self.name, self.caller, self.system, self.host = cluster, name, caller, system, host
        self.tree: ActorTree = system._tree()  # noqa: SLF001 - the actors of the System, which may have none yet
        self._lock = threading.RLock()
        self._links: dict[str, Link] = {}
        self._held: weakref.WeakValueDictionary[tuple[str, int, int], Held] = weakref.WeakValueDictionary()
        self.nodes: dict[str, int] = {}
        self.events = Events()
        self.moves = Client()
        self._ranks: dict[tuple[str, int], Rank] = {}
        self.spans = Spans()
        self.pairs = Pairs(self)
        self.refresh()
        if host is not None:
            self.tree.naming = self._name
        _peers.add(self)

    def refresh(self) -> None:
        """Read the names of the nodes, and their numbers of GPUs."""
        self.nodes = {name: found[2] for name, found in self.caller.directory("nodes").items()}

    def node_name(self, node: int | str) -> str:
        """Return the name of a node, given by number or name.

        Raises
        ------
        InvalidRequest
            If the cluster has no such node.
        """
        name = f"node{int(node)}" if is_integer(node) and int(node) >= 0 else node
        if name not in self.nodes:
            raise InvalidRequest(f"node={name!r}; allowed: {', '.join(self.nodes)}, or their numbers")
        return str(name)

    def link(self, node: str) -> Link:
        """Return the link to a node.

        Raises
        ------
        InvalidRequest
            If the cluster has no such node.
        """
        with self._lock:
            found = self._links.get(node)
            if found is None:
                if node not in self.nodes:
                    raise InvalidRequest(f"node {node!r} does not exist; allowed: {', '.join(self.nodes)}")
                found = self._links[node] = Link(self, node)
            return found

    def rank(self, name: tuple[str, int]) -> Rank:
        """Return what this process knows of one of its ranks of a communicator."""
        with self._lock:
            found = self._ranks.get(name)
            if found is None:
                found = self._ranks[name] = Rank(self)
            return found

    def flush(self, deadline: float) -> None:
        """Wait until all messages have left, or the deadline is over."""
        for link in list(self._links.values()):
            link.flush(deadline)

    def gather(self) -> None:
        """Take the last answers of nodes that have finished."""
        for link in list(self._links.values()):
            link.gather()

    def close(self) -> None:
        """Leave the cluster.  Idempotent."""
        _peers.remove(self)
        self.spans.close()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.close()
        self.moves.close()
        self.events.close()

    # ---- actors

    def actor(self, node: str, key: str, path: str, mailbox: Mailbox) -> ActorRef:
        """Return the address of an actor: a local one for an actor of this node."""
        ours = self.host is not None and node == self.host.place.node
        cell = self.host.cell(key) if ours and self.host is not None else None
        if cell is not None:
            return cell.ref
        link = self.link(node)
        with link.lock:
            found = link.cells.get(key)
            if found is None:
                found = RemoteCell(
                    mailbox.capacity or 0, 0, mailbox.overflow == "drop_oldest", link=link, tree=self.tree, key=key,
                    path=path, mailbox=mailbox,
                )  # fmt: skip
                link.cells[key] = found
        if ours:
            found.ends(None)  # an actor of this node that has stopped
        elif link.lost is not None:
            found.ends(link.lost)
        else:
            link.know(found)
        return found.ref

    def _name(self, cell: Cell) -> tuple[Any, ...]:
        return resolve_actor, (self.cluster, *self._address(cell))

    def _address(self, cell: Any) -> tuple[str, str, str, int | None, str]:
        if isinstance(cell, RemoteCell):
            return cell.link.node, cell.key, cell.path, cell.mailbox.capacity, cell.mailbox.overflow
        assert self.host is not None  # noqa: S101 - only nodes name their actors
        node = self.host.place.node
        return node, self.host.key_of(cell), f"/{node}{cell.path}", cell.mailbox.capacity, cell.mailbox.overflow

    def address_of(self, sender: ActorRef | None) -> tuple[str, str, str, int | None, str] | None:
        """Return the name of a sender; None for one that other nodes cannot reach."""
        cell: Any = None if sender is None else sender.cell
        if cell is None or (cell.tree.naming is None and not isinstance(cell, RemoteCell)):
            return None
        return self._address(cell)

    def sender(self, address: tuple[str, str, str, int | None, Any] | None) -> ActorRef | None:
        """Return the actor of a name made by `address_of`."""
        if address is None:
            return None
        node, key, path, capacity, overflow = address
        return self.actor(node, key, path, Mailbox(capacity, overflow))

    # ---- arrays

    def export(self, ref: GpuRef, holds: list[Any]) -> tuple[Any, ...]:
        """Return how a handle of this node is pickled; `holds` gets the object that keeps its memory until then."""
        host = self.host
        if host is None or ref.device.system is not host.system:
            raise InvalidRequest(
                f"{ref!r} cannot be sent to another node: its System is not one of the cluster's nodes; put the data "
                f"with cluster.device(...).put"
            )
        ident, hold = host.arrays.export(ref)
        holds.append(hold)
        place = host.place
        return resolve_array, (
            self.cluster, place.node, place.incarnation, ident, ref.device.name, ref.shape, dtype_name(ref.dtype)
        )  # fmt: skip

    def own_array(self, node: str, incarnation: int, ident: int) -> GpuRef | None:
        """Return the array of this node with a number; None for an array of another one."""
        host = self.host
        if host is None or node != host.place.node:
            return None
        if incarnation != host.place.incarnation:
            raise GpuRefStale(f"the array was in the memory of {node}, which was lost", "node lost")
        return host.arrays.find(ident)

    # ---- devices

    def export_device(self, device: Device) -> tuple[Any, ...]:
        """Return how a device of this node is pickled."""
        host = self.host
        if host is None or device.system is not host.system:
            raise InvalidRequest(
                f"{device!r} cannot be sent to another node: its System is not one of the cluster's nodes; take the "
                f"device of cluster.device"
            )
        return resolve_device, (self.cluster, host.place.node, device.name)

    def hold(self, node: str, incarnation: int, ident: int) -> Held:
        """Return this process's hold of an array, taken from its node if it is new.  Waits."""
        with self._lock:
            found = self._held.get((node, incarnation, ident))
        if found is not None:
            return found
        self.link(node).control("lease", incarnation, ident)
        return self.held(node, incarnation, ident)

    def held(self, node: str, incarnation: int, ident: int) -> Held:
        """Return this process's hold of an array whose node has counted it."""
        link = self.link(node)
        made = Held(link, incarnation, ident)  # a second one, of another thread, has its own count
        with self._lock:
            self._held[node, incarnation, ident] = made
        return made
