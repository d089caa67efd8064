"""Device memory of other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import as_dtype, dtype_name
from ..errors import GpuRefStale, InvalidRequest, NodeLost
from . import _peers

if TYPE_CHECKING:
    from ..arrays.gpu_ref import GpuRef
    from ..device import Device
    from .link import Link

__all__ = ["Held", "RemoteRef", "as_bytes", "from_bytes", "remote_ref", "resolve_array"]


def as_bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of an array in C order, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def from_bytes(blob: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return the array of bytes that `as_bytes` made."""
    return np.asarray(blob).view(as_dtype(dtype)).reshape(shape)


class Held:
    """The hold of this process on an array of another node, shared by its handles; dropped with the last of them."""

    __slots__ = ("__weakref__", "freed", "ident", "incarnation", "link")

    def __init__(self, link: Link, incarnation: int, ident: int) -> None:
        self.link, self.incarnation, self.ident = link, incarnation, ident
        self.freed = False

    def check(self) -> None:
        """Raise `GpuRefStale` if the memory is known to be gone."""
        link = self.link
        if self.freed:
            raise GpuRefStale(f"the array of {link.node} was freed", "freed")
        life = link.life
        if link.lost is not None or (life is not None and life.incarnation != self.incarnation):
            raise GpuRefStale(f"the array was in the memory of {link.node}, which was lost", "node lost")

    def __del__(self) -> None:
        life = self.link.life
        if life is not None and life.incarnation == self.incarnation:
            self.link.post(("release", self.ident))


class RemoteRef:
    """A handle of an array in the memory of another node; made by `RemoteDevice`, or received in a message.

    A `GpuRef` in a message to another node arrives as a RemoteRef, and a RemoteRef in a message to its own node arrives
    as the `GpuRef` itself; neither copies anything.  The memory is freed with the last handle in all processes.  It
    names the array, and not its state at some time: a read waits for the writers that its node has sent before.

    Pickled by Ray (an argument of a task), it resolves while a handle of the sender lives.

    Attributes
    ----------
    node, device : str
        Where the memory is, such as ``"node1"`` and ``"cuda:0"``.
    shape : tuple of int
    dtype : numpy.dtype

    Examples
    --------
    >>> from atomr_native.ray import Cluster
    >>> from atomr_native.ray.in_process import InProcess
    >>> with Cluster(nodes=2, carrier=InProcess()) as cluster:
    ...     x = cluster.device("node1/host").put([1.0, 2.0])
    ...     x.node, x.shape, x.numpy().tolist()
    ('node1', (2,), [1.0, 2.0])
    """

    __slots__ = ("__weakref__", "_held", "device", "dtype", "node", "shape")
    _held: Held
    node: str
    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self) -> None:
        raise TypeError("a RemoteRef is made by a device of a cluster: cluster.device('node1/cuda:0').put(array)")

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def valid(self) -> bool:
        """Whether this process does not know the memory to be gone."""
        try:
            self._held.check()
        except GpuRefStale:
            return False
        return True

    def numpy(self) -> np.ndarray[Any, Any]:
        """Wait for the writers sent before, and return a copy as a NumPy array.

        Raises
        ------
        GpuRefStale
            If the memory is gone; ``reason="node lost"`` with its node.
        AtomrError
            The error of the message that was to write it.
        """
        found: np.ndarray[Any, Any] = self._taken(None)
        return found

    def wait(self) -> RemoteRef:
        """Wait until the writers sent before have finished; return the handle.  Raises as `numpy`."""
        self.ask_source("settle")
        return self

    def __await__(self) -> Generator[Any, None, RemoteRef]:
        """Like `wait`, without blocking the running event loop."""
        return asyncio.to_thread(self.wait).__await__()

    def to_device(self, device: Device) -> GpuRef:
        """Copy the array to a device of this process, and return the copy's handle.  Waits for the bytes."""
        found: GpuRef = self._taken(device)
        return found

    def free(self) -> None:
        """Free the memory now, for all handles in all processes.  Idempotent."""
        if not self._held.freed and self.valid:
            self.ask_source("free")
            self._held.freed = True

    def _taken(self, device: Device | None) -> Any:
        """Return a copy, on a device of this process or as a NumPy array."""
        held = self._held
        held.check()
        with self._stale_if_lost():
            found = None if device is None else held.link.peer.pairs.take(self, device)
            if found is None:
                found = held.link.bring(held.incarnation, held.ident, device)
        if found is not None:
            return found
        _, blob = self.ask_source("fetch")
        array = from_bytes(blob, self.shape, dtype_name(self.dtype))
        return array.copy() if device is None else device.put(array, dtype=self.dtype)

    def ask_source(self, name: str, *args: Any) -> Any:
        """Have the node of the array run an operation on it, and return its value.  Internal."""
        held = self._held
        held.check()
        with self._stale_if_lost():
            return held.link.control(name, held.incarnation, held.ident, *args)

    @contextlib.contextmanager
    def _stale_if_lost(self) -> Iterator[None]:
        try:
            yield
        except NodeLost as error:
            text = f"the array was in the memory of {self.node}, which was lost"
            raise GpuRefStale(text, "node lost") from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array, as `numpy`; ``copy=False`` is not possible."""
        if copy is False:
            raise InvalidRequest("copy=False: the array is in the memory of another node; allowed: None, True")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __copy__(self) -> RemoteRef:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteRef:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        held = self._held
        return resolve_array, (
            held.link.peer.cluster, self.node, held.incarnation, held.ident, self.device, self.shape,
            dtype_name(self.dtype),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<RemoteRef {dtype_name(self.dtype)}{list(self.shape)} on {self.node}/{self.device}>"


def remote_ref(held: Held, device: str, shape: tuple[int, ...], dtype: str) -> RemoteRef:
    """Return a handle."""
    made = RemoteRef.__new__(RemoteRef)
    made._held, made.node, made.device = held, held.link.node, device  # noqa: SLF001 - its constructor
    made.shape, made.dtype = tuple(shape), as_dtype(dtype)
    return made


def resolve_array(
    cluster: str, node: str, incarnation: int, ident: int, device: str, shape: tuple[int, ...], dtype: str
) -> RemoteRef | GpuRef:
    """Return a handle of an array in this process: the `GpuRef` itself on its own node."""
    peer = _peers.current(cluster)
    found = peer.own_array(node, incarnation, ident)
    return remote_ref(peer.hold(node, incarnation, ident), device, shape, dtype) if found is None else found
