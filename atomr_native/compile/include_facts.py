"""Facts about headers for the key of a compiled source: names, sizes and modification times.

They cover every file in the include folders, and every file included by a literal name, which may lie outside these
folders: by an absolute path, ``..``, or a symbolic link.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..errors import InvalidRequest

__all__ = ["include_facts"]

_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def include_facts(texts: Iterable[str], folders: Iterable[str], options: Sequence[str]) -> list[str]:
    """Return the facts about the headers of sources.

    Parameters
    ----------
    texts : iterable of str
        The source, and headers given as texts.
    folders : iterable of str
    options : sequence of str
        Options of NVRTC, which may name further folders and files.

    Raises
    ------
    InvalidRequest
        If one of the folders does not exist.
    """
    given = list(folders)
    for folder in given:
        if not os.path.isdir(folder):
            raise InvalidRequest(f"include folder {folder!r} does not exist")
    given += [folder for folder in _values(options, ("-I", "--include-path")) if os.path.isdir(folder)]
    found = [hashlib.sha256(_joined(_files(folder, ""))).hexdigest() for folder in given]
    first = [name for text in texts for name in _names(text.encode(errors="replace"))]
    for name in _values(options, ("-include", "--pre-include")):
        first += [(os.fsencode(os.path.abspath(name)), b""), (os.fsencode(name), b"")]
    return [*found, hashlib.sha256(_joined(_included(first, [os.fsencode(folder) for folder in given]))).hexdigest()]


def _joined(lines: Iterable[str]) -> bytes:
    return os.fsencode("".join(sorted(lines)))


def _values(options: Sequence[str], names: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of options, in all forms that NVRTC accepts."""
    for option, following in itertools.pairwise((*options, "")):
        for name in names:
            if option.startswith(name):
                yield option.removeprefix(name).lstrip(" =") or following


def _files(folder: str, below: str) -> Iterator[str]:
    """Yield a line for each file of a folder and its subfolders; thousands of files take milliseconds."""
    try:
        entries = list(os.scandir(folder))
    except PermissionError:  # the compiler cannot read it, either
        return
    for entry in entries:
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, name + "/")
        else:
            with contextlib.suppress(OSError):  # a dangling or cyclic link
                yield _line(name, entry.stat())


def _line(name: str, found: os.stat_result) -> str:
    return f"{name}\0{found.st_size}\0{found.st_mtime_ns}\0"


def _included(first: list[tuple[bytes, bytes]], folders: list[bytes]) -> Iterator[str]:
    """Yield a line for each file that is included, directly or indirectly, by a literal name."""
    seen: set[tuple[int, int]] = set()
    asked: set[tuple[bytes, bytes]] = set()
    left = [(b"", *names) for names in first]
    while left:
        folder, quoted, angled = left.pop()
        asking = (folder if quoted else b"", quoted or angled)
        if asking in asked:
            continue
        asked.add(asking)
        for place in [folder, *folders] if quoted and folder else folders or [b"/"]:
            path = os.path.join(place, asking[1])
            try:
                found = os.stat(path)
            except (OSError, ValueError):
                continue
            if (found.st_dev, found.st_ino) not in seen and stat.S_ISREG(found.st_mode):
                seen.add((found.st_dev, found.st_ino))
                yield _line(os.fsdecode(path), found)
                left += [(os.path.dirname(path), *names) for names in _names_of(path, found.st_size, found.st_mtime_ns)]
            break


@functools.lru_cache(maxsize=8192)
def _names_of(path: bytes, _size: int, _time: int) -> tuple[tuple[bytes, bytes], ...]:
    try:
        with open(path, "rb") as file:
            return _names(file.read())
    except OSError:
        return ()


def _names(text: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the names that a text includes, in quotes or in angle brackets."""
    return tuple((found[1] or b"", found[2] or b"") for found in _INCLUDE.finditer(text))
