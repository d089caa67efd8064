"""How the methods of the cuDNN actor give values, and how these become requests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from ..._support.checks import is_real
from ...plans.calls import CallForm, Forms, form_of
from .activations import ActivationFunctionGradientRequest, ActivationFunctionRequest
from .attention import AttentionGradientRequest, AttentionRequest
from .attention_float8 import Float8AttentionGradientRequest, Float8AttentionRequest
from .convolution import ConvolutionDataGradientRequest, ConvolutionFilterGradientRequest, ConvolutionRequest
from .ctc import CtcLossRequest
from .graph import GraphRequest
from .norms import NormalizationGradientRequest, NormalizationRequest
from .pooling import PoolingGradientRequest, PoolingRequest
from .recurrent import RecurrentGradientRequest, RecurrentRequest, RecurrentReserveRequest
from .response import ResponseNormalizationGradientRequest, ResponseNormalizationRequest
from .softmax import SoftmaxGradientRequest, SoftmaxRequest

__all__ = [
    "ACTIVATION",
    "ACTIVATION_GRADIENT",
    "ATTENTION",
    "ATTENTION_GRADIENT",
    "CTC_LOSS",
    "DATA_GRADIENT",
    "FILTER_GRADIENT",
    "FLOAT8_ATTENTION",
    "FLOAT8_ATTENTION_GRADIENT",
    "FORMS",
    "FORWARD",
    "GRAPH",
    "NORM",
    "NORM_GRADIENT",
    "POOLING",
    "POOLING_GRADIENT",
    "RECURRENT",
    "RECURRENT_GRADIENT",
    "RESPONSE_NORM",
    "RESPONSE_NORM_GRADIENT",
    "SOFTMAX",
    "SOFTMAX_GRADIENT",
    "real",
]

#: Options that are real numbers.
_REALS: Final = ("alpha", "beta", "dropout", "epsilon", "k", "momentum", "scale")


class Real(str):
    """A real number among a call's options, which remember calls: unlike a float it equals another one bit by bit."""

    __slots__ = ()


def real(value: Any) -> Any:
    """Return a number as a `Real`; what is no number stays as it is, for the request to refuse."""
    return Real(float(value).hex()) if is_real(value) else value


def _real_form(request: Any, arrays: str, options: str, numbers: str = "") -> CallForm:
    """Return the form of a request class some of whose options are real numbers, which calls give by `real`."""
    names = tuple(f"{arrays} {options} {numbers}".split())
    defaults: dict[str, Any] = {field.name: field.default for field in fields(request)}
    places = [names.index(name) for name in _REALS if name in options.split()]

    def unpack(values: tuple[Any, ...]) -> Any:
        given = list(values)
        for place in places:
            if type(given[place]) is Real:
                given[place] = float.fromhex(given[place])
        return request(**dict(zip(names, given, strict=True)))

    def pack(found: Any) -> tuple[Any, ...]:
        values = [getattr(found, name) for name in names]
        for place in places:
            if values[place] is not defaults[names[place]]:
                values[place] = real(values[place])
        return tuple(values)

    kinds = b"a" * len(arrays.split()) + b"o" * len(options.split()) + b"n" * len(numbers.split())
    return CallForm(unpack, pack, names, kinds, tuple(None if n in arrays.split() else defaults[n] for n in names))


_OPTIONS: Final = "size stride padding dilation groups alpha beta channels_last tf32 deterministic tune"

