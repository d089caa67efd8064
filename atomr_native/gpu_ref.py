"""Handles: typed, shaped, strided names of device memory, checked on every use."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Generator, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ._lib.dlpack import array_at
from ._lib.sender import Layout, Ref
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import AskTimeout, DependencyFailed, DeviceLost, InvalidRequest

if TYPE_CHECKING:
    from .device import Device
    from .reply import Reply

__all__ = ["GpuRef", "as_shape", "layout_from", "layout_of"]


#: Axes of an array, at most: what NumPy, which is used for views, can do.
_MAX_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_NO_SHAPES = (str, bytes, bytearray, Set, Mapping, Ref)  # of integers, without being a sequence of extents
_TOO_LARGE = 1 << 62  # bytes, where there are elements that 0 of something take
_NOWHERE = 1 << 60  # an address for arrays that are never read; aligned, and far from both ends
_RESHAPE_CHECKS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # np.reshape(copy=False)


def _extent(n: Any) -> int:
    if isinstance(n, bool | np.bool_):
        raise TypeError
    return int(n.__index__())


def _extents(shape: object) -> tuple[int, ...] | None:
    """Return the integers of a shape; None if it has others, or is something else."""
    items = (shape,) if isinstance(shape, int | np.integer) else shape
    try:
        return None if isinstance(items, _NO_SHAPES) else tuple(_extent(n) for n in items)  # type: ignore[attr-defined]
    except (TypeError, AttributeError):
        return None


def as_shape(shape: object) -> tuple[int, ...]:
    """Return a shape as a tuple of non-negative integers, or raise `InvalidRequest`."""
    found = _extents(shape)
    if found is None:
        raise InvalidRequest(f"shape {shape!r} is no integer and no sequence of integers")
    if any(n < 0 for n in found):
        raise InvalidRequest(f"shape {found} has a negative extent; extents are 0 or more")
    if len(found) > _MAX_AXES:
        raise InvalidRequest(f"shape has {len(found)} axes; at most {_MAX_AXES} are possible")
    return found


@functools.lru_cache(maxsize=65536)
def layout_from(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Layout:
    """Return the layout with these strides (bytes); the same object each time, which makes plans cheap to check."""
    return Layout(shape, strides, DTYPES[dtype], dtype)


@functools.lru_cache(maxsize=65536)
def layout_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
    """Return the C-contiguous layout of a shape and element type."""
    strides: list[int] = []
    step = dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    if step >= _TOO_LARGE:  # an array without elements may have any extents, but its strides are numbers, too
        raise InvalidRequest(
            f"shape {shape} of {dtype_name(dtype)}: its extents, 0 aside, take {step} bytes; an array has fewer than "
            f"{_TOO_LARGE}"
        )
    return layout_from(shape, tuple(reversed(strides)), dtype_name(dtype))


def _resolve(
    token: str, device: str, slot: int, generation: int, nbytes: int, epoch: int, layout: Layout, offset: int
) -> GpuRef:
    from .system import find_device

    core = find_device(token, device)._core
    whole = core.borrow_ref(GpuRef, slot, generation, nbytes, epoch)
    return whole.view_as(layout_from(layout.shape, layout.strides, layout.dtype_name), offset)


class GpuRef(Ref):
    """A handle of an array in device memory; made by `Device.put`, `Device.empty` and every operation.

    It is also the future of the message that writes it: pass it on before it exists, then `wait`, ``await`` or
    `numpy`, which raise what went wrong.  Views share the allocation, which is freed with its last handle, in order
    with the messages that use it.  A handle that is stale (freed, or made before a restart and not durable) is
    refused with `GpuRefStale` by whatever it is given to.

    A pickled handle is a name: it resolves in the same System only, and does not own.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a GpuRef is made by a device: device.put(array), device.empty(shape, dtype)")

    # ---- structure

    @property
    def device(self) -> Device:
        """Where the memory lies."""
        return cast("Device", self.allocation.core.device)

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
        """Bytes of all elements, gaps between them not counted."""
        return self.layout.nbytes

    @property
    def durable(self) -> bool:
        """Whether the memory survives a restart of the device."""
        return self.allocation.pool == 1

    @property
    def valid(self) -> bool:
        """Whether the handle may be used: neither freed nor stale nor torn."""
        return self.allocation.status() == ""

    def memory_span(self) -> tuple[Any, int, int]:
        """Return (space, first byte, one past the last byte) of what this view touches.

        The space is its allocation; for imported memory, where allocations may share bytes, that of all such.
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
        """Return an array of this structure over no memory of ours; for index arithmetic, never to be read."""
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
            if not (item is None or item is Ellipsis or isinstance(item, slice | int | np.integer)) or isinstance(
                item, bool
            ):
                raise InvalidRequest(
                    f"index {item!r} is not possible: a view takes integers, slices, ... and None; gather other "
                    f"elements with a kernel"
                )
        image = self._image()
        try:
            view = image[(*key, ...) if isinstance(key, tuple) and Ellipsis not in key else
                         key if isinstance(key, tuple) else (key,) if key is Ellipsis else (key, ...)]  # fmt: skip
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"index {key!r} of shape {self.shape}: {error}") from None
        return self._reshaped(view, image)

    def __len__(self) -> int:
        """Extent of the first axis."""
        if not self.shape:
            raise TypeError("a 0-dimensional GpuRef has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        """Refuse: values are on the device, and that there is a handle says nothing of them."""
        raise TypeError("a GpuRef is neither true nor false; read it first (bool(ref.numpy())), or ask `ref is None`")

    def __contains__(self, value: object) -> bool:
        """Refuse: values are on the device."""
        raise TypeError("a GpuRef cannot be searched; read it first: value in ref.numpy()")

    def __iter__(self) -> Iterator[GpuRef]:
        """Iterate over views along the first axis."""
        return iter([self[i] for i in range(len(self))])

    def reshape(self, *shape: int | tuple[int, ...]) -> GpuRef:
        """Return a view with another shape; one extent may be -1.  Never copies.

        Raises
        ------
        InvalidRequest
            If sizes differ, or only a copy could have that shape.
        """
        given = shape[0] if len(shape) == 1 else shape
        wanted = _extents(given)
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

    def _probe(self) -> Reply:
        return self.device._memory.probe(self)

    def _settle(self, reply: Reply) -> None:
        """Raise the error of a resolved reply; what an operand's writer met is told as such."""
        error = reply.exception()
        if error is None:
            return
        try:
            raise error.cause if isinstance(error, DependencyFailed) else error
        finally:
            del error  # this frame is in its traceback: the two would keep each other, and device memory, alive

    def done(self) -> bool:
        """Whether every message that writes this allocation, as of now, is resolved.  Does not wait."""
        lane, ticket = self.allocation.last_write()
        return self.allocation.core.resolved(lane, ticket)

    def wait(self, timeout: float | None = None) -> GpuRef:
        """Wait until what was sent so far has written it; returns the handle.

        Raises
        ------
        AskTimeout
            When `timeout` (seconds) passes first.
        AtomrError
            What went wrong with the message that was to write it.
        """
        reply = self._probe()
        if not reply.wait(timeout):
            raise AskTimeout(f"the array was not written within {timeout} s; the message goes on")
        self._settle(reply)
        return self

    def __await__(self) -> Generator[Any, None, GpuRef]:
        """Like `wait`, without blocking the running event loop."""
        reply = yield from self.device._memory.probe_async(self).__await__()
        yield from reply.settled().__await__()
        self._settle(reply)
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """Wait, and return a copy as a NumPy array; see `Device.get`."""
        return self.device.get(self)

    def fill(self, value: complex) -> GpuRef:
        """Send a fill of every element; returns the handle at once."""
        return self.device._memory.fill(self, value)

    def free(self) -> None:
        """Free the allocation now, for all views of it: messages sent before are unaffected.  Idempotent."""
        imported = self.allocation.keep is not None
        if self.allocation.borrowed and not imported:
            raise InvalidRequest("a handle that came by name (unpickled) does not own its memory and cannot free it")
        self.allocation.free()
        if imported:
            self.device._foreign.freed(self)

    def clear_error(self) -> GpuRef:
        """Declare the bytes of the whole allocation good as they are, after a failure or a torn write.  Enqueues.

        Returns
        -------
        GpuRef
            This handle.
        """
        self.device._memory.clear_error(self)
        return self

    # ---- other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Copy to a NumPy array; with ``copy=False`` a zero-copy view, where the memory is mapped here."""
        if copy is False:
            array = self.device._exports.array(self)
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
        """Export without a copy: waits for the last writer, then lends the memory until the consumer lets go.

        Lent memory is not reused, also not after a restart.  Messages sent later are not ordered with the consumer: see
        `lend`.  Memory of a GPU is mapped in this process's own context of it, which is opened for that.

        Parameters
        ----------
        stream
            For a GPU: as the array API has it (None, 1, 2, -1, or a stream's handle).  The data is there when this
            returns, so that any stream may use it.
        max_version
            The latest DLPack version that the consumer reads.
        dl_device
            The device itself, or the host, ``(1, 0)``, for a copy there.
        copy
            True: export a copy.  False: never copy.

        Raises
        ------
        InvalidRequest
            If an argument is malformed.
        BufferError
            If it cannot be exported that way.
        Unsupported
            If this process does not see the GPU.
        """
        return self.device._exports.capsule(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        """Device type and number, as DLPack has them."""
        return self.device.dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe memory of a GPU for CuPy, Numba, PyTorch and others, version 3.

        Waits for the last writer, so that its ``stream`` is None.  The memory is lent as long as this handle lives,
        which consumers keep.  Messages sent later are not ordered with what consumers read and write: see `lend`.

        Raises
        ------
        NoCudaArrayInterface
            On the host device, and for bfloat16 and float8, which it cannot name; an `AttributeError`.
        Unsupported
            If this process does not see the GPU.
        """
        return self.device._exports.cuda_array_interface(self)

    def lend(self, *, stream: object = None) -> contextlib.AbstractContextManager[Any]:
        """Give other code the memory itself for the length of a ``with`` block.

        Waits for every message that uses the allocation so far, and on a GPU, at the end, for what other code of this
        process does there.  So messages sent before and afterwards are ordered with it; those that touch the allocation
        must not be sent inside.

        Parameters
        ----------
        stream
            On a GPU: wait at the end for this stream only (1, 2, a handle, or an object with ``__cuda_stream__``).

        Returns
        -------
        context manager
            Of a writable NumPy array on the host device, else of a `LentArray`, for ``torch.from_dlpack``,
            ``cupy.asarray`` and the like.
        """
        return self.device._exports.lent(self, stream)

    def __reduce__(self) -> tuple[Any, ...]:
        a = self.allocation
        device = self.device
        return _resolve, (
            device.system.token, device.name, a.slot, a.generation, a.nbytes, a.epoch, self.layout, self.offset,
        )  # fmt: skip

    def __copy__(self) -> GpuRef:
        """Another handle of the same memory; `Device.copy` copies the memory."""
        return self.view_as(self.layout, self.offset)

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuRef:
        """As `copy.copy`: a handle is a name."""
        return self.view_as(self.layout, self.offset)

    def __repr__(self) -> str:
        try:
            status = self.allocation.status()
        except DeviceLost:  # in a forked child
            status = "device lost"
        return f"<GpuRef {self.layout!r} on {self.device.name}{', ' + status if status else ''}>"
