"""Handles: typed, shaped, strided names of device memory, checked on every use."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lib.dlpack import array_at
from .._lib.sender import DURABLE, Core, Layout, Ref
from .._support.public import public
from .._support.registry import find_device
from ..dtypes import as_dtype, dtype_name
from ..errors import AskTimeout, DependencyFailed, DeviceLost, InvalidRequest
from .layout import extents_of, layout_from
from .methods import ArrayMethods
from .operators import Operators
from .owner import owner_of

if TYPE_CHECKING:
    from ..device import Device
    from ..interop.shared import SharedArray
    from ..plans.reply import Reply
    from .owner import ArrayOwner

__all__ = ["GpuRef", "probe", "settle", "viewed"]

_NOWHERE = 1 << 60  # an address for arrays that are never read; aligned, and far from both ends of the address space
_RESHAPE_CHECKS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # np.reshape(copy=False)


def _resolve(
    token: str,
    device: str,
    slot: int,
    generation: int,
    nbytes: int,
    epoch: int,
    layout: Layout,
    offset: int,
    readonly: bool = False,
) -> GpuRef:
    core: Core = owner_of(find_device(token, device)).core
    whole = core.borrow_ref(GpuRef, slot, generation, nbytes, epoch, readonly)
    return whole.view_as(layout_from(layout.shape, layout.strides, layout.dtype_name), offset)


@public
class GpuRef(Operators, ArrayMethods, Ref):
    """A handle of an array in device memory; made by `Device.put`, `Device.empty` and every operation.

    It is also the future of the message that writes it: pass it on before the data exist, then use `wait`, ``await`` or
    `numpy`, which raise the message's error.  Views share the allocation, which is freed with its last handle, in order
    with the messages that use it.  A stale handle (freed, or made before a restart and not durable) is refused with
    `GpuRefStale` by every use.

    Operators enqueue a message on the array's own device and return a new handle: ``x * 2`` and ``x @ y`` do not wait.
    Functions of NumPy that the device has are sent there; the others, and arrays of NumPy as operands, are refused with
    `NoArrayOperator`, which says what to write.  Only `numpy`, `item`, ``bool(x)``, ``float(x)`` and their like,
    `Device.get` and ``np.asarray(x)`` wait and copy to the host.  ``==`` compares elements, and handles are hashed by
    identity: look for a handle in a dict or a set, not in a list.

    A pickled handle is a name: it resolves only in the same System, and does not own the memory.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a GpuRef is made by a device: device.put(array), device.empty(shape, dtype)")

    # ---- structure

    @property
    def device(self) -> Device:
        """The device that holds the memory."""
        owner: ArrayOwner = self.allocation.core.owner
        return owner.device

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, for each axis."""
        return self.layout.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.layout.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps between them."""
        return self.layout.nbytes

    @property
    def durable(self) -> bool:
        """Whether the memory survives a restart of the device."""
        return self.allocation.pool == DURABLE

    @property
    def valid(self) -> bool:
        """Whether the handle may be used: neither freed nor stale nor torn."""
        return self.allocation.status() == ""

    def memory_span(self) -> tuple[Any, int, int]:
        """Return (space, first byte, one past the last byte) of this view.

        The space is its allocation; all imported memory is one space, since imported allocations may share bytes.
        """
        first = self.allocation.origin + self.offset
        return (
            (self.allocation.core, self.allocation.space),
            first + self.layout.low,
            first + (self.layout.high if self.layout.size else 0),
        )

    def view_as(self, layout: Layout, offset: int) -> GpuRef:
        """Return a handle of another view of the same allocation; `offset` is in bytes from its start."""
        return self.view_of(GpuRef, layout, offset)

    def _reshaped(self, view: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> GpuRef:
        first = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        layout = layout_from(view.shape, view.strides, dtype_name(view.dtype))
        return self.view_as(layout, self.offset + (first if view.size else 0))

    def _image(self) -> np.ndarray[Any, Any]:
        """Return an array with this structure over a dummy address, for index arithmetic; it must not be read."""
        return array_at(None, _NOWHERE, self.shape, self.strides, self.dtype, readonly=True)

    def __getitem__(self, key: Any) -> GpuRef:
        """Return a view: integers, slices, ``...`` and ``None``, as in NumPy."""
        if key.__class__ is int and self.layout.size and self.layout.shape:
            shape, strides = self.layout.shape, self.layout.strides
            extent = shape[0]
            if -extent <= key < extent:
                at = (key + extent if key < 0 else key) * strides[0]
                return self.view_as(layout_from(shape[1:], strides[1:], self.layout.dtype_name), self.offset + at)
        for item in key if isinstance(key, tuple) else (key,):
            if isinstance(item, Ref):
                made: GpuRef = self._functions.gather(self, key)
                return made
            if not (item is None or item is Ellipsis or isinstance(item, slice | int | np.integer)) or isinstance(
                item, bool
            ):
                raise InvalidRequest(
                    f"index {item!r} is not possible: a view takes integers, slices, ... and None, and a gather a "
                    f"GpuRef of integers"
                )
        image = self._image()
        try:
            view = image[(*key, ...) if isinstance(key, tuple) and Ellipsis not in key else
                         key if isinstance(key, tuple) else (key,) if key is Ellipsis else (key, ...)]  # fmt: skip
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"index {key!r} of shape {self.shape}: {error}") from None
        return self._reshaped(view, image)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a number or an array to a view, broadcast and converted to its dtype; enqueues.

        A mask, a GpuRef of Booleans, takes a number or an array without axes.  An array that shares bytes with the view
        is copied on the device first.

        Raises
        ------
        InvalidRequest
            For an index that `GpuRef` does not take, shapes that do not broadcast, and numbers that the dtype lacks.
        NoArrayOperator
            For an array of NumPy: ``device.put(array, out=x[1:3])`` writes it.
        """
        self._functions.assign(self, key, value)

    def __len__(self) -> int:
        """Extent of the first axis."""
        if not self.shape:
            raise TypeError("a 0-dimensional GpuRef has no length")
        return self.shape[0]

    def __contains__(self, value: object) -> bool:
        """Refuse: the values are on the device."""
        raise TypeError("a GpuRef cannot be searched; read it first: value in ref.numpy()")

    def __iter__(self) -> Iterator[GpuRef]:
        """Iterate over views along the first axis."""
        return iter([self[i] for i in range(len(self))])

    def reshape(self, *shape: int | tuple[int, ...]) -> GpuRef:
        """Return a view with another shape; one extent may be -1.  Never copies.

        Raises
        ------
        InvalidRequest
            If the sizes differ, or the shape needs a copy.
        """
        given = shape[0] if len(shape) == 1 else shape
        wanted = extents_of(given)
        if wanted is None or any(n < -1 for n in wanted) or wanted.count(-1) > 1:
            raise InvalidRequest(
                f"shape {self.shape} cannot be viewed as {given!r}; allowed: integers from 0, and one -1"
            )
        if -1 not in wanted and math.prod(wanted) != self.size:
            raise InvalidRequest(
                f"shape {self.shape} has {self.size} elements and cannot be viewed as {wanted}, of {math.prod(wanted)}"
            )
        image = self._image()
        try:
            if _RESHAPE_CHECKS:
                view = np.reshape(image, wanted, copy=False)
            else:
                view = image.view()
                view.shape = wanted
        except (ValueError, AttributeError) as error:
            raise InvalidRequest(
                f"shape {self.shape} with strides {self.strides} cannot be viewed as {wanted}: {error}; "
                f"device.copy(ref) makes a contiguous one"
            ) from None
        return self._reshaped(view, image)

    def transpose(self, *axes: int) -> GpuRef:
        """Return a view with permuted axes, reversed if none are given."""
        if not axes:
            layout = self.layout
            return self.view_as(layout_from(layout.shape[::-1], layout.strides[::-1], layout.dtype_name), self.offset)
        image = self._image()
        try:
            return self._reshaped(image.transpose(*axes), image)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"axes {axes} of shape {self.shape}: {error}") from None

    @property
    def T(self) -> GpuRef:  # noqa: N802 - NumPy's name
        """View with reversed axes."""
        return self.transpose()

    def view(self, dtype: object) -> GpuRef:
        """Return a view of the same bytes with another element type; as in NumPy, the last axis changes."""
        image = self._image()
        try:
            return self._reshaped(image.view(as_dtype(dtype)), image)
        except InvalidRequest:
            raise
        except ValueError as error:
            raise InvalidRequest(f"{self.layout!r} cannot be viewed as {dtype!r}: {error}") from None

    # ---- the future

    def done(self) -> bool:
        """Whether every message sent so far that writes this allocation is resolved.  Does not wait."""
        lane, ticket = self.allocation.last_write()
        return self.allocation.core.resolved(lane, ticket)

    def wait(self, timeout: float | None = None) -> GpuRef:
        """Wait until every writer sent so far has finished; return the handle.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes first.
        AtomrError
            The error of the message that was to write it.
        """
        reply = probe(self)
        if not reply.wait(timeout):
            raise AskTimeout(f"the array was not written within {timeout} s; the message continues")
        settle(reply)
        return self

    def __await__(self) -> Generator[Any, None, GpuRef]:
        """Like `wait`, without blocking the running event loop."""
        owner: ArrayOwner = self.allocation.core.owner
        reply = yield from owner.memory.probe_async(self).__await__()
        yield from reply.settled().__await__()
        settle(reply)
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """Wait, and return a copy as a NumPy array; see `Device.get`."""
        return self.device.get(self)

    def fill(self, value: complex) -> GpuRef:
        """Send a fill of every element; returns the handle at once."""
        owner: ArrayOwner = self.allocation.core.owner
        return owner.memory.fill(self, value)

    def free(self) -> None:
        """Free the allocation now, for all views of it: messages sent before are unaffected.  Idempotent."""
        if self.free_own():
            return
        imported = self.allocation.keep is not None
        if self.allocation.borrowed and not imported:
            raise InvalidRequest("an unpickled handle does not own its memory and cannot free it")
        self.allocation.free()
        if imported:
            owner: ArrayOwner = self.allocation.core.owner
            owner.imports.freed(self)

    def clear_error(self) -> GpuRef:
        """Accept the bytes of the whole allocation as they are, after a failure or a torn write.  Enqueues.

        Returns
        -------
        GpuRef
            This handle.
        """
        owner: ArrayOwner = self.allocation.core.owner
        owner.memory.clear_error(self)
        return self

    # ---- other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array; with ``copy=False`` return a view, if the memory is mapped in this process."""
        if copy is False:
            owner: ArrayOwner = self.allocation.core.owner
            array: np.ndarray[Any, Any] = owner.exports.array(self)
            if dtype is not None and np.dtype(dtype) != array.dtype:
                raise ValueError(f"dtype {dtype} differs from {array.dtype}, which needs a copy")
            return array
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export without a copy: wait for the last writer, then lend the memory until the consumer releases it.

        Lent memory is not reused, even after a restart.  Later messages are not ordered with the consumer: see `lend`.
        GPU memory is mapped in this process's own context of the GPU, which is opened for that.

        Parameters
        ----------
        stream
            For a GPU: as in the array API (None, 1, 2, -1, or a stream's handle).  The data are complete when the call
            returns, so any stream may use them.
        max_version
            The latest DLPack version that the consumer reads.
        dl_device
            The device itself, or the host, ``(1, 0)``, for a copy in host memory.
        copy
            True: export a copy.  False: never copy.

        Raises
        ------
        InvalidRequest
            If an argument is malformed.
        BufferError
            If this export is not possible.
        Unsupported
            If this process does not see the GPU.
        """
        self.allocation.core.refuse_recording("an export")
        owner: ArrayOwner = self.allocation.core.owner
        return owner.exports.capsule(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device type and number in DLPack."""
        return self.device.dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe GPU memory for CuPy, Numba, PyTorch and others, version 3.

        Waits for the last writer, so ``stream`` is None.  The memory is lent while this handle lives, and consumers
        keep it.  Later messages are not ordered with the consumers' reads and writes: see `lend`.

        Raises
        ------
        NoCudaArrayInterface
            On the host device, and for bfloat16 and float8, which the protocol cannot name; an `AttributeError`.
        Unsupported
            If this process does not see the GPU.
        """
        self.allocation.core.refuse_recording("an export")
        owner: ArrayOwner = self.allocation.core.owner
        return owner.exports.cuda_array_interface(self)

    def lend(self, *, stream: object = None) -> contextlib.AbstractContextManager[Any]:
        """Lend the memory to other code for the duration of a ``with`` block.

        Waits for every earlier message that uses the allocation and, on a GPU, at the end of the block for the work of
        other code of this process.  So messages before and after the block are ordered with that work.  Messages that
        touch the allocation must not be sent inside the block.

        Parameters
        ----------
        stream
            On a GPU: at the end, wait for this stream only (1, 2, a handle, or an object with ``__cuda_stream__``).

        Returns
        -------
        context manager
            Yields a NumPy array on the host device, writable unless the handle is read-only; otherwise a `LentArray`,
            for ``torch.from_dlpack``, ``cupy.asarray`` and similar functions.
        """
        self.allocation.core.refuse_recording("a loan")
        owner: ArrayOwner = self.allocation.core.owner
        return owner.exports.lent(self, stream)

    def share(self) -> SharedArray:
        """Let other programs of this user on this machine open the array by a name: `Device.open_shared`.

        Waits for the last writer, as each opening does.  Nothing is copied.  The memory is lent, and so not reused,
        until the result is closed or dropped and every program that opened it has let go or ended.  Messages of
        different programs are not ordered: let the programs tell each other when data are there.

        Returns
        -------
        SharedArray
            With the name; a context manager.

        Raises
        ------
        Unsupported
            For memory of another library or program, and for read-only handles.
        AtomrError
            The error of the message that was to write it.
        """
        owner: ArrayOwner = self.allocation.core.owner
        return owner.exports.share(self)

    def __reduce__(self) -> tuple[Any, ...]:
        a = self.allocation
        device = self.device
        return _resolve, (
            device.system.token, device.name, a.slot, a.generation, a.nbytes, a.epoch, self.layout, self.offset,
            a.readonly,
        )  # fmt: skip

    def __copy__(self) -> GpuRef:
        """Return another handle of the same memory; `Device.copy` copies the memory."""
        return self.view_as(self.layout, self.offset)

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuRef:
        """As in `copy.copy`: a handle is a name."""
        return self.view_as(self.layout, self.offset)

    def __repr__(self) -> str:
        try:
            status = self.allocation.status()
        except DeviceLost:  # in a forked child
            status = "device lost"
        return f"<GpuRef {self.layout!r} on {self.device.name}{', ' + status if status else ''}>"


def viewed(ref: GpuRef, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> GpuRef:
    """Return the view of an array that a function of NumPy makes of one; the function must not read elements."""
    image = ref._image()  # noqa: SLF001 - a method in all but name
    return ref._reshaped(change(image), image)  # noqa: SLF001


def probe(ref: GpuRef) -> Reply:
    """Send a message that only depends on a handle, whose reply tells what became of the handle's writer."""
    owner: ArrayOwner = ref.allocation.core.owner
    return owner.memory.probe(ref)


def settle(reply: Reply) -> None:
    """Raise the error of a resolved reply; an error inherited from the writer is raised as the writer's own."""
    error = reply.exception()
    if error is None:
        return
    try:
        raise error.cause if isinstance(error, DependencyFailed) else error
    finally:
        del error  # its traceback has this frame: they would keep each other, and device memory, alive
