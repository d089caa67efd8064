"""Code linked into Numba kernels: ``@cuda.jit(link=[...])`` and ``cuda.declare_device(..., link=...)``.

CUDA C++ is compiled by NVRTC to LTO-IR, through the cache on disk; other code goes to nvJitLink unchanged.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InvalidRequest
from . import nvrtc

__all__ = ["LinkPart", "from_file", "prepared"]

#: Kinds of files, by suffix.
_KINDS: Final = {".cu": "cu", ".ptx": "ptx", ".ltoir": "ltoir", ".a": "library", ".cubin": "cubin"}
_OPTIONS: Final = ("--std=c++17",)


@dataclass(frozen=True, slots=True, order=True)
class LinkPart:
    """Code to link.

    Attributes
    ----------
    kind : str
        ``"cu"`` (CUDA C++), ``"ltoir"``, ``"ptx"``, ``"library"`` or ``"cubin"``.
    data : bytes
    name : str
        Name for messages.
    folder : str
        Folder for quoted includes of CUDA C++; empty for none.
    """

    kind: str
    data: bytes
    name: str = ""
    folder: str = ""


def from_file(path: str | os.PathLike[str]) -> LinkPart:
    """Return a file as code to link.

    Raises
    ------
    InvalidRequest
        If its kind is unknown, or it cannot be read.
    """
    file = Path(path)
    kind = _KINDS.get(file.suffix)
    if kind is None:
        raise InvalidRequest(f"link has {str(path)!r}; allowed: files with the suffixes {', '.join(_KINDS)}")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"link has {str(path)!r}, which cannot be read: {error}") from None
    quotes = kind == "cu" and b'#include "' in data
    return LinkPart(kind, data, file.name, str(file.parent.resolve()) if quotes else "")


def prepared(part: LinkPart, arch: str) -> LinkPart:
    """Return a part in a form for nvJitLink: CUDA C++ as LTO-IR, by NVRTC or from the disk cache.

    Raises
    ------
    LibraryError
        If it does not compile; the message has the log.
    """
    if part.kind != "cu":
        return part
    include = [folder for folder in (part.folder, *nvrtc.toolkit_headers()) if folder]
    program = nvrtc.compile_program(
        part.data.decode(errors="replace"), arch, options=_OPTIONS, include=include, output="ltoir"
    )
    return LinkPart("ltoir", program.code, part.name)
