"""Awkward patterns, values and bounds for tests of sparse matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "dense", "patterns", "tolerance", "values_of"]

DTYPES: Final = ("int8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def values_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return random values, none of them 0."""
    if dtype == "int8":
        return (rng.integers(1, 9, shape) * rng.choice([-1, 1], shape)).astype(np.int8)
    made = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    return (made + 1j * rng.uniform(-1, 1, shape) if "complex" in dtype else made).astype(_numpy(dtype))


def patterns(rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    """Yield places of elements: none, empty rows, a dense row, one row, one column, a full matrix, random ones."""
    yield np.zeros((3, 4), bool)
    yield np.zeros((0, 4), bool)
    yield np.zeros((4, 0), bool)
    rows = rng.random((9, 6)) < 0.5
    rows[::2] = False
    yield rows
    line = rng.random((20, 50)) < 0.05
    line[7] = True
    yield line
    yield rng.random((1, 40)) < 0.5
    yield rng.random((40, 1)) < 0.5
    yield np.ones((5, 5), bool)
    yield rng.random((33, 17)) < 0.2


def dense(rng: np.random.Generator, pattern: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return a dense array with random values at the places of a pattern."""
    made = np.zeros(pattern.shape, _numpy(dtype))
    made[pattern] = values_of(rng, (int(pattern.sum()),), dtype)
    return made


def tolerance(dtype: str) -> float:
    """Return the bound of errors relative to sums of magnitudes: roundings of the result, and of some hundred terms."""
    eps = {"int8": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype)
    return 2 * eps if eps is not None else 100 * float(np.finfo(dtype).eps)
