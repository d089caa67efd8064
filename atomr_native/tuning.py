"""What tuning has found: one small file for each matmul in the cache directory, and files to ship.

An entry says which algorithm of one version of cuBLASLt was the fastest for one matmul on one kind of GPU.  Its name is
the hash of what it is for, its content carries a checksum, and it is written whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from .disk_cache import cache_directory, write_whole
from .errors import InvalidRequest

__all__ = ["ProgressBar", "TuningStore", "as_progress", "read_file", "write_file"]

_FORMAT: Final = "atomr-native tuning 1"
_LARGEST: Final = 64 << 20
_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "library": int,
    "gpu": dict,
    "description": list,
    "algorithm": list,
    "workspace": int,
    "microseconds": (int, float),
    "heuristic_microseconds": (int, float),
    "config": dict,
}


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _checksum(entry: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical({k: v for k, v in entry.items() if k != "checksum"})).hexdigest()


def _key(library: int, gpu: dict[str, Any], description: list[int]) -> str:
    return hashlib.sha256(_canonical([_FORMAT, library, gpu, description])).hexdigest()


def _valid(entry: object) -> dict[str, Any] | None:
    """Return an entry if it is sound."""
    if not isinstance(entry, dict) or entry.get("checksum") != _checksum(entry):
        return None
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind) or isinstance(entry.get(name), bool):
            return None
    algorithm, description = entry["algorithm"], entry["description"]
    words = [*algorithm, *description]
    if len(algorithm) != 8 or not all(type(word) is int and -(2**63) <= word < 2**64 for word in words):
        return None
    return entry


class TuningStore:
    """Entries on disk, under the cache directory.

    Parameters
    ----------
    folder : Path, optional
        Where; ``tuning`` in the cache directory by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_directory() / "tuning"

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def find(self, library: int, gpu: dict[str, Any], description: list[int]) -> dict[str, Any] | None:
        """Return the entry of a matmul, or None if there is none, or no sound one."""
        try:
            entry = _valid(json.loads(self._path(_key(library, gpu, description)).read_bytes()))
        except (OSError, ValueError):
            return None
        if entry is None or (entry["library"], entry["gpu"], entry["description"]) != (library, gpu, description):
            return None
        return entry

    def keep(self, entry: dict[str, Any]) -> None:
        """Write an entry, whole or not at all.  Raises `OSError` if it cannot be written."""
        entry = {**entry, "checksum": _checksum(entry)}
        path = self._path(_key(entry["library"], entry["gpu"], entry["description"]))
        write_whole(path, _canonical(entry))

    @contextlib.contextmanager
    def single_flight(self, library: int, gpu: dict[str, Any], description: list[int]) -> Iterator[None]:
        """Hold the right to measure a matmul, among all processes with this cache.

        A cache that cannot be written gives it to everybody.
        """
        path = self._path(_key(library, gpu, description)).with_suffix(".lock")
        fd = -1
        try:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                os.close(fd)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield every sound entry."""
        for path in sorted(self.folder.glob("*/*.json")):
            try:
                entry = _valid(json.loads(path.read_bytes()))
            except (OSError, ValueError):
                continue
            if entry is not None:
                yield entry


def write_file(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write a tuning file to ship."""
    body = {"format": _FORMAT, "entries": entries}
    write_whole(path, json.dumps({**body, "checksum": _checksum(body)}, indent=1, sort_keys=True).encode() + b"\n")


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read a tuning file.

    Raises
    ------
    InvalidRequest
        If it is none, is damaged, or is of another format.
    """
    if path.stat().st_size > _LARGEST:
        raise InvalidRequest(f"{path} has {path.stat().st_size} bytes; a tuning file has at most {_LARGEST}")
    try:
        body = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidRequest(f"{path} is no tuning file: {error}") from None
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        found = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise InvalidRequest(f"{path} has format {found!r}; allowed: {_FORMAT!r}")
    listed = body.get("entries")
    if body.get("checksum") != _checksum(body) or not isinstance(listed, list):
        raise InvalidRequest(f"{path} is damaged: its checksum does not fit; export it again")
    entries = [_valid(entry) for entry in listed]
    if None in entries:
        raise InvalidRequest(f"{path} is damaged: entry {entries.index(None)} is not sound; export it again")
    return [entry for entry in entries if entry is not None]


class ProgressBar:
    """A bar in the terminal, from the first step that it is told of to the last one, or `close`."""

    def __init__(self) -> None:
        from rich.progress import Progress

        self._bar = Progress()
        self._task = self._bar.add_task("tuning a matmul")

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show how far tuning has got, and what it has just measured."""
        self._bar.start()
        self._bar.update(self._task, completed=done, total=total, description=f"tuning a matmul: {what[:40]}")
        if done >= total:
            self._bar.stop()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def as_progress(wanted: object) -> Callable[[int, int, str], object]:
    """Return who is told of progress: a function that was given, or a bar.

    Raises
    ------
    InvalidRequest
        If it is neither a function nor True.
    """
    if callable(wanted):
        return wanted
    if wanted is not True:
        raise InvalidRequest(f"progress={wanted!r}; allowed: True, False, None, or a function of (done, total, what)")
    return ProgressBar()
