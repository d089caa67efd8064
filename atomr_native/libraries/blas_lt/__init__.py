"""Matrix products with fused epilogues: ``device.blas_lt``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="blas_lt",
    summary="Matrix products with fused epilogues.",
    actor="actor:BlasLt",
    operations=(
        Operation(
            "blas_lt.matmul",
            Aliasing.DISJOINT,
            "host.matmul:build_matmul",
            "cuda.build:build_matmul",
            attributes="attributes:MatmulAttributes",
        ),
        Operation(
            "blas_lt.grouped",
            Aliasing.DISJOINT,
            "host.matmul:build_grouped",
            "cuda.build:build_grouped",
            attributes="attributes:GroupedAttributes",
        ),
    ),
    exports={
        "BlasLt": "actor",
        "CustomEpilogue": "custom_epilogue",
        "Epilogue": "epilogue",
        "GroupedRequest": "grouped",
        "MatmulRequest": "request",
        "MatmulResult": "request",
    },
    native=(
        NativeLibrary("cublasLt", "cuBLASLt", {"cu12": "nvidia-cublas-cu12", "cu13": "nvidia-cublas"}, preload=True),
    ),
    heat_up="cuda.heat:heat_up",
    opens="with the device",
)
