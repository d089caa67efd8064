"""CUDA C++ kernels as C for this processor: what NVRTC and the GPU would do, gcc and a shim do for tests.

The package's kernels are C11 behind macros, so the shim in front of them defines these, and a table after them lists
the kernels with the sizes of their arguments.  Of PTX only what the fault kernels use is known.  Accesses to addresses
that are not aligned trap, as on a GPU.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["HEADERS", "SCRATCH", "CompileError", "available", "compile_module", "precompile", "translate"]

#: Variable with the folder of precompiled headers.
HEADERS = "FAKE_CUDA_HEADERS"

#: How the names of folders begin that are there while something is compiled.
SCRATCH = "atomr-kernel-"

_SHIM = Path(__file__).parent / "fake_driver" / "shim.h"
_FLAGS = (
    "-std=gnu11", "-ffp-contract=off", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-w", "-shared", "-fPIC",
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
    "-nostdlib", "-fno-use-linker-plugin", "-pipe",  # a third of a small kernel's time; libc is open
)  # fmt: skip
_KERNEL = re.compile(
    r'(?:\bKERNEL|extern\s+"C"\s+__global__\s+void(?:\s+__cluster_dims__\((\d+), 1, 1\))?)'
    r"(?:\s+__launch_bounds__\([^()]*\))?\s+(\w+)\s*\(([^()]*)\)\s*\{"
)
_PTX = (
    (re.compile(r'asm\s+volatile\s*\(\s*"trap;"\s*\)'), "fake_fault(719)"),
    (re.compile(r'asm\s+volatile\s*\(\s*"nanosleep\.u32\s+(\d+);"\s*\)'), r"fake_sleep(\1)"),
    (
        re.compile(r'asm\s+volatile\s*\(\s*"mov\.u64 %0, %globaltimer;"\s*:\s*"=l"\((\w+)\)\s*\)'),
        r"\1 = fake_time()",
    ),
)


class CompileError(Exception):
    """The source does not compile; the text is the compiler's."""


def available() -> str:
    """Return why kernels cannot be compiled here, or nothing."""
    return "" if shutil.which("gcc") else "gcc is not installed"


def _types(parameters: str) -> list[str]:
    """Return the C type of each parameter."""
    found = [p.strip() for p in parameters.split(",")]
    return [] if found in ([""], ["void"]) else [re.sub(r"\w+\s*$", "", p).strip() for p in found]


def translate(source: str) -> str:
    """Return the C source of a module with all kernels of a CUDA source."""
    together = int("SYNC();" in source or "__syncthreads();" in source)
    parts, table = [f'#include "{_SHIM.name}"', '#line 1 "atomr.cu"'], []
    text = source
    for pattern, replacement in _PTX:
        text = pattern.sub(replacement, text)
    parts.append(re.sub(r'extern\s+"C"', "", text))
    for cluster, name, parameters in _KERNEL.findall(source):
        types = _types(parameters)
        values = ", ".join(f"*({kind} *)a[{i}]" for i, kind in enumerate(types))
        sizes = ", ".join([*(f"sizeof({kind})" for kind in types), "0"])
        parts.append(
            f"static void body_{name}(void **a) {{ {name}({values}); }}\n"
            f"static const unsigned int sizes_{name}[] = {{{sizes}}};\n"
            f"void launch_{name}(void **a, const unsigned int *grid, const unsigned int *block) "
            f"{{ fake_run(body_{name}, {together}, {cluster or 1}, a, grid, block); }}"
        )
        table.append(f'{{"{name}", launch_{name}, {len(types)}, sizes_{name}}}')
    parts.append(f"const struct fake_kernel fake_kernels[] = {{{', '.join([*table, '{0}'])}}};\n")
    return "\n".join(parts)


def precompile(folder: Path, level: str = "-O0") -> Path:
    """Precompile the shim for a level unless it is there, which halves a small kernel's time; return its folder."""
    made = folder / f"shim{level}" / f"{_SHIM.name}.gch"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
            out = Path(scratch) / made.name
            subprocess.run(["gcc", level, *_FLAGS, "-x", "c-header", str(_SHIM), "-o", str(out)], check=True)
            os.replace(out, made)
    return made.parent


@functools.cache
def _precompiled(folder: str, level: str) -> Path:
    return precompile(Path(folder), level)


def compile_module(source: str, level: str = "-O0", headers: str | None = None) -> bytes:
    """Compile a CUDA source, and return a shared library with ``fake_kernels`` and a ``launch_<kernel>`` for each.

    `level` says how much gcc optimises, `headers` is a folder for the precompiled shim, by default that of `HEADERS`.

    Raises
    ------
    CompileError
        If it is not the C that the shim makes of it.
    """
    # A worker that is killed meanwhile leaves its folder behind, in the cache that fake_cuda.py clears.
    scratch = os.environ.get("ATOMR_NATIVE_CACHE") or tempfile.gettempdir()
    os.makedirs(scratch, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=scratch) as folder:
        out = Path(folder) / "module.so"
        includes = [f"-I{_SHIM.parent}"]
        if headers := headers or os.environ.get(HEADERS):
            includes.insert(0, f"-I{_precompiled(headers, level)}")
        command = ["gcc", level, *_FLAGS, *includes, "-x", "c", "-", "-o", str(out), "-lm", "-lgcc"]
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, input=translate(source), env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CompileError(done.stderr)
        return out.read_bytes()
