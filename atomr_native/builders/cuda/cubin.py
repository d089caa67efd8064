"""CUDA C++ that the library generates, to machine code."""

from __future__ import annotations

from typing import Final

from ...compile.nvrtc import compile_program, version

__all__ = ["OPTIONS", "compile_cubin", "version"]

#: Options of every compilation: one rounding per operation, as in NumPy.
OPTIONS: Final = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")


def compile_cubin(source: str, arch: str, options: tuple[str, ...] = OPTIONS) -> bytes:
    """Return the machine code of a CUDA C++ source, which includes no headers but NVRTC's own.

    Waits for the compiler, tens of milliseconds and more; see `compile_program` for what it raises.

    Parameters
    ----------
    source : str
        The whole program.
    arch : str
        ``"sm_90a"``, for example.
    options : tuple of str
        Of the compiler, besides the architecture.
    """
    return compile_program(source, arch, options=options).code
