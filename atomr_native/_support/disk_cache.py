"""A cache of compiled code on disk: content-addressed, checksummed, atomic, bounded, with shared compilation.

Entries are ``<kind>/<two digits>/<64 digits>.<kind>`` in the cache directory.  A hit sets an entry's modification time,
and the least recently used entries are removed when all of them exceed ``$ATOMR_NATIVE_CACHE_SIZE``.  The file
``.size`` holds their total size, so a new entry needs no scan.  If the total is wrong, as after a crash or a manual
deletion, the next scan corrects it.

The FileStreamProgramCache of cuda.core 1.2 does not replace this store: it exists only beside CUDA, does not detect
damaged entries, keeps machine code without its lowered names, and scans the folder in every process that opens it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from .._lib.guard import Lock
from ..errors import InvalidRequest
from .locks import exclusive

__all__ = ["cache_directory", "cached", "discard", "size_limit", "write_whole"]

_log = logging.getLogger("atomr_native")
_MAGIC: Final = b"atomr-native cache 1\n"
_CHECK: Final = hashlib.sha256().digest_size
_SIZE_VARIABLE: Final = "ATOMR_NATIVE_CACHE_SIZE"
_DEFAULT_SIZE: Final = 4 << 30
#: Fraction of the limit that an eviction leaves, so the next entry does not cause another eviction.
_FILL: Final = 0.9
#: Seconds to wait for the lock of the total; then this process proceeds, and the total may miss an entry.
_SIZE_PATIENCE_SECONDS: Final = 1.0
#: Seconds after which the total is recomputed, and an unfinished file counts as abandoned.
_SIZE_AGE: Final = 86400.0
_UNFINISHED_AGE: Final = 3600.0

_lock = Lock()
_flights: dict[tuple[str, str], Future[bytes]] = {}

os.register_at_fork(after_in_child=_flights.clear)  # the parent's threads, whose work they are, do not exist there


def cache_directory() -> Path:
    """Return the folder of compiled code: ``$ATOMR_NATIVE_CACHE``, else the user's cache directory.

    For a user without a home directory, as in containers, the path cannot exist, so nothing is cached.
    """
    chosen = os.environ.get("ATOMR_NATIVE_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs

    try:
        return platformdirs.user_cache_path("atomr_native", appauthor=False)
    except RuntimeError:
        return Path(os.devnull, "atomr_native")


def _digest(parts: tuple[bytes, ...]) -> str:
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _load(path: Path) -> bytes | None:
    """Return a cached value, or None if there is no sound one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _CHECK
    value = data[start:]
    if value and data[:start] == _MAGIC + hashlib.sha256(value).digest():
        with contextlib.suppress(OSError):
            os.utime(path)
        return value
    _log.warning("the cache entry %s is corrupt; it is made again", path)
    return None


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically; create its folder.  Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _save(root: Path, path: Path, value: bytes) -> None:
    """Store a value completely or not at all; an unwritable cache is not an error."""
    limit = size_limit()
    data = _MAGIC + hashlib.sha256(value).digest() + value
    if len(data) > limit:
        return
    try:
        write_whole(path, data)
        _account(root, len(data), limit)
    except OSError as error:
        _log.warning("compiled code cannot be cached in %s: %s", path.parent, error)


def size_limit() -> int:
    """Return the limit of all entries in bytes: ``$ATOMR_NATIVE_CACHE_SIZE``, 4 GiB by default.

    Raises
    ------
    InvalidRequest
        If the variable is not a number of bytes.
    """
    text = os.environ.get(_SIZE_VARIABLE, "")
    if not text:
        return _DEFAULT_SIZE
    if not re.fullmatch("[0-9]{1,18}", text):
        raise InvalidRequest(f"{_SIZE_VARIABLE}={text!r}; allowed: a number of bytes, 0 to keep nothing more")
    return int(text)


class _Entry(NamedTuple):
    used: int  # nanoseconds
    nbytes: int
    path: str


def _entries(root: Path) -> Iterator[_Entry]:
    """Yield all entries; remove unfinished files of dead processes."""
    kinds = [kind for kind in _folders(root) if os.path.exists(os.path.join(kind.path, ".locks"))]
    for kind in kinds:
        name = re.compile(rf"[0-9a-f]{{64}}\.{re.escape(kind.name)}")
        for shard in _folders(kind.path):
            with contextlib.suppress(OSError), os.scandir(shard.path) as files:
                for file in files:
                    with contextlib.suppress(OSError):  # another process has removed it
                        if name.fullmatch(file.name):
                            found = file.stat(follow_symlinks=False)
                            yield _Entry(found.st_mtime_ns, found.st_size, file.path)
                        elif _is_abandoned(file):
                            os.unlink(file.path)


