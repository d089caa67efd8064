"""Timeouts as users give them: seconds, or None for ever."""

from __future__ import annotations

import contextlib
import math
import time
from typing import SupportsFloat, SupportsIndex

from .errors import InvalidRequest

__all__ = ["deadline_of"]


def deadline_of(timeout: object) -> float | None:
    """Return when `timeout` seconds are over, by `time.monotonic`; None for None, which is for ever.

    Raises
    ------
    InvalidRequest
        If it is no number.
    """
    if timeout is None:
        return None
    seconds = math.nan
    if isinstance(timeout, SupportsFloat | SupportsIndex):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            seconds = float(timeout)
    if math.isnan(seconds):
        raise InvalidRequest(f"timeout {timeout!r} is no number of seconds; None waits for as long as it takes")
    return time.monotonic() + seconds
