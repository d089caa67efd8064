"""Singular values of a part of the range that random vectors find, as messages: Halko, Martinsson and Tropp (2011)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.checks import as_integer, check_flag
from ...errors import InvalidRequest
from .checks import check_size, matrix_dtype
from .decomposition import SVDResult
from .ranges import adjoint
from .spec import real_of

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef

__all__ = ["svd_low_rank"]


def svd_low_rank(solver: Any, a: GpuRef, rank: int, oversampling: int, iterations: int, seed: int, check: bool) -> Any:
    """Send the largest singular values and their vectors, nearly."""
    rows, columns = check_size("a", a)
    dtype = matrix_dtype(a)
    least = min(rows, columns)
    most = as_integer("rank", rank, 1, max(1, least))
    more = as_integer("oversampling", oversampling, 0, 2**31 - 1)
    turns = as_integer("iterations", iterations, 0, 1000)
    check_flag("check", check, bool | np.bool)
    if 0 in a.shape:
        raise InvalidRequest(
            f"a has shape {tuple(a.shape)}; svd_low_rank takes matrices and batches that are not empty"
        )
    device = solver.device
    product, width = device.blas_lt.matmul, min(most + more, least)
    if width == least:  # the sketch would be the whole
        return _cut(solver.svd(a, check=check), most)
    start = device.random.normal((columns, width), real_of(dtype), seed=seed)
    if start.dtype != dtype:
        start = device.copy(start, dtype=dtype)
    of_a = adjoint(a)
    basis = solver.qr(product(a, start)).Q
    for _ in range(turns):  # orthonormal in between, so that small singular values are not lost
        basis = solver.qr(product(a, solver.qr(product(of_a, basis)).Q)).Q
    u, s, vh, *info = solver.svd(product(adjoint(basis), a), check=check)
    return _cut((product(basis, u), s, vh, *info), most)


def _cut(found: Any, rank: int) -> Any:
    """Return views of the first singular values and vectors."""
    u, s, vh, *info = found
    part = SVDResult(u[..., :rank], s[..., :rank], vh[..., :rank, :])
    return (*part, *info) if info else part
