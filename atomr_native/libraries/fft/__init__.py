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
            "fft.half",
            Aliasing.DISJOINT,
            "host:build_half",
            "cuda.half:build_half",
            attributes="attributes:FftAttributes",
        ),
        Operation(
            "fft.cosine",
            Aliasing.SAME_VIEW,
            "host:build_cosine",
            "cuda.cosine:build_cosine",
            attributes="attributes:CosineAttributes",
        ),
        Operation(
            "fft.stft",
            Aliasing.DISJOINT,
            "host:build_stft",
            "cuda.frames:build_stft",
            attributes="attributes:FramesAttributes",
        ),
        Operation(
            "fft.istft",
            Aliasing.DISJOINT,
            "host:build_istft",
            "cuda.frames:build_istft",
            attributes="attributes:FramesAttributes",
        ),
        Operation(
            "fft.shift",
            Aliasing.DISJOINT,
            "host:build_shift",
            "cuda.shift:build_shift",
            attributes="attributes:ShiftAttributes",
        ),
    ),
    exports={
        "CudaFunction": "sources",
        "DctRequest": "cosine",
        "Fft": "actor",
        "FftLayout": "many",
        "FftRequest": "request",
        "FftShiftRequest": "shift",
        "HalfFftRequest": "half",
        "IstftRequest": "frames",
        "StftRequest": "frames",
    },
    native=(NativeLibrary("cufft", "cuFFT", {"cu12": "nvidia-cufft-cu12", "cu13": "nvidia-cufft"}),),
)
