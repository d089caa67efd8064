"""The other process of the shared-memory checks; its argument is the descriptor of a socket.

It receives one message, a JSON object with a memfd, executes its ``"do"`` and answers in JSON.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import mmap
import os
import socket
import sys

FUTEX_WAIT = 0
FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}


class Timespec(ctypes.Structure):
    """C's ``struct timespec`` on 64-bit Linux."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def share(fd: int, nbytes: int) -> tuple[dict[str, object], list[int]]:
    """Read the first half, write its bytes reversed into the second, and send the segment back."""
    with mmap.mmap(fd, nbytes) as segment:
        half = nbytes // 2
        digest = hashlib.sha256(segment[:half]).hexdigest()
        segment[half:] = segment[:half][::-1]
    return {"sha256": digest}, [fd]


def sealed(fd: int, nbytes: int) -> tuple[dict[str, object], list[int]]:
    """Try every way to a writable view of a segment sealed against future writes."""
    refused = {}
    with mmap.mmap(fd, nbytes, prot=mmap.PROT_READ) as segment:
        digest = hashlib.sha256(segment).hexdigest()

    def map_writable() -> None:
        mmap.mmap(fd, nbytes).close()

    def write() -> None:
        os.pwrite(fd, b"x", 0)

    def reopen_and_map() -> None:
        mmap.mmap(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), nbytes).close()

    for name, attempt in {"map": map_writable, "write": write, "reopen": reopen_and_map}.items():
        try:
            attempt()
            refused[name] = False
        except OSError as error:
            refused[name] = error.errno in (errno.EPERM, errno.EACCES)
    return {"sha256": digest, "refused": refused}, []


def futex(fd: int, nbytes: int) -> tuple[dict[str, object], list[int]]:
    """Wait on a read-only mapping until the other process wakes this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    ]  # fmt: skip
    address = libc.mmap(None, nbytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return {"error": f"mmap: {os.strerror(ctypes.get_errno())}"}, []
    libc.syscall.restype = ctypes.c_long
    number = FUTEX_NUMBERS[os.uname().machine]
    timeout = Timespec(10, 0)
    status = libc.syscall(
        ctypes.c_long(number), ctypes.c_void_p(address), ctypes.c_int(FUTEX_WAIT), ctypes.c_uint(0),
        ctypes.byref(timeout), ctypes.c_void_p(None), ctypes.c_uint(0)
    )  # fmt: skip
    return {"status": status, "error": os.strerror(ctypes.get_errno()) if status else None}, []


def main() -> None:
    """Serve one request on the socket whose descriptor is the first argument."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        data, fds, _, _ = socket.recv_fds(channel, 4096, 1)
        request = json.loads(data)
        do = {"share": share, "sealed": sealed, "futex": futex}[request["do"]]
        answer, descriptors = do(fds[0], request["nbytes"])
        socket.send_fds(channel, [json.dumps(answer).encode()], descriptors)
