"""DLPack exports of device memory: checks of the arguments of ``__dlpack__``, and capsules.

Pure, synchronous functions: they neither enqueue work nor wait for a device.  A capsule keeps its owner alive until the
consumer releases it.
"""

from __future__ import annotations

import enum
from typing import Any, SupportsIndex, cast

import numpy as np

from .._lib import dlpack
from ..arrays.views import HOST_DEVICE, as_device, describe_device, is_index, is_index_pair
from ..errors import InvalidRequest

__all__ = [
    "CUDA_KINDS",
    "check_cuda_export_arguments",
    "check_export_arguments",
    "device_capsule",
    "export_capsule",
    "stream_handle",
]

#: Device types of memory that a GPU uses: its own, and managed memory.
CUDA_KINDS = frozenset({2, 13})


def export_capsule(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[SupportsIndex | enum.Enum, int] | None = None,
    copy: bool | None = None,
    readonly: bool = False,
) -> object:
    """Export host memory by the rules of ``__dlpack__`` of the array API.

    The last writer of the memory must have finished.

    Parameters
    ----------
    owner
        Kept alive until the consumer releases the capsule (not if the memory is copied).
    address
        Address of element ``[0, ..., 0]``.
    shape, strides_bytes
        The layout; strides in bytes.
    dtype
        The element type.
    stream
        None: host memory has no streams.
    max_version
        The latest DLPack version that the consumer reads; None or ``(0, x)`` gives a legacy capsule.
    dl_device
        The requested device: None or ``(1, 0)``, the host.
    copy
        True: export a fresh, row-major copy.  False or None: never copy.
    readonly
        Whether consumers may not write.

    Returns
    -------
    capsule

    Raises
    ------
    InvalidRequest
        If an argument is malformed, or DLPack has no name for `dtype`.
    BufferError
        If another device is requested, the strides are not multiples of the item size, or the consumer's DLPack version
        cannot mark memory as read-only.
    """
    check_export_arguments(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if copy:
        fresh = dlpack.array_at(owner, address, shape, strides_bytes, dtype, readonly=True).copy("C")
        owner, address, strides_bytes = fresh, fresh.__array_interface__["data"][0], fresh.strides
        readonly = False
    return device_capsule(
        owner, address, shape, strides_bytes, dtype, HOST_DEVICE,
        max_version=max_version, readonly=readonly, copied=bool(copy),
    )  # fmt: skip


def device_capsule(
    owner: object,
    address: int,
    shape: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    *,
    max_version: tuple[int, int] | None,
    readonly: bool = False,
    copied: bool = False,
) -> object:
    """Wrap memory of any device in a capsule of the version that the consumer reads.

    Parameters
    ----------
    device
        The device of the memory, in DLPack's numbering.
    copied
        Whether the memory is a fresh copy for the consumer.

    Other parameters and errors are those of `export_capsule`, after its checks of arguments.
    """
    return dlpack.to_capsule(
        owner,
        address,
        shape,
        _in_elements(shape, strides_bytes, dtype.itemsize),
        dtype,
        *device,
        versioned=max_version is not None and max_version[0] >= 1,
        readonly=readonly,
        copied=copied,
    )


def check_export_arguments(*, stream: object, max_version: object, dl_device: object, copy: object) -> None:
    """Check the arguments of ``__dlpack__`` for host memory, before any wait.

    Raises
    ------
    InvalidRequest
        If `stream` is not None, or an argument is malformed.
    BufferError
        If `dl_device` is not the host.
    """
    if stream is not None:
        raise InvalidRequest(f"stream must be None for host memory, got {stream!r}")
    _check_version_and_copy(max_version, copy)
    if dl_device is not None:
        device = as_device(dl_device, "dl_device")
        if device != HOST_DEVICE:
            raise BufferError(
                f"cannot export host memory to {describe_device(device)}; allowed: None and {HOST_DEVICE}"
            )


def check_cuda_export_arguments(
    device: tuple[int, int], *, stream: object, max_version: object, dl_device: object, copy: object
) -> bool:
    """Check the arguments of ``__dlpack__`` for GPU memory, before any wait.

    Returns
    -------
    bool
        Whether the consumer requests a copy on the host.

    Raises
    ------
    InvalidRequest
        If an argument is malformed.
    BufferError
        If `dl_device` is neither the device itself nor the host, or the host is requested and a copy forbidden.
    """
    if stream is not None and not (is_index(stream) and stream == -1):  # -1: no ordering required
        stream_handle(stream)
    _check_version_and_copy(max_version, copy)
    if dl_device is None:
        return False
    wanted = as_device(dl_device, "dl_device")
    if wanted not in (device, HOST_DEVICE):
        raise BufferError(
            f"cannot export memory of {describe_device(device)} to {describe_device(wanted)}; "
            f"allowed: {device}, {HOST_DEVICE}"
        )
    if wanted == HOST_DEVICE and copy is not None and not copy:
        raise BufferError(
            f"memory of {describe_device(device)} is exported to the host as a copy, which copy=False forbids"
        )
    return wanted == HOST_DEVICE


def stream_handle(stream: object) -> int:
    """Return the driver's handle of a CUDA stream.

    Parameters
    ----------
    stream
        As in DLPack: 1 is the legacy default stream, 2 the thread's default stream, a larger integer the handle of a
        stream; or an object with ``__cuda_stream__``.

    Raises
    ------
    InvalidRequest
        For any other value; 0 is ambiguous.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        found = protocol()
        if is_index_pair(found) and int(found[1]) >= 0:
            return int(found[1])
    elif is_index(stream) and int(cast("SupportsIndex", stream)) > 0:
        return int(cast("SupportsIndex", stream))
    raise InvalidRequest(
        f"stream {stream!r} is not a CUDA stream; allowed: 1 (legacy default), 2 (default of the thread), the handle "
        f"of a "
        f"stream, an object with __cuda_stream__"
    )


def _check_version_and_copy(max_version: object, copy: object) -> None:
    if max_version is not None and not is_index_pair(max_version):
        raise InvalidRequest(f"max_version must be None or (major, minor), got {max_version!r}")
    if copy is not None and not isinstance(copy, bool | np.bool_):
        raise InvalidRequest(f"copy must be None, True or False, got {copy!r}")


def _in_elements(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return strides in elements, as in DLPack."""
    if len(shape) != len(strides):
        raise InvalidRequest(f"shape {shape} and strides {strides} differ in length")
    # The stride of an axis of length 1 is never used, nor are strides of an array without elements.
    empty = 0 in shape
    used = [itemsize if empty or n == 1 else step for n, step in zip(shape, strides, strict=True)]
    if any(stride % itemsize for stride in used):
        raise BufferError(
            f"DLPack cannot express strides {strides} (bytes) of {itemsize}-byte elements for shape {shape}; "
            "export a copy (copy=True)"
        )
    return tuple(stride // itemsize for stride in used)
