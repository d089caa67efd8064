"""cuSOLVER without this package: its C functions through ctypes, on memory of the driver's, in the default stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from bench.harness.unavailable import Unavailable

__all__ = ["Library"]

_FLOAT = 0  # CUDA_R_32F
_SIZE, _INT64, _POINTER = ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p


class Library:
    """A handle of cuSOLVER in the primary context of a device.

    Parameters
    ----------
    ordinal : int

    Raises
    ------
    Unavailable
        Without a driver, a GPU or the library.
    """

    def __init__(self, ordinal: int) -> None:
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            self._driver = ctypes.CDLL("libcuda.so.1")
            self._solver = ctypes.CDLL(str(load_nvidia_dynamic_lib("cusolver").abs_path))
        except (ImportError, OSError, RuntimeError) as error:
            raise Unavailable(f"cuSOLVER does not load: {error}") from error
        self._kept: list[Any] = []
        device, context = ctypes.c_int(), _POINTER()
        self._drive("cuInit", 0)
        self._drive("cuDeviceGet", ctypes.byref(device), ordinal)
        self._drive("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._drive("cuCtxSetCurrent", context)
        self._handle, self._params = _POINTER(), _POINTER()
        self._call("cusolverDnCreate", ctypes.byref(self._handle))
        self._call("cusolverDnCreateParams", ctypes.byref(self._params))

    def _drive(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise Unavailable(f"{name} returned {status}")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._solver, name)(*arguments)
        if status:
            raise Unavailable(f"{name} returned {status}")

    def _memory(self, nbytes: int) -> ctypes.c_uint64:
        found = ctypes.c_uint64()
        self._drive("cuMemAlloc_v2", ctypes.byref(found), _SIZE(max(nbytes, 1)))
        return found

    def wait(self) -> None:
        """Wait for all work of the context."""
        self._drive("cuCtxSynchronize")

    def factor(self, routine: str, a: Any) -> Callable[[], None]:
        """Return a call that copies a square float32 matrix and factors it: ``cholesky`` (lower) or ``lu_factor``."""
        import numpy as np

        a = np.ascontiguousarray(a, np.float32)
        n, nbytes = len(a), a.nbytes
        given, work, info, pivots = (self._memory(size) for size in (nbytes, nbytes, 4, 8 * n))
        self._drive("cuMemcpyHtoD_v2", given, _POINTER(a.ctypes.data), _SIZE(nbytes))
        device, host = _SIZE(), _SIZE()
        if routine == "cholesky":
            name, before, after = "cusolverDnXpotrf", (0, _INT64(n), _FLOAT, work, _INT64(n)), (_FLOAT,)
        else:
            name, before = "cusolverDnXgetrf", (_INT64(n), _INT64(n), _FLOAT, work, _INT64(n))
            after = (pivots, _FLOAT)  # type: ignore[assignment]
        sizes = (ctypes.byref(device), ctypes.byref(host))
        self._call(f"{name}_bufferSize", self._handle, self._params, *before, *after[-1:], *sizes)
        scratch, kept = self._memory(device.value), ctypes.create_string_buffer(max(host.value, 1))
        self._kept.append(kept)
        arguments = (self._handle, self._params, *before, *after, scratch, device, kept, host, info)
        function, copy = getattr(self._solver, name), self._driver.cuMemcpyDtoDAsync_v2

        def call() -> None:
            copy(work, given, _SIZE(nbytes), None)
            function(*arguments)

        return call
