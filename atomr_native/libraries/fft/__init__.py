"""Fourier transforms: ``device.fft``."""

from .._contract import Aliasing, Library, NativeLibrary, Operation

LIBRARY = Library(
    name="fft",
    summary="Fourier transforms.",
    actor="actor:Fft",
    operations=(
        Operation(
            "fft.transform",
            Aliasing.SAME_VIEW,
            "host:build_transform",
            "cuda.build:build_transform",
            attributes="attributes:FftAttributes",
        ),
    ),
    exports={"Fft": "actor", "FftRequest": "request"},
    native=(NativeLibrary("cufft", "cuFFT", {"cu12": "nvidia-cufft-cu12", "cu13": "nvidia-cufft"}),),
)
