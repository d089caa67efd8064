"""Arrays of other libraries: views of their memory, and DLPack exports of ours.

Pure functions, all synchronous: nothing here enqueues work or waits for a device.  A view keeps the
memory it shows alive; a capsule keeps its owner alive until the consumer lets go of it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from ._lib import dlpack
from .dtypes import DTYPES
from .errors import AtomrError, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CUDA_KINDS",
    "HOST_DEVICE",
    "REFUSALS",
    "check_cuda_export_arguments",
    "check_export_arguments",
    "device_capsule",
    "dlpack_device_of",
    "export_capsule",
    "name_of",
    "stream_handle",
    "view_as_numpy",
]

#: The device of host memory, as DLPack numbers it: ``(kDLCPU, 0)``.
HOST_DEVICE = (1, 0)

#: Device types of memory that a GPU works on: its own, and managed memory.
CUDA_KINDS = frozenset({2, 13})

_CUDA_HOST = 3
_READABLE = frozenset({HOST_DEVICE[0], _CUDA_HOST})
_MAX_VERSION = (1, 1)

_DEVICES = {
    1: "CPU", 2: "CUDA", 3: "pinned CUDA host", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm",
    11: "pinned ROCm host", 12: "extension", 13: "CUDA managed", 14: "oneAPI", 15: "WebGPU",
    16: "Hexagon", 17: "MAIA", 18: "Trainium",
}  # fmt: skip

_SUPPORTED = frozenset(DTYPES.values())

#: What producers raise when they cannot export an array that they could describe otherwise.
REFUSALS = (BufferError, TypeError, ValueError, RuntimeError)


def dlpack_device_of(obj: object) -> tuple[int, int] | None:
    """Return where an array lives, as ``(device type, device id)`` of DLPack.

    Parameters
    ----------
    obj
        Any object.

    Returns
    -------
    tuple of int, or None
        None where `obj` does not implement DLPack.

    Raises
    ------
    InvalidRequest
        If `obj` implements it and gives no device.
    """
    if isinstance(obj, type) or not hasattr(obj, "__dlpack__") or not hasattr(obj, "__dlpack_device__"):
        return None
    try:
        device = obj.__dlpack_device__()
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} has no DLPack device: {error}") from error
    return _device(device, f"{name_of(obj)}.__dlpack_device__()")


def view_as_numpy(obj: object) -> NDArray[Any]:
    """Return the host memory of an array as a NumPy array, without copying it.

    Taken, in this order: NumPy arrays, ``__dlpack__`` (host memory, pinned or not),
    ``__array_interface__``, the buffer protocol, ``__array__`` (which alone may copy).  Strides are
    kept, be they negative or zero; read-only memory gives a read-only array.

    Parameters
    ----------
    obj
        For example a NumPy array, a PyTorch tensor on the CPU, a ``bytearray`` or a ``memoryview``.

    Returns
    -------
    numpy.ndarray
        Keeps the memory alive.  Writing to it writes to `obj`, if `obj` allows it.

    Raises
    ------
    Unsupported
        If the memory is on a device that the host cannot read.
    InvalidRequest
        If `obj` is no array, its library refuses the export, or no device can hold its dtype.
    """
    if isinstance(obj, np.ma.MaskedArray):
        raise InvalidRequest("a masked array would lose its mask; pass x.filled(value), or x.data to ignore it")
    if isinstance(obj, np.ndarray | np.generic):
        return _checked(np.asarray(obj), obj)
    device = dlpack_device_of(obj)
    if device is not None:
        return _checked(_from_dlpack(obj, device), obj)
    if isinstance(obj, type):
        raise InvalidRequest(f"expected an array, got the class {obj.__name__}")
    if hasattr(obj, "__cuda_array_interface__"):
        raise _elsewhere(obj, "a CUDA device")
    return _checked(_from_numpy_protocols(obj), obj)


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

    Whoever wrote the memory must have finished.

    Parameters
    ----------
    owner
        Kept alive until the consumer lets go (not if the memory is copied).
    address
        Of element ``[0, ..., 0]``.
    shape, strides_bytes
        The layout; strides in bytes.
    dtype
        The element type.
    stream
        None: host memory has no streams.
    max_version
        The latest DLPack version the consumer reads; None or ``(0, x)`` gives a legacy capsule.
    dl_device
        Where the consumer wants it: None or ``(1, 0)``, the host.
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
        If another device is asked for, the strides are no multiples of the item size, or
        the consumer is too old to be told that the memory is read-only.
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
        Where it is, as DLPack numbers it.
    copied
        Whether the memory is a fresh copy for the consumer.

    Others, and what is raised: as `export_capsule`, after its checks of arguments.
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
    """Check the arguments of ``__dlpack__`` for host memory, before anything is waited for.

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
        device = _device(dl_device, "dl_device")
        if device != HOST_DEVICE:
            raise BufferError(f"cannot export host memory to {_describe(device)}; allowed: None and {HOST_DEVICE}")


def check_cuda_export_arguments(
    device: tuple[int, int], *, stream: object, max_version: object, dl_device: object, copy: object
) -> bool:
    """Check the arguments of ``__dlpack__`` for memory of a GPU, before anything is waited for.

    Returns
    -------
    bool
        Whether the consumer wants it on the host.

    Raises
    ------
    InvalidRequest
        If an argument is malformed.
    BufferError
        If `dl_device` is neither the device itself nor the host, or the host is asked for and a copy forbidden.
    """
    if stream is not None and not (_is_integer(stream) and stream == -1):  # -1: no need to be ordered before anything
        stream_handle(stream)
    _check_version_and_copy(max_version, copy)
    if dl_device is None:
        return False
    wanted = _device(dl_device, "dl_device")
    if wanted not in (device, HOST_DEVICE):
        raise BufferError(
            f"cannot export memory of {_describe(device)} to {_describe(wanted)}; allowed: {device}, {HOST_DEVICE}"
        )
    if wanted == HOST_DEVICE and copy is not None and not copy:
        raise BufferError(f"memory of {_describe(device)} is exported to the host as a copy, which copy=False forbids")
    return wanted == HOST_DEVICE


