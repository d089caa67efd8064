"""The receiving side's memory: an array of a device of this process, or a NumPy array."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._lib.copies import FRESH, HostCopy
from ...arrays.layout import layout_of
from ...dtypes import as_dtype
from .server import PIECE, bytes_of, view_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...device import Device
    from .channel import Bytes

__all__ = ["Found", "from_host", "from_stream"]

#: A received array: on a device of this process, or in its host memory.
Found = Any
_LARGE = 64 << 10  # bytes from which several threads copy

Fill = Callable[["Bytes"], None]


def from_host(source: np.ndarray[Any, Any], device: Device | None) -> Found:
    """Return a copy of an array in host memory, which has been read when this returns."""
    if device is not None and device.kind == "cuda":
        return device.put(source)
    return _filled(source.shape, source.dtype, device, lambda array: _copy(array, source))


def from_stream(shape: tuple[int, ...], dtype: str, device: Device | None, receive: Fill) -> Found:
    """Return an array whose bytes `receive` puts into the memory that it is given, in order."""
    kind = as_dtype(dtype)
    if device is None or device.kind == "host":
        return _filled(shape, kind, device, lambda array: receive(bytes_of(array)))
    layout = layout_of(shape, kind)
    if not layout.nbytes:
        return device.empty(shape, kind)
    made = device.empty((layout.nbytes,), "uint8")
    _in_pieces(made, receive)
    return made.view_as(layout, made.offset)


def _filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], device: Device | None, fill: Callable[[np.ndarray[Any, Any]], None]
) -> Found:
    """Return an array in host memory that `fill` has written."""
    if device is None:
        array = np.empty(shape, dtype)
        if array.size:
            fill(array)
        return array
    made = device.empty(shape, dtype)
    if made.size:
        with made.lend() as lent:
            fill(lent)
    return made


def _copy(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    if source.nbytes < _LARGE:
        np.copyto(target, source)
        return
    first, second = (each.__array_interface__["data"][0] for each in (target, source))
    HostCopy(FRESH, first, second, source.nbytes, (target, source)).finish()


def _in_pieces(made: GpuRef, receive: Fill) -> None:
    """Write a GPU's array: a piece goes to the GPU while the next one comes."""
    device, raw = made.device, np.dtype(np.uint8)
    count = min(PIECE, made.nbytes)
    buffers = [device.host_array((count,), raw) for _ in range(2 if made.nbytes > count else 1)]
    sent: list[GpuRef | None] = [None] * len(buffers)
    for number, at in enumerate(range(0, made.nbytes, count)):
        size, which = min(count, made.nbytes - at), number % len(buffers)
        piece = made.view_as(layout_of((size,), raw), made.offset + at)
        last = sent[which]
        if last is not None:
            last.wait()
        receive(view_of(buffers[which])[:size])
        sent[which] = device.put(buffers[which][:size], out=piece, blocking=False)
    made.wait()
