"""CUDA C++ to machine code or LTO-IR, through NVRTC and the cache on disk.  Needs no GPU."""

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

from . import _precompiled
from ._include_facts import include_facts
from .disk_cache import cached
from .errors import InvalidRequest, LibraryError, Unsupported

__all__ = ["Program", "compile_program", "toolkit_headers", "version"]

#: No folder can be there: else NVRTC finds headers beside the source, which are no part of the cache's key.
_FOLDER: Final = "/dev/null/"
_FILE: Final = "atomr.cu"
_LOG_CHARACTERS: Final = 4000
#: Options that say what is made, and for what.
_OWN: Final = (
    "-arch", "--gpu-architecture", "-dlto", "--dlink-time-opt", "-dc", "--device-c", "-rdc",
    "--relocatable-device-code",
)  # fmt: skip
_HINT: Final = "`pip install atomr-native[cu13]` (or [cu12], whichever CUDA the driver has) brings it"


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
        raise Unsupported(f"compiling CUDA kernels needs cuda.bindings, which is missing ({error}); {_HINT}") from None


def _call(operation: str, function: Any, *arguments: Any) -> Any:
    """Call the library; return its result.

    Raises
    ------
    LibraryError
        If its status is no success.
    Unsupported
        If the bindings are there, and the library is not.
    """
    try:
        status, *results = function(*arguments)
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"compiling CUDA kernels needs the NVRTC library ({error}); {_HINT}") from None
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
    """Return the compile log, which quotes the lines that it numbers; shortened."""
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
    """Return names and code as one value for the cache; `kept` is removed if NVRTC has not kept its headers there."""
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
    """Return the folders of CUDA's own headers (``cuda_fp16.h``, ``cooperative_groups.h``), if they are installed."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return ()
    found = [pathfinder.locate_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return tuple(dict.fromkeys(folder.abs_path for folder in found if folder is not None and folder.abs_path))


def _check_texts(texts: Iterable[str], options: Iterable[str]) -> None:
    """Refuse what would not reach the compiler as it is."""
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
    """Compile CUDA C++: from the disk cache, or now.  Waits for the compiler; threads that ask for the same share it.

    Parameters
    ----------
    source : str
    arch : str
        ``"sm_90a"``, for example.
    options : sequence of str
        Of NVRTC, besides the architecture.
    names : sequence of str
        Name expressions, such as ``"scale<float>"``, whose kernels shall be instantiated.
    headers : mapping of str to str, optional
        Text of headers, by the names under which the source includes them.
    include : sequence of str
        Folders of headers.  What is in them counts for the cache by name, size and time of change, as do files that
        are included by paths out of them, and what the options ``-I`` and ``-include`` name.
    output : {"cubin", "ltoir"}

    Raises
    ------
    InvalidRequest
        If a folder is not there, for an option that is set by the library, and for texts that C cannot hold.
    Unsupported
        If NVRTC is not installed.
    LibraryError
        If it does not compile: with its log, which numbers and quotes the lines.
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
        preamble = _precompiled.preamble(source) if include and not given else None
        if preamble is None or (major, minor) < _precompiled.SINCE:
            return make()
        return _precompiled.compiled((preamble, arch, flags, tuple(facts), output), make)

    value = cached(output, (b"nvrtc", key.encode()), make_with_headers)
    size = int.from_bytes(value[:8], "little")
    return Program(value[8 + size :], json.loads(value[8 : 8 + size]))
