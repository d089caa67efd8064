"""How the methods of the solver give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .decomposition import DecompositionRequest
from .refinement_request import RefinementRequest
from .request import SolverRequest

__all__ = ["DECOMPOSITION", "FORMS", "REFINEMENT", "ROUTINE"]

ROUTINE: Final = form_of(
    SolverRequest, "a b pivots out pivots_out log_out info", "routine assume lower trans conj unit check route"
)

DECOMPOSITION: Final = form_of(
    DecompositionRequest,
    "a tau c q r packed tau_out out u s vh w v vl info",
    "routine mode lower right adjoint check route algorithm left",
)

REFINEMENT: Final = form_of(RefinementRequest, "a b out iterations_out info", "factor iterations check")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {SolverRequest: ROUTINE, DecompositionRequest: DECOMPOSITION, RefinementRequest: REFINEMENT}
