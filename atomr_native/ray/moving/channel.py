"""A connection between two processes of a cluster: small messages, descriptors, and bytes of arrays."""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct

import msgspec

__all__ = ["Bytes", "Call", "Channel", "Copied", "End", "Offer", "Push", "Refused", "Result", "Take"]

PATIENCE = 10.0  # seconds for each part of a greeting
_SILENCE = 15  # seconds after which a machine that does not answer is taken to have ended
_LONGEST = 1 << 31  # bytes of a message
_LENGTH = struct.Struct(">I")
_NONCE = 32

Bytes = memoryview


class Take(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Ask for an array: by a descriptor of its memory, or of host memory; or by its bytes.

    `steady`: of a copy, which no message writes meanwhile.  `part`: its first element, and the number of elements, in C
    order.
    """

    key: str
    how: str  # "memory", "host", "bytes", "nixl"
    steady: bool = False
    part: tuple[int, int] | None = None


class Offer(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A contiguous array in a segment of memory, whose descriptor comes along the first time; 0: its bytes follow."""

    shape: tuple[int, ...]
    dtype: str
    kind: str = "host"
    uuid: str = ""
    segment: int = 0
    nbytes: int = 0  # of the segment
    start: int = 0  # of the first element
    once: bool = False  # the segment has nothing else
    agent: bytes = b""  # of kind "nixl": what its agent says of the memory, which is at `start`
    gone: tuple[int, ...] = ()  # segments that are no more


class Refused(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """An error, pickled."""

    error: bytes


class Copied(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The receiver has read the memory."""


class End(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The end of a transfer; `whole` if no message has written the array meanwhile."""

    whole: bool


class Call(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Call the process; what and with what is in the bytes."""

    data: bytes


class Push(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A call with bytes of an array: those of host memory whose descriptor comes along, or else they follow."""

    data: bytes
    nbytes: int


class Result(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The result of a call."""

    data: bytes


Message = Take | Offer | Refused | Copied | End | Call | Push | Result
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Channel:
    """One end of a connection.  One thread uses it at a time; `close` may be called by any."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        if connection.family == socket.AF_INET:
            for level, option, value in (
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE),
            ):
                connection.setsockopt(level, option, value)

    def greet(self, secret: bytes, *, first: bool) -> bool:
        """Prove to the other end that this one knows the secret; return whether that one does.

        Raises
        ------
        OSError
            If the connection ends, or nothing comes for ten seconds.
        """
        self._socket.settimeout(PATIENCE)
        mine, ours, theirs = os.urandom(_NONCE), b"first", b"second"
        if not first:
            ours, theirs = theirs, ours
        self._socket.sendall(mine)
        yours = self._exactly(_NONCE)
        self._socket.sendall(hmac.digest(secret, ours + yours, "sha256"))
        good = hmac.compare_digest(self._exactly(32), hmac.digest(secret, theirs + mine, "sha256"))
        self._socket.settimeout(None)
        return good

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message, and a descriptor with it."""
        data = _encode(message)
        data = _LENGTH.pack(len(data)) + data
        if fd is None:
            self._socket.sendall(data)
            return
        sent = socket.send_fds(self._socket, [data], [fd])
        self._socket.sendall(data[sent:])

    def receive(self) -> tuple[Message, int | None]:
        """Wait for a message; return it with the descriptor that came along, which is the caller's.

        Raises
        ------
        OSError
            If the connection has ended; a message that is none counts as its end.
        """
        fd = None
        if self._socket.family == socket.AF_UNIX:
            data, fds, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1, socket.MSG_CMSG_CLOEXEC)
            fd = fds[0] if fds else None
        else:
            data = self._exactly(_LENGTH.size)
        try:
            data += self._exactly(_LENGTH.size - len(data)) if data else b""
            if not data:
                raise ConnectionResetError("the other process has ended the connection")
            (length,) = _LENGTH.unpack(data)
            if length > _LONGEST:
                raise ConnectionAbortedError(f"a message of {length} bytes")
            return _decode(self._exactly(length)), fd
        except BaseException as error:
            if fd is not None:
                os.close(fd)
            if isinstance(error, msgspec.DecodeError):
                raise ConnectionAbortedError(f"a message that cannot be read: {error}") from None
            raise

    def send_bytes(self, view: Bytes) -> None:
        """Send bytes of an array."""
        self._socket.sendall(view)

    def receive_into(self, view: Bytes) -> None:
        """Receive as many bytes as the view has.  Raises as `receive`."""
        at = 0
        while at < len(view):
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionResetError("the other process has ended the connection")
            at += count

    def close(self) -> None:
        """End the connection, also a wait in it.  Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        found = bytearray(count)
        self.receive_into(memoryview(found))
        return bytes(found)
