"""A cache of compiled code on disk: content-addressed, checksummed, atomic, and one maker for each key at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final

__all__ = ["cache_directory", "cached", "write_whole"]

_log = logging.getLogger("atomr_native")
_MAGIC: Final = b"atomr-native cache 1\n"
_CHECK: Final = hashlib.sha256().digest_size
#: For how long another process may take, before the value is made here too.
_PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.01

_lock = threading.Lock()
_flights: dict[tuple[str, str], Future[bytes]] = {}


def _after_fork() -> None:
    """Forget in a forked child what threads were making that it has not."""
    global _lock
    _lock = threading.Lock()
    _flights.clear()


os.register_at_fork(after_in_child=_after_fork)


def cache_directory() -> Path:
    """Return where compiled code is kept: ``$ATOMR_NATIVE_CACHE``, else the user's cache directory."""
    chosen = os.environ.get("ATOMR_NATIVE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # what is not is to be ignored, says the XDG specification
        return Path(base, "atomr_native")
    try:
        return Path.home() / ".cache" / "atomr_native"
    except RuntimeError:  # a user without a home, as in containers: where no folder can be, nothing is cached
        return Path(os.devnull, "atomr_native")


def _digest(parts: tuple[bytes, ...]) -> str:
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _load(path: Path) -> bytes | None:
    """Return a cached value, or None if there is none, or not a sound one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _CHECK
    value = data[start:]
    if value and data[:start] == _MAGIC + hashlib.sha256(value).digest():
        return value
    _log.warning("the cache entry %s is corrupt; it is made again", path)
    return None


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically; makes its folder.  Raises `OSError`."""
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


def _save(path: Path, value: bytes) -> None:
    """Put a value into the cache, whole or not at all; a cache that cannot be written is no error."""
    try:
        write_whole(path, _MAGIC + hashlib.sha256(value).digest() + value)
    except OSError as error:
        _log.warning("compiled code cannot be cached in %s: %s", path.parent, error)


@contextlib.contextmanager
def _alone(folder: Path, digest: str) -> Iterator[bool]:
    """Keep other processes from making the value of a key; yields whether one has been waited for.

    A key is one byte of a file that stays empty: locks of ranges reach beyond its end, and end with their process.
    """
    lock, unlock = (
        struct.pack("hhqqi", kind, os.SEEK_SET, int(digest[:15], 16), 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    waited = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Locks of the open file, not of the process, so that closing another one does not release them.
            file = stack.enter_context(open(folder / ".locks", "ab"))
            end = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < end:
                try:
                    fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
                    # To close it is not enough: a child that was forked meanwhile has it open, too.
                    stack.callback(fcntl.fcntl, file, fcntl.F_OFD_SETLK, unlock)
                    break
                except BlockingIOError:
                    waited = True
                    time.sleep(_POLL_SECONDS)
        yield waited


def cached(kind: str, parts: tuple[bytes, ...], make: Callable[[], bytes]) -> bytes:
    """Return the value of a key: from the disk, or made now and kept.

    Threads and processes that ask for the same at the same time share one `make`; other keys are made meanwhile.  A
    process that dies lets the next one make it; one that takes more than two minutes, or a file system without locks,
    lets each make it, and the last one's stays.  An entry that is damaged is made again.

    Parameters
    ----------
    kind : str
        Folder and suffix of the entries.
    parts : tuple of bytes
        Everything that the value depends on.
    make : callable
        Returns the value, which must not be empty.  What it raises is raised to all who wait, and nothing is kept.
    """
    key = kind, _digest(parts)
    with _lock:
        flight = _flights.get(key)
        mine = flight is None
        if flight is None:
            flight = _flights[key] = Future()
    if not mine:
        return flight.result()
    try:
        path = cache_directory() / kind / key[1][:2] / f"{key[1]}.{kind}"
        value = _load(path)
        if value is None:
            with _alone(path.parent.parent, key[1]) as waited:
                value = _load(path) if waited else None
                if value is None:
                    value = make()
                    _save(path, value)
        flight.set_result(value)
        return value
    except BaseException as error:
        flight.set_exception(error)
        raise
    finally:
        with _lock:
            del _flights[key]
