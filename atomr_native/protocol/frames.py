"""Frames of the control plane: a header, JSON, an optional blob, and descriptors.

The transport is an AF_UNIX stream socket.  A frame is a header of 16 bytes (magic, length of the JSON, length of the
blob, number of descriptors; little-endian u32), then UTF-8 JSON, then the blob.  Descriptors ride as ``SCM_RIGHTS``
with the first bytes of the header.  Nothing here blocks: both classes stop where the socket does, and continue later.
Input is untrusted: every size is checked before memory is allocated for it, received descriptors are close-on-exec, and
a malformed frame closes its descriptors.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from ..errors import AtomrError, InvalidRequest

__all__ = [
    "HEADER",
    "MAGIC",
    "MAX_BLOB",
    "MAX_FDS",
    "MAX_JSON",
    "Frame",
    "FrameReader",
    "FrameWriter",
    "ProtocolError",
    "close_fds",
    "encode_frame",
]

#: Spells "ATN1" in the first four bytes of every frame.
MAGIC: Final = 0x314E5441
#: Magic, bytes of JSON, bytes of blob, number of descriptors.
HEADER: Final = struct.Struct("<IIII")
#: Largest JSON of a frame, in bytes.
MAX_JSON: Final = 16 << 20
#: Largest blob of a frame, in bytes.
MAX_BLOB: Final = 64 << 20
#: Maximum number of descriptors of a frame.
MAX_FDS: Final = 64

_CHUNK = 256 << 10
_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * 4)
_RECEIVE = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_SEND = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class ProtocolError(AtomrError):
    """The peer sent a malformed frame; the stream cannot be used any more."""


class Frame(Struct):
    """A received frame.  Its holder owns the descriptors."""

    fields: dict[str, Any]
    blob: bytes = b""
    fds: list[int] = field(default_factory=list)

    def take_fds(self) -> list[int]:
        """Return the descriptors; the caller owns and closes them."""
        fds, self.fds = self.fds, []
        return fds

    def close(self) -> None:
        """Close the descriptors that were not taken.  Idempotent."""
        close_fds(self.take_fds())


def close_fds(fds: Iterable[int]) -> None:
    """Close descriptors; skip those that are already closed."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def encode_frame(fields: dict[str, Any], blob: bytes | bytearray | memoryview = b"", nfds: int = 0) -> bytes:
    """Return the header and the JSON of a frame, without the blob.

    Raises
    ------
    InvalidRequest
        If the fields are not JSON, or a part exceeds its limit.
    """
    try:
        text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"a control message must be JSON: {error}") from None
    size = memoryview(blob).nbytes
    for what, value, limit in (("JSON", len(text), MAX_JSON), ("blob", size, MAX_BLOB), ("descriptors", nfds, MAX_FDS)):
        if value > limit:
            raise InvalidRequest(f"control message too large: {what} {value}, allowed at most {limit}")
    return HEADER.pack(MAGIC, len(text), size, nfds) + text


def _decode(text: bytearray) -> dict[str, Any]:
    try:
        fields = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a control message is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ProtocolError(f"a control message must be a JSON object, not {type(fields).__name__}")
    return fields


