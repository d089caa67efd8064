"""Locks by key among all threads and processes that use a folder.

A key is one byte of one file, which stays empty and is never removed: range locks may lie beyond the end of a file, and
unlinking a lock file would split its waiters between the old and a new file.

filelock 4.2 does not replace this module: it needs a file for each key, which may never be removed, takes 110 us
instead of 22 us, and installs hooks for the whole process, before each fork and, from
Python 3.12 on, for each audit event.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PATIENCE_SECONDS", "exclusive"]

#: Default seconds to wait for a lock.
PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.01

#: Files through which threads of this process hold locks.
_holding: set[io.FileIO] = set()


def _after_fork() -> None:
    """In a forked child: close the parent's files, which would keep the locks of a dead parent."""
    while _holding:
        with contextlib.suppress(OSError):
            _holding.pop().close()


os.register_at_fork(after_in_child=_after_fork)


def _unlock(file: io.FileIO, unlock: bytes) -> None:
    if not file.closed:  # for example in a child forked under the lock
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, unlock)


@contextlib.contextmanager
def exclusive(folder: Path, digest: str, patience: float | None = None) -> Iterator[bool]:
    """Hold the lock of a key among all threads and processes that use a folder; yield whether it was contended.

    A process that dies releases its locks.  After `patience`, or on a file system without locks, the caller proceeds
    without the lock.

    Parameters
    ----------
    folder : Path
        Folder of the lock file; it is created.
    digest : str
        The key, at least 15 hexadecimal digits, which determine the byte.
    patience : float, optional
        Seconds; two minutes by default.
    """
    lock, unlock = (
        struct.pack("hhqqi", kind, os.SEEK_SET, int(digest[:15], 16), 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    contended = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Locks of the open file, not of the process: closing another file does not release them, and they exclude
            # threads, too.
            file = stack.enter_context(open(folder / ".locks", "ab", buffering=0))
            _holding.add(file)
            stack.callback(_holding.discard, file)
            end = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
            while time.monotonic() < end:
                try:
                    fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
                    # Closing is not enough while a child, forked meanwhile, still has its copy open.
                    stack.callback(_unlock, file, unlock)
                    break
                except BlockingIOError:
                    contended = True
                    time.sleep(_POLL_SECONDS)
        yield contended
