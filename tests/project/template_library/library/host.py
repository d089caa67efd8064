"""Blends on the host device, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec

__all__ = ["build_mix"]


def build_mix(spec: PlanSpec, _context: HostContext) -> Built:
    """Build ``blend.mix``: operands ``x, y, out``, scalar ``weight``."""

    def run(arrays: tuple[np.ndarray[Any, Any], ...], scalars: tuple[Any, ...]) -> None:
        x, y, out = arrays
        weight = out.dtype.type(scalars[0])
        np.copyto(out, weight * x + (1 - weight) * y)

    return Built(run)
