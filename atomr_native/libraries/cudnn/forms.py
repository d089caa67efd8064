"""How the methods of the cuDNN actor give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .convolution import ConvolutionDataGradientRequest, ConvolutionFilterGradientRequest, ConvolutionRequest

__all__ = ["DATA_GRADIENT", "FILTER_GRADIENT", "FORMS", "FORWARD"]

_GRADIENT: Final = "size stride padding dilation groups alpha beta channels_last tf32 deterministic"

FORWARD: Final = form_of(
    ConvolutionRequest,
    "x w bias residual out",
    "stride padding dilation groups alpha beta activation channels_last tf32 deterministic",
)
DATA_GRADIENT: Final = form_of(ConvolutionDataGradientRequest, "dy w out", _GRADIENT)
FILTER_GRADIENT: Final = form_of(ConvolutionFilterGradientRequest, "x dy out", _GRADIENT)

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    ConvolutionRequest: FORWARD,
    ConvolutionDataGradientRequest: DATA_GRADIENT,
    ConvolutionFilterGradientRequest: FILTER_GRADIENT,
}
