"""How the methods of the solver give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .decomposition import DecompositionRequest
from .eigen_range_request import EigenRangeRequest
from .refinement_request import RefinementRequest
from .request import SolverRequest

__all__ = ["DECOMPOSITION", "EIGEN_RANGE", "FORMS", "REFINEMENT", "ROUTINE"]

ROUTINE: Final = form_of(
    SolverRequest, "a b pivots out pivots_out log_out info", "routine assume lower trans conj unit check route"
)

DECOMPOSITION: Final = form_of(
    DecompositionRequest,
    "a tau c q r packed tau_out out u s vh w v vl info",
    "routine mode lower right adjoint check route algorithm left",
)

EIGEN_RANGE: Final = form_of(
    EigenRangeRequest, "a w v found info", "vectors lower check subset_by_index subset_by_value"
)

REFINEMENT: Final = form_of(RefinementRequest, "a b out iterations_out info", "factor iterations check")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    SolverRequest: ROUTINE, DecompositionRequest: DECOMPOSITION, EigenRangeRequest: EIGEN_RANGE,
    RefinementRequest: REFINEMENT,
}  # fmt: skip
