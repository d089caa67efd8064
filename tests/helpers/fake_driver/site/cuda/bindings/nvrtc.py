"""A stand-in for NVRTC whose machine code is that of this processor; its interface is that of cuda.bindings."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[4]))

from kernel_shim import CompileError, compile_module

_NAMES = (
    "SUCCESS", "ERROR_OUT_OF_MEMORY", "ERROR_PROGRAM_CREATION_FAILURE", "ERROR_INVALID_INPUT", "ERROR_INVALID_PROGRAM",
    "ERROR_INVALID_OPTION", "ERROR_COMPILATION",
)  # fmt: skip
nvrtcResult = IntEnum("nvrtcResult", {f"NVRTC_{name}": number for number, name in enumerate(_NAMES)})  # noqa: N816
_SUCCESS = nvrtcResult.NVRTC_SUCCESS


class nvrtcProgram:  # noqa: N801 - its name there
    """A source, and what became of it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.log = b"\0"
        self.cubin = b""


def nvrtcVersion() -> tuple[nvrtcResult, int, int]:  # noqa: N802
    return _SUCCESS, 13, 0


def nvrtcCreateProgram(  # noqa: N802
    source: bytes, name: bytes, count: int, headers: list[bytes], names: list[bytes]
) -> tuple[nvrtcResult, nvrtcProgram | None]:
    if count or not isinstance(source, bytes):
        return nvrtcResult.NVRTC_ERROR_INVALID_INPUT, None
    return _SUCCESS, nvrtcProgram(source)


def nvrtcCompileProgram(program: nvrtcProgram, count: int, options: list[bytes]) -> tuple[nvrtcResult]:  # noqa: N802
    if count != len(options):
        return (nvrtcResult.NVRTC_ERROR_INVALID_INPUT,)
    architectures = [o for o in options if o.startswith(b"--gpu-architecture=")]
    # LTO-IR is for code of others, which may lack the exclusive instructions.
    if architectures != [b"--gpu-architecture=sm_90" if b"-dlto" in options else b"--gpu-architecture=sm_90a"]:
        program.log = b"nvrtc: error: invalid value for --gpu-architecture (-arch)\0"
        return (nvrtcResult.NVRTC_ERROR_INVALID_OPTION,)
    try:
        program.cubin = compile_module(program.source.decode())
    except CompileError as error:
        program.log = str(error).encode() + b"\0"
        return (nvrtcResult.NVRTC_ERROR_COMPILATION,)
    return (_SUCCESS,)


def nvrtcGetProgramLogSize(program: nvrtcProgram) -> tuple[nvrtcResult, int]:  # noqa: N802
    return _SUCCESS, len(program.log)


def nvrtcGetProgramLog(program: nvrtcProgram, log: bytes) -> tuple[nvrtcResult]:  # noqa: N802
    ctypes.memmove(log, program.log, len(program.log))  # the real one writes into bytes, too
    return (_SUCCESS,)


def nvrtcGetCUBINSize(program: nvrtcProgram) -> tuple[nvrtcResult, int]:  # noqa: N802
    if not program.cubin:
        return nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, 0
    return _SUCCESS, len(program.cubin)


def nvrtcGetCUBIN(program: nvrtcProgram, cubin: bytes) -> tuple[nvrtcResult]:  # noqa: N802
    ctypes.memmove(cubin, program.cubin, len(program.cubin))
    return (_SUCCESS,)


nvrtcGetLTOIRSize, nvrtcGetLTOIR = nvrtcGetCUBINSize, nvrtcGetCUBIN  # noqa: N816 - their names there


def nvrtcDestroyProgram(program: nvrtcProgram) -> tuple[nvrtcResult]:  # noqa: N802
    return (_SUCCESS,)
