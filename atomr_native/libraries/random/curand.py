"""Draws of cuRAND's generators as native descriptions, for builders of both kinds of device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ..._lib.curand import CONSTANTS
from ...builders.cuda.native import NativeStruct
from ...dtypes import as_dtype
from ...plans.spec import PlanSpec
from .attributes import DrawAttributes
from .engines import RULES

__all__ = ["DrawDescription", "describe"]

_ROUTINES: Final = {"integers": "WORDS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawDescription(NativeStruct):
    """A draw with the members of ``atomr_draw_spec``, see ``cython/libraries/curand/generator.h``."""

    kind: int
    ordering: int
    dimensions: int
    routine: int
    wide: int
    count: int
    step: int
    n_parameters: int


def describe(spec: PlanSpec[DrawAttributes]) -> DrawDescription:
    """Return the draw of a plan with one element at least."""
    how, out = spec.attributes, spec.operands[0]
    rules, count = RULES[how.engine], math.prod(out.shape)
    routine = _ROUTINES.get(how.distribution, how.distribution.upper())
    ordered = how.ordering != "default"
    # Whether an element is one position of the generator's offsets, so that a draw ends where the next one may begin.
    single = rules.quasi or (
        rules.positions and (routine == "WORDS" or (how.distribution, out.dtype) == ("uniform", "float32"))
    )
    return DrawDescription(
        kind=CONSTANTS[f"CURAND_RNG_{rules.kind}"],
        ordering=CONSTANTS[f"CURAND_ORDERING_PSEUDO_{how.ordering.upper()}"] if ordered else 0,
        dimensions=how.dimensions if rules.quasi else 0,
        routine=CONSTANTS[f"ATOMR_DRAW_{routine}"],
        wide=int(as_dtype(out.dtype).itemsize == 8),
        count=count,
        step=(count // how.dimensions if rules.quasi else count) if single else 0,
        n_parameters=len(spec.scalars) - 2 - 2 * how.scaled,
    )
