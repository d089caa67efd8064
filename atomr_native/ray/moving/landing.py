"""The receiving side's memory: an array of a device of this process, or a NumPy array."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
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

__all__ = ["Found", "Target", "from_host", "from_stream", "lent_copy"]

#: A received array: on a device of this process, or in its host memory.
Found = Any
_LARGE = 64 << 10  # bytes from which several threads copy

Fill = Callable[["Bytes"], None]


def from_host(source: np.ndarray[Any, Any], target: Target) -> Found:
    """Return a copy of an array in host memory, which has been read when this returns."""
    if target.kind == "cuda":
        return target.device.put(source, out=target.out)
    return _filled(source.shape, source.dtype, target, lambda array: _copy(array, source))


def from_stream(shape: tuple[int, ...], dtype: str, target: Target, receive: Fill) -> Found:
    """Return an array whose bytes `receive` puts into the memory that it is given, in order."""
    kind = as_dtype(dtype)
    if target.kind != "cuda":
        return _filled(shape, kind, target, lambda array: receive(bytes_of(array)))
    layout, out = layout_of(shape, kind), target.out
    if not layout.nbytes:
        return target.device.empty(shape, kind) if out is None else out
    made = target.device.empty((layout.nbytes,), "uint8") if out is None else out
    _in_pieces(made, receive)
    return made.view_as(layout, made.offset)


@dataclass(frozen=True)
class Target:
    """Where an array is to arrive: a device of this process, an array of it, or (None) a NumPy array."""

    on: Device | None = None
    out: GpuRef | None = None

    @property
    def kind(self) -> str:
        """``"host"``, ``"cuda"``, or ``""`` for a NumPy array."""
        return "" if self.on is None else self.on.kind

    @property
    def device(self) -> Device:
        """The device."""
        assert self.on is not None  # noqa: S101 - the caller has looked at the kind
        return self.on


def _filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], target: Target, fill: Callable[[np.ndarray[Any, Any]], None]
) -> Found:
    """Return an array in host memory that `fill` has written."""
    if target.on is None:
        array = np.empty(shape, dtype)
        if array.size:
            fill(array)
        return array
    made = target.device.empty(shape, dtype) if target.out is None else target.out
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


def lent_copy(source: np.ndarray[Any, Any]) -> int:
    """Return a descriptor of host memory with a copy of an array's bytes; the memory goes with the last descriptor."""
    fd = os.memfd_create("atomr_native-move", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(fd, source.nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        _copy(np.frombuffer(mmap.mmap(fd, source.nbytes), np.uint8), source.reshape(-1).view(np.uint8))
    except BaseException:
        os.close(fd)
        raise
    return fd


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
