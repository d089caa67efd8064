"""The driver of CUDA without this package, through ctypes: for calls of libraries beside ours."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from bench.harness.unavailable import Unavailable, describe

__all__ = ["Driver"]


class Driver:
    """The primary context of a device, memory in it, and a stream that waits for no other; a base class.

    Parameters
    ----------
    ordinal : int

    Raises
    ------
    Unavailable
        Without a driver or a GPU.
    """

    def __init__(self, ordinal: int) -> None:
        try:
            self._driver = ctypes.CDLL(os.environ.get("ATOMR_NATIVE_CUDA") or "libcuda.so.1")
        except OSError as error:
            raise Unavailable(f"the driver does not load: {describe(error)}") from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._drive("cuInit", 0)
        self._drive("cuDeviceGet", ctypes.byref(device), ordinal)
        self._drive("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._drive("cuCtxSetCurrent", context)
        self._stream = ctypes.c_void_p()
        self._drive("cuStreamCreate", ctypes.byref(self._stream), 1)

    def _drive(self, name: str, *arguments: Any) -> None:
        self._do(self._driver, name, *arguments)

    def _do(self, library: ctypes.CDLL, name: str, *arguments: Any) -> None:
        status = getattr(library, name)(*arguments)
        if status:
            raise Unavailable(f"{name} returned {status}")

    def _memory(self, nbytes: int) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self._drive("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(max(nbytes, 16)))
        return found

    def _put(self, array: Any) -> ctypes.c_void_p:
        made = self._memory(array.nbytes)
        self._drive("cuMemcpyHtoD_v2", made, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return made

    def wait(self) -> None:
        """Wait for all calls."""
        self._drive("cuStreamSynchronize", self._stream)
