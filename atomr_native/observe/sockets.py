"""Sockets of published Systems, in a private folder of this user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from ..errors import AtomrError, Unsupported
from .snapshot import VERSION

__all__ = ["address", "folder", "listening", "published", "read"]

_NAME = re.compile(r"(\d+)-([0-9a-f]{8})\.sock")
_MOST = 64 << 20  # bytes of one snapshot


def folder() -> Path:
    """Return the folder for this user's sockets, which may not exist: ``$XDG_RUNTIME_DIR/atomr_native`` if set."""
    uid = os.getuid()
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        return Path(given) / "atomr_native"
    usual = Path(f"/run/user/{uid}")
    return usual / "atomr_native" if usual.is_dir() else Path(tempfile.gettempdir()) / f"atomr_native-{uid}"


def _open(path: Path) -> int:
    """Open the folder if it is private; the caller owns the descriptor."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(fd)
        raise Unsupported(
            f"{path} is not a private folder of this user (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}); "
            f"remove it, or set XDG_RUNTIME_DIR"
        )
    return fd


def address(fd: int, name: str) -> str:
    """Return the address of a socket in an open folder; it is short even if the folder's path is long."""
    return f"/proc/self/fd/{fd}/{name}"


def listening(name: str) -> tuple[socket.socket, Path]:
    """Return a listening socket for this user only, and its path.

    Raises
    ------
    Unsupported
        If the folder cannot be created, or is not private.
    """
    path = folder()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        fd = _open(path)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            made.bind(address(fd, name))
            os.chmod(name, 0o600, dir_fd=fd)
        finally:
            os.close(fd)
        made.listen(8)
    except OSError as error:
        made.close()
        raise Unsupported(
            f"no socket can be made in {path}: {error}; XDG_RUNTIME_DIR may name another folder"
        ) from None
    except BaseException:
        made.close()
        raise
    return made, path / name


def published() -> list[Path]:
    """Return the sockets of this user's published Systems, ordered by process id."""
    path = folder()
    try:
        os.close(_open(path))
    except OSError:
        return []
    found = [(int(match[1]), match[2], each) for each in path.iterdir() if (match := _NAME.fullmatch(each.name))]
    return [each for _, _, each in sorted(found)]


def read(path: Path, timeout: float = 5.0) -> dict[str, Any] | None:
    """Request a snapshot from a published System; if its process is gone, remove the socket and return None.

    Raises
    ------
    AtomrError
        If it does not answer within `timeout` seconds, or not with a snapshot.
    """
    deadline = time.monotonic() + timeout
    chunks: list[bytes] = []
    size = 0
    try:
        fd = _open(path.parent)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(address(fd, path.name))
            while True:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = connection.recv(1 << 16)
                if not chunk:
                    break
                size += len(chunk)
                if size > _MOST:
                    raise AtomrError(f"{path.name} sends more than {_MOST} bytes")
                chunks.append(chunk)
    except ConnectionRefusedError:  # its process is gone
        with contextlib.suppress(OSError):
            os.unlink(path.name, dir_fd=fd)
        return None
    except (FileNotFoundError, ConnectionResetError, BrokenPipeError):
        return None
    except TimeoutError:
        raise AtomrError(f"{path.name} did not answer within {timeout:g} s; its process may be stopped") from None
    finally:
        os.close(fd)
    if not chunks:  # it was closed just then
        return None
    try:
        told = json.loads(b"".join(chunks))
    except ValueError:
        told = None
    version = told.get("version") if isinstance(told, dict) else None
    if not isinstance(told, dict) or version != VERSION:
        raise AtomrError(f"{path.name} sends version {version!r}; this is {VERSION}: use the same atomr_native")
    return told
