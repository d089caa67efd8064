"""Arrays of devices in results of plain Ray actors: ``tensor_transport="ATOMR"``.

Ray moves such values by a transport: it leaves the handles with the actor that returned them, and sends their names.
Whoever uses the result takes the bytes directly from that actor's process, as nodes of a cluster do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.experimental import register_tensor_transport, wait_tensor_freed
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)
from ray.experimental.rdt.util import transport_manager_info

from ..arrays.gpu_ref import GpuRef
from ..dtypes import dtype_name
from ..errors import GpuRefStale, InvalidRequest
from .moving.client import Broken, Client
from .moving.server import Server

if TYPE_CHECKING:
    from ..device import Device
    from .moving.way import Way

__all__ = ["NAME", "use_device"]

NAME = "ATOMR"


@dataclass
class _Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """The names of arrays, and the way to their process."""

    way: Way | None = None
    keys: list[str] = field(default_factory=list)


class _Process:
    """The part of this process: the arrays that it has returned, and the device on which others' arrive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: dict[str, GpuRef] = {}
        self._server: Server | None = None
        self.client = Client()
        self.device: Device | None = None

    def give(self, ident: str, refs: list[GpuRef]) -> tuple[Way, list[str]]:
        """Give arrays to other processes until `forget`; return the way here, and the arrays' keys."""
        keys = [f"{ident}/{number}" for number in range(len(refs))]
        with self._lock:
            if self._server is None:
                self._server = Server(self.find, str(ray.util.get_node_ip_address()))
            self._arrays.update(zip(keys, refs, strict=True))
            return self._server.way, keys

    def find(self, key: str) -> GpuRef:
        """Return an array that is given."""
        found = self._arrays.get(key)
        if found is None:
            raise GpuRefStale("the array was freed: the last reference to the result has gone", "freed")
        return found

    def forget(self, keys: list[str]) -> None:
        """Give arrays no longer."""
        with self._lock:
            for key in keys:
                self._arrays.pop(key, None)

    def take(self, way: Way, key: str, out: GpuRef | None) -> GpuRef:
        """Return an array of a process: the handle itself where it is this one."""
        server = self._server
        if server is not None and server.way == way:
            found = self.find(key)
            return found if out is None else out.device.copy(found, out)
        device = self.device if out is None else out.device
        if device is None:
            raise InvalidRequest(
                "this process has no device for arrays of other processes; call atomr_native.ray.use_device(device) "
                "first, in an actor in its constructor"
            )
        try:
            found = self.client.take(way, key, device)
        except Broken as error:
            raise GpuRefStale(
                f"the array was in the memory of another process, which has ended or is not reached: {error}",
                "node lost",
            ) from None
        return found if out is None else device.copy(found, out)


_here = _Process()


class AtomrTransport(TensorTransportManager):  # type: ignore[misc]
    """The transport, as Ray calls it."""

    def tensor_transport_backend(self) -> str:
        """Return its name."""
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        """Whether only the receiver acts: yes."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Whether a transfer that fails leaves its actors alive: yes."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:  # noqa: ARG002 - Ray's
        """Whether an actor can send and receive; it says so itself when it does not."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[GpuRef]) -> TensorTransportMetadata:
        """Return the names of the arrays of a result."""
        meta = [(each.shape, dtype_name(each.dtype)) for each in rdt_object]
        way, keys = _here.give(obj_id, list(rdt_object)) if rdt_object else (None, [])
        return _Metadata(meta, "atomr", way, keys)

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None  # noqa: ARG002 - Ray's
    ) -> CommunicatorMetadata:  # fmt: skip
        """Return what both sides must know beside: nothing."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: _Metadata, communicator_metadata: CommunicatorMetadata,  # noqa: ARG002
        target_buffers: list[GpuRef] | None = None,
    ) -> list[GpuRef]:  # fmt: skip
        """Return the arrays of a result, as handles of this process's device."""
        meta = tensor_transport_metadata
        if not meta.keys or meta.way is None:
            return []
        outs: list[GpuRef | None] = [*target_buffers] if target_buffers else [None] * len(meta.keys)
        return [_here.take(meta.way, key, out) for key, out in zip(meta.keys, outs, strict=True)]

    def send_multiple_tensors(
        self, tensors: list[GpuRef], tensor_transport_metadata: _Metadata, communicator_metadata: CommunicatorMetadata
    ) -> None:
        """Do nothing: the receiver takes."""

    def garbage_collect(
        self, obj_id: str, tensor_transport_meta: _Metadata, tensors: list[GpuRef]  # noqa: ARG002 - Ray's
    ) -> None:  # fmt: skip
        """Free the arrays of a result that nobody names any more."""
        _here.forget(tensor_transport_meta.keys)

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Do nothing: a transfer that failed has ended."""


if NAME not in transport_manager_info:
    register_tensor_transport(NAME, ["atomr"], AtomrTransport, GpuRef)

# Ray makes a process's store of arrays at its first use, and without a lock. Where an actor's thread and that of a
# transfer make it at once, the array arrives in one store and is awaited in the other. This call makes it: an actor
# imports this module before its first transfer.
wait_tensor_freed(None, timeout=0)


def use_device(device: Device) -> None:
    """Serve `atomr_native.ray.use_device`."""
    _here.device = device
