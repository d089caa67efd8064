"""Arrays on a device: methods that allocate, copy and preserve them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._lib.sender import DURABLE, VOLATILE, Core
from .._support.checks import as_flag
from ..arrays.gpu_ref import GpuRef
from ..arrays.layout import as_shape, layout_of
from ..dtypes import as_dtype
from ..interop.peers import copy_across
from ..interop.shared import open_shared
from ..memory.accepting import SAME_KIND

if TYPE_CHECKING:
    from ..memory.device_memory import DeviceMemory
    from ..memory.groups import DurableGroup
    from ..plans.reply import Reply
    from . import Device
    from .state import DeviceState

__all__ = ["MemoryMethods"]

_LAYOUTS = 4096  # shapes and types in the cache of `empty`


def _pool(durable: object) -> int:
    return DURABLE if as_flag("durable", durable) else VOLATILE


class MemoryMethods:
    """The array methods of `Device`."""

    _core: Core
    _memory: DeviceMemory
    _state: DeviceState

    def put(
        self,
        array: object,
        dtype: object = None,
        *,
        durable: bool = False,
        out: GpuRef | None = None,
        blocking: bool = True,
        casting: str = SAME_KIND,
    ) -> GpuRef:
        """Copy an array to the device.

        Parameters
        ----------
        array
            A NumPy array, an object with DLPack or ``__array__`` in host memory, nested lists, or a number.
        dtype
            Element type on the device; by default the array's.  Floats are rounded to shorter ones, and integers out of
            range of another integer type wrap, as in `numpy.ndarray.astype`.
        durable : bool
            Whether the memory survives a restart of the device.
        out : GpuRef, optional
            Write there instead of allocating; same shape.
        blocking : bool
            With False, do not wait for the device to read a `host_array`: it must then stay unchanged until `wait` of
            the returned handle has returned.  Any other array is copied before `put` returns.
        casting : str
            Which casts are allowed, as in NumPy: ``"no"``, ``"equiv"``, ``"safe"``, ``"same_kind"`` or ``"unsafe"``,
            which also truncates floats to integers.  By default plain numbers and lists, which have no dtype, may have
            any type that holds their values.  Complex values never become real.

        Returns
        -------
        GpuRef
            Returned as soon as `array` may change; the rest is enqueued.  Arrays of several MiB pass through staging
            memory in pieces, and wait for room there as messages do in a mailbox.

        Raises
        ------
        InvalidRequest, OutOfMemory, GpuRefStale, MailboxFull, DeviceLost
        """
        pool = VOLATILE if durable is False else _pool(durable)
        return self._memory.transfers.put(array, dtype, out, pool, casting, blocking=as_flag("blocking", blocking))

    async def put_async(
        self,
        array: object,
        dtype: object = None,
        *,
        durable: bool = False,
        out: GpuRef | None = None,
        casting: str = SAME_KIND,
    ) -> GpuRef:
        """Like `put`, but awaitable: it returns once `array` may change, and does not block the event loop.

        Raises the errors of `put`, except that it awaits room in the mailbox.
        """
        return await self._memory.transfers.put_async(array, dtype, out, _pool(durable), casting)

    def get(
        self, ref: GpuRef, out: np.ndarray[Any, Any] | None = None, *, timeout: float | None = None
    ) -> np.ndarray[Any, Any]:
        """Wait for earlier messages, and copy to a NumPy array: the state between two messages.

        Parameters
        ----------
        ref : GpuRef
            What to read.
        out : numpy.ndarray, optional
            Destination with the same shape and dtype.  A `host_array` saves one copy.  After an error its contents are
            partial.
        timeout : float, optional
            Seconds.

        Raises
        ------
        AskTimeout
            When `timeout` passes.
        AtomrError
            The error of the message that was to write it.
        """
        return self._memory.transfers.get(ref, out, timeout)

    def get_into(self, ref: GpuRef, out: np.ndarray[Any, Any]) -> Reply:
        """Enqueue a copy into a `host_array`, or a view of one, without waiting.

        Parameters
        ----------
        ref : GpuRef
            The source, in its state after all earlier messages.
        out : numpy.ndarray
            Destination with the same shape and dtype.  It belongs to the device until the reply is resolved.

        Returns
        -------
        Reply
            Its value is `out`.

        Raises
        ------
        InvalidRequest
            If `out` is other memory (use `get` or `get_async`), or has another shape or dtype.
        GpuRefStale, MailboxFull, DeviceLost
        """
        return self._memory.transfers.get_into(ref, out)

    async def get_async(self, ref: GpuRef, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Like `get`, but awaitable: it does not block the event loop."""
        return await self._memory.transfers.get_async(ref, out)

    def empty(self, shape: object, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an uninitialised array.  Does not wait, unless memory must grow.

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
        """Allocate an array as `empty` does, and enqueue a fill with zeros.  Raises the errors of `full`."""
        return self.full(shape, 0, dtype, durable=durable)

    def full(self, shape: object, value: complex, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an array as `empty` does, and enqueue a fill with a value.

        Raises
        ------
        InvalidRequest
            As for `empty`, and if the element type cannot hold the value.
        OutOfMemory, MailboxFull, DeviceLost
        """
        return self._memory.fill(self.empty(shape, dtype, durable=durable), value)

    def ones(self, shape: object, dtype: object = "float32", *, durable: bool = False) -> GpuRef:
        """Allocate an array of ones; otherwise as `full`.

        Examples
        --------
        >>> device.ones((2, 2)).numpy()
        array([[1., 1.],
               [1., 1.]], dtype=float32)
        """
        return self.full(shape, 1, dtype, durable=durable)

    def arange(self, start: float, stop: float | None = None, step: float = 1, *, dtype: object = None) -> GpuRef:
        """Return the numbers from `start` to before `stop`, `step` apart; one number alone is `stop`.  Enqueues.

        By default the dtype is int64 for integers, and float64 otherwise.

        Examples
        --------
        >>> device.arange(2, 8, 3).numpy()
        array([2, 5])
        """
        from ..array_api._creation import sequence_of  # the package has hundreds of functions

        return sequence_of(cast("Device", self), start, stop, step, dtype)

    def linspace(self, start: complex, stop: complex, num: int = 50, *, dtype: object = None) -> GpuRef:
        """Return `num` numbers from `start` to `stop`, evenly spaced, by default float64.  Enqueues.

        Examples
        --------
        >>> device.linspace(0, 1, 5).numpy()
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
        """
        from ..array_api._creation import linspace_of

        return linspace_of(cast("Device", self), start, stop, num, dtype, True)

    def eye(self, rows: int, columns: int | None = None, *, k: int = 0, dtype: object = "float32") -> GpuRef:
        """Return ones on the diagonal `k`, above the main one if positive, and zeros elsewhere.  Enqueues.

        Examples
        --------
        >>> device.eye(2, dtype="int8").numpy()
        array([[1, 0],
               [0, 1]], dtype=int8)
        """
        from ..array_api._creation import eye_of

        return eye_of(cast("Device", self), rows, columns, k, dtype)

    def copy(self, source: GpuRef, out: GpuRef | None = None, *, dtype: object = None, durable: bool = False) -> GpuRef:
        """Copy an array to memory of this device, with conversion where dtypes differ.

        Floats are rounded, and truncated to integers.  The result for values out of range of an integer type, and for
        NaN, depends on the device.  Complex arrays cannot be converted to real ones.

        Parameters
        ----------
        source : GpuRef
            An array of this device, or of another device of the same System.
        out : GpuRef, optional
            Destination on this device, instead of a new array; `source` broadcasts to its shape.
        dtype
            Element type of the copy; by default the source's.
        durable : bool
            Whether the memory survives a restart of the device.

        Returns
        -------
        GpuRef
            The copy is enqueued, and the handle returned at once; it is ordered by data on both devices.  The first
            copy between two devices waits until their workers know each other, and the first copy from a segment of
            another GPU until the worker has mapped it.  Between GPUs with peer access the copy is direct, otherwise it
            passes through host memory in pieces.

        Raises
        ------
        InvalidRequest, OutOfMemory, GpuRefStale, MailboxFull, DeviceLost
        """
        pool = VOLATILE if durable is False else _pool(durable)
        device = cast("Device", self)
        if isinstance(source, GpuRef) and source.device is not device and source.device.system is device.system:
            self._core.refuse_recording("a copy between devices")
            return copy_across(self._state, source, out, dtype, pool)
        return self._memory.copy(source, out, dtype, pool)

    def asarray(self, x: object, *, copy: bool | None = None) -> GpuRef:
        """Use an array of another library as memory of this device, without a copy where possible.

        Without a copy:

        - a handle of this device, and exports of its handles, always;
        - host device: its own `host_array`; with ``isolation="thread"`` any NumPy array, CPU tensors, anything that
          shows its memory;
        - ``cuda:N``, ``isolation="thread"``: any array on that GPU (PyTorch, CuPy, Numba, JAX);
        - ``cuda:N``, ``isolation="process"``: arrays on that GPU in memory of ``cudaMalloc``, which is what PyTorch and
          CuPy use by default; not managed memory, expandable segments, or pools of ``cudaMallocAsync``.

        All other arrays are copied: host memory for a worker process or a GPU, arrays of other GPUs, arrays that are
        not aligned for their type, lists and numbers.

        The handle of an array that is read-only, or not known to be writable (JAX; a DLPack capsule without a version,
        except of PyTorch and CuPy), may only be read: a message that would write it is refused.  ``copy=True`` makes an
        array that may be written.

        Waits for the work that the array's library has enqueued on it.  Messages that use one array, or arrays that
        share bytes, are ordered by data as always: an array imported twice is one allocation.  The other library is not
        part of that order: call `GpuRef.wait` before it touches the memory again, or use `GpuRef.lend`.  The array is
        kept alive until no handle is left and the messages that use it are resolved.  After a restart of the device the
        handle is stale, and the array must be imported again.

        Parameters
        ----------
        x
            A GpuRef, or an object with DLPack, ``__cuda_array_interface__``, ``__array_interface__`` or the buffer
            protocol.
        copy : bool, optional
            False: never copy.  True: always copy, as `put` does.  None: copy where necessary.

        Returns
        -------
        GpuRef
            Returned at once, unless `x` shares only some bytes with earlier arrays; then the call waits for messages
            that use those.

        Raises
        ------
        Unsupported
            With ``copy=False``, where only a copy is possible; the message names the rule and the remedy.
        InvalidRequest
            If no device can hold `x`, or its library refuses to export it.
        AtomrError
            The error of a message that was to write bytes of `x`.
        """
        return self._state.imports.asarray(x, copy)

    def host_array(self, shape: object, dtype: object = "float32") -> np.ndarray[Any, Any]:
        """Return a zeroed NumPy array in memory that this process and the worker share.

        It is host memory, and does not count towards `System`'s `memory_limit`.

        `put` from it and `get` into it copy once instead of twice.  Both wait for that copy; ``put(blocking=False)``
        and `get_into` do not wait, and can be recorded (`Device.record`): each replay copies the bytes of its time.

        Raises
        ------
        InvalidRequest
            For a shape or an element type that no array has.
        OutOfMemory
            If the host lacks memory, or the device cannot pin that much.
        DeviceLost
        """
        return self._memory.host_array(shape, dtype)

    def durable_group(self, members: Mapping[str, GpuRef], *, checksum: bool = False) -> DurableGroup:
        """Group durable arrays that are committed together and, after a restart, rolled back together.

        Parameters
        ----------
        members : mapping of str to GpuRef
            Whole durable arrays, each in one group only.
        checksum : bool
            Compute a checksum with each commit, and verify it at each restart.  It detects bytes that a stray kernel
            changed: in the copy saved by the last commit, and in members that no message has written since.  Members
            then become ``torn``; they also do if other code has written them (`GpuRef.lend`) without a commit.

        Raises
        ------
        InvalidRequest
            If a member is not durable, not a whole array, or already in a group.
        OutOfMemory
            If there is no room for the saved copy, which is as large as all members.
        """
        self._core.refuse_recording("a durable group")
        return self._state.groups.make(members, checksum=as_flag("checksum", checksum))

    def open_shared(self, name: str, timeout: float = 10.0) -> GpuRef:
        """Open an array that another program of this user shares on this machine: `GpuRef.share`.

        The memory is the same; it is as volatile as other memory of the device.  The other program's death does not end
        it.  Messages of different programs are not ordered.  Waits for the other program and for the worker.

        Parameters
        ----------
        name : str
            `SharedArray.name`.
        timeout : float
            Seconds that the other program has to answer.

        Raises
        ------
        InvalidRequest
            If no program of this user shares an array of that name.
        Unsupported
            If it is memory of another kind of device, of a GPU that this one does not reach, or of a GPU while this
            device runs in a thread.
        NestedCall
            In a callback of the garbage collector that runs in the thread of `GpuRef.share` which would answer.
        """
        return open_shared(self._state, name, timeout)

    def trim(self) -> int:
        """Return unused memory to the system; return its size in bytes.  Waits for the worker."""
        return self._memory.segments.trim(1.0)
