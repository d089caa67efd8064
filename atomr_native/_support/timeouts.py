"""Users' timeouts: seconds, or None for no limit."""

from __future__ import annotations

import contextlib
import math
import time
from typing import SupportsFloat, SupportsIndex

from .._lib.sender import Ref
from ..errors import InvalidRequest

__all__ = ["deadline_of"]


def deadline_of(timeout: object) -> float | None:
    """Return the end of `timeout` seconds, in `time.monotonic`; None for no limit.

    Raises
    ------
    InvalidRequest
        If it is not a number.
    """
    if timeout is None:
        return None
    seconds = math.nan
    if isinstance(timeout, SupportsFloat | SupportsIndex) and not isinstance(timeout, Ref):  # which would wait
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            seconds = float(timeout)
    if math.isnan(seconds):
        raise InvalidRequest(f"timeout {timeout!r} is not a number of seconds; None waits without limit")
    return time.monotonic() + seconds
