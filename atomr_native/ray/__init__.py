"""Actors and devices on the nodes of a Ray cluster: the extra ``[ray]``.

Nothing else in the package imports this one.
"""

from __future__ import annotations

from .._support.options import named_members
from .arrays import RemoteRef
from .cluster import Cluster
from .communicator import ClusterCommunicator
from .devices import RemoteDevice
from .pools import ClusterPool

__all__ = ["Cluster", "ClusterCommunicator", "ClusterPool", "RemoteDevice", "RemoteRef"]

named_members(globals(), __all__)
