"""Devices of other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import as_dtype, dtype_name
from ..errors import AtomrError, InvalidRequest
from . import _peers
from .arrays import RemoteRef, as_bytes, remote_ref

if TYPE_CHECKING:
    from ..device import Device
    from .link import Link
    from .peer import Peer

__all__ = ["RemoteDevice", "remote_device", "resolve_device"]


class RemoteDevice:
    """A device of a node; made by `Cluster.device`.

    Its calls wait for an answer of the node, and raise the errors of `Device`'s calls of the same names.  In a message
    to its own node it arrives as the `Device` itself.  ``context.watch`` takes it as it takes a `Device`.

    Attributes
    ----------
    node, name : str
        Such as ``"node1"`` and ``"cuda:0"``.
    """

    __slots__ = ("_peer", "name", "node")
    watchable = True  # by `Context.watch`
    _peer: Peer
    node: str
    name: str

    def __init__(self) -> None:
        raise TypeError("a RemoteDevice is made by a cluster: cluster.device('node1/cuda:0')")

    def put(self, array: object, dtype: object = None, *, durable: bool = False) -> RemoteRef:
        """Copy an array to the device; see `Device.put`.  Waits until it is there.

        The bytes of a `RemoteRef` go from its node to this device's.
        """
        if isinstance(array, RemoteRef):
            kind = None if dtype is None else as_dtype(dtype)
            return self._made(self._link().control("take", self.name, array, kind, bool(durable)))
        found = np.asarray(array, None if dtype is None else as_dtype(dtype))
        if found.dtype == object:
            raise InvalidRequest(f"array of dtype object; {array!r} has no element type that a device can hold")
        meta = (self.name, found.shape, dtype_name(found.dtype), bool(durable))
        return self._made(self._link().control("put", *meta, blob=as_bytes(found)))

    def empty(self, shape: int | tuple[int, ...], dtype: object = "float32", *, durable: bool = False) -> RemoteRef:
        """Allocate an uninitialised array; see `Device.empty`."""
        return self._made(self._link().control("make", self.name, "empty", (shape, as_dtype(dtype)), bool(durable)))

    def full(
        self, shape: int | tuple[int, ...], value: complex, dtype: object = "float32", *, durable: bool = False
    ) -> RemoteRef:
        """Allocate an array of one value; see `Device.full`."""
        made = self._link().control("make", self.name, "full", (shape, value, as_dtype(dtype)), bool(durable))
        return self._made(made)

    def zeros(self, shape: int | tuple[int, ...], dtype: object = "float32", *, durable: bool = False) -> RemoteRef:
        """Allocate an array of zeros; see `Device.zeros`."""
        return self.full(shape, 0, dtype, durable=durable)

    def get(self, ref: RemoteRef) -> np.ndarray[Any, Any]:
        """Return a copy of an array of this device; see `RemoteRef.numpy`.

        Raises
        ------
        InvalidRequest
            If it is none of this device's arrays.
        """
        if not isinstance(ref, RemoteRef) or (ref.node, ref.device) != (self.node, self.name):
            raise InvalidRequest(f"{ref!r} is not an array of {self.node}/{self.name}")
        return ref.numpy()

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call ``callback(generation)`` after each restart of the device, or of its node; see `Device.on_generation`.

        `generation` is counted in each life of the node.  Does not wait; the node starts the device if it has not yet.
        """
        self._link().watch_device(self.name).on_generation(callback)

    def on_end(self, callback: Callable[[AtomrError], object]) -> None:
        """Call ``callback(error)`` once, when the device is lost or closed, or its node; see `Device.on_end`."""
        self._link().watch_device(self.name).on_end(callback)

    def forget(self, callback: Callable[..., object]) -> None:
        """Remove a callback of `on_generation` or `on_end`.  Idempotent."""
        self._link().watch_device(self.name).forget(callback)

    def stats(self) -> dict[str, Any]:
        """Return the device's counters; see `Device.stats`."""
        found: dict[str, Any] = self._link().control("device_stats", self.name)
        return found

    def _link(self) -> Link:
        return self._peer.link(self.node)

    def _made(self, found: tuple[int, int, tuple[int, ...], str]) -> RemoteRef:
        incarnation, ident, shape, dtype = found
        return remote_ref(self._peer.held(self.node, incarnation, ident), self.name, shape, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_device, (self._peer.cluster, self.node, self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteDevice) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self._peer.cluster, self.node, self.name))

    def __repr__(self) -> str:
        return f"<RemoteDevice {self.node}/{self.name}>"


def remote_device(peer: Peer, node: str, name: str) -> RemoteDevice:
    """Return the face of a device."""
    made = RemoteDevice.__new__(RemoteDevice)
    made._peer, made.node, made.name = peer, node, name  # noqa: SLF001 - its constructor
    return made


def resolve_device(cluster: str, node: str, name: str) -> RemoteDevice | Device:
    """Return a device in this process: the `Device` itself on its own node."""
    peer = _peers.current(cluster)
    if peer.host is not None and peer.host.place.node == node:
        return peer.host.system.device(name)
    return remote_device(peer, node, name)
