"""Where NVIDIA's compute-sanitizer is: it comes with the CUDA toolkit, and as a wheel, nvidia-cuda-sanitizer-api."""

from __future__ import annotations

import shutil

import pytest
from cuda_wheels import find

__all__ = ["compute_sanitizer"]


def compute_sanitizer() -> str:
    """Return the program's path; skips the test where there is none."""
    found = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin") or shutil.which("compute-sanitizer")
    wheels = [path for path in find("compute-sanitizer") if path.is_file()]
    if found is None and not wheels:
        pytest.skip("compute-sanitizer is not installed; pip install nvidia-cuda-sanitizer-api")
    return found or str(wheels[0])
