"""NVIDIA's libraries: their files and versions, and the pip package for each missing one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ..libraries import LIBRARIES
from .model import Library
from .subprocesses import ProbeError, run_probe

__all__ = ["PACKAGES", "find_libraries"]

#: NVIDIA's libraries without an actor, and compilers: display name, key of the probe, packages.
_OTHERS: Final[dict[str, tuple[str, str, str]]] = {
    "cuDNN": ("cudnn", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    "cuDSS": ("cudss", "nvidia-cudss-cu12", "nvidia-cudss-cu13"),
    "cuSOLVER": ("cusolver", "nvidia-cusolver-cu12", "nvidia-cusolver"),
    "cuTENSOR": ("cutensor", "cutensor-cu12", "cutensor-cu13"),
    "NCCL": ("nccl", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    "NVRTC": ("nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"),
    "nvJitLink": ("nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink"),
    "cudart": ("cudart", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
}


def _packages() -> dict[str, tuple[str, str, str]]:
    driven = {
        native.title: (native.key.lower(), native.packages["cu12"], native.packages["cu13"])
        for library in LIBRARIES.values()
        for native in library.native
    }
    return dict(sorted(driven.items())) | {name: found for name, found in _OTHERS.items() if name not in driven}


#: Library: key of its probe, and the pip packages of the two CUDA majors.
PACKAGES: Final = _packages()


def find_library(name: str) -> Library:
    """Look for one library of `PACKAGES` in a separate process."""
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
