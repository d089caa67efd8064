"""Sorts, searches and running sums on the host device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....dtypes import as_dtype
from ....plans.spec import PlanSpec
from ..attributes import ScanAttributes, SearchAttributes, SortAttributes

__all__ = ["build_scan", "build_search", "build_sort"]

Array = np.ndarray[Any, Any]


def _comparable(x: Array) -> Array:
    """Return elements that NumPy orders, NaN behind all others."""
    return x if x.dtype.kind in "biu" or x.dtype.itemsize > 2 else x.astype(np.float32)


def build_sort(spec: PlanSpec[SortAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.sort``: operands ``x, out``, no scalars."""
    attributes = spec.attributes

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        keys = _comparable(x)
        if attributes.descending:
            places = x.shape[1] - 1 - np.argsort(keys[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            places = np.argsort(keys, axis=1, kind="stable")
        np.copyto(out, places if attributes.places else np.take_along_axis(x, places, 1))

    return Built(run)


def build_scan(spec: PlanSpec[ScanAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.scan``: operands ``x, out``, no scalars."""
    function = np.cumsum if spec.attributes.op == "sum" else np.cumprod
    kind = as_dtype(spec.attributes.accumulate)

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        np.copyto(out, function(x.astype(kind), axis=1), casting="unsafe")

    return Built(run)


def build_search(spec: PlanSpec[SearchAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.search``: operands ``row, values, out``, no scalars."""
    side: Any = "right" if spec.attributes.right else "left"

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        row, values, out = arrays
        np.copyto(out[0], np.searchsorted(_comparable(row[0]), _comparable(values[0]), side))

    return Built(run)
