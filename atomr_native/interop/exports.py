"""Memory lent to other code of this process: leases, and this process's own mappings of GPU memory.

This process does not use CUDA before the first export of GPU memory by DLPack, ``__cuda_array_interface__`` or
`GpuRef.lend`.  Then the segment of the memory is mapped in this process's own context of the same GPU, which other
libraries use, too.  It stays mapped until it is returned to the system and no loan of it is left.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib import parent
from .._lib.dlpack import array_at
from .._lib.foreign import FOREIGN
from .._lib.guard import Last, Lock, finish, shielded, shielded_service
from .._lib.sender import LOST
from ..arrays.views import HOST_DEVICE
from ..errors import AtomrError, InvalidRequest, LibraryError, NoCudaArrayInterface, Unsupported
from .dlpack import check_cuda_export_arguments, check_export_arguments, device_capsule, export_capsule, stream_handle
from .producers import parent_context
from .shared import SharedArray, share

if TYPE_CHECKING:
    from .._lib.parent import ParentContext
    from .._lib.sender import Allocation, Lease
    from ..arrays.gpu_ref import GpuRef
    from .owner import SharingDevice

__all__ = ["Exports", "LentArray", "Loan", "uuid_bytes"]

_log = logging.getLogger("atomr_native")


def uuid_bytes(owner: SharingDevice) -> bytes:
    """Return the UUID of a device's GPU, 16 bytes; empty if its worker has reported none."""
    text = str(owner.facts.get("uuid") or "")
    try:
        return bytes.fromhex(text.removeprefix("GPU-").removeprefix("MIG-").replace("-", ""))
    except ValueError:
        return b""


class _Mapping:
    """A segment in this process's own context; unmapped with the last loan from it."""

    def __init__(self, context: ParentContext, fd: int, nbytes: int) -> None:
        self._context, self.nbytes = context, nbytes
        self.base = context.map(fd, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "base"):
            with contextlib.suppress(AtomrError):
                self._context.unmap(self.base, self.nbytes)


class Loan:
    """Memory that other code uses, from the export until that code drops this object.

    Attributes
    ----------
    allocation : Allocation
        The lent memory; it is not reused meanwhile, even after a restart.
    address : int
        Its address in this process.
    """

    # No `__del__` here: if it ran while another thread finds the loan, it would take back memory that the other thread
    # lends.
    __slots__ = ("__weakref__", "_lease", "address", "allocation", "end")

    def __init__(self, allocation: Allocation, lease: Lease, address: int) -> None:
        self.allocation = allocation
        self._lease = lease
        self.address = address
        self.end: Last | None = None  # of GPU memory


