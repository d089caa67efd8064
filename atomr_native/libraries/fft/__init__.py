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
        Operation(
            "fft.mapped",
            Aliasing.DISJOINT,
            "host:build_mapped",
            "cuda.build:build_mapped",
            attributes="attributes:MappedAttributes",
        ),
        Operation(
            "fft.cosine",
            Aliasing.SAME_VIEW,
            "host:build_cosine",
            "cuda.cosine:build_cosine",
            attributes="attributes:CosineAttributes",
        ),
        Operation(
            "fft.shift",
            Aliasing.DISJOINT,
            "host:build_shift",
            "cuda.shift:build_shift",
            attributes="attributes:ShiftAttributes",
        ),
    ),
    exports={"DctRequest": "cosine", "Fft": "actor", "FftRequest": "request", "FftShiftRequest": "shift"},
    native=(NativeLibrary("cufft", "cuFFT", {"cu12": "nvidia-cufft-cu12", "cu13": "nvidia-cufft"}),),
)
