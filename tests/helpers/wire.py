"""Sockets, frames and descriptors by hand, for tests of the control plane."""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from atomr_native.protocol.frames import Frame, FrameReader, FrameWriter


def open_fds() -> set[int]:
    """Return the descriptors of this process, without those that only the garbage of earlier tests holds."""
    gc.collect()
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.add(int(name))
    return found


def until(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """Wait for a condition; whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def send(sock: socket.socket, fields: dict[str, Any], fds: tuple[int, ...] = (), blob: bytes = b"") -> None:
    """Send one frame."""
    writer = FrameWriter(sock)
    writer.push(fields, fds, blob)
    while not writer.flush():
        select.select([], [sock], [], 1)


def receive(reader: FrameReader, sock: socket.socket, seconds: float = 30.0) -> Frame:
    """Receive one frame."""
    deadline = time.monotonic() + seconds
    while (frame := reader.read()) is None:
        assert time.monotonic() < deadline
        select.select([sock], [], [], 0.1)
    return frame


def raw(sock: socket.socket, data: bytes, fds: tuple[int, ...] = ()) -> None:
    """Send bytes that need be no frame."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights)
