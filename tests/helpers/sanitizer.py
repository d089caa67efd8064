"""Where NVIDIA's compute-sanitizer is: it comes with the CUDA toolkit, and as a wheel, nvidia-cuda-sanitizer-api."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_wheels import find
from scripts import environment

__all__ = ["compute_sanitizer", "run_sanitized"]


def compute_sanitizer() -> str:
    """Return the program's path; skips the test where there is none."""
    found = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin") or shutil.which("compute-sanitizer")
    wheels = [path for path in find("compute-sanitizer") if path.is_file()]
    if found is None and not wheels:
        pytest.skip("compute-sanitizer is not installed; pip install nvidia-cuda-sanitizer-api")
    return found or str(wheels[0])


def run_sanitized(program: str, folder: Path, *arguments: str, timeout: float = 280) -> str:
    """Run a Python program under the sanitizer's memory checks; what it wrote.  Skips the test where there is none."""
    sanitizer, script = compute_sanitizer(), folder / "program.py"
    script.write_text(program, encoding="utf-8")
    libraries = Path(sanitizer).parents[1] / "lib"
    options = ["--injection-path", str(libraries)] if (libraries / "libsanitizer-collection.so").exists() else []
    options += ["--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9"]
    done = subprocess.run(
        [sanitizer, *options, sys.executable, str(script), *arguments],
        env=environment(), capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert "ERROR SUMMARY: 0 errors" in said
    return said
