"""Actors and devices on the nodes of a Ray cluster: the extra ``[ray]``.

Nothing else in the package imports this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._support.options import named_members
from .arrays import RemoteRef
from .cluster import Cluster
from .communicator import ClusterCommunicator
from .devices import RemoteDevice
from .pools import ClusterPool

if TYPE_CHECKING:
    from .results import use_device

__all__ = ["Cluster", "ClusterCommunicator", "ClusterPool", "RemoteDevice", "RemoteRef", "use_device"]

named_members(globals(), [name for name in __all__ if name != "use_device"])


def __getattr__(name: str) -> object:
    """Import Ray when a program first wants what needs it."""
    if name != "use_device":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .results import use_device

    return globals().setdefault(name, use_device)
