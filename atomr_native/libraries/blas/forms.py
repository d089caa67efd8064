"""How the methods of the BLAS actor give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .request import BlasRequest

__all__ = ["FORMS", "ROUTINE"]

ROUTINE: Final = form_of(
    BlasRequest, "a b x y out", "routine trans conj trans_b conj_b side lower unit", numbers="alpha beta"
)

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {BlasRequest: ROUTINE}
