"""Kernels that ship with the library: from their source in this package to machine code.

A module of this package has functions that make kernels in Numba's CUDA Python: ``make(**options)`` returns the kernel
and the types of its parameters, ``"int64"`` or ``"*uint16"`` for a pointer.  Its function
`registers`, if it has that, limits those of a thread, by the options of a plan's first kernel.  What is in it is
compiled where the program is and cached on disk, so that a worker needs no compiler, and a program whose kernels are
cached no Numba.
Modules here import `numba.cuda` through `atomr_native._numba`, and are imported only to compile or to simulate.

To add an operation, take float8 as the pattern: the request and the plan's specification (`_float8_spec`), the actor
(`float8`), the kernels (`kernels/float8`), their launches (`worker/cuda/float8`), and the same in NumPy for the host
device (`worker/host/float8`), which is what the kernels are compared with, bit by bit, by the simulator.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from .. import _cubin
from ..disk_cache import cached
from ..errors import LibraryError

__all__ = ["Code", "Part", "compiled", "machine_code", "made"]

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
        What each part is called in the code.
    code : str
        In base 64.
    """

    entries: tuple[tuple[str, str], ...]
    code: str


def made(module: str, part: Part) -> tuple[Any, tuple[str, ...]]:
    """Return a kernel as a Python function, and the types of its parameters.  Imports Numba.

    Raises
    ------
    Unsupported
        If numba-cuda is not installed.
    """
    found = importlib.import_module(f"{__name__}.{module}")
    function, types = getattr(found, part.name)(**dict(part.options))
    return function, types


@functools.lru_cache(maxsize=256)
def machine_code(module: str, parts: tuple[Part, ...], capability: tuple[int, int]) -> Code:
    """Return the kernels of a plan for a compute capability, from the disk cache if it has them.

    Waits for the compiler; needs no GPU.

    Parameters
    ----------
    module : str
        Of this package.
    parts : tuple of Part
    capability : tuple of int

    Raises
    ------
    Unsupported
        If numba-cuda, NVVM or nvJitLink is not installed.
    LibraryError
        If something does not compile.
    """

    def make() -> bytes:
        from .. import _kernel_code

        codes = [compiled(module, part, capability) for part in parts]
        limit = getattr(importlib.import_module(f"{__name__}.{module}"), "registers", None)
        registers = None if limit is None else limit(**dict(parts[0].options))
        return _kernel_code.link(codes, _arch(capability), max_registers=registers)

    key = repr((module, parts, capability, _versions())).encode()
    cubin = cached("cubin", (b"shipped", key, _sources()), make)
    entries = _entries(cubin, [part.name for part in parts])
    return Code(entries, base64.b64encode(cubin).decode())


@functools.lru_cache(maxsize=64)
def compiled(module: str, part: Part, capability: tuple[int, int]) -> bytes:
    """Return one kernel as LTO-IR.  Waits for the compiler; errors as `machine_code`."""
    from .. import _numba, _numba_compile

    function, types = made(module, part)
    known = [_numba.pointer_type(t[1:]) if t[0] == "*" else _numba.scalar_type(t) for t in types]
    return _numba_compile.compile_ltoir(function, known, capability, _OPTIONS).code


def _arch(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"


def _entries(cubin: bytes, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the symbol of each kernel, in which Numba has put the function's name and its length."""
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


@functools.cache
def _sources() -> bytes:
    """Return a digest of everything here that machine code is made of, and linked by."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *folder.parent.glob("_numba*.py"), *folder.parent.glob("_kernel_*.py")]):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.digest()


@functools.cache
def _versions() -> tuple[str, ...]:
    """Return the versions of the compilers, without importing them."""
    found = []
    for name in _COMPILERS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(found)
