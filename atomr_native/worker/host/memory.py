"""Fill and copy on the host device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import as_dtype

__all__ = ["build_copy", "build_fill"]

Run = Callable[[tuple[np.ndarray[Any, Any], ...], tuple[Any, ...]], None]


def build_fill(spec: dict[str, Any]) -> Run:
    """Return the run of ``memory.fill``: operand ``out``, scalars as `memory_ops.fill_scalars` makes them."""
    dtype = as_dtype(spec["operands"][0]["dtype"])

    @np.errstate(all="ignore")
    def run(arrays: tuple[np.ndarray[Any, Any], ...], scalars: tuple[Any, ...]) -> None:
        if dtype.kind == "c":
            value = np.asarray(complex(*scalars), np.complex128)
        elif dtype.kind == "u":
            value = np.asarray(scalars[0], np.int64).view(np.uint64)
        else:
            value = np.asarray(scalars[0], np.int64 if dtype.kind in "bi" else np.float64)
        np.copyto(arrays[0], value, casting="unsafe")

    return run


def build_copy(spec: dict[str, Any]) -> Run:
    """Return the run of ``memory.copy`` between layouts or dtypes: operands ``src, out``, no scalars."""
    del spec  # NumPy finds all of it in the arrays

    @np.errstate(all="ignore")
    def run(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        np.copyto(arrays[1], arrays[0], casting="unsafe")

    return run
