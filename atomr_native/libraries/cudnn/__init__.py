"""Convolutions and other graphs of cuDNN: ``device.cudnn``."""

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
    ),
    exports={
        "ActivationFunctionGradientRequest": "activations",
        "ActivationFunctionRequest": "activations",
        "AttentionGradientRequest": "attention",
        "AttentionRequest": "attention",
        "ConvolutionDataGradientRequest": "convolution",
        "ConvolutionFilterGradientRequest": "convolution",
        "ConvolutionRequest": "convolution",
        "Cudnn": "actor",
        "GraphRequest": "graph",
        "GraphTensor": "traced",
        "NormalizationGradientRequest": "norms",
        "NormalizationRequest": "norms",
        "PoolingGradientRequest": "pooling",
        "PoolingRequest": "pooling",
        "ResponseNormalizationGradientRequest": "response",
        "ResponseNormalizationRequest": "response",
        "SoftmaxGradientRequest": "softmax",
        "SoftmaxRequest": "softmax",
    },
    native=(NativeLibrary("cudnn", "cuDNN", {"cu12": "nvidia-cudnn-cu12", "cu13": "nvidia-cudnn-cu13"}),),
)
