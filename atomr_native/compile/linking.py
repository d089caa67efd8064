"""Code into machine code, by nvJitLink.  Needs no Numba, so that workers can link what its users compiled."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .._support.disk_cache import cached
from ..errors import LibraryError, Unsupported
from . import INSTALL_HINT, link_parts
from .link_parts import LinkPart

__all__ = ["link"]


def _linker() -> Any:
    try:
        return importlib.import_module("cuda.core"), importlib.import_module("cuda.bindings.nvjitlink")
    except ImportError as error:
        raise Unsupported(f"linking kernels needs cuda.core and cuda.bindings ({error}); {INSTALL_HINT}") from None


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
    core, nvjitlink = _linker()
    try:
        version = nvjitlink.version()
    except (RuntimeError, OSError) as error:
        raise Unsupported(f"linking kernels needs the nvJitLink library ({str(error)[:500]}); {INSTALL_HINT}") from None
    given = [part if isinstance(part, LinkPart) else LinkPart("ltoir", part) for part in parts]
    optimizes = any(part.kind == "ltoir" for part in given)  # and refused if there is none
    options = core.LinkerOptions(arch=arch, link_time_optimization=optimizes, max_register_count=max_registers)

    def make() -> bytes:
        try:
            linker = core.Linker(*(link_parts.object_code(core, part) for part in given), options=options)
            return bytes(linker.link("cubin").code)
        except Exception as error:
            raise LibraryError("nvjitlink", 0, type(error).__name__, f"linking for {arch}", str(error)[:4000]) from None

    contents = [content for part in given for content in (part.kind.encode(), part.data)]
    return cached("cubin", (b"link", arch.encode(), str((version, max_registers)).encode(), *contents), make)
