"""Fill and copy on the host device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import CopyAttributes

__all__ = ["build_copy", "build_fill"]

Run = Callable[[tuple[np.ndarray[Any, Any], ...], tuple[Any, ...]], None]


def build_fill(spec: PlanSpec, _context: HostContext) -> Built:
    """Return the run of ``memory.fill``: operand ``out``, scalars as `memory.spec.fill_scalars` returns them."""
    dtype = as_dtype(spec.operands[0].dtype)

    @np.errstate(all="ignore")
    def run(arrays: tuple[np.ndarray[Any, Any], ...], scalars: tuple[Any, ...]) -> None:
        if dtype.kind == "c":
            value = np.asarray(complex(*scalars), np.complex128)
        elif dtype.kind == "u":
            value = np.asarray(scalars[0], np.int64).view(np.uint64)
        else:
            value = np.asarray(scalars[0], np.int64 if dtype.kind in "bi" else np.float64)
        np.copyto(arrays[0], value, casting="unsafe")

    return Built(run)


def build_copy(spec: PlanSpec[CopyAttributes], _context: HostContext) -> Built:
    """Build ``memory.copy``, operands ``src, out``: of bytes by a native routine, between layouts by NumPy."""
    if spec.attributes.raw:
        return Built("copy")

    @np.errstate(all="ignore")
    def run(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        np.copyto(arrays[1], arrays[0], casting="unsafe")

    return Built(run)
