"""What a worker does ahead of time that waits in reserve for a CUDA device."""

from __future__ import annotations

import contextlib
from typing import Final

import numpy as np

from ..._lib.cuda import CudaBackend, Matmul, warm_up_driver
from ..._matmul_spec import MatmulRequest, matmul_shape, matmul_spec
from ...dtypes import DTYPES
from ...errors import LibraryError, OutOfMemory, Unsupported
from . import nvrtc
from .device import library_file
from .matmul import matmul_description

__all__ = ["heat_up", "warm_up"]

#: Dtypes of the products for which cuBLASLt loads what it has for others of them, and their extent.
_TRIED: Final = ("float32", "bfloat16", "float16")
_EXTENT: Final = 64
_WORKSPACE: Final = 32 << 20  # as plans have it


def warm_up() -> None:
    """Initialise the driver and load the libraries, as a standby: what needs no context, and no memory of a device.

    Raises
    ------
    Unsupported, LibraryError
        If the driver is missing, or refuses.
    """
    warm_up_driver(library_file("cublasLt"))
    with contextlib.suppress(Unsupported):
        nvrtc.version()


def heat_up(ordinal: int, uuid: str) -> CudaBackend:
    """Make the context of a device, a handle of cuBLASLt, and some products, as a hot standby.  Takes device memory.

    Raises
    ------
    Unsupported, LibraryError, OutOfMemory, DeviceLost
        See `CudaBackend`.
    """
    backend = CudaBackend(ordinal, uuid)
    with contextlib.suppress(Unsupported, LibraryError, OutOfMemory):  # what is missing is told when it is needed
        version = backend.open_blas_lt(library_file("cublasLt"))
        for dtype in _TRIED:
            _multiply(backend, dtype, version)
    return backend


def _multiply(backend: CudaBackend, dtype: str, version: int) -> None:
    """Compute a product of scratch memory, and wait for it."""
    x = np.zeros((_EXTENT, _EXTENT), DTYPES[dtype])
    request = MatmulRequest(a=x, b=x)
    spec = matmul_spec(request, matmul_shape(request)).to_json()
    made = Matmul(backend, matmul_description(spec, version=version, workspace_bytes=_WORKSPACE))
    scratch = _WORKSPACE + x.nbytes
    address = backend.borrow(scratch)
    try:
        for algorithm, workspace, _ in made.candidates(_WORKSPACE, 1):
            operands = [address + _WORKSPACE] * len(spec["operands"])
            made.time(algorithm, operands, 1, 1, address, workspace)
    finally:
        backend.give_back(address, scratch)
