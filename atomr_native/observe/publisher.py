"""Snapshots of a System for other processes of this user, on request."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from .._lib.guard import Lock
from ..errors import ActorStopped
from ..system import System, state_of
from .snapshot import Snapshot, check_system, snapshot
from .sockets import listening

__all__ = ["Publisher", "publish"]

_log = logging.getLogger("atomr_native.observe")
_PATIENCE = 2.0  # timeout of a reader for each part, seconds
_publishers: weakref.WeakKeyDictionary[System, Publisher] = weakref.WeakKeyDictionary()
_lock = Lock()


class Source(Protocol):
    """A System, or an object with as much of it as a publisher uses."""

    @property
    def token(self) -> str:
        """Identifies it; the socket's name begins with that."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""


class Publisher:
    """A socket of mode 0600, in a folder of mode 0700, that sends snapshots to clients; made by `publish`.

    One thread serves one reader after the other.  Without readers it computes nothing.

    Attributes
    ----------
    path : pathlib.Path
        The socket.
    """

    def __init__(self, system: Source, take: Callable[[Any], Snapshot] = snapshot) -> None:
        self._system = weakref.ref(system)
        self._take = take
        self._pid = os.getpid()
        self._socket, self.path = listening(f"{self._pid}-{system.token[:8]}.sock")
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="atomr_native-observe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and remove the socket.  Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if os.getpid() != self._pid:  # forked: the socket's file belongs to the parent
                return
            os.eventfd_write(self._wake, 1)  # before the thread, which may be running, closes it
        with contextlib.suppress(OSError):
            self.path.unlink()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def abandon(self) -> None:
        """In a forked child: close the descriptors; the socket's file belongs to the parent.  Idempotent."""
        self._lock = Lock()
        if not self._closed:
            self._socket.close()
            os.close(self._wake)
            self._closed = True

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        try:
            while not self._closed:
                poller.poll()
                if not self._closed and not self._serve():
                    self.close()
        finally:
            with self._lock:
                self._socket.close()
                os.close(self._wake)

    def _serve(self) -> bool:
        """Serve one reader; return False if the System is gone."""
        system = self._system()
        if system is None or system.closed:
            return False
        try:
            self._socket.settimeout(0)
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(_PATIENCE)
                if _user_of(connection) in (os.getuid(), 0):
                    connection.sendall(json.dumps(self._take(system)).encode())
        except OSError:  # the reader has disconnected, or does not read
            pass
        except Exception:
            _log.exception("a snapshot could not be sent")
        return True

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Publisher {str(self.path)!r}{', closed' if self._closed else ''}>"


def publish(system: System) -> Publisher:
    """Let this user's other processes read a System's snapshots, as ``python -m atomr_native top`` does.

    The same as ``System(observe=True)``; for a published System, return its publisher.

    Raises
    ------
    InvalidRequest
        If `system` is no System.
    ActorStopped
        If the System is closed.
    Unsupported
        If there is no private folder of this user for the socket; see docs/observability.md.
    """
    check_system(system)
    with _lock:
        found = _publishers.get(system)
        if found is not None and not found.closed:
            return found
        if system.closed:
            raise ActorStopped("this System is closed; make a new one")
        made = _publishers[system] = Publisher(system)
    weakref.finalize(system, made.close)
    state_of(system).closers.append(made.close)
    return made


def _user_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def _forked() -> None:
    """In a child: close the descriptors, so readers of a dead parent are refused at once."""
    for publisher in list(_publishers.values()):
        publisher.abandon()


os.register_at_fork(after_in_child=_forked)