def stream_handle(stream: object) -> int:
    """Return the driver's handle of a CUDA stream.

    Parameters
    ----------
    stream
        As in DLPack: 1 is the legacy default stream, 2 that of the thread, a larger integer the handle of a stream; or
        an object with ``__cuda_stream__``.

    Raises
    ------
    InvalidRequest
        For anything else; 0 could mean two streams.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        found = protocol()
        if _is_pair_of_integers(found) and int(found[1]) >= 0:
            return int(found[1])
    elif _is_integer(stream) and int(cast("SupportsIndex", stream)) > 0:
        return int(cast("SupportsIndex", stream))
    raise InvalidRequest(
        f"stream {stream!r} is no CUDA stream; allowed: 1 (legacy default), 2 (default of the thread), the handle of a "
        f"stream, an object with __cuda_stream__"
    )


def _check_version_and_copy(max_version: object, copy: object) -> None:
    if max_version is not None and not _is_pair_of_integers(max_version):
        raise InvalidRequest(f"max_version must be None or (major, minor), got {max_version!r}")
    if copy is not None and not isinstance(copy, bool | np.bool_):
        raise InvalidRequest(f"copy must be None, True or False, got {copy!r}")


def _from_dlpack(obj: Any, device: tuple[int, int]) -> NDArray[Any]:
    """Import an array whose DLPack device is known."""
    if device[0] not in _READABLE:
        raise _elsewhere(obj, _describe(device))
    try:
        try:
            capsule = obj.__dlpack__(max_version=_MAX_VERSION)
        except TypeError:  # a producer from before DLPack 1 knows no max_version
            capsule = obj.__dlpack__()
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} cannot be exported through DLPack: {error}") from error
    return dlpack.as_numpy(dlpack.from_capsule(capsule))


def _from_numpy_protocols(obj: object) -> NDArray[Any]:
    """View an array through ``__array_interface__``, the buffer protocol or ``__array__``."""
    source = obj
    if not hasattr(obj, "__array_interface__"):
        try:
            # Not the object itself: NumPy takes bytes for a string.
            source = memoryview(cast("Any", obj))
        except TypeError:
            if not hasattr(obj, "__array__"):
                raise InvalidRequest(
                    f"expected an array, got {name_of(obj)}; taken are NumPy arrays and objects with "
                    "__dlpack__, __array_interface__, the buffer protocol or __array__ "
                    "(for numbers and lists: numpy.asarray(x))"
                ) from None
    try:
        return np.asarray(source)
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} cannot be viewed as an array: {error}") from error


def _checked(array: NDArray[Any], obj: object) -> NDArray[Any]:
    """Return `array` if a device can hold its dtype."""
    dtype = array.dtype
    if dtype in _SUPPORTED:
        return array
    if not dtype.isnative and dtype.newbyteorder("=") in _SUPPORTED:
        raise InvalidRequest(
            f"{name_of(obj)} has dtype {dtype.str!r} of foreign byte order; "
            "convert it first: x.astype(x.dtype.newbyteorder('='))"
        )
    raise InvalidRequest(f"{name_of(obj)} has dtype {dtype}, which no device holds; allowed: {', '.join(DTYPES)}")


def _in_elements(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return strides in elements, as DLPack counts them."""
    if len(shape) != len(strides):
        raise InvalidRequest(f"shape {shape} and strides {strides} differ in length")
    # The stride of an axis of length 1 is never used, nor is any where there are no elements.
    empty = 0 in shape
    used = [itemsize if empty or n == 1 else step for n, step in zip(shape, strides, strict=True)]
    if any(stride % itemsize for stride in used):
        raise BufferError(
            f"DLPack cannot express strides {strides} (bytes) of {itemsize}-byte elements for shape {shape}; "
            "export a copy (copy=True)"
        )
    return tuple(stride // itemsize for stride in used)


def _elsewhere(obj: object, place: str) -> Unsupported:
    """Return the error for memory that the host cannot read."""
    return Unsupported(
        f"{name_of(obj)} lives on {place}, whose memory the host cannot read; device.asarray(x) takes it, or copy it "
        "to the host first: x.cpu() in PyTorch, x.get() in CuPy, x.copy_to_host() in Numba, jax.device_get(x) in JAX"
    )


def _describe(device: tuple[int, int]) -> str:
    """Return a device as text."""
    kind, number = device
    return f"{_DEVICES.get(kind, 'unknown')} device {number} (DLPack device ({kind}, {number}))"


def _device(device: object, what: str) -> tuple[int, int]:
    """Return a DLPack device, whose type may be any kind of enum, as two integers."""
    if isinstance(device, tuple | list) and len(device) == 2:
        kind, number = device
        pair = (kind.value if isinstance(kind, enum.Enum) else kind, number)
        if _is_pair_of_integers(pair):
            return int(pair[0]), int(pair[1])
    raise InvalidRequest(f"{what} must be (device type, device id), got {device!r}")


def _is_integer(value: object) -> bool:
    no = bool | np.bool_ | np.ndarray | type  # arrays of one integer, and the classes of integers, have it, too
    return hasattr(value, "__index__") and not isinstance(value, no)


def _is_pair_of_integers(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_integer, value))


def name_of(obj: object) -> str:
    """Return the type of `obj` as users write it."""
    kind = type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
