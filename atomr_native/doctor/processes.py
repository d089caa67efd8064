"""Checks of the runtime's requirements for the kernel, each with a real second process."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from .model import Check
from .subprocesses import command

__all__ = ["PROCESS_CHECKS", "kernel_checks"]

_NBYTES = 1 << 16
_TIMEOUT = 20.0
_FUTEX_WAKE = 1
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}
# fcntl.F_SEAL_FUTURE_WRITE has a name only in newer Pythons.
_F_SEAL_FUTURE_WRITE = 0x0010


class _Failure(Exception):
    """A failed check with a known reason."""


def _memfd(nbytes: int) -> int:
    fd = os.memfd_create("atomr-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    return fd


class _Peer:
    """A second process with a socket to it; always reaped."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(_TIMEOUT)
        with theirs:
            self.process = subprocess.Popen(
                command("peer", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )

    def __enter__(self) -> _Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.channel.close()
        self.process.kill()
        with self.process:  # closes its pipe and reaps it
            pass

    def last_words(self) -> _Failure:
        assert self.process.stderr is not None  # noqa: S101  (we asked for the pipe)
        lines = self.process.stderr.read().decode(errors="replace").strip().splitlines()
        return _Failure(f"the second process ended: {lines[-1] if lines else 'no message'}")

    def send(self, do: str, fd: int) -> None:
        try:
            socket.send_fds(self.channel, [json.dumps({"do": do, "nbytes": _NBYTES}).encode()], [fd])
        except ConnectionError:
            raise self.last_words() from None

    def answer(self) -> tuple[dict[str, object], list[int]]:
        try:
            data, fds, _, _ = socket.recv_fds(self.channel, 4096, 1)
        except TimeoutError:
            raise _Failure(f"the second process did not answer within {_TIMEOUT:g} s") from None
        except ConnectionError:
            data, fds = b"", []
        if not data:
            raise self.last_words()
        answer: dict[str, object] = json.loads(data)
        return answer, fds


def _memfd_share() -> str:
    fd = _memfd(_NBYTES)
    content = secrets.token_bytes(_NBYTES // 2)
    try:
        with mmap.mmap(fd, _NBYTES) as segment:
            segment[: len(content)] = content
        with _Peer() as peer:
            peer.send("share", fd)
            os.close(fd)
            fd = -1
            answer, fds = peer.answer()
        if not fds:
            raise _Failure("no descriptor came back over the socket")
        fd = fds[0]
        with mmap.mmap(fd, _NBYTES, prot=mmap.PROT_READ) as segment:
            returned = bytes(segment)
    finally:
        if fd >= 0:
            os.close(fd)
    if answer["sha256"] != hashlib.sha256(content).hexdigest():
        raise _Failure("the second process read other bytes than were written")
    if returned != content + content[::-1]:
        raise _Failure("the returned segment does not have the bytes that were written")
    return f"{_NBYTES} bytes exported to a second process, changed there and imported again"


def _seals() -> str:
    fd = _memfd(_NBYTES)
    try:
        with mmap.mmap(fd, _NBYTES) as segment:
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            segment[:] = content = secrets.token_bytes(_NBYTES)  # the earlier mapping stays writable
            with _Peer() as peer:
                peer.send("sealed", fd)
                answer, _ = peer.answer()
    finally:
        os.close(fd)
    refused = answer["refused"]
    assert isinstance(refused, dict)  # noqa: S101  (our own script wrote it)
    if allowed := [name for name, was_refused in refused.items() if not was_refused]:
        raise _Failure(f"F_SEAL_FUTURE_WRITE did not stop: {', '.join(allowed)}")
    if answer["sha256"] != hashlib.sha256(content).hexdigest():
        raise _Failure("the owner's writes after sealing were not seen by the second process")
    return "F_SEAL_FUTURE_WRITE: the second process can read, and cannot write in any way"


def _futex() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    number = _FUTEX_NUMBERS[os.uname().machine]
    fd = _memfd(_NBYTES)
    try:
        with mmap.mmap(fd, _NBYTES) as segment, _Peer() as peer:
            peer.send("futex", fd)
            word = ctypes.c_uint.from_buffer(segment)
            try:
                deadline = time.monotonic() + _TIMEOUT / 2
                woken = 0
                # The value never changes, so only a parked process can be counted as woken.
                while woken == 0 and time.monotonic() < deadline and peer.process.poll() is None:
                    woken = libc.syscall(
                        ctypes.c_long(number), ctypes.byref(word), ctypes.c_int(_FUTEX_WAKE), ctypes.c_int(1),
                        ctypes.c_void_p(None), ctypes.c_void_p(None), ctypes.c_uint(0)
                    )  # fmt: skip
                    if woken < 0:
                        raise _Failure(f"FUTEX_WAKE: {os.strerror(ctypes.get_errno())}")
                    time.sleep(0.001)
            finally:
                del word
            answer, _ = peer.answer()
    finally:
        os.close(fd)
    if woken != 1 or answer["error"]:
        raise _Failure(f"the second process was not woken: {answer['error'] or 'it never waited'}")
    return "a process that may only read the page waited on it and was woken"


def _pidfd() -> str:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL
    )
    try:
        fd = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if poll.poll(0):
                raise _Failure("the pidfd of a living process reads as ended")
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            if not poll.poll(_TIMEOUT * 1000):
                raise _Failure("the end of the process was not reported")
        finally:
            os.close(fd)
    finally:
        process.kill()
        process.wait()
    return "the death of a process was signalled and seen through its pidfd"


def _eventfd() -> str:
    fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(0):
            raise _Failure("a fresh eventfd reads as signalled")
        os.eventfd_write(fd, 3)
        if not poll.poll(1000) or os.eventfd_read(fd) != 3:
            raise _Failure("a write was not seen by poll and read")
    finally:
        os.close(fd)
    return "written, polled and read"


#: Checks by key: title and function.
PROCESS_CHECKS: dict[str, tuple[str, Callable[[], str]]] = {
    "memfd_share": ("memory segment shared", _memfd_share),
    "seals": ("memory seals", _seals),
    "futex": ("futex across processes", _futex),
    "pidfd": ("pidfd", _pidfd),
    "eventfd": ("eventfd", _eventfd),
}


def kernel_checks() -> list[Check]:
    """Run every check of this module and return the outcomes; starts and reaps a few short processes."""
    checks = []
    for name, (title, attempt) in PROCESS_CHECKS.items():
        try:
            checks.append(Check(name, title, "ok", attempt()))
        except (_Failure, OSError) as error:
            checks.append(Check(name, title, "failed", str(error)))
        except (AttributeError, KeyError) as error:
            # A Python built without the call, or an architecture whose system call numbers are unknown here.
            checks.append(Check(name, title, "failed", f"not on this platform: {error}"))
    return checks
