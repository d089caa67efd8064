"""CUTLASS's headers, found beside the package that brings them, and their versions."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from pathlib import Path
from typing import Final, NamedTuple

from ..._support.extras import CUDA, how_to_install
from ...errors import Unsupported
from .. import nvrtc
from . import overlay

__all__ = ["VERSION", "Headers", "headers"]

#: The version whose headers are changed in memory.
VERSION: Final = (4, 2)
_MACRO: Final = re.compile(
    r"^#\s*define\s+(CUTLASS_(?:MAJOR|MINOR|PATCH)|CCCL_VERSION|CUDART_VERSION)\s+(\d+)", re.MULTILINE
)
_VERSIONED: Final = ("cuda_runtime_api.h", "cuda/std/__cccl/version.h")


class Headers(NamedTuple):
    """What sources are compiled with.

    Attributes
    ----------
    folders : tuple of str
        Folders for includes.
    texts : dict of str to str
        Headers that are handed over as texts.
    digest : str
        Of the texts, of CUTLASS's headers, and of the versions of all others.
    """

    folders: tuple[str, ...]
    texts: dict[str, str]
    digest: str


def _folder() -> Path:
    """Return the folder of CUTLASS's headers.

    Raises
    ------
    Unsupported
        If the package nvidia-cutlass is not installed.
    """
    found = importlib.util.find_spec("cutlass_library")  # which is not imported: it imports much
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        folder = Path(place, "source", "include")
        if (folder / "cutlass" / "version.h").is_file():
            return folder
    raise Unsupported(f"CUTLASS needs the headers of nvidia-cutlass, which is not installed; {how_to_install(*CUDA)}")


def _macros(path: Path) -> dict[str, int]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: int(value) for name, value in _MACRO.findall(text)}


def _with_parents(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return folders of CUDA's headers, and those that CCCL lies in: CUTLASS includes ``cccl/cuda/std/...``."""
    parents = [str(Path(folder).parent) for folder in folders if Path(folder).name == "cccl"]
    return tuple(dict.fromkeys((*folders, *parents)))


@functools.cache
def headers() -> Headers:
    """Return the headers for NVRTC, CUTLASS's ones changed.

    Raises
    ------
    Unsupported
        If nvidia-cutlass or CUDA's own headers are not installed, or CUTLASS has another version.
    """
    folder = _folder()
    found = _macros(folder / "cutlass" / "version.h")
    version = found.get("CUTLASS_MAJOR"), found.get("CUTLASS_MINOR")
    if version != VERSION:
        raise Unsupported(f"CUTLASS is {version[0]}.{version[1]}; allowed: {VERSION[0]}.{VERSION[1]}")
    toolkit = _with_parents(nvrtc.toolkit_headers())
    versions: dict[str, int] = {}
    for place in toolkit:
        for name in _VERSIONED:
            versions |= _macros(Path(place, name))
    if not {"CCCL_VERSION", "CUDART_VERSION"} <= versions.keys():
        raise Unsupported(f"CUTLASS needs the headers of the CUDA runtime and of CCCL; {how_to_install(*CUDA)}")
    texts = overlay.changed(folder)
    digest = hashlib.sha256(f"{overlay.digest(texts)} {sorted(versions.items())}\n".encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(data)}\n".encode() + data)
    return Headers((str(folder), *toolkit), texts, digest.hexdigest())
