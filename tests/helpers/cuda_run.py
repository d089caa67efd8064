"""Kernels on a CUDA device through the driver's C interface: slow, simple, for tests."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from atomr_native.builders.cuda.target import KernelProgram, Target
from atomr_native.compile.nvrtc import arch_of

_U64 = ctypes.c_uint64
_CTYPES = {
    "float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_longlong, "uint64": ctypes.c_ulonglong,
}  # fmt: skip
_GUARD = 256


def _span(array: np.ndarray) -> tuple[int, int]:
    first, end = np.lib.array_utils.byte_bounds(array)
    return first, end if array.size else first


class Device:
    """The first CUDA device, by its primary context."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

        def attribute(number: int) -> int:
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
            return value.value

        self.target = Target(arch_of((attribute(75), attribute(76))), attribute(16))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        assert status == 0, f"{name} returned {status}"

    def allocate(self, nbytes: int) -> int:
        address = _U64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value

    def run(self, program: KernelProgram, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
        """Run a program on copies of the arrays' memory, and bring the memory back; bytes around it must stay."""
        buffers, addresses, known = [], [], {}
        for array in arrays:
            first, end = _span(array)
            if (first, end) in known:  # of an array that is given twice
                addresses.append(known[first, end] + array.ctypes.data - first)
                continue
            shift = first % _GUARD  # views keep their alignment
            image = np.full(2 * _GUARD + shift + end - first, 0xC7, np.uint8)
            image[_GUARD + shift : _GUARD + shift + end - first] = memory(first, end)
            address = self.allocate(image.size)
            self._call(
                "cuMemcpyHtoD_v2", _U64(address), ctypes.c_void_p(image.ctypes.data), ctypes.c_size_t(image.size)
            )
            buffers.append((address, image, _GUARD + shift, first, end))
            known[first, end] = address + _GUARD + shift
            addresses.append(known[first, end] + array.ctypes.data - first)
        workspace = self.allocate(program.workspace)
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), program.cubin)
        for launch in program.launches:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, launch.function.encode())
            self._call("cuFuncSetAttribute", function, 8, launch.shared)  # the most of dynamic shared memory
            values: list[Any] = []
            for kind, value in launch.arguments:
                if kind == "operand":
                    values.append(_U64(addresses[value]))
                elif kind == "workspace":
                    values.append(_U64(workspace + value))
                else:
                    values.append(_CTYPES.get(kind, ctypes.c_longlong)(value if kind == "uint64" else scalars[value]))
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            self._call("cuLaunchKernel", function, *launch.grid, *launch.block, launch.shared, None, pointers, None)
        self._call("cuCtxSynchronize")
        for address, image, start, first, end in buffers:
            self._call(
                "cuMemcpyDtoH_v2", ctypes.c_void_p(image.ctypes.data), _U64(address), ctypes.c_size_t(image.size)
            )
            assert (image[:start] == 0xC7).all()
            assert (image[start + end - first :] == 0xC7).all()
            memory(first, end)[...] = image[start : start + end - first]
            self._call("cuMemFree_v2", _U64(address))
        self._call("cuMemFree_v2", _U64(workspace))
        self._call("cuModuleUnload", module)


def memory(first: int, end: int) -> np.ndarray:
    """Return the bytes between two addresses."""
    return np.frombuffer((ctypes.c_uint8 * (end - first)).from_address(first), np.uint8)


def device() -> Device | str:
    """Return the first device, or why there is none."""
    try:
        return Device()
    except OSError as error:
        return f"no CUDA driver: {error}"
    except AssertionError as error:
        return f"no CUDA device: {error}"