class FrameReader:
    """Reads frames from a socket, without waiting.

    The socket is borrowed.  One thread at a time.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reset()
        self._fds: list[int] = []

    def _reset(self) -> None:
        self._header = bytearray()
        self._json = bytearray()
        self._blob = bytearray()
        self._sizes = (0, 0)

    def read(self) -> Frame | None:
        """Return the next frame, or None if it has not arrived completely.  Never waits.

        Raises
        ------
        EOFError
            The peer is gone.
        ProtocolError
            The input is malformed; the reader must not be used again.
        """
        try:
            return self._read()
        except (EOFError, ProtocolError):
            self.close()
            raise

    def _read(self) -> Frame | None:
        while True:
            if len(self._header) < HEADER.size:
                target, missing = self._header, HEADER.size - len(self._header)
            elif missing := self._sizes[0] - len(self._json):
                target = self._json
            elif missing := self._sizes[1] - len(self._blob):
                target = self._blob
            else:
                break
            data = self._receive(min(missing, _CHUNK), expect_fds=target is self._header)
            if data is None:
                return None
            target += data
            if target is self._header and len(target) == HEADER.size:
                self._check_header()
        text, blob = self._json, bytes(self._blob)
        self._reset()
        frame = Frame(_decode(text), blob, self._fds)
        self._fds = []
        return frame

    def _receive(self, size: int, *, expect_fds: bool) -> bytes | None:
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(size, _ANCILLARY, _RECEIVE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError(f"the control socket failed: {error.strerror}") from None
        count = len(self._fds)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._fds.extend(numbers)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolError(
                f"descriptors of a control message were lost: more than {MAX_FDS} came, or this process is out of them"
            )
        if len(self._fds) > count and not expect_fds:
            raise ProtocolError("descriptors came inside a control message, not with its header")
        if not data:
            inside = " inside a message" if self._header else ""
            raise EOFError(f"the peer closed the control socket{inside}")
        return data

    def _check_header(self) -> None:
        magic, json_size, blob_size, nfds = HEADER.unpack(self._header)
        if magic != MAGIC:
            raise ProtocolError(f"a control message starts with {magic:#010x} instead of {MAGIC:#010x}")
        if not 2 <= json_size <= MAX_JSON or blob_size > MAX_BLOB or nfds > MAX_FDS:
            raise ProtocolError(
                f"a control message claims {json_size} bytes of JSON (2 to {MAX_JSON} allowed), "
                f"{blob_size} of blob (at most {MAX_BLOB}) and {nfds} descriptors (at most {MAX_FDS})"
            )
        if nfds != len(self._fds):
            raise ProtocolError(f"a control message claims {nfds} descriptors and came with {len(self._fds)}")
        self._sizes = (json_size, blob_size)

    def close(self) -> None:
        """Close the descriptors of a frame that will not be completed.  Idempotent."""
        fds, self._fds = self._fds, []
        close_fds(fds)


class _Outgoing(Struct):
    parts: list[memoryview]
    fds: list[int]
    owns_fds: bool
    tag: int | None
    started: bool = False


class FrameWriter:
    """Writes frames to a socket, without waiting.

    The socket is borrowed.  One thread at a time.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._queue: deque[_Outgoing] = deque()
        self._unsure = False  # true only inside a send; an asynchronous exception (Ctrl-C) leaves it set

    @property
    def pending(self) -> bool:
        """Whether data are still to be sent."""
        return bool(self._queue)

    def push(
        self,
        fields: dict[str, Any],
        fds: Sequence[int] = (),
        blob: bytes | bytearray | memoryview = b"",
        *,
        owns_fds: bool = False,
        tag: int | None = None,
    ) -> None:
        """Queue a frame; nothing is sent yet.

        Parameters
        ----------
        owns_fds
            Close the descriptors once they are sent.  If this call raises, the caller keeps ownership.
        tag
            The value that `withdraw` returns for this frame.
        """
        head = encode_frame(fields, blob, len(fds))
        parts = [memoryview(head)]
        if body := memoryview(blob).cast("B"):
            parts.append(body)
        self._queue.append(_Outgoing(parts, list(fds), owns_fds, tag))

    def flush(self) -> bool:
        """Send as much as the socket accepts; return True when nothing is left.  Never waits.

        Raises
        ------
        OSError
            The peer is gone, or the descriptors of the first frame cannot be sent; ECONNABORTED if an earlier call was
            interrupted after an unknown number of bytes.
        """
        while self._queue:
            if self._unsure:
                raise OSError(errno.ECONNABORTED, "a send was interrupted")
            if not self._send_some(self._queue[0]):
                return False
        return True

    def _send_some(self, item: _Outgoing) -> bool:
        ancillary: list[tuple[int, int, array.array[int]]] = []
        if item.fds and not item.started:
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", item.fds)))
        self._unsure = True
        try:
            sent = self._sock.sendmsg(item.parts, ancillary, _SEND)
        except OSError as error:
            self._unsure = False
            if isinstance(error, BlockingIOError):
                return False
            raise
        item.started = True
        while item.parts and sent >= len(item.parts[0]):
            sent -= len(item.parts.pop(0))
        if item.parts:
            item.parts[0] = item.parts[0][sent:]
        else:
            self._queue.popleft()
        self._unsure = False
        if item.owns_fds:
            fds, item.fds = item.fds, []
            close_fds(fds)
        return True

    def withdraw(self) -> tuple[bool, int | None]:
        """Drop the first waiting frame if no byte of it has been sent; return whether, and its tag."""
        if not self._queue or self._queue[0].started:
            return False, None
        item = self._queue.popleft()
        if item.owns_fds:
            close_fds(item.fds)
        return True, item.tag

    def close(self) -> None:
        """Drop all waiting frames and close their descriptors.  Idempotent."""
        while self._queue:
            item = self._queue.popleft()
            if item.owns_fds:
                close_fds(item.fds)
