"""Reductions and elementwise operations as problems of the tuner: by a kernel of ours, or by cuTENSOR."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import structs

from ....builders.context import Built
from ....builders.cuda.context import CudaContext
from ....plans.spec import PlanSpec
from .choice import Choice
from .tuning import StepTuner

__all__ = ["tuned_route"]


def tuned_route(
    spec: PlanSpec[Any], context: CudaContext, build: Callable[[PlanSpec[Any], CudaContext], Built]
) -> tuple[str, str]:
    """Return the route of a plan, the fastest if it asks for that, and a line about it; "" if that is not known.

    Parameters
    ----------
    spec : PlanSpec
        Of an operation whose attributes have a route and `tune`.
    context : CudaContext
    build : callable
        Builds it.
    """
    how = spec.attributes
    if not how.tune or how.route != "auto":
        return how.route, ""
    kept = [operand for operand in spec.operands if operand.name == "out" or re.fullmatch(r"x\d+", operand.name)]
    plain: dict[str, Any] = {
        "tune": "",
        "tune_seconds": 0.0,
        "zero": False if how.zero in (True, False) else (False,) * len(how.zero),
    }
    if hasattr(how, "added"):
        plain |= {"added": "none", "tail": ()}
    # Without C, factors and a tail, which the measurement would have to give.
    bare = structs.replace(spec, operands=tuple(kept), scalars=(), attributes=structs.replace(how, **plain))

    def trial(choice: Choice) -> tuple[Any, int, str]:
        attributes = structs.replace(bare.attributes, route=choice.route or "auto")
        made = build(structs.replace(bare, attributes=attributes), context)
        return made.run, made.workspace, "cutensor" if made.notes[-1:] == ("cuTENSOR",) else "kernel"

    found = StepTuner(context, bare, 0, trial, direct=True).tuned(
        measure=how.tune == "measure", seconds=how.tune_seconds
    )
    return ("auto", "") if found is None else (found[0].route or "auto", found[1])
