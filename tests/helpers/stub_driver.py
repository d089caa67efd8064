"""A CUDA driver without a device: every function of cuda.h says so, but those that load code say that they did.

With it cuDNN compiles the engines of a device that is only described, and loads none of their code.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cuda_wheels import find

__all__ = ["stub_driver"]

#: Functions that return something through their first argument.
_MADE = re.compile(
    r"cu(LibraryLoadData|ModuleLoadData(Ex)?|LibraryGet(Kernel|Module)|ModuleGetFunction|KernelGetFunction)"
)
_QUIET = re.compile(r"cu(Library|Module|Kernel|Func)")
_NO_DEVICE = 100


def stub_driver(folder: Path) -> Path | None:
    """Compile ``libcuda.so.1`` into a folder; None if there is no cuda.h."""
    headers = find("cuda.h")
    if not headers:
        return None
    found = {
        name for header in headers for name in re.findall(r"\b(cu[A-Z]\w+)\s*\(", header.read_text(errors="replace"))
    }
    found |= {name + end for name in found for end in ("_v2", "_v3", "_ptsz", "_ptds")}
    lines = []
    for name in sorted(found):
        if _MADE.fullmatch(name):
            lines.append(f"int {name}(void **made) {{ *made = (void *)64; return 0; }}")
        else:
            lines.append(f"int {name}(void) {{ return {0 if _QUIET.match(name) else _NO_DEVICE}; }}")
    source, library = folder / "stub.c", folder / "libcuda.so.1"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library
