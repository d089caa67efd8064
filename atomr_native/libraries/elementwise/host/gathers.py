"""Gathers and sequences on the host device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....dtypes import as_dtype
from ....errors import InvalidRequest
from ....plans.spec import PlanSpec
from ..attributes import TakeAttributes

__all__ = ["build_sequence", "build_take"]

Array = np.ndarray[Any, Any]


def build_take(spec: PlanSpec[TakeAttributes], _context: HostContext) -> Built:
    """Return the run of ``elementwise.take``: operands ``x, indices, out``, no scalars."""
    axis, along = spec.attributes.axis, spec.attributes.along
    count = spec.operands[0].shape[axis]

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, indices, out = arrays
        wrong = indices[(indices < -count) | (indices >= count)]
        if wrong.size:
            raise InvalidRequest(f"index {wrong.flat[0]} along axis {axis}; allowed: {-count} to {count - 1}")
        if along:
            found = np.take_along_axis(x, indices.astype(np.int64), axis)
        else:
            found = np.take(x, indices.astype(np.int64), axis)
        np.copyto(out, found)

    return Built(run)


def build_sequence(spec: PlanSpec, _context: HostContext) -> Built:
    """Return the run of ``elementwise.sequence``: operand ``out``, scalars ``start, step``."""
    kind = as_dtype(spec.scalars[0])
    (count,) = spec.operands[0].shape

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        start, step = (np.asarray([value], kind) for value in scalars)
        np.copyto(arrays[0], start + step * np.arange(count, dtype=kind), casting="unsafe")

    return Built(run)