FORWARD: Final = _real_form(
    ConvolutionRequest,
    "x w bias residual out x_scale w_scale",
    "stride padding dilation groups alpha beta activation channels_last tf32 deterministic tune",
)
DATA_GRADIENT: Final = _real_form(ConvolutionDataGradientRequest, "dy w out", _OPTIONS)
FILTER_GRADIENT: Final = _real_form(ConvolutionFilterGradientRequest, "x dy out", _OPTIONS)
ACTIVATION: Final = form_of(ActivationFunctionRequest, "x out", "activation")
ACTIVATION_GRADIENT: Final = form_of(ActivationFunctionGradientRequest, "dy x out", "activation")
POOLING: Final = form_of(PoolingRequest, "x out", "mode window stride padding index channels_last")
POOLING_GRADIENT: Final = form_of(
    PoolingGradientRequest, "dy index out", "size mode window stride padding channels_last"
)
_ADDED: Final = "bias slopes sink q_lengths kv_lengths q_offsets kv_offsets"
ATTENTION: Final = _real_form(
    AttentionRequest,
    f"q k v out {_ADDED} k_pages v_pages",
    "mask window scale statistics layout max_queries max_keys dropout tune",
    "seed offset",
)
ATTENTION_GRADIENT: Final = _real_form(
    AttentionGradientRequest,
    f"q k v y statistics dy dq dk dv {_ADDED}",
    "mask window scale layout max_queries max_keys deterministic dropout tune",
    "seed offset",
)
FLOAT8_ATTENTION: Final = _real_form(
    Float8AttentionRequest,
    "q k v q_scale k_scale v_scale weights_scale out_scale out q_lengths kv_lengths q_offsets kv_offsets",
    "mask scale statistics layout max_queries max_keys tune",
)
FLOAT8_ATTENTION_GRADIENT: Final = _real_form(
    Float8AttentionGradientRequest,
    "q k v y statistics dy q_scale k_scale v_scale y_scale dy_scale weights_scale slopes_scale "
    "dq_scale dk_scale dv_scale q_lengths kv_lengths q_offsets kv_offsets",
    "mask scale layout max_queries max_keys tune",
)
NORM: Final = _real_form(
    NormalizationRequest,
    "x scale bias running_mean running_var out",
    "kind groups training epsilon momentum channels_last",
)
NORM_GRADIENT: Final = form_of(NormalizationGradientRequest, "dy x scale inverse mean out", "kind groups channels_last")
RESPONSE_NORM: Final = _real_form(ResponseNormalizationRequest, "x out", "size alpha beta k channels_last")
RESPONSE_NORM_GRADIENT: Final = _real_form(
    ResponseNormalizationGradientRequest, "x y dy out", "size alpha beta k channels_last"
)
_NETWORK: Final = "kind hidden layers bidirectional bias lengths layout dropout tf32"
RECURRENT: Final = _real_form(RecurrentRequest, "x weights hx cx reserve out", f"{_NETWORK} training", "seed offset")
RECURRENT_GRADIENT: Final = _real_form(RecurrentGradientRequest, "x weights y dy reserve hx cx dhy dcy", _NETWORK)
CTC_LOSS: Final = form_of(CtcLossRequest, "x labels input_lengths label_lengths", "blank layout gradient zero_infinity")
SOFTMAX: Final = form_of(SoftmaxRequest, "x out", "axis log")
SOFTMAX_GRADIENT: Final = form_of(SoftmaxGradientRequest, "dy y out", "axis log")

GRAPH: Final = CallForm(
    lambda values: GraphRequest(
        out=values[0], function=values[1], tf32=values[2], deterministic=values[3], tune=values[4], operands=values[5:]
    ),
    lambda request: (
        request.out,
        request.function,
        request.tf32,
        request.deterministic,
        request.tune,
        *request.operands,
    ),
    ("out", "function", "tf32", "deterministic", "tune"),
    b"aoooo",
    (None, None, False, False, False),
    b"a",
)

#: Request classes, and the forms of their calls.
FORMS: Final[Forms] = {
    ConvolutionRequest: FORWARD,
    ConvolutionDataGradientRequest: DATA_GRADIENT,
    ConvolutionFilterGradientRequest: FILTER_GRADIENT,
    ActivationFunctionRequest: ACTIVATION,
    ActivationFunctionGradientRequest: ACTIVATION_GRADIENT,
    PoolingRequest: POOLING,
    PoolingGradientRequest: POOLING_GRADIENT,
    NormalizationRequest: NORM,
    NormalizationGradientRequest: NORM_GRADIENT,
    ResponseNormalizationRequest: RESPONSE_NORM,
    ResponseNormalizationGradientRequest: RESPONSE_NORM_GRADIENT,
    CtcLossRequest: CTC_LOSS,
    RecurrentRequest: RECURRENT,
    RecurrentGradientRequest: RECURRENT_GRADIENT,
    RecurrentReserveRequest: form_of(RecurrentReserveRequest, "", "attributes"),
    SoftmaxRequest: SOFTMAX,
    SoftmaxGradientRequest: SOFTMAX_GRADIENT,
    GraphRequest: GRAPH,
    AttentionRequest: ATTENTION,
    AttentionGradientRequest: ATTENTION_GRADIENT,
    Float8AttentionRequest: FLOAT8_ATTENTION,
    Float8AttentionGradientRequest: FLOAT8_ATTENTION_GRADIENT,
}
