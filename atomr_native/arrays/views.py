"""NumPy views of arrays of other libraries, and the DLPack definitions that views and exports share.

Pure, synchronous functions: they neither enqueue work nor wait for a device.  A view keeps the memory it shows alive.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._lib import dlpack
from .._lib.sender import Ref
from ..dtypes import DTYPES
from ..errors import AtomrError, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "HOST_DEVICE",
    "REFUSALS",
    "as_device",
    "describe_device",
    "dlpack_device_of",
    "is_index",
    "is_index_pair",
    "is_readonly",
    "name_of",
    "view_as_numpy",
]

#: The device of host memory in DLPack: ``(kDLCPU, 0)``.
HOST_DEVICE = (1, 0)

_CUDA_HOST = 3
_READABLE = frozenset({HOST_DEVICE[0], _CUDA_HOST})
_MAX_VERSION = (1, 1)

_DEVICES = {
    1: "CPU", 2: "CUDA", 3: "pinned CUDA host", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm",
    11: "pinned ROCm host", 12: "extension", 13: "CUDA managed", 14: "oneAPI", 15: "WebGPU",
    16: "Hexagon", 17: "MAIA", 18: "Trainium",
}  # fmt: skip

_SUPPORTED = frozenset(DTYPES.values())

#: Classes whose arrays may be written, by package and name: their older versions cannot say so.
_MUTABLE = frozenset({("torch", "Tensor"), ("cupy", "ndarray")})
#: Packages whose arrays never change.
_IMMUTABLE = frozenset({"jax", "jaxlib"})

#: Exceptions of producers that cannot export an array.
REFUSALS = (BufferError, TypeError, ValueError, RuntimeError)


def dlpack_device_of(obj: object) -> tuple[int, int] | None:
    """Return the device of an array, as ``(device type, device id)`` of DLPack.

    Parameters
    ----------
    obj
        Any object.

    Returns
    -------
    tuple of int, or None
        None if `obj` does not implement DLPack.

    Raises
    ------
    InvalidRequest
        If `obj` implements DLPack but names no device.
    """
    if isinstance(obj, type) or not hasattr(obj, "__dlpack__") or not hasattr(obj, "__dlpack_device__"):
        return None
    try:
        device = obj.__dlpack_device__()
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} has no DLPack device: {error}") from error
    return as_device(device, f"{name_of(obj)}.__dlpack_device__()")


def is_readonly(obj: object, said: bool, *, unsaid: bool = False) -> bool:
    """Return whether an array may only be read: its own word, or what is known of its class.

    Parameters
    ----------
    obj
        The array.
    said : bool
        What its export says.
    unsaid : bool
        Whether the export could not say that it may be written: a DLPack capsule without a version.
    """
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__]
    if any(package in _IMMUTABLE for package, _ in kinds):
        return True
    return said and not (unsaid and any(kind in _MUTABLE for kind in kinds))


def view_as_numpy(obj: object) -> NDArray[Any]:
    """Return the host memory of an array as a NumPy array, without copying it.

    It uses, in this order: NumPy arrays, ``__dlpack__`` (host memory, pinned or not), ``__array_interface__``, the
    buffer protocol, ``__array__`` (which alone may copy).  Strides are kept, also negative and zero ones; memory that
    is read-only, or not known to be writable, gives a read-only array.

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
        If `obj` is not an array, its library refuses the export, or no device can hold its dtype.
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


def _from_dlpack(obj: Any, device: tuple[int, int]) -> NDArray[Any]:
    """Import an array whose DLPack device is known."""
    if device[0] not in _READABLE:
        raise _elsewhere(obj, describe_device(device))
    try:
        try:
            capsule = obj.__dlpack__(max_version=_MAX_VERSION)
        except TypeError:  # a producer older than DLPack 1 has no max_version
            capsule = obj.__dlpack__()
    except AtomrError:
        raise
    except REFUSALS as error:
        raise InvalidRequest(f"{name_of(obj)} cannot be exported through DLPack: {error}") from error
    taken = dlpack.from_capsule(capsule)
    return dlpack.as_numpy(taken, readonly=is_readonly(obj, taken.readonly, unsaid=not taken.versioned))


def _from_numpy_protocols(obj: object) -> NDArray[Any]:
    """View an array through ``__array_interface__``, the buffer protocol or ``__array__``."""
    source = obj
    if not hasattr(obj, "__array_interface__"):
        try:
            # Not the object itself: NumPy would convert bytes to a string.
            source = memoryview(cast("Any", obj))
        except TypeError:
            if not hasattr(obj, "__array__"):
                raise InvalidRequest(
                    f"expected an array, got {name_of(obj)}; allowed: NumPy arrays and objects with "
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


def _elsewhere(obj: object, place: str) -> Unsupported:
    """Return the error for memory that the host cannot read."""
    return Unsupported(
        f"{name_of(obj)} lives on {place}, whose memory the host cannot read; device.asarray(x) takes it, or copy it "
        "to the host first: x.cpu() in PyTorch, x.get() in CuPy, x.copy_to_host() in Numba, jax.device_get(x) in JAX"
    )


def describe_device(device: tuple[int, int]) -> str:
    """Return a device as text."""
    kind, number = device
    return f"{_DEVICES.get(kind, 'unknown')} device {number} (DLPack device ({kind}, {number}))"


def as_device(device: object, what: str) -> tuple[int, int]:
    """Return a DLPack device as two integers; its type may be any kind of enum."""
    if isinstance(device, tuple | list) and len(device) == 2:
        kind, number = device
        pair = (kind.value if isinstance(kind, enum.Enum) else kind, number)
        if is_index_pair(pair):
            return int(pair[0]), int(pair[1])
    raise InvalidRequest(f"{what} must be (device type, device id), got {device!r}")


def is_index(value: object) -> bool:
    """Return whether a value is an integer by ``__index__``, and not a bool, an array or a class."""
    no = bool | np.bool_ | np.ndarray | Ref | type  # arrays of one integer, and integer classes, have it, too
    return hasattr(value, "__index__") and not isinstance(value, no)


def is_index_pair(value: object) -> bool:
    """Return whether a value is a tuple or list of two integers."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(is_index, value))


def name_of(obj: object) -> str:
    """Return the type of `obj` as users write it."""
    kind = type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
