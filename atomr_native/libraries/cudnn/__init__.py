"""Convolutions, other graphs and recurrent networks of cuDNN: ``device.cudnn``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="cudnn",
    summary="Convolutions, and graphs of operations that cuDNN fuses.",
    actor="actor:Cudnn",
    operations=(
        Operation(
            "cudnn.*",
            Aliasing.DISJOINT,
            "host.build:build_graph",
            "cuda.build:build_graph",
            attributes="attributes:GraphAttributes",
        ),
        Operation(
            "cudnn.ctc_loss",
            Aliasing.DISJOINT,
            "host.ctc:build_ctc_loss",
            "cuda.ctc:build_ctc_loss",
            attributes="ctc:CtcAttributes",
        ),
        *(
            Operation(
                f"cudnn.{name}",
                Aliasing.DISJOINT,
                f"host.recurrent:build_{name}",
                f"cuda.recurrent:build_{builder}",
                attributes="recurrent_shapes:RecurrentAttributes",
            )
            for name, builder in (("rnn", "rnn"), ("rnn_backward", "rnn"), ("rnn_reserve", "rnn_reserve"))
        ),
    ),
    exports={
        "ActivationFunctionGradientRequest": "activations",
        "ActivationFunctionRequest": "activations",
        "AttentionGradientRequest": "attention",
        "AttentionRequest": "attention",
        "ConvolutionDataGradientRequest": "convolution",
        "ConvolutionFilterGradientRequest": "convolution",
        "ConvolutionRequest": "convolution",
        "CtcLossRequest": "ctc",
        "Cudnn": "actor",
        "Float8AttentionGradientRequest": "attention_float8",
        "Float8AttentionRequest": "attention_float8",
        "GraphRequest": "graph",
        "GraphTensor": "traced",
        "NormalizationGradientRequest": "norms",
        "NormalizationRequest": "norms",
        "PoolingGradientRequest": "pooling",
        "PoolingRequest": "pooling",
        "RecurrentGradientRequest": "recurrent",
        "RecurrentRequest": "recurrent",
        "RecurrentWeights": "recurrent_shapes",
        "ResponseNormalizationGradientRequest": "response",
        "ResponseNormalizationRequest": "response",
        "SoftmaxGradientRequest": "softmax",
        "SoftmaxRequest": "softmax",
    },
    native=(NativeLibrary("cudnn", "cuDNN", {"cu12": "nvidia-cudnn-cu12", "cu13": "nvidia-cudnn-cu13"}),),
)
