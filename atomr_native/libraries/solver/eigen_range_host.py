"""Ranges of the eigenvalues of Hermitian matrices on the host device, by LAPACK as SciPy has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...errors import NotConverged
from ...plans.spec import PlanSpec
from .attributes import EigenRangeAttributes

__all__ = ["build_eigen_range"]

Array = np.ndarray[Any, Any]


def build_eigen_range(spec: PlanSpec[EigenRangeAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of a range of eigenvalues."""
    names, how = [operand.name for operand in spec.operands], spec.attributes

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        at = dict(zip(names, arrays, strict=True))
        failed: list[tuple[tuple[int, ...], int]] = []
        for index in np.ndindex(*how.batch):
            number = _one(how, {name: array[(*index, ...)] for name, array in at.items()})
            if number:
                failed.append((index, number))
        if how.check and failed:
            raise NotConverged(spec.op, failed[0][0], failed[0][1], len(failed))

    return Built(run)


def _one(how: EigenRangeAttributes, at: dict[str, Array]) -> int:
    """Find the range of one matrix; return its info number."""
    from numpy.linalg import LinAlgError
    from scipy.linalg import eigh

    a, number = at["a"], 0
    if how.by == "index":
        subset: dict[str, Any] = {"subset_by_index": (how.first, how.last)}
    else:
        subset = {"subset_by_value": (how.above, how.up_to)}
    for name in ("w", "v"):
        if name in at:
            at[name][...] = np.nan
    found = 0
    if a.size and np.isfinite(np.tril(a) if how.lower else np.triu(a)).all():
        try:
            made = eigh(a, lower=how.lower, eigvals_only="v" not in at, check_finite=False, driver="evr", **subset)
        except LinAlgError:
            number = 1
        else:
            w, v = made if "v" in at else (made, None)
            found = len(w)
            at["w"][:found] = w
            if v is not None:
                at["v"][:, :found] = v
    if "found" in at:
        at["found"][...] = found
    if "info" in at:
        at["info"][...] = number
    return number
