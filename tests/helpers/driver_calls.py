"""The fake driver's C interface for test programs: each call raises `DriverError`, unless it succeeds."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from kernel_shim import compile_module

U64, Size, Pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
SEGMENT = 2 << 20


class DriverError(Exception):
    """A call that failed; `status` is a CUresult."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} returned {status}")
        self.status = status


class Properties(ctypes.Structure):
    """A CUmemAllocationProp."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("type", "handle_types", "location_type", "location")),
        ("win32", Pointer),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Driver:
    """The library, and a current context of one device unless told otherwise."""

    def __init__(self, device: int | None = 0) -> None:
        self.library = ctypes.CDLL(os.environ["ATOMR_NATIVE_CUDA"])
        if device is not None:
            self.cuInit(0)
            self.enter(device)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status:
                raise DriverError(name, status)

        return call

    def enter(self, device: int = 0) -> None:
        """Make a device's context current in this thread."""
        context = Pointer()
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self.cuCtxSetCurrent(context)

    def create(self, nbytes: int = SEGMENT, device: int = 0) -> int:
        """Make device memory; a descriptor of it."""
        handle, fd = U64(), ctypes.c_int()
        self.cuMemCreate(ctypes.byref(handle), Size(nbytes), ctypes.byref(Properties(1, 1, 1, device)), U64(0))
        self.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, U64(0))
        self.cuMemRelease(handle)
        return fd.value

    def map(self, fd: int, nbytes: int = SEGMENT, device: int = 0) -> int:
        """Map the memory of a descriptor, with gaps around it; its address."""
        handle, base = U64(), U64()
        self.cuMemImportFromShareableHandle(ctypes.byref(handle), Pointer(fd), 1)
        self.cuMemAddressReserve(ctypes.byref(base), Size(nbytes + 2 * SEGMENT), Size(0), U64(0), U64(0))
        at = base.value + SEGMENT
        self.cuMemMap(U64(at), Size(nbytes), Size(0), handle, U64(0))
        self.cuMemRelease(handle)
        self.cuMemSetAccess(U64(at), Size(nbytes), (ctypes.c_int * 3)(1, device, 3), Size(1))
        return at

    def stream(self) -> Pointer:
        made = Pointer()
        self.cuStreamCreate(ctypes.byref(made), 1)
        return made

    def event(self) -> Pointer:
        made = Pointer()
        self.cuEventCreate(ctypes.byref(made), 2)
        return made

    def kernel(self, source: str, name: str) -> Pointer:
        module, function = Pointer(), Pointer()
        self.cuModuleLoadData(ctypes.byref(module), compile_module(source))
        self.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        return function

    def launch(self, function: Pointer, *arguments: Any, stream: Any = None, grid: int = 1, block: int = 1) -> None:
        pointers = (Pointer * (len(arguments) or 1))(*map(ctypes.addressof, arguments))
        self.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, pointers, None)

    def read(self, at: int, nbytes: int) -> bytes:
        """Copy from the device, and wait."""
        data = (ctypes.c_char * nbytes)()
        self.cuMemcpyAsync(U64(ctypes.addressof(data)), U64(at), Size(nbytes), None)
        return bytes(data)

    def write(self, at: int, data: bytes) -> None:
        """Copy to the device, and wait."""
        source = ctypes.create_string_buffer(data)
        self.cuMemcpyAsync(U64(at), U64(ctypes.addressof(source)), Size(len(data)), None)
        self.cuStreamSynchronize(None)


def status(call: Any, *arguments: Any) -> int:
    """What a call that may fail returns."""
    try:
        call(*arguments)
    except DriverError as error:
        return error.status
    return 0
