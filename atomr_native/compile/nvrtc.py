"""CUDA C++ to machine code or LTO-IR, through NVRTC and the cache on disk.  Needs no GPU.

`cuda.core.Program` does not replace the calls of NVRTC here: it accepts neither headers as texts nor NVRTC's own
spelling of options, and `Device.cuda_kernel` needs both.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from .._support.disk_cache import cached
from ..errors import InvalidRequest, LibraryError, Unsupported
from . import INSTALL_HINT, precompiled_headers
from .include_facts import include_facts

__all__ = ["Program", "arch_of", "compile_program", "toolkit_headers", "version"]

#: A path that cannot exist: otherwise NVRTC finds headers beside the source, which the cache's key does not cover.
_FOLDER: Final = "/dev/null/"
_FILE: Final = "atomr.cu"
_LOG_CHARACTERS: Final = 4000
#: Options that select output and target.
_OWN: Final = (
    "-arch", "--gpu-architecture", "-dlto", "--dlink-time-opt", "-dc", "--device-c", "-rdc",
    "--relocatable-device-code",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled source.

    Attributes
    ----------
    code : bytes
        Machine code, or LTO-IR.
    names : dict of str to str
        Lowered name of each name expression.
    """

    code: bytes
    names: dict[str, str]


def arch_of(capability: tuple[int, int]) -> str:
    """Return the architecture for a compute capability: ``"sm_90a"`` for (9, 0).

    From 9.0 on every architecture has an ``a`` variant, with exclusive instructions (``wgmma``, ``tcgen05``).  The
    package compiles for the GPU that is present, so it always takes that variant.  Code for the plain architecture can
    be linked into code for the variant, but not vice versa.
    """
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _library() -> Any:
    """Return the bindings of NVRTC.

    Raises
    ------
    Unsupported
        If the bindings are not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise Unsupported(
            f"compiling CUDA kernels needs cuda.bindings, which is missing ({error}); {INSTALL_HINT}"
        ) from None


def _call(operation: str, function: Any, *arguments: Any) -> Any:
    """Call the library; return its result.

    Raises
    ------
    LibraryError
        If its status is not success.
    Unsupported
        If the bindings are installed, but not the library.
    """
    try:
        status, *results = function(*arguments)
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"compiling CUDA kernels needs the NVRTC library ({error}); {INSTALL_HINT}") from None
    if int(status):
        raise LibraryError("nvrtc", int(status), str(getattr(status, "name", status)), operation)
    return results[0] if len(results) == 1 else tuple(results)


def version() -> tuple[int, int]:
    """Return the version of NVRTC.

    Raises
    ------
    Unsupported
        If it is not installed.
    """
    major, minor = _call("nvrtcVersion", _library().nvrtcVersion)
    return int(major), int(minor)


def _log_of(library: Any, program: Any) -> str:
    """Return the shortened compile log, with the quoted source lines."""
    log = b" " * _call("nvrtcGetProgramLogSize", library.nvrtcGetProgramLogSize, program)
    _call("nvrtcGetProgramLog", library.nvrtcGetProgramLog, program, log)
    text = log.decode(errors="replace").replace(_FOLDER + _FILE, _FILE).strip("\0 \n")
    return text if len(text) <= _LOG_CHARACTERS else f"{text[:_LOG_CHARACTERS]}... ({len(text)} characters)"


def _compile(
    source: str,
    arch: str,
    options: tuple[str, ...],
    names: tuple[str, ...],
    headers: tuple[tuple[str, str], ...],
    output: str,
    kept: Path | None = None,
) -> bytes:
    """Return names and code as one value for the cache; remove `kept` if NVRTC has not stored its headers there."""
    library = _library()
    program = _call(
        "nvrtcCreateProgram", library.nvrtcCreateProgram, source.encode(), (_FOLDER + _FILE).encode(), len(headers),
        [text.encode() for _, text in headers], [name.encode() for name, _ in headers],
    )  # fmt: skip
    try:
        for name in names:
            _call("nvrtcAddNameExpression", library.nvrtcAddNameExpression, program, name.encode())
        flags = [f"--gpu-architecture={arch}", *options]
        flags += ["-dlto"] if output == "ltoir" else []
        status = library.nvrtcCompileProgram(program, len(flags), [os.fsencode(flag) for flag in flags])[0]
        if int(status):
            detail = _log_of(library, program)
            raise LibraryError("nvrtc", int(status), status.name, f"nvrtcCompileProgram for {arch}", detail)
        if kept is not None and int(library.nvrtcGetPCHCreateStatus(program)[0]):
            kept.unlink(missing_ok=True)
        lowered = {
            name: _call("nvrtcGetLoweredName", library.nvrtcGetLoweredName, program, name.encode()).decode()
            for name in names
        }
        size, get = (
            (library.nvrtcGetLTOIRSize, library.nvrtcGetLTOIR)
            if output == "ltoir"
            else (library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
        )
        code: bytes = b" " * _call("the size of the code", size, program)
        _call("getting the code", get, program, code)
        head = json.dumps(lowered).encode()
        return len(head).to_bytes(8, "little") + head + code
    finally:
        library.nvrtcDestroyProgram(program)


@functools.cache
def toolkit_headers() -> tuple[str, ...]:
    """Return the installed folders of CUDA's own headers (``cuda_fp16.h``, ``cooperative_groups.h``)."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return ()
    found = [pathfinder.locate_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return tuple(dict.fromkeys(folder.abs_path for folder in found if folder is not None and folder.abs_path))


def _check_texts(texts: Iterable[str], options: Iterable[str]) -> None:
    """Refuse texts that would not reach the compiler unchanged."""
    for text in (*texts, *options):
        if "\0" in text:
            raise InvalidRequest(f"{reprlib.repr(text)} has a NUL character, at which the compiler would stop reading")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{reprlib.repr(text)} cannot be encoded: {error}") from None
    for option in options:
        if option.partition("=")[0] in _OWN:
            raise InvalidRequest(f"options has {option!r}; {', '.join(_OWN)} are set by the library")


def compile_program(
    source: str,
    arch: str,
    *,
    options: Sequence[str] = (),
    names: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    include: Sequence[str] = (),
    output: Literal["cubin", "ltoir"] = "cubin",
) -> Program:
    """Compile CUDA C++, or load it from the disk cache.  Waits for the compiler; concurrent calls share one result.

    Parameters
    ----------
    source : str
    arch : str
        ``"sm_90a"``, for example.
    options : sequence of str
        Options of NVRTC, besides the architecture.
    names : sequence of str
        Name expressions of kernels to instantiate, such as ``"scale<float>"``.
    headers : mapping of str to str, optional
        Text of headers, by their names in the source's includes.
    include : sequence of str
        Folders of headers.  Names, sizes and modification times of their files are part of the cache's key, and so are
        those of files included from elsewhere, and of the options ``-I`` and ``-include``.
    output : {"cubin", "ltoir"}

    Raises
    ------
    InvalidRequest
        If a folder does not exist, for an option that the library sets, and for texts that a C string cannot hold.
    Unsupported
        If NVRTC is not installed.
    LibraryError
        If it does not compile; the message has the log, with numbered and quoted lines.
    """
    major, minor = version()
    given = tuple(sorted((headers or {}).items()))
    flags = (*options, *(f"--include-path={folder}" for folder in include))
    _check_texts((source, *names, *(part for pair in given for part in pair)), flags)
    facts = include_facts((source, *(text for _, text in given)), include, options)
    key = json.dumps([source, arch, flags, list(names), given, facts, output, major, minor])

    def make(further: Sequence[str] = (), kept: Path | None = None) -> bytes:
        return _compile(source, arch, (*flags, *further), tuple(names), given, output, kept)

    def make_with_headers() -> bytes:
        preamble = precompiled_headers.preamble(source) if include and not given else None
        if preamble is None or (major, minor) < precompiled_headers.SINCE:
            return make()
        return precompiled_headers.compiled((preamble, arch, flags, tuple(facts), output), make)

    value = cached(output, (b"nvrtc", key.encode()), make_with_headers)
    size = int.from_bytes(value[:8], "little")
    return Program(value[8 + size :], json.loads(value[8 : 8 + size]))
