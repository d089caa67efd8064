"""Preparations of a standby worker for a CUDA device."""

from __future__ import annotations

import contextlib
import importlib

from ..._lib.cuda import CudaBackend, warm_up_driver
from ..._support.disk_cache import cache_directory
from ...builders.cuda import cubin
from ...builders.cuda.context import library_file
from ...errors import LibraryError, OutOfMemory, Unsupported
from ...libraries import LIBRARIES, load, load_builders

__all__ = ["heat_up", "warm_up"]


def warm_up() -> None:
    """Initialise the driver and load the libraries; this needs neither a context nor device memory.

    Raises
    ------
    Unsupported, LibraryError
        If the driver is missing, or refuses.
    """
    load_builders("cuda")
    warm_up_driver()
    for native in (native for library in LIBRARIES.values() for native in library.native if native.preload):
        # A library that is missing is reported by the first call that needs it.
        with contextlib.suppress(Unsupported):
            importlib.import_module(f"atomr_native._lib.{native.key.lower()}").load(library_file(native.key))
    cache_directory()  # imports the module that finds it
    with contextlib.suppress(Unsupported):
        cubin.version()


def heat_up(ordinal: int, uuid: str) -> CudaBackend:
    """Create the context of a device, and make libraries load the code of their first calls, as a hot standby.

    Uses device memory, and waits for the device.

    Raises
    ------
    Unsupported, LibraryError, OutOfMemory, DeviceLost
        See `CudaBackend`.
    """
    backend = CudaBackend(ordinal, uuid)
    for library in LIBRARIES.values():
        if library.heat_up:
            # A library that is missing is reported by the first call that needs it.
            with contextlib.suppress(Unsupported, LibraryError, OutOfMemory):
                load(library.name, library.heat_up)(backend)
    return backend
