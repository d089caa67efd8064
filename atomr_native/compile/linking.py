"""Code into machine code, by nvJitLink.  Needs no Numba, so that workers can link what its users compiled.

`cuda.core.Linker` does not replace the calls of nvJitLink here: it leaves the end of a failed link to the garbage
collector, which may run in another thread. Where `nvJitLinkDestroy` of a link with LTO-IR runs in another thread than
its `nvJitLinkCreate`, the next link of any kind ends the program (SIGSEGV or SIGABRT; seen in nvJitLink 13.0).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from .._support.disk_cache import cached
from ..errors import LibraryError, Unsupported
from . import INSTALL_HINT
from .link_parts import LinkPart

__all__ = ["link", "run_linker"]

_LOG_CHARACTERS: Final = 4000


def _library() -> Any:
    try:
        return importlib.import_module("cuda.bindings.nvjitlink")
    except ImportError as error:
        raise Unsupported(f"linking kernels needs cuda.bindings ({error}); {INSTALL_HINT}") from None


def _log_of(library: Any, handle: int) -> str:
    log = bytearray(library.get_error_log_size(handle))
    if log:
        library.get_error_log(handle, log)
    return log.decode(errors="replace").strip("\0 \n")


def run_linker(parts: Sequence[LinkPart], options: Sequence[str], output: str = "cubin") -> bytes:
    """Link code by nvJitLink, without the disk cache.  Waits for the linker; needs no GPU.

    Parameters
    ----------
    parts : sequence of LinkPart
        Of any kind but ``"cu"``.
    options : sequence of str
        nvJitLink's, such as ``"-arch=sm_90"``.
    output : str
        ``"cubin"``, or ``"ptx"`` with the option ``"-ptx"``.

    Raises
    ------
    LibraryError
        If the parts cannot be linked; the message has the linker's log.
    """
    library = _library()
    handle, operation = 0, f"linking with {' '.join(options)}"
    try:
        handle = library.create(len(options), list(options))
        for number, part in enumerate(parts):
            kind = getattr(library.InputType, part.kind.upper())  # newer bindings have no InputType[...]
            library.add_data(handle, kind, part.data, len(part.data), part.name or f"part {number}")
        library.complete(handle)
        code = bytearray(getattr(library, f"get_linked_{output}_size")(handle))
        getattr(library, f"get_linked_{output}")(handle, code)
        return bytes(code)
    except library.nvJitLinkError as error:
        text = (handle and _log_of(library, handle)) or str(error)
        status = library.Result(error.status)
        raise LibraryError("nvjitlink", int(status), status.name, operation, text[:_LOG_CHARACTERS]) from None
    finally:
        if handle:
            library.destroy(handle)  # in the thread that created it


def link(parts: Sequence[bytes | LinkPart], arch: str, *, max_registers: int | None = None) -> bytes:
    """Link code into machine code by nvJitLink and the disk cache.  Waits for the linker; needs no GPU.

    Parameters
    ----------
    parts : sequence of bytes or LinkPart
        Bytes are LTO-IR.
    arch : str
        ``"sm_90"``, for example.
    max_registers : int, optional
        Registers per thread.

    Raises
    ------
    Unsupported
        If nvJitLink is not installed.
    LibraryError
        If the parts cannot be linked.
    """
    try:
        version = _library().version()
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"linking kernels needs the nvJitLink library ({str(error)[:500]}); {INSTALL_HINT}") from None
    given = [part if isinstance(part, LinkPart) else LinkPart("ltoir", part) for part in parts]
    options = [f"-arch={arch}"]
    if any(part.kind == "ltoir" for part in given):  # the option is refused if there is none
        options.append("-lto")
    if max_registers is not None:
        options.append(f"-maxrregcount={max_registers}")
    contents = [content for part in given for content in (part.kind.encode(), part.data)]
    key = (b"link", arch.encode(), str((version, max_registers)).encode(), *contents)
    return cached("cubin", key, lambda: run_linker(given, options))
