"""Kernels that ship with the library: from their source in ``libraries/<name>/kernels/`` to machine code.

A module there has functions that make kernels in Numba's CUDA Python: ``make(**options)`` returns the kernel and the
types of its parameters, ``"int64"`` or ``"*uint16"`` for a pointer.  Its optional function `registers` limits the
registers per thread, by the options of a plan's first kernel.  Kernels are compiled in the program's process and cached
on disk, so a worker needs no compiler, and a program with cached kernels needs no Numba.  These modules import
`numba.cuda` through `atomr_native.compile.numba.api`, and are imported only to compile or to simulate.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._support.disk_cache import cached
from ..errors import LibraryError
from ..protocol.binaries import Binary
from . import cubin as _cubin
from .nvrtc import arch_of

__all__ = ["Code", "Part", "compiled", "key", "machine_code", "made"]

_OPTIONS: Final = {"fastmath": False, "lineinfo": False, "opt": True, "debug": False}
_COMPILERS: Final = ("numba-cuda", "numba", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12",
                     "nvidia-cuda-nvcc-cu12")  # fmt: skip


class Part(NamedTuple):
    """One kernel of a plan: the function that makes it, and its options as (name, value) pairs."""

    name: str
    options: tuple[tuple[str, Any], ...]


class Code(NamedTuple):
    """Machine code of a plan's kernels.

    Attributes
    ----------
    entries : tuple of (str, str)
        Symbol of each part in the code.
    code : Binary
    """

    entries: tuple[tuple[str, str], ...]
    code: Binary


def made(module: str, part: Part) -> tuple[Any, tuple[str, ...]]:
    """Return a kernel as a Python function, and the types of its parameters.  Imports Numba.

    Raises
    ------
    Unsupported
        If numba-cuda is not installed.
    """
    found = importlib.import_module(_path(module))
    function, types = getattr(found, part.name)(**dict(part.options))
    return function, types


@functools.lru_cache(maxsize=256)
def machine_code(module: str, parts: tuple[Part, ...], capability: tuple[int, int]) -> Code:
    """Return the kernels of a plan for a compute capability, from the disk cache if it has them.

    Waits for the compiler; needs no GPU.

    Parameters
    ----------
    module : str
        Library and module: ``"fused.norms"`` is ``libraries/fused/kernels/norms.py``.
    parts : tuple of Part
    capability : tuple of int

    Raises
    ------
    Unsupported
        If numba-cuda, NVVM or nvJitLink is not installed.
    LibraryError
        If a kernel does not compile.
    """
    arch = arch_of(capability)

    def make() -> bytes:
        from . import linker

        codes = [compiled(module, part, capability) for part in parts]
        limit = getattr(importlib.import_module(_path(module)), "registers", None)
        registers = None if limit is None else limit(**dict(parts[0].options))
        return linker.link(codes, arch, max_registers=registers)

    cubin = cached("cubin", (b"shipped", repr((module, parts, arch)).encode(), *key()), make)
    entries = _entries(cubin, [part.name for part in parts])
    return Code(entries, Binary(cubin))


@functools.lru_cache(maxsize=64)
def compiled(module: str, part: Part, capability: tuple[int, int]) -> bytes:
    """Return one kernel as LTO-IR. Waits for the compiler; raises the errors of `machine_code`."""
    from .numba import api, compiler

    function, types = made(module, part)
    known = [api.pointer_type(t[1:]) if t[0] == "*" else api.scalar_type(t) for t in types]
    return compiler.compile_ltoir(function, known, capability, _OPTIONS).code


def _entries(cubin: bytes, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the symbol of each kernel, which contains the function's name and its length."""
    symbols = list(_cubin.kernels(cubin))
    found = []
    for name in names:
        fitting = [s for s in symbols if re.search(rf"(?<!\d){len(name)}{name}B", s)]
        if len(fitting) != 1:
            raise LibraryError(
                "nvjitlink", 0, "NoEntry", f"looking for {name}", f"the kernels of the code are {', '.join(symbols)}"
            )
        found.append((name, fitting[0]))
    return tuple(found)


def _path(module: str) -> str:
    """Return the import path of a module of kernels, ``"fused.norms"``."""
    library, name = module.split(".")
    return f"{__package__.rpartition('.')[0]}.libraries.{library}.kernels.{name}"


def key() -> tuple[bytes, bytes]:
    """Return on what all compiled code depends besides its options: versions of the compilers, and sources."""
    return repr(_versions()).encode(), _sources()


@functools.cache
def _sources() -> bytes:
    """Return a digest of every source of shipped kernels, and of the code that compiles and links them."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted([*package.glob("compile/**/*.py"), *package.glob("libraries/*/kernels/*.py")]):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(data)}\n".encode() + data)
    return digest.digest()


@functools.cache
def _versions() -> tuple[str, ...]:
    """Return the versions of the compilers, without importing them."""
    from importlib.metadata import PackageNotFoundError, version  # which imports much, and workers need it not

    found = []
    for name in _COMPILERS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(found)
