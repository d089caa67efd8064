"""Arrays on a device: the methods by which they are made, copied and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ._checks import as_flag
from ._lib.sender import DURABLE, VOLATILE, Core
from .dtypes import as_dtype
from .gpu_ref import GpuRef, as_shape, layout_of
from .peers import copy_across

if TYPE_CHECKING:
    from .device import Device
    from .foreign import Foreign
    from .groups import DurableGroup, Groups
    from .memory import DeviceMemory
    from .reply import Reply

__all__ = ["MemoryMethods"]

_LAYOUTS = 4096  # shapes and types that `empty` remembers


def _pool(durable: object) -> int:
    return DURABLE if as_flag("durable", durable) else VOLATILE


class MemoryMethods:
    """What `Device` has of arrays."""

    _core: Core
    _memory: DeviceMemory
    _foreign: Foreign
    _groups: Groups

    def put(
        self,
        array: object,
        dtype: object = None,
        *,
        durable: bool = False,
        out: GpuRef | None = None,
        blocking: bool = True,
    ) -> GpuRef:
        """Copy an array to the device.

        Parameters
        ----------
        array
            A NumPy array, anything with DLPack or ``__array__`` in host memory, nested lists, or a number.
        dtype
            Element type on the device; by default the array's.  Floats round, and become integers by truncation;
            what an integer type does not hold wraps, as by `numpy.ndarray.astype`, but is refused in numbers and
            lists, which have no type of their own.
        durable : bool
            Whether the memory survives a restart of the device.
        out : GpuRef, optional
            Write there instead of allocating; same shape.
        blocking : bool
            With False, do not wait for the device to read a `host_array`: it must then stay as it is until `wait`
            of the returned handle has returned.  Any other array is copied before `put` returns.

        Returns
        -------
        GpuRef
            Once `array` may change; the rest is enqueued.  Arrays of several MiB go through staging memory in pieces,
            and wait for room there as messages do in a mailbox.

        Raises
        ------
        InvalidRequest, OutOfMemory, GpuRefStale, MailboxFull, DeviceLost
        """
        pool = VOLATILE if durable is False else _pool(durable)
        return self._memory.transfers.put(array, dtype, out, pool, blocking=as_flag("blocking", blocking))

    async def put_async(
        self, array: object, dtype: object = None, *, durable: bool = False, out: GpuRef | None = None
    ) -> GpuRef:
        """Like `put`, awaited: returns once `array` may change, and does not block the event loop until then.

        Raises what `put` raises, but that room in the mailbox is awaited.
        """
        return await self._memory.transfers.put_async(array, dtype, out, _pool(durable))

    def get(
        self, ref: GpuRef, out: np.ndarray[Any, Any] | None = None, *, timeout: float | None = None
    ) -> np.ndarray[Any, Any]:
        """Wait for what was sent before, and copy to a NumPy array: as it was between two messages.

        Parameters
        ----------
        ref : GpuRef
            What to read.
        out : numpy.ndarray, optional
            Write there; same shape and dtype.  A `host_array` saves one copy.  After an error it may hold a part.
        timeout : float, optional
            Seconds.

        Raises
        ------
        AskTimeout
            When `timeout` passes.
        AtomrError
            What went wrong with the message that was to write it.
        """
        return self._memory.transfers.get(ref, out, timeout)

    def get_into(self, ref: GpuRef, out: np.ndarray[Any, Any]) -> Reply:
        """Enqueue a copy into a `host_array`, or a view of one, and wait for nothing.

        Parameters
        ----------
        ref : GpuRef
            What to read, as it is after the messages sent before.
        out : numpy.ndarray
            Write there; same shape and dtype.  It is the device's until the reply is there.

        Returns
        -------
        Reply
            Its value is `out`.

        Raises
        ------
        InvalidRequest
            If `out` is other memory, for which there are `get` and `get_async`, or does not fit.
        GpuRefStale, MailboxFull, DeviceLost
        """
        return self._memory.transfers.get_into(ref, out)

    async def get_async(self, ref: GpuRef, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Like `get`, awaited: the event loop goes on meanwhile."""
        return await self._memory.transfers.get_async(ref, out)

    def empty(self, shape: object, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an array and leave its bytes as they are.  Does not wait, unless memory must grow.

        Parameters
        ----------
        shape : int or tuple of int
        dtype
            Its element type: a name such as ``"bfloat16"``, a NumPy type or dtype.
        durable : bool
            Whether the memory survives a restart of the device.

        Raises
        ------
        InvalidRequest
            For a shape or an element type that no array has.
        OutOfMemory
            After waiting for messages that still use freed memory, and giving back what nobody uses.
        DeviceLost
        """
        pool = VOLATILE if durable is False else _pool(durable)
        ref = self._core.empty_of(GpuRef, shape, dtype, pool)
        if ref is None:
            layout = layout_of(as_shape(shape), as_dtype(dtype))
            known = self._core.layouts
            if isinstance(dtype, str | type):
                if len(known) >= _LAYOUTS:
                    known.clear()
                known[layout.shape, dtype] = layout
            ref = self._core.empty(GpuRef, layout, pool)
        return ref

    def zeros(self, shape: object, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an array as `empty` does, and enqueue filling it with zeros.  Raises what `full` raises."""
        return self.full(shape, 0, dtype, durable=durable)

    def full(self, shape: object, value: complex, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an array as `empty` does, and enqueue filling it with a value.

        Raises
        ------
        InvalidRequest
            If the element type does not hold the value, too.
        OutOfMemory, MailboxFull, DeviceLost
        """
        return self._memory.fill(self.empty(shape, dtype, durable=durable), value)

    def copy(self, source: GpuRef, out: GpuRef | None = None, *, dtype: object = None, durable: bool = False) -> GpuRef:
        """Copy an array to memory of this device, with conversion where dtypes differ.

        Floats round, and become integers by truncation; what an integer type does not hold, NaN among it, becomes what
        the device's processor makes of it, and that differs.  Complex numbers do not become real ones.

        Parameters
        ----------
        source : GpuRef
            Of this device, or of another one of the same System.
        out : GpuRef, optional
            Write there, on this device, instead of allocating; `source` broadcasts to its shape.
        dtype
            Element type of the copy; by default the source's.
        durable : bool
            Whether the memory survives a restart of the device.

        Returns
        -------
        GpuRef
            From this device: at once, and the copy is enqueued.  From another one: when the copy is complete.  It waits
            for the last writer of `source`, whose memory is not reused meanwhile; messages to the other device which
            write it during the call are not ordered with the copy.  Between GPUs that reach each other it goes
            directly, else through host memory.

        Raises
        ------
        InvalidRequest, OutOfMemory, GpuRefStale, MailboxFull, DeviceLost
        """
        pool = VOLATILE if durable is False else _pool(durable)
        device = cast("Device", self)
        if isinstance(source, GpuRef) and source.device is not device and source.device.system is device.system:
            return copy_across(device, source, out, dtype, pool)
        return self._memory.copy(source, out, dtype, pool)

    def asarray(self, x: object, *, copy: bool | None = None) -> GpuRef:
        """Use an array of another library as memory of this device: without a copy where that is possible.

        What is possible without a copy:

        - a handle of this device, and exports of its handles, always;
        - host device: its own `host_array`; with ``isolation="thread"`` any writable NumPy array, CPU tensors, anything
          that shows its memory;
        - ``cuda:N``, ``isolation="thread"``: any array on that GPU (PyTorch, CuPy, Numba, JAX);
        - ``cuda:N``, ``isolation="process"``: arrays on that GPU in memory of ``cudaMalloc``, which is what PyTorch and
          CuPy use by default; not managed memory, expandable segments, or pools of ``cudaMallocAsync``.

        Everything else is copied: host memory to a worker process or to a GPU, arrays of other GPUs, read-only arrays
        (messages may write what they name), arrays that are not aligned for their type, lists and numbers.

        Waits for what the array's library has enqueued for it.  Messages that use one array, or arrays that share
        bytes, are ordered by data as always: an array given twice is one allocation.  The other library is not part of
        that order: before it touches the memory again, `GpuRef.wait`, or use `GpuRef.lend`.  The array is kept alive
        until no handle is left and the messages that use it are resolved.  After a restart of the device the handle is
        stale, and the array must be given again.

        Parameters
        ----------
        x
            A GpuRef, or what has DLPack, ``__cuda_array_interface__``, ``__array_interface__`` or the buffer protocol.
        copy : bool, optional
            False: never copy.  True: always copy, as `put` does.  None: copy where it must be.

        Returns
        -------
        GpuRef
            At once, unless `x` shares only some bytes with earlier arrays: then messages that use those are waited for.

        Raises
        ------
        Unsupported
            With ``copy=False``, where only a copy is possible: which rule forbids it, and what lifts it.
        InvalidRequest
            If `x` is no array that a device can hold, or its library refuses to export it.
        AtomrError
            What went wrong with a message that was to write bytes of `x`.
        """
        return self._foreign.asarray(x, copy)

    def host_array(self, shape: object, dtype: object = "float32") -> np.ndarray[Any, Any]:
        """Make a NumPy array, zeroed, in memory that this process and the worker share.

        It is memory of the host, which `System`'s `memory_limit` does not count.

        `put` from it and `get` into it copy once instead of twice.  Both wait for that copy; ``put(blocking=False)``
        and `get_into` do not.

        Raises
        ------
        InvalidRequest
            For a shape or an element type that no array has.
        OutOfMemory
            If the host has no room, or the device cannot pin as much.
        DeviceLost
        """
        return self._memory.host_array(shape, dtype)

    def durable_group(self, members: Mapping[str, GpuRef], *, checksum: bool = False) -> DurableGroup:
        """Group durable arrays, to be committed and, after a restart, rolled back together.

        Parameters
        ----------
        members : mapping of str to GpuRef
            Whole durable arrays, each in one group only.
        checksum : bool
            Compute a checksum with each commit, and verify it at each restart.  It detects bytes that a stray kernel
            changed: in what the last commit has saved, and in the members, where no message has written them since.
            Members then become ``torn``; so do they if other code has written them (`GpuRef.lend`) without a commit.

        Raises
        ------
        InvalidRequest
            If a member is not durable, not a whole array, or in a group already.
        OutOfMemory
            If there is no room for what commits save, which is as large as all members.
        """
        return self._groups.make(members, checksum=as_flag("checksum", checksum))

    def trim(self) -> int:
        """Give memory that nobody uses back to the system; returns the bytes.  Waits for the worker."""
        return self._memory.trim(1.0)
