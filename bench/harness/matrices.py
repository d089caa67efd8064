"""Matrices of normal numbers that are quickly made: a block of rows that repeats."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["block", "on_atomr"]

#: Numbers in the block of rows that repeats.
_TILE = 1 << 20


@cache
def _numbers() -> Any:
    import numpy as np

    return np.random.default_rng(11).standard_normal(_TILE, dtype=np.float32)


def block(rows: int, columns: int) -> Any:
    """The rows that a matrix repeats, float32."""
    rows = max(1, min(rows, _TILE // columns))
    return _numbers()[: rows * columns].reshape(rows, columns)


def on_atomr(dev: Any, shape: tuple[int, int], dtype: str) -> Any:
    """A matrix on a device of the library."""
    matrix = dev.empty(shape, dtype)
    repeated = dev.put(block(*shape), dtype)
    for first in range(0, shape[0], repeated.shape[0]):
        rows = min(repeated.shape[0], shape[0] - first)
        dev.copy(repeated[:rows], out=matrix[first : first + rows])
    return matrix
