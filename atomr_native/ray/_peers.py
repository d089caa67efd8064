"""The clusters that this process takes part in, for names that are unpickled here."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .._lib.guard import Lock
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from .peer import Peer

__all__ = ["acting_as", "add", "all_peers", "current", "joiner", "remove"]

_lock = Lock()
_peers: dict[str, list[Peer]] = {}
_here = threading.local()
#: Finds the cluster of a name in a process that has not joined it; set by the implementation on Ray.
joiner: list[Callable[[str], Peer | None]] = []


def add(peer: Peer) -> None:
    """Register this process's part in a cluster."""
    with _lock:
        _peers.setdefault(peer.cluster, []).append(peer)


def remove(peer: Peer) -> None:
    """Remove it.  Idempotent."""
    with _lock:
        found = _peers.get(peer.cluster, [])
        if peer in found:
            found.remove(peer)
        if not found:
            _peers.pop(peer.cluster, None)


def all_peers() -> list[Peer]:
    """Return all of this process."""
    with _lock:
        return [peer for each in _peers.values() for peer in each]


@contextlib.contextmanager
def acting_as(peer: Peer) -> Iterator[None]:
    """Resolve names in this thread for one peer: several are in one process where nodes are."""
    before = getattr(_here, "peer", None)
    _here.peer = peer
    try:
        yield
    finally:
        _here.peer = before


def current(cluster: str) -> Peer:
    """Return the peer for which a name of a cluster is resolved.

    Raises
    ------
    InvalidRequest
        If the cluster has ended, or cannot be reached from here.
    """
    peer: Peer | None = getattr(_here, "peer", None)
    if peer is not None and peer.cluster == cluster:
        return peer
    with _lock:
        found = _peers.get(cluster)
        if found:
            return found[0]
    if "ray" in sys.modules:
        importlib.import_module(".on_ray", __package__)
    for join in joiner:
        peer = join(cluster)
        if peer is not None:
            return peer
    raise InvalidRequest(f"cluster {cluster!r} cannot be reached from this process, or has been closed")
