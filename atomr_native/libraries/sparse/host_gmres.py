"""The small steps of GMRES on the host device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec
from .attributes import BasisAttributes

__all__ = ["build_basis", "build_solution"]

Array = np.ndarray[Any, Any]


def build_basis(_spec: PlanSpec[BasisAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.basis``."""

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        w, parts, norm, place, basis, v, triangle, rotations, rest, left = arrays
        j, length = int(place), norm[()]
        v[...] = w / length if length != 0 else 0
        basis[j + 1] = v
        carried = parts[0]
        for i in range(j):
            (c, s), following = rotations[i], parts[i + 1]
            triangle[j, i] = c * carried + s * following
            carried = c * following - s * carried
        radius, old = np.hypot(carried, length), rest[j]
        c, s = (carried / radius, length / radius) if radius != 0 else (1, 0)
        triangle[j, j], rotations[j] = radius, (c, s)
        rest[j], rest[j + 1] = c * old, -s * old
        left[...] = rest[j + 1]

    return Built(run)


def build_solution(_spec: PlanSpec[BasisAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.solution``."""

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        triangle, rest, place, weights = arrays
        j = int(place)
        weights[...] = 0
        weights[:j] = rest[:j]
        for i in range(j - 1, -1, -1):
            weights[i] /= triangle[i, i]
            weights[:i] -= triangle[i, :i] * weights[i]

    return Built(run)
