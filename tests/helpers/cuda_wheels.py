"""NVIDIA's wheels: where their headers and libraries are, and what gcc makes of our declarations beside theirs.

The wheels are found where the `nvidia` packages are installed, or below the folders of ATOMR_NATIVE_CUDA_WHEELS
(separated as PATH is).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

#: The headers of cuBLAS and cuBLASLt, each with the wheel that ships it.
HEADERS = {
    "cublasLt.h": "nvidia-cublas",
    "library_types.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "nv/target": "nvidia-cuda-cccl",
}
#: Arguments with which gcc takes headers as C that are C++, but use little of it.
AS_C = ("-include", "stdalign.h", "-idirafter", str(Path(__file__).parent / "c_of_cpp"))


def roots() -> list[Path]:
    """Return the folders that may hold NVIDIA's wheels."""
    named = [Path(p) for p in os.environ.get("ATOMR_NATIVE_CUDA_WHEELS", "").split(os.pathsep) if p]
    specs = (importlib.util.find_spec(package) for package in ("nvidia", "cutensor"))
    installed = [Path(p) for spec in specs if spec for p in spec.submodule_search_locations or ()]
    return [p for p in (*named, *installed) if p.is_dir()]


def find(pattern: str) -> list[Path]:
    """Return the files of a name in all wheels."""
    return sorted({path for root in roots() for path in root.rglob(pattern)})


def lacking(errors: str) -> str:
    """Return which file that a header of NVIDIA's includes is not there, by what gcc says, or ""."""
    found = re.search(r"^(.+?):\d+:\d+: fatal error: (.+): No such file or directory$", errors, re.M)
    if found is None or not any(Path(found[1]).is_relative_to(root) for root in roots()):
        return ""
    return f"{found[2]}, which {found[1]} includes, is not installed"


def check_syntax(text: str, includes: Iterable[Path]) -> str:
    """Compile C11, and return what gcc says; skips the test where there is no gcc, or not all of NVIDIA's headers."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    # Some of cuSPARSE's own declarations use types that it has deprecated.
    flags = ["-std=c11", "-fsyntax-only", "-Wno-deprecated-declarations", *AS_C]
    command = [gcc, *flags, "-x", "c", "-", *(f"-I{folder}" for folder in includes)]
    errors = subprocess.run(command, input=text, text=True, capture_output=True, check=False).stderr
    if reason := lacking(errors):
        pytest.skip(reason)
    return errors


def includes() -> list[Path]:
    """Return the folders to include from, or skip."""
    found = {name: find(name) for name in HEADERS}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not found; pip install {' '.join(HEADERS[name] for name in missing)}, or set "
            f"ATOMR_NATIVE_CUDA_WHEELS"
        )
    return list(dict.fromkeys(Path(str(path).removesuffix(name)) for name, paths in found.items() for path in paths))
