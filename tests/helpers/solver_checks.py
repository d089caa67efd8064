"""Bounds that results of the solver must keep, in float64, and arrays in the layouts that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

import atomr_native as an
from atomr_native.libraries.solver.routes import KNOWN_WRONG, ROUTES

__all__ = ["DTYPES", "LAYOUTS", "check", "hermitian", "lent", "library_route", "matrices", "op", "put", "wide"]

DTYPES = ("float32", "float64", "complex64", "complex128")
#: Matrices row by row, column by column, parts of wider ones, and with gaps between all elements.
LAYOUTS = ("rows", "columns", "wider", "apart")
Array = np.ndarray[Any, Any]


def wide(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def matrices(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    x = rng.standard_normal(shape)
    return np.asarray(x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def hermitian(a: Array) -> Array:
    """Return positive definite matrices."""
    n = a.shape[-1]
    return np.asarray(a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)).astype(a.dtype)


def turn(x: Any) -> Any:
    axes = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
    return x.transpose(*axes)


def put(device: an.Device, x: Array, layout: str = "rows") -> an.GpuRef:
    """Return a handle of these values in a layout."""
    if layout == "rows" or 0 in x.shape:
        return device.put(np.ascontiguousarray(x))
    if x.ndim == 1:
        return device.put(np.repeat(x, 2))[::2] if layout == "apart" else device.put(x)
    if layout == "columns":
        return turn(device.put(np.ascontiguousarray(x.swapaxes(-1, -2))))
    *_, rows, columns = x.shape
    if layout == "wider":
        around = np.full((*x.shape[:-2], rows + 2, columns + 3), np.nan, x.dtype)
        around[..., :rows, :columns] = x
        return device.put(around)[..., :rows, :columns]
    return device.put(np.repeat(np.repeat(x, 2, -1), 2, -2))[..., ::2, ::2]


def lent(device: an.Device, shape: tuple[int, ...], dtype: Any, layout: str) -> an.GpuRef:
    """Return an output in a layout."""
    return put(device, np.full(shape, 7, dtype), layout)


def library_route(routine: str, a: Array) -> str | None:
    """Return the route by which cuSOLVER and cuBLAS take a batch, in as few calls as they can."""
    if a.ndim == 2 or not a.size:
        return None
    batched = ROUTES[routine].batched and a.shape[-1] == a.shape[-2]
    return "batched" if batched and (routine, str(a.dtype), "batched") not in KNOWN_WRONG else "loop"


def op(x: Array, trans: bool, conj: bool) -> Array:
    x = x.swapaxes(-1, -2) if trans else x
    return x.conj() if conj else x


def size(x: Array) -> Any:
    """Return the Frobenius norm of each matrix."""
    return np.sqrt((abs(x) ** 2).sum((-1, -2)))


def check(difference: Array, scale: Any, dtype: Any, *, factor: float = 16.0) -> None:
    """Hold the norm of differences against ``factor * n * eps`` times their scale."""
    n = max(1, *difference.shape[-2:])
    bound = factor * n * np.finfo(np.dtype(dtype)).eps * np.asarray(scale)
    assert np.isfinite(difference).all()
    assert (size(difference) <= bound).all(), (size(difference).max(), np.max(bound))
