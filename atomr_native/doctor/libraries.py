"""NVIDIA's libraries: where they are, what they are, and which pip package brings a missing one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from .model import Library
from .subprocesses import ProbeError, run_probe

__all__ = ["PACKAGES", "find_libraries"]

#: Library: its probe's key, and the pip packages of the two CUDA majors.
PACKAGES: dict[str, tuple[str, str, str]] = {
    "cuBLAS": ("cublas", "nvidia-cublas-cu12", "nvidia-cublas"),
    "cuBLASLt": ("cublaslt", "nvidia-cublas-cu12", "nvidia-cublas"),
    "cuDNN": ("cudnn", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    "cuFFT": ("cufft", "nvidia-cufft-cu12", "nvidia-cufft"),
    "cuSOLVER": ("cusolver", "nvidia-cusolver-cu12", "nvidia-cusolver"),
    "cuSPARSE": ("cusparse", "nvidia-cusparse-cu12", "nvidia-cusparse"),
    "cuTENSOR": ("cutensor", "cutensor-cu12", "cutensor-cu13"),
    "cuRAND": ("curand", "nvidia-curand-cu12", "nvidia-curand"),
    "NCCL": ("nccl", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    "NVRTC": ("nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"),
    "nvJitLink": ("nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink"),
    "cudart": ("cudart", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
}


def find_library(name: str) -> Library:
    """Look for one library of `PACKAGES` in a process of its own."""
    key, cu12, cu13 = PACKAGES[name]
    packages = {"cu12": cu12, "cu13": cu13}
    try:
        answer = run_probe("library_version", key)
    except ProbeError as error:
        return Library(name, False, None, None, None, packages, str(error))
    return Library(name=name, packages=packages, **answer)


def find_libraries() -> tuple[Library, ...]:
    """Look for every library of `PACKAGES`, a few at a time; takes a second or two."""
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return tuple(pool.map(find_library, PACKAGES))
