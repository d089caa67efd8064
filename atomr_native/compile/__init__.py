"""Compilation in the program's process: NVRTC, the linker, content digests for the cache, shipped kernels."""

from __future__ import annotations

from typing import Final

from .._support.extras import CUDA, how_to_install

__all__ = ["INSTALL_HINT"]

#: How to install NVIDIA's compilers and linkers, for errors about a missing one.
INSTALL_HINT: Final = how_to_install(*CUDA)
