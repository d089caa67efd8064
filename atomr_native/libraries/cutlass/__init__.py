"""Products by kernels of CUTLASS, with epilogues of one's own: ``device.cutlass``."""

from .._contract import Aliasing, Library, Operation

LIBRARY = Library(
    name="cutlass",
    summary="Products by kernels of CUTLASS, with epilogues of one's own.",
    actor="actor:Cutlass",
    operations=(
        Operation(
            "cutlass.gemm",
            Aliasing.DISJOINT,
            "host:build_gemm",
            "cuda:build_gemm",
            attributes="attributes:GemmAttributes",
        ),
        Operation(
            "cutlass.grouped_gemm",
            Aliasing.DISJOINT,
            "grouped_host:build_grouped_gemm",
            "cuda:build_gemm",
            attributes="attributes:GemmAttributes",
        ),
        Operation(
            "cutlass.convolution",
            Aliasing.DISJOINT,
            "convolution_host:build_convolution",
            "cuda:build_gemm",
            attributes="attributes:ConvolutionAttributes",
        ),
    ),
    exports={
        "BoundGemm": "bound",
        "Cutlass": "actor",
        "EpilogueTree": "epilogue",
        "FusedConvolutionRequest": "convolution",
        "GemmConfig": "config",
        "GemmRequest": "request",
        "GroupedGemmRequest": "grouped",
    },
)
