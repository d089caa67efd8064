"""A worker's standard output and error, logged line by line."""

from __future__ import annotations

import logging
import os
from collections import deque

__all__ = ["OutputReader"]

_MAX_LINE = 8 << 10
_MAX_TAIL = 1 << 10  # characters of a line that an error message may quote
_TAIL_LINES = 40  # faulthandler's output for a few threads
_CHUNK = 64 << 10


class OutputReader:
    """Forwards the contents of a pipe to a logger, and keeps the last lines.

    Parameters
    ----------
    fd
        The reading end, non-blocking; the reader takes ownership.
    log
        Gets every line as a warning, since a worker itself prints nothing.
    """

    def __init__(self, fd: int, log: logging.Logger) -> None:
        self.fd = fd
        self._log = log
        self._partial = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def read(self, chunks: int = 4) -> bool:
        """Read available output without waiting; return False at its end."""
        if self.fd < 0:
            return False
        for _ in range(chunks):
            try:
                data = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                self._line(self._partial)
                self._partial = b""
                return False
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._line(line)
            whole = len(self._partial) - len(self._partial) % _MAX_LINE
            if whole:  # an endless line must not accumulate in memory
                self._line(self._partial[:whole])
                self._partial = self._partial[whole:]
        return True

    def _line(self, line: bytes) -> None:
        for start in range(0, len(line), _MAX_LINE):
            text = line[start : start + _MAX_LINE].decode("utf-8", "backslashreplace").rstrip("\r")
            if text:
                self._tail.append(text[:_MAX_TAIL])
                self._log.warning("%s", text)

    def tail(self) -> str:
        """Return the last lines, for an error message."""
        return "\n".join(self._tail)

    def close(self) -> None:
        """Read available output and close the pipe.  Idempotent."""
        if self.fd >= 0:
            self.read(chunks=64)
            self._line(self._partial)
            self._partial = b""
            self.abandon()

    def abandon(self) -> None:
        """Close the pipe without reading."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
