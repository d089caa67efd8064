"""How the methods of the fused actor give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .list_forms import ADAMW_LIST, SGD_LIST
from .optimizer_lists import AdamWListRequest, SgdListRequest
from .request import (
    ActivationGradientRequest,
    ActivationRequest,
    AdamWRequest,
    DropoutRequest,
    NormGradientRequest,
    NormRequest,
    RopeRequest,
    SgdRequest,
)

__all__ = [
    "ACTIVATION", "ACTIVATION_GRADIENT", "ADAMW", "DROPOUT", "FORMS", "NORM", "NORM_GRADIENT", "ROPE", "SGD",
]  # fmt: skip

ACTIVATION: Final = form_of(ActivationRequest, "x up out", "curve gated")
ACTIVATION_GRADIENT: Final = form_of(ActivationGradientRequest, "dy x up out up_out", "curve gated")
ADAMW: Final = form_of(AdamWRequest, "param grad m v master", numbers="lr beta1 beta2 eps weight_decay step")
DROPOUT: Final = form_of(DropoutRequest, "x out", numbers="p seed offset")
NORM: Final = form_of(NormRequest, "x weight bias residual out residual_out", "layer", "eps")
NORM_GRADIENT: Final = form_of(
    NormGradientRequest, "dy x weight residual out weight_out bias_out", "layer biased", "eps"
)
ROPE: Final = form_of(RopeRequest, "x positions out", "interleaved inverse", "theta")
SGD: Final = form_of(SgdRequest, "param grad m master", "nesterov", "lr momentum weight_decay")


#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    ActivationRequest: ACTIVATION,
    ActivationGradientRequest: ACTIVATION_GRADIENT,
    AdamWListRequest: ADAMW_LIST,
    AdamWRequest: ADAMW,
    DropoutRequest: DROPOUT,
    NormGradientRequest: NORM_GRADIENT,
    NormRequest: NORM,
    RopeRequest: ROPE,
    SgdListRequest: SGD_LIST,
    SgdRequest: SGD,
}
