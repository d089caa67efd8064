"""Decompositions on the host device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec
from .attributes import DecompositionAttributes
from .lapack import decompose

__all__ = ["build_decomposition"]


def build_decomposition(spec: PlanSpec[DecompositionAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of a decomposition."""
    names = [operand.name for operand in spec.operands]

    def run(arrays: tuple[np.ndarray[Any, Any], ...], _scalars: tuple[Any, ...]) -> None:
        decompose(spec.op, spec.attributes, dict(zip(names, arrays, strict=True)))

    return Built(run)