def _is_abandoned(file: os.DirEntry[str]) -> bool:
    """Whether `write_whole` began a file and never finished it."""
    if not (file.name.startswith(".") and file.name.endswith(".tmp")):
        return False
    return time.time() - file.stat(follow_symlinks=False).st_mtime > _UNFINISHED_AGE


def _folders(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _evict(root: Path, limit: int) -> int:
    """Remove the least recently used entries if the total exceeds the limit; return the bytes of the rest."""
    entries = sorted(_entries(root))
    total = sum(entry.nbytes for entry in entries)
    goal = limit if total <= limit else int(_FILL * limit)
    for entry in entries:
        if total <= goal or (entry is entries[-1] and total <= limit):
            break
        with contextlib.suppress(OSError):
            if os.stat(entry.path).st_mtime_ns == entry.used:  # unless it was used or replaced meanwhile
                os.unlink(entry.path)
                total -= entry.nbytes
    return total


def _recorded(path: Path) -> tuple[int, int] | None:
    """Return the recorded total, and the time of the count; None if it is missing, or older than a day."""
    try:
        found = re.fullmatch(rb"(\d{18}) (\d{18})\n", path.read_bytes())
    except OSError:
        return None
    if found is None or not 0 <= time.time() - int(found[2]) < _SIZE_AGE:
        return None
    return int(found[1]), int(found[2])


def _record(path: Path, text: bytes) -> None:
    """Overwrite the recorded total in place, since file systems flush a truncated or replaced file: 2 ms."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size > len(text):
            os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)
    finally:
        os.close(fd)


def _account(root: Path, nbytes: int, limit: int) -> None:
    """Add a new entry to the total, and remove others if it exceeds the limit.  Raises `OSError`."""
    path = root / ".size"
    with exclusive(root, "0" * 64, _SIZE_PATIENCE_SECONDS):
        recorded = _recorded(path)
        if recorded is None or recorded[0] + nbytes > limit:
            recorded = _evict(root, limit), int(time.time())
        else:
            recorded = recorded[0] + nbytes, recorded[1]
        _record(path, b"%018d %018d\n" % recorded)


def _path(root: Path, kind: str, digest: str) -> Path:
    return root / kind / digest[:2] / f"{digest}.{kind}"


def discard(kind: str, parts: tuple[bytes, ...]) -> None:
    """Remove the value of a key, if there is one: its reader has no use for it.

    Parameters
    ----------
    kind, parts
        As in `cached`.
    """
    with contextlib.suppress(OSError):
        _path(cache_directory(), kind, _digest(parts)).unlink()


def cached(kind: str, parts: tuple[bytes, ...], make: Callable[[], bytes]) -> bytes:
    """Return the value of a key, from the disk or newly made and stored.

    Threads and processes that request the same key at the same time share one `make`; other keys are made meanwhile.
    If a process dies, the next one makes the value.  After two minutes, or on a file system without locks, each process
    makes it, and the last value stays.  A damaged entry is made again.

    Parameters
    ----------
    kind : str
        Folder and suffix of the entries.
    parts : tuple of bytes
        Everything that the value depends on.
    make : callable
        Returns the value, which must not be empty.  Its exception is raised in all waiting callers, and nothing is
        stored.

    Raises
    ------
    InvalidRequest
        If ``$ATOMR_NATIVE_CACHE_SIZE`` is not a number of bytes.
    """
    size_limit()
    key = kind, _digest(parts)
    with _lock:
        flight = _flights.get(key)
        mine = flight is None
        if flight is None:
            flight = _flights[key] = Future()
    if not mine:
        return flight.result()
    try:
        root = cache_directory()
        path = _path(root, *key)
        value = _load(path)
        if value is None:
            with exclusive(root / kind, key[1]) as contended:
                value = _load(path) if contended else None
                if value is None:
                    value = make()
                    _save(root, path, value)
        flight.set_result(value)
        return value
    except BaseException as error:
        flight.set_exception(error)
        raise
    finally:
        with _lock:
            _flights.pop(key, None)
