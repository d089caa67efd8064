"""Vectors and matrices by the classic BLAS routines: ``device.blas``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="blas",
    summary="Vectors and matrices by the classic BLAS routines.",
    actor="actor:Blas",
    operations=(
        Operation(
            "blas.*",
            Aliasing.DISJOINT,
            "host:build_blas",
            "cuda:build_blas",
            attributes="attributes:BlasAttributes",
        ),
    ),
    exports={"Blas": "actor", "BlasRequest": "request"},
    native=(NativeLibrary("cublas", "cuBLAS", {"cu12": "nvidia-cublas-cu12", "cu13": "nvidia-cublas"}),),
)
