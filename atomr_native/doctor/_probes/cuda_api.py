"""The calls of the CUDA driver that the probes need, through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

SONAME = "libcuda.so.1"


class CudaError(Exception):
    """A driver call that returned an error."""


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class AllocationFlags(ctypes.Structure):
    """The allocFlags of CUmemAllocationProp."""

    _fields_ = (
        ("compressionType", ctypes.c_ubyte),
        ("gpuDirectRDMACapable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("requestedHandleTypes", c_int),
        ("location", Location),
        ("win32HandleMetaData", c_void_p),
        ("allocFlags", AllocationFlags),
    )


class AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


class Uuid(ctypes.Structure):
    """CUuuid."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (ctypes.POINTER(c_int),),
    "cuDeviceGetCount": (ctypes.POINTER(c_int),),
    "cuDeviceGet": (ctypes.POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (ctypes.POINTER(Uuid), c_int),
    "cuDeviceTotalMem_v2": (ctypes.POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (ctypes.POINTER(c_ulonglong), c_void_p, c_uint),
    "cuMemHostUnregister": (c_void_p,),
    "cuMemsetD8_v2": (c_ulonglong, ctypes.c_ubyte, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_ulonglong, c_size_t),
    "cuMemcpyHtoD_v2": (c_ulonglong, c_void_p, c_size_t),
    "cuMemGetAllocationGranularity": (ctypes.POINTER(c_size_t), ctypes.POINTER(AllocationProp), c_int),
    "cuMemCreate": (ctypes.POINTER(c_ulonglong), c_size_t, ctypes.POINTER(AllocationProp), c_ulonglong),
    "cuMemExportToShareableHandle": (c_void_p, c_ulonglong, c_int, c_ulonglong),
    "cuMemImportFromShareableHandle": (ctypes.POINTER(c_ulonglong), c_void_p, c_int),
    "cuMemAddressReserve": (ctypes.POINTER(c_ulonglong), c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemMap": (c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemSetAccess": (c_ulonglong, c_size_t, ctypes.POINTER(AccessDesc), c_size_t),
}


class Driver:
    """The loaded, initialised driver; each call raises `CudaError` with the driver's name of the error."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(SONAME)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a driver function."""
        function = getattr(self.lib, name)
        function.argtypes = _SIGNATURES[name]
        function.restype = c_int
        if status := function(*arguments):
            raise CudaError(f"{name}: {self.error_name(status)} ({status})")

    def error_name(self, status: int) -> str:
        """Return the driver's name for a status."""
        text = c_char_p()
        self.lib.cuGetErrorName.argtypes = (c_int, ctypes.POINTER(c_char_p))
        if self.lib.cuGetErrorName(status, ctypes.byref(text)) or text.value is None:
            return "unknown error"
        return text.value.decode()

    def integer(self, name: str, *arguments: object) -> int:
        """Call a function whose first argument is an int output, and return that."""
        value = c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def attribute(self, device: int, number: int) -> int:
        """Return a device attribute."""
        return self.integer("cuDeviceGetAttribute", number, device)

    def use(self, ordinal: int) -> int:
        """Make the primary context of a device current and return the device."""
        device = self.integer("cuDeviceGet", ordinal)
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return device
