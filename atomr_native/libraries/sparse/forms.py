"""How the methods of the sparse actor give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .combine import COMBINE, CombineRequest
from .factors import FACTOR, SparseFactorRequest
from .gmres import BASIS, SOLUTION, BasisRequest, SolutionRequest
from .request import SparseProductRequest
from .semiring import SparseSemiringRequest
from .structured.request import (
    BROKEN,
    COMPRESS,
    LINEAR,
    PRUNE,
    BrokenGroupsRequest,
    StructuredCompressRequest,
    StructuredProductRequest,
    StructuredPruneRequest,
)
from .triangular import SparseSolveRequest

__all__ = ["FACTOR", "FORMS", "PRODUCT", "SEMIRING", "SOLVE"]

PRODUCT: Final = form_of(
    SparseProductRequest,
    "values indices offsets rows x y out alpha_at beta_at",
    "routine format shape ordered longest trans conj deterministic",
    numbers="alpha beta",
)
SOLVE: Final = form_of(
    SparseSolveRequest, "values indices offsets b out", "format shape lower trans conj unit", numbers="alpha"
)

SEMIRING: Final = form_of(SparseSemiringRequest, "values indices offsets x out", "shape multiply add start on_sum")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    BasisRequest: BASIS,
    BrokenGroupsRequest: BROKEN,
    CombineRequest: COMBINE,
    SparseFactorRequest: FACTOR,
    SparseProductRequest: PRODUCT,
    SolutionRequest: SOLUTION,
    SparseSolveRequest: SOLVE,
    SparseSemiringRequest: SEMIRING,
    StructuredCompressRequest: COMPRESS,
    StructuredProductRequest: LINEAR,
    StructuredPruneRequest: PRUNE,
}
