"""Another library with arrays on a GPU, made of driver calls: producer and consumer, on a fake driver or a real one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from atomr_native._lib import dlpack

U64, Size, Pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


class Library:
    """The driver in this process, and what the other library does with it."""

    def __init__(self, device: int = 0) -> None:
        self.driver = ctypes.CDLL(os.environ.get("ATOMR_NATIVE_CUDA") or "libcuda.so.1")
        self.device = device
        self.call("cuInit", 0)
        self.context = Pointer()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current, as every library does for its own calls."""
        self.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(Pointer()))

    def stream(self) -> int:
        made = Pointer()
        with self.current():
            self.call("cuStreamCreate", ctypes.byref(made), 1)
        return made.value or 0

    def wait(self, stream: int) -> None:
        with self.current():
            self.call("cuStreamSynchronize", Pointer(stream))

    def event(self, stream: int) -> Pointer:
        made = Pointer()
        self.call("cuEventCreate", ctypes.byref(made), 2)
        self.call("cuEventRecord", made, Pointer(stream))
        return made

    def read(self, address: int, nbytes: int, stream: int = 1) -> bytes:
        """Copy from the device, in order with a stream, and wait."""
        data = (ctypes.c_char * max(nbytes, 1))()
        if nbytes:
            with self.current():
                self.call("cuMemcpyAsync", U64(ctypes.addressof(data)), U64(address), Size(nbytes), Pointer(stream))
                self.call("cuStreamSynchronize", Pointer(stream))
        return bytes(data)[:nbytes]

    def write(self, address: int, data: bytes, stream: int = 1) -> None:
        """Copy to the device, in order with a stream, and wait."""
        source = ctypes.create_string_buffer(data, max(len(data), 1))
        if data:
            with self.current():
                self.call(
                    "cuMemcpyAsync", U64(address), U64(ctypes.addressof(source)), Size(len(data)), Pointer(stream)
                )
                self.call("cuStreamSynchronize", Pointer(stream))

    def fill(self, address: int, value: int, nbytes: int, stream: int, times: int = 1) -> None:
        """Set bytes on a stream, without waiting; `times` over, for work that takes long."""
        with self.current():
            for i in reversed(range(times)):
                self.call("cuMemsetD8Async", U64(address), (value + i) % 256, Size(nbytes), Pointer(stream))

    def allocate(self, nbytes: int, kind: str = "plain") -> int:
        made = U64()
        with self.current():
            if kind == "managed":
                self.call("cuMemAllocManaged", ctypes.byref(made), Size(nbytes), 1)
            else:
                self.call("cuMemAlloc_v2", ctypes.byref(made), Size(nbytes))
        return made.value

    def release(self, address: int) -> None:
        with self.current():
            self.call("cuMemFree_v2", U64(address))

    def array(self, data: Any, kind: str = "plain") -> Array:
        """Make an array with the values of a NumPy array."""
        host = np.ascontiguousarray(data)
        made = Array(self, host.shape, host.dtype, None, host.strides, 0, Block(self, max(host.nbytes, 1), kind))
        self.write(made.address, host.tobytes())
        return made


class Block:
    """Memory of the other library; freed with the last array over it."""

    def __init__(self, library: Library, nbytes: int, kind: str) -> None:
        self.library = library
        self.address = library.allocate(nbytes, kind)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self.library.release(self.address)


class Array:
    """An array with ``__cuda_array_interface__``."""

    def __init__(
        self, library: Library, shape: Any, dtype: Any, stream: int | None, strides: Any, offset: int, block: Any
    ) -> None:
        self.library, self.shape, self.dtype, self.strides = library, shape, np.dtype(dtype), strides
        self.stream, self.offset, self.block = stream, offset, block

    @property
    def address(self) -> int:
        return int(self.block.address + self.offset)

    def like(self, image: Any) -> Array:
        """A view of the structure of a view of `numpy()`."""
        low, high = extent(self.shape, self.strides, self.dtype.itemsize)
        base = np.ndarray(self.shape, self.dtype, bytearray(high - low), -low, self.strides)
        view = image(base)
        offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return type(self)(
            self.library, view.shape, view.dtype, self.stream, view.strides, self.offset + offset, self.block
        )  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "strides": self.strides,
            "version": 3, "stream": self.stream,
        }  # fmt: skip

    def numpy(self) -> np.ndarray[Any, Any]:
        return view_of(self.library, self.__cuda_array_interface__)


class DlpackArray(Array):
    """An array with DLPack, whose work is on a stream of its own."""

    flags: dict[str, Any]

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.library.device)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, **_: Any) -> object:
        """As PyTorch does it: the consumer's stream waits for an event on ours."""
        self.asked = stream
        if self.stream is not None and stream != -1:
            with self.library.current():
                event = self.library.event(self.stream)
                self.library.call("cuStreamWaitEvent", Pointer(stream or 1), event, 0)
        item = self.dtype.itemsize
        return dlpack.to_capsule(
            self, self.address, self.shape, tuple(s // item for s in self.strides), self.dtype, 2, self.library.device,
            versioned=max_version is not None, readonly=getattr(self, "readonly", False),
        )  # fmt: skip


def extent(shape: Any, strides: Any, itemsize: int) -> tuple[int, int]:
    """Where the bytes of an array begin and end, from its first element on."""
    if 0 in shape:
        return 0, 0
    reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + itemsize


def view_of(library: Library, interface: dict[str, Any], stream: int = 1) -> np.ndarray[Any, Any]:
    """Copy what an interface describes to the host, in order with a stream."""
    shape, dtype = interface["shape"], np.dtype(interface["typestr"])
    strides = interface["strides"] or np.empty(shape, dtype).strides
    low, high = extent(shape, strides, dtype.itemsize)
    raw = library.read(interface["data"][0] + low, high - low, stream)
    return np.ndarray(shape, dtype, bytearray(raw), -low, strides).copy()
