"""Grouped products on the host device: NumPy's product of each group, then the tree over all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec
from .attributes import GemmAttributes
from .host import evaluation, product_of

__all__ = ["build_grouped_gemm"]

Array = np.ndarray[Any, Any]


def build_grouped_gemm(spec: PlanSpec[GemmAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``cutlass.grouped_gemm``.

    Raises
    ------
    InvalidRequest
        If it comes without its Python functions.
    """
    mode = spec.attributes.mode

    def product(at: dict[str, Array]) -> Array:
        rows = at["out"].shape[0]
        ends = np.maximum.accumulate(np.clip(at.pop("offsets").astype(np.int64), 0, rows))
        total, sizes = int(ends[-1]), np.diff(ends, prepend=0)
        a, b = at["a"], at["b"]
        for name, array in at.items():
            if name in ("a", "b"):
                continue
            if array.ndim == 3:  # a row or a scalar for each group
                at[name] = np.repeat(np.broadcast_to(array[:, 0], (len(ends), array.shape[2])), sizes, axis=0)
            elif array.ndim == 2 and array.shape[0] == rows:
                at[name] = array[:total]
        made = [
            product_of(a[end - size : end], b[g], mode) for g, (end, size) in enumerate(zip(ends, sizes, strict=True))
        ]
        return np.concatenate(made)

    return evaluation(spec, product)
