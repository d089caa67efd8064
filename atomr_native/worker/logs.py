"""The worker's logging: records travel to the parent as notifications.

A worker must never wait for its log, so the queue is bounded, and excess records are counted and dropped.  Used in
process placement only; in thread placement records go through the user's own logging.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["ControlHandler", "install"]

_MAX_TEXT = 16 << 10


class ControlHandler(logging.Handler):
    """Turns log records into ``{"op": "log", ...}`` messages.

    Parameters
    ----------
    post
        Accepts a message without waiting, and returns whether there was room.
    """

    def __init__(self, post: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__()
        self._post = post
        self.dropped = 0
        self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; from any thread, without waiting."""
        try:
            text = self.format(record)
        except Exception:  # a wrong format string in a log call
            self.handleError(record)
            return
        if self.dropped != self._reported:
            self._report_drops()
        if not self._post(_message(record.levelno, record.name, text)):
            self.dropped += 1

    def _report_drops(self) -> None:
        dropped = self.dropped
        text = f"{dropped - self._reported} log messages of the worker were dropped"
        if self._post(_message(logging.WARNING, "atomr_native.worker", text)):
            self._reported = dropped


def _message(level: int, name: str, text: str) -> dict[str, Any]:
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}... ({len(text)} characters)"
    return {"op": "log", "level": level, "name": name, "message": text}


def install(post: Callable[[dict[str, Any]], bool], level: int = logging.INFO) -> ControlHandler:
    """Send all log records and warnings of this process to the parent.  For process placement."""
    handler = ControlHandler(post)
    handler.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    return handler
