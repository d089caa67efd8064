"""Matrix products that a hot standby computes ahead of time."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...._lib import cublaslt
from ...._lib.cublaslt import Matmul
from ...._lib.cuda import CudaBackend
from ....builders.cuda.context import library_file
from ....dtypes import DTYPES
from ....plans.workspace_limits import PREFERRED_WORKSPACE
from ..request import MatmulRequest
from .description import matmul_description

__all__ = ["heat_up"]

#: Dtypes of the products, whose kernels cuBLASLt then has loaded, and their extent.
_TRIED: Final = ("float32", "bfloat16", "float16")
_EXTENT: Final = 64


def heat_up(backend: CudaBackend) -> None:
    """Make a handle of cuBLASLt and compute products of scratch memory, so that its kernels are loaded.  Waits.

    Raises
    ------
    Unsupported, LibraryError, OutOfMemory
        If the library is missing, refuses, or finds no memory.
    """
    version = cublaslt.load(library_file("cublasLt"))
    for dtype in _TRIED:
        _multiply(backend, dtype, version)


def _multiply(backend: CudaBackend, dtype: str, version: int) -> None:
    """Compute a product of scratch memory, and wait for it."""
    x = np.zeros((_EXTENT, _EXTENT), DTYPES[dtype])
    spec = MatmulRequest(a=x, b=x).lowered.spec()
    made = Matmul(backend, matmul_description(spec, version=version, workspace_bytes=PREFERRED_WORKSPACE))
    scratch = PREFERRED_WORKSPACE + x.nbytes
    address = backend.allocate(scratch)
    try:
        for algorithm, workspace, _ in made.candidates(PREFERRED_WORKSPACE, 1):
            operands = [address + PREFERRED_WORKSPACE] * len(spec.operands)
            made.time(algorithm, operands, 1, 1, address, workspace)
    finally:
        backend.free(address, scratch)
