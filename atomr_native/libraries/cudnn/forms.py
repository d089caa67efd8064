"""How the methods of the cuDNN actor give values, and how these become requests."""

from __future__ import annotations

from typing import Final

from ...plans.calls import Forms, form_of
from .activations import ActivationGradientRequest, ActivationRequest
from .attention import AttentionGradientRequest, AttentionRequest
from .convolution import ConvolutionDataGradientRequest, ConvolutionFilterGradientRequest, ConvolutionRequest
from .norms import NormGradientRequest, NormRequest
from .pooling import PoolingGradientRequest, PoolingRequest

__all__ = [
    "ACTIVATION",
    "ACTIVATION_GRADIENT",
    "ATTENTION",
    "ATTENTION_GRADIENT",
    "DATA_GRADIENT",
    "FILTER_GRADIENT",
    "FORMS",
    "FORWARD",
    "NORM",
    "NORM_GRADIENT",
    "POOLING",
    "POOLING_GRADIENT",
]

_GRADIENT: Final = "size stride padding dilation groups alpha beta channels_last tf32 deterministic"

FORWARD: Final = form_of(
    ConvolutionRequest,
    "x w bias residual out",
    "stride padding dilation groups alpha beta activation channels_last tf32 deterministic",
)
DATA_GRADIENT: Final = form_of(ConvolutionDataGradientRequest, "dy w out", _GRADIENT)
FILTER_GRADIENT: Final = form_of(ConvolutionFilterGradientRequest, "x dy out", _GRADIENT)
ACTIVATION: Final = form_of(ActivationRequest, "x out", "activation")
ACTIVATION_GRADIENT: Final = form_of(ActivationGradientRequest, "dy x out", "activation")
POOLING: Final = form_of(PoolingRequest, "x out", "mode window stride padding index channels_last")
POOLING_GRADIENT: Final = form_of(
    PoolingGradientRequest, "dy index out", "size mode window stride padding channels_last"
)
ATTENTION: Final = form_of(AttentionRequest, "q k v out", "mask window scale statistics layout")
ATTENTION_GRADIENT: Final = form_of(AttentionGradientRequest, "q k v y statistics dy", "mask window scale layout")
NORM: Final = form_of(
    NormRequest, "x scale bias running_mean running_var out", "kind training epsilon momentum channels_last"
)
NORM_GRADIENT: Final = form_of(NormGradientRequest, "dy x scale inverse mean out", "kind channels_last")

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    ConvolutionRequest: FORWARD,
    ConvolutionDataGradientRequest: DATA_GRADIENT,
    ConvolutionFilterGradientRequest: FILTER_GRADIENT,
    ActivationRequest: ACTIVATION,
    ActivationGradientRequest: ACTIVATION_GRADIENT,
    PoolingRequest: POOLING,
    PoolingGradientRequest: POOLING_GRADIENT,
    AttentionRequest: ATTENTION,
    AttentionGradientRequest: ATTENTION_GRADIENT,
    NormRequest: NORM,
    NormGradientRequest: NORM_GRADIENT,
}
