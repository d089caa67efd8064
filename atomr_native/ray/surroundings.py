"""Which cluster the calling thread is in, and how Ray's becomes known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._lib.actor_cell import current_cell
from .._support.extras import how_to_install
from ..errors import InvalidRequest, Unsupported
from . import _peers

if TYPE_CHECKING:
    from .carrier import Carrier
    from .peer import Peer

__all__ = ["check_outside", "is_inside", "on_ray"]


def is_inside(peer: Peer) -> bool:
    """Whether this is a node's process, or the thread of an actor of a node in this process."""
    here: Any = current_cell()
    return peer.host is not None and (not peer.caller.shared or (here is not None and here.tree is peer.tree))


def check_outside() -> None:
    """Raise if this is an actor of a cluster's node."""
    for peer in _peers.all_peers():
        if is_inside(peer):
            raise InvalidRequest(
                f"a cluster cannot be made inside an actor of cluster {peer.cluster!r}; Cluster.join() gives the "
                f"actor its own cluster"
            )


def on_ray(name: str) -> Carrier:
    """Return the carrier of a cluster on Ray.

    Raises
    ------
    Unsupported
        If Ray is missing, too old, or used by Ray Client.
    """
    try:
        from .on_ray import OnRay, check_ray
    except ImportError as error:
        raise Unsupported(f"Ray cannot be imported ({error}): {how_to_install('ray')}", rule="ray.missing") from None
    check_ray()
    return OnRay(name)