class LentArray:
    """GPU memory lent by `GpuRef.lend`, for consumers of DLPack or ``__cuda_array_interface__``.

    Consumers share the memory: nothing is copied, and messages sent after the ``with`` block read their writes.
    """

    def __init__(self, exports: Exports, ref: GpuRef) -> None:
        self._exports = exports
        self._ref: GpuRef | None = ref
        self._loan = exports.lend(ref) if ref.size else None  # kept after the block, for consumers that still use it
        self.shape, self.dtype, self.strides = ref.shape, ref.dtype, ref.strides
        self.size, self.nbytes, self.ndim = ref.size, ref.nbytes, ref.ndim

    def _open(self) -> GpuRef:
        if self._ref is None:
            raise InvalidRequest("the 'with' block that lent this array is over; lend it again")
        return self._ref

    def close(self) -> None:
        """Refuse further exports."""
        self._ref = None

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export as `GpuRef.__dlpack__` does."""
        return self._exports.capsule(
            self._open(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device type and number in DLPack."""
        return self._exports.dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the memory, version 3."""
        return self._exports.describe(self._open(), self._loan)

    def __repr__(self) -> str:
        return f"<LentArray {self.dtype}{list(self.shape)} on {self._exports.name}>"


class Exports:
    """The loans of one device.

    Parameters
    ----------
    owner : SharingDevice
        The device whose memory is lent.
    """

    def __init__(self, owner: SharingDevice) -> None:
        self._owner = owner
        self._core = owner.core
        self.name = owner.name
        self.on_gpu = owner.kind == "cuda"
        self._lock = Lock(reentrant=True)  # never held while anything waits
        self._opening = Lock()
        self._loans: weakref.WeakValueDictionary[tuple[int, int], Loan] = weakref.WeakValueDictionary()
        #: Loans that a handle shows, by its identity, while it lives: handles compare their elements.
        self._shown: dict[int, tuple[weakref.ref[GpuRef], Loan]] = {}
        self._mappings: dict[int, _Mapping] = {}
        self._ordinal: int | None = None
        self._context: ParentContext | None = None
        self._returned: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._collector: threading.Thread | None = None
        self._closed = False

    # ---- the GPU in this process

    @property
    def ordinal(self) -> int:
        """Number of the device's GPU in this process.

        Raises
        ------
        Unsupported
            If this process does not see the GPU.
        """
        if self._ordinal is None:
            self._core.lane_stats(0)  # raises in a forked child, where the driver does not work
            try:
                self._ordinal = parent.find(uuid_bytes(self._owner))
            except Unsupported as error:
                why = str(error)
            else:
                return self._ordinal
            raise Unsupported(
                f"this process cannot reach the GPU of {self.name}, to share its memory with other libraries: {why}; "
                f"CUDA_VISIBLE_DEVICES must include it here, too; otherwise copy with numpy()"
            )
        return self._ordinal

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """Device type and number in DLPack, in this process."""
        return (2, self.ordinal) if self.on_gpu else HOST_DEVICE

    @property
    def context(self) -> ParentContext:
        """Context of the GPU in this process, opened at first use."""
        return self._context or self._open_context()

    @shielded
    def _open_context(self) -> ParentContext:
        with self._opening:
            if self._context is None:
                self._context = parent_context(self.ordinal)
                self._collector = threading.Thread(
                    target=self._collect, name=f"atomr_native-{self.name}-loans", daemon=True
                )
                self._collector.start()
            return self._context

    def _map(self, context: ParentContext, segment: int) -> _Mapping:
        with self._opening:
            found = self._mappings.get(segment)
            if found is None:
                known = self._owner.memory.segments.find(segment)
                if known is None:
                    raise self._core.stale(None, "device closed")
                found = self._mappings[segment] = _Mapping(context, known.fd, known.nbytes)
            return found

    def forget(self, segment: int) -> None:
        """Unmap a segment that returns to the system; it has no loans."""
        with self._opening:
            self._mappings.pop(segment, None)

    # ---- lending

    @property
    def uuid(self) -> str:
        """The UUID of the device's GPU, in hexadecimal; empty for a host device."""
        return uuid_bytes(self._owner).hex() if self.on_gpu else ""

    def share(self, ref: GpuRef) -> SharedArray:
        """Serve `GpuRef.share`."""
        return share(ref)

    def lend(self, ref: GpuRef) -> Loan:
        """Wait for the last writer of an array, then lend its allocation.

        Raises
        ------
        AtomrError
            The error of the message that was to write it; `Unsupported` if its memory cannot be reached.
        """
        allocation = ref.allocation
        allocation.refuse_gone()  # raises in a forked child, too, where nothing is mapped
        ref.wait()
        if not self.on_gpu and not allocation.address:
            raise Unsupported(f"memory of {self.name} is not mapped in this process; use numpy() for a copy")
        key = (allocation.slot, allocation.generation)
        with self._lock:
            found = self._loans.get(key)
        if found is not None:
            return found
        if self.on_gpu:
            return self._lend_gpu(allocation)
        made = Loan(allocation, allocation.lease(), allocation.address)
        with self._lock:
            return self._loans.setdefault(key, made)

    @shielded
    def _lend_gpu(self, allocation: Allocation) -> Loan:
        mapping = None
        context = self.context
        lease, address = allocation.lease(), allocation.origin
        if allocation.pool != FOREIGN:
            mapping = self._map(context, allocation.segment)
            address = mapping.base + allocation.offset
        made = Loan(allocation, lease, address)
        made.end = Last(self._take_back, [lease, allocation, mapping])
        with self._lock:
            return self._loans.setdefault((allocation.slot, allocation.generation), made)

    def find(self, start: int, end: int) -> Loan | None:
        """Return the loan that contains a range of addresses, or None."""
        with self._lock:
            loans = list(self._loans.values())
        for loan in loans:
            if loan.address <= start and end <= loan.address + loan.allocation.nbytes:
                return loan
        return None

    @shielded
    def maps(self, start: int, end: int) -> bool:
        """Return whether a range of addresses shares bytes with a segment mapped here for loans."""
        with self._opening:
            return any(m.base < end and start < m.base + m.nbytes for m in self._mappings.values())

    @shielded_service
    def _take_back(self, items: list[Any]) -> None:
        """Take lease, allocation and mapping of a released loan: a finalizer, which never waits.

        They are kept until the consumer's work, which may still be running, is done.
        """
        if self._owner.abandoned:
            return
        self._returned.put(items)
        if self._closed:
            finish(self.drain)

    @shielded
    def drain(self) -> None:
        """Wait for the GPU work of this process, then end released loans."""
        items = []
        with contextlib.suppress(queue.Empty):
            while True:
                items.append(self._returned.get_nowait())
        self._release([item for item in items if item is not None])
        if None in items:
            self._returned.put(None)

    def _collect(self) -> None:
        while (item := self._returned.get()) is not None:
            self._release([item])
            del item
            self._owner.wakers.own.kick()  # imports may be waiting for it

    def _release(self, items: list[list[Any]]) -> None:
        if items and self._context is not None:
            try:
                self._context.synchronize()
            except AtomrError as error:  # the consumers' context has faulted, so none of their work runs any more
                _log.warning("%s: waiting for other libraries' work on lent memory failed: %s", self.name, error)
        for item in items:
            while item:  # lease, allocation, mapping, in this order
                item.pop(0)

    def close(self) -> None:
        """End the thread that ends loans; open loans then end without it.  Idempotent."""
        with self._opening:
            collector, self._collector = self._collector, None
            self._mappings.clear()
        self._closed = True
        if collector is not None and collector is not threading.current_thread():
            self._returned.put(None)
            collector.join(5.0)
            if collector.is_alive():  # the consumers' work does not end: their memory stays lent
                return
        self.drain()

    # ---- the protocols

    def array(self, ref: GpuRef) -> np.ndarray[Any, Any]:
        """Wait, and lend host memory as a NumPy array that keeps the loan."""
        if self.on_gpu:
            raise Unsupported(f"memory of {self.name} is not host memory; use numpy() for a copy")
        loan = self.lend(ref)
        readonly = ref.allocation.readonly
        return array_at(loan, loan.address + ref.offset, ref.shape, ref.strides, ref.dtype, readonly=readonly)

    def capsule(
        self,
        ref: GpuRef,
        *,
        stream: object,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> object:
        """Serve `GpuRef.__dlpack__`."""
        if not self.on_gpu:
            check_export_arguments(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
            loan = self.lend(ref)
            return export_capsule(
                loan,
                loan.address + ref.offset,
                ref.shape,
                ref.strides,
                ref.dtype,
                max_version=max_version,
                copy=copy,
                readonly=ref.allocation.readonly,
            )
        ref.allocation.refuse_gone()  # raises in a forked child, too
        device = self.dlpack_device
        if check_cuda_export_arguments(
            device, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        ):  # fmt: skip
            array = ref.numpy()
            address = array.__array_interface__["data"][0]
            return device_capsule(
                array,
                address,
                array.shape,
                array.strides,
                array.dtype,
                HOST_DEVICE,
                max_version=max_version,
                copied=True,
            )
        if copy:
            ref = self._owner.device.copy(ref)
        lent = self.lend(ref) if ref.size else None
        address = 0 if lent is None else lent.address + ref.offset
        return device_capsule(
            lent,
            address,
            ref.shape,
            ref.strides,
            ref.dtype,
            device,
            max_version=max_version,
            readonly=ref.allocation.readonly,
            copied=bool(copy),
        )

    def cuda_array_interface(self, ref: GpuRef) -> dict[str, Any]:
        """Serve `GpuRef.__cuda_array_interface__`: the memory is lent while the handle `ref` lives."""
        self._check_interface(ref.dtype)
        ref.allocation.refuse_gone()
        loan = self.lend(ref) if ref.size else None
        if loan is not None:
            key, shown = id(ref), self._shown

            def end(_: object) -> None:
                shown.pop(key, None)

            with self._lock:
                shown[key] = weakref.ref(ref, end), loan
        return self.describe(ref, loan)

    def describe(self, ref: GpuRef, loan: Loan | None) -> dict[str, Any]:
        """Return the ``__cuda_array_interface__`` of a lent array."""
        self._check_interface(ref.dtype)
        return {
            "shape": ref.shape,
            "typestr": ref.dtype.str,
            "data": (0 if loan is None else loan.address + ref.offset, ref.allocation.readonly),
            "strides": None if ref.layout.contiguous else ref.strides,
            "version": 3,
            "stream": None,  # the last writer has finished
        }

    def _check_interface(self, dtype: np.dtype[Any]) -> None:
        if not self.on_gpu:
            raise NoCudaArrayInterface("memory of the host device is not GPU memory; use DLPack or numpy()")
        if dtype.isbuiltin != 1:
            integers = f"uint{8 * dtype.itemsize}"
            raise NoCudaArrayInterface(
                f"__cuda_array_interface__ has no name for {dtype}; use DLPack, or .view({integers!r})"
            )

    @contextlib.contextmanager
    def lent(self, ref: GpuRef, stream: object) -> Iterator[Any]:
        """Serve `GpuRef.lend`."""
        ref.allocation.refuse_gone()
        if not self.on_gpu:
            if stream is not None:
                raise InvalidRequest(f"stream must be None for host memory, got {stream!r}")
            array: Any = self.array(ref)
        else:
            handle = None if stream is None else stream_handle(stream)
            array = LentArray(self, ref)
        try:
            for lane, ticket in ref.allocation.open_uses():
                self._core.wait_ticket(lane, ticket)
            yield array
        finally:
            if self.on_gpu:
                array.close()
                if array.size:
                    self._settle(handle)
            del array

    def _settle(self, stream: int | None) -> None:
        """Wait for the GPU work of other code of this process."""
        try:
            self.context.synchronize(stream)
        except LibraryError:
            if self._core.state == LOST:  # in thread placement, where this context is the device's
                raise self._core.stale(None, "device lost") from None
            raise
