"""Code that Numba kernels are linked with: ``@cuda.jit(link=[...])`` and ``cuda.declare_device(..., link=...)``.

CUDA C++ is compiled by NVRTC to LTO-IR, through the cache on disk; everything else goes to nvJitLink as it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import _nvrtc
from .errors import InvalidRequest

__all__ = ["LinkPart", "from_file", "object_code", "prepared"]

#: What a file is, by the end of its name.
_KINDS: Final = {".cu": "cu", ".ptx": "ptx", ".ltoir": "ltoir", ".a": "library", ".cubin": "cubin"}
_OPTIONS: Final = ("--std=c++17",)


@dataclass(frozen=True, slots=True, order=True)
class LinkPart:
    """Something to link with.

    Attributes
    ----------
    kind : str
        ``"cu"`` (CUDA C++), ``"ltoir"``, ``"ptx"``, ``"library"`` or ``"cubin"``.
    data : bytes
    name : str
        For messages.
    folder : str
        Where quoted includes of CUDA C++ are looked for; empty: nowhere.
    """

    kind: str
    data: bytes
    name: str = ""
    folder: str = ""


def from_file(path: str | os.PathLike[str]) -> LinkPart:
    """Return a file as something to link with.

    Raises
    ------
    InvalidRequest
        If it is of no known kind, or cannot be read.
    """
    file = Path(path)
    kind = _KINDS.get(file.suffix)
    if kind is None:
        raise InvalidRequest(f"link has {str(path)!r}; allowed are files that end in {', '.join(_KINDS)}")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"link has {str(path)!r}, which cannot be read: {error}") from None
    quotes = kind == "cu" and b'#include "' in data
    return LinkPart(kind, data, file.name, str(file.parent.resolve()) if quotes else "")


def prepared(part: LinkPart, arch: str) -> LinkPart:
    """Return a part as nvJitLink takes it: CUDA C++ as LTO-IR, by NVRTC or from the disk cache.

    Raises
    ------
    LibraryError
        If it does not compile: with its log.
    """
    if part.kind != "cu":
        return part
    include = [folder for folder in (part.folder, *_nvrtc.toolkit_headers()) if folder]
    program = _nvrtc.compile_program(
        part.data.decode(errors="replace"), arch, options=_OPTIONS, include=include, output="ltoir"
    )
    return LinkPart("ltoir", program.code, part.name)


def object_code(core: Any, part: LinkPart) -> Any:
    """Return a part as an object of `cuda.core`, which makes of it what nvJitLink takes."""
    return getattr(core.ObjectCode, f"from_{part.kind}")(part.data)
