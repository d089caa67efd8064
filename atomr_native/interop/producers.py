"""Arrays of other code of this process: the place of their memory, and the wait until it may be read.

This module waits for the work that a producer has enqueued, so a `Source` may be used at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._lib import dlpack, parent
from .._lib.guard import Lock, shielded
from ..arrays.views import REFUSALS, dlpack_device_of, is_readonly, name_of
from ..dtypes import DTYPES
from ..errors import AtomrError, InvalidRequest
from .dlpack import CUDA_KINDS, stream_handle

__all__ = ["Source", "cuda_source", "host_source", "is_on_cuda", "parent_context"]

_KNOWN = frozenset(DTYPES.values())
_MAX_VERSION = (1, 1)


class Context(parent.ParentContext):
    """Context of a GPU in this process; closed with its last reference."""


_contexts: weakref.WeakValueDictionary[int, Context] = weakref.WeakValueDictionary()
_contexts_lock = Lock()


@shielded
def parent_context(ordinal: int) -> Context:
    """Return this process's own context of a GPU; open it if necessary."""
    with _contexts_lock:
        found = _contexts.get(ordinal)
        if found is None:
            found = _contexts[ordinal] = Context(ordinal)
        return found


@dataclass(slots=True)
class Source:
    """Memory of another library, and its structure.

    Attributes
    ----------
    owner : object
        The object that keeps the memory valid.
    name : str
        Type of the array, for messages.
    address : int
        Address of element ``[0, ..., 0]``; 0 if there are no elements.
    shape, strides : tuple of int
        Strides in bytes.
    dtype : numpy.dtype
    ordinal : int or None
        This process's number of the GPU; None for host memory.
    readonly : bool
        Whether it must not be written, or is not known to be writable.
    start, end : int
        The first address, and one past the last.
    """

    owner: object
    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    ordinal: int | None
    readonly: bool
    start: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.start, self.end = self.address, self.address + self.dtype.itemsize
        for n, step in zip(self.shape, self.strides, strict=True):
            if step > 0:
                self.end += (n - 1) * step
            else:
                self.start += (n - 1) * step

    @property
    def empty(self) -> bool:
        """Whether there are no elements, and so no memory."""
        return 0 in self.shape

    @property
    def usable(self) -> bool:
        """Whether messages can use it: it is aligned, and no stride is negative or a fraction of an element."""
        return self.address % self.dtype.alignment == 0 and not any(
            step < 0 or step % self.dtype.itemsize for n, step in zip(self.shape, self.strides, strict=True) if n > 1
        )


def is_on_cuda(obj: object) -> bool:
    """Return whether an array declares that it lies in GPU memory."""
    if isinstance(obj, np.ndarray | np.generic):
        return False
    device = dlpack_device_of(obj)
    if device is not None:
        return device[0] in CUDA_KINDS
    return not isinstance(obj, type) and hasattr(obj, "__cuda_array_interface__")


def host_source(array: np.ndarray[Any, Any], name: str) -> Source:
    """Describe a NumPy array, which keeps its memory valid."""
    address = array.__array_interface__["data"][0] if array.size else 0
    return Source(array, name, address, array.shape, array.strides, array.dtype, None, not array.flags.writeable)


def cuda_source(obj: Any) -> Source:
    """Describe an array of a GPU. Waits for the work that its library has enqueued.

    Raises
    ------
    InvalidRequest
        If its library refuses, its description is malformed, or no device supports its dtype.
    Unsupported
        If this process cannot reach the memory.
    """
    device = dlpack_device_of(obj)
    source = _from_interface(obj) if device is None else _from_dlpack(obj, device)
    if source.dtype not in _KNOWN:
        raise InvalidRequest(
            f"{source.name} has dtype {source.dtype}, which no device holds; allowed: {', '.join(DTYPES)}"
        )
    return source


def _from_dlpack(obj: Any, device: tuple[int, int]) -> Source:
    # Managed memory has a device number, too.
    context = parent_context(device[1])
    try:
        with context:  # PyTorch exports only arrays of the current device
            try:
                capsule = obj.__dlpack__(stream=context.stream, max_version=_MAX_VERSION)
            except TypeError:  # older than DLPack 1
                capsule = obj.__dlpack__(stream=context.stream)
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} cannot be exported through DLPack: {error}") from error
    taken = dlpack.from_capsule(capsule)
    if taken.device_type not in CUDA_KINDS:
        raise InvalidRequest(
            f"{name_of(obj)} said that it is on DLPack device {device}, and came on ({taken.device_type}, "
            f"{taken.device_id})"
        )
    # The producer has made this stream wait for its work.
    context.synchronize(context.stream)
    readonly = is_readonly(obj, taken.readonly, unsaid=not taken.versioned)
    return Source(
        taken, name_of(obj), taken.address, taken.shape, taken.strides, taken.dtype, context.ordinal, readonly
    )  # fmt: skip


def _from_interface(obj: Any) -> Source:
    """Read ``__cuda_array_interface__``, version 0 to 3."""
    name = name_of(obj)
    try:
        found = obj.__cuda_array_interface__
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name} gives no __cuda_array_interface__: {error}") from error
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"{name}.__cuda_array_interface__ is a {type(found).__name__}; it must be a dict")
    if found.get("mask") is not None:
        raise InvalidRequest(f"{name} has a mask, which would be lost; pass its data and its mask as two arrays")
    try:
        shape = tuple(int(n) for n in found["shape"])
        dtype = np.dtype(found["typestr"])
        address, readonly = int(found["data"][0]), is_readonly(obj, bool(found["data"][1]))
        given = found.get("strides")
        strides = _strides(shape, dtype, None if 0 in shape else given)
        if any(n < 0 for n in shape) or (address == 0 and 0 not in shape):
            raise ValueError(f"shape {shape} at address {address}")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidRequest(f"{name}.__cuda_array_interface__ is malformed: {error!r} in {dict(found)}") from None
    if not dtype.isnative:
        raise InvalidRequest(f"{name} has dtype {dtype.str!r} of foreign byte order")
    if 0 in shape:
        return Source(obj, name, 0, shape, strides, dtype, 0, readonly)
    ordinal = parent.locate(address)[0]
    stream = found.get("stream")
    if stream is not None:
        parent_context(ordinal).synchronize(stream_handle(stream))
    return Source(obj, name, address, shape, strides, dtype, ordinal, readonly)


def _strides(shape: tuple[int, ...], dtype: np.dtype[Any], given: object) -> tuple[int, ...]:
    if given is not None:
        strides = tuple(int(step) for step in given)  # type: ignore[attr-defined]
        if len(strides) != len(shape):
            raise ValueError(f"shape {shape} and strides {strides} differ in length")
        return strides
    steps, step = [], dtype.itemsize
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))
