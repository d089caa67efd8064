"""Errors of a device that pass by themselves, while it lets go of a worker that has just died."""

from __future__ import annotations

import logging
import time
from typing import Final

from ..errors import AtomrError, LibraryError, OutOfMemory

__all__ = ["Patience"]

_log = logging.getLogger("atomr_native.worker")

#: CUDA: out of memory, device unavailable, operating system, system not ready, unknown.
_TRANSIENT: Final = frozenset({2, 46, 304, 802, 999})
_FIRST, _LONGEST = 0.02, 0.25


class Patience:
    """Says whether a request that failed is worth another try.

    The memory and the channels of a dead process come back when the system's driver has cleaned up, which can be
    after its death is known.  Whatever still fails after that is a failure.

    Parameters
    ----------
    seconds : float
        How long, from now on; 0 for the first worker of a device, whose errors are told at once.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds if seconds > 0 else 0.0

    def over(self) -> None:
        """Lose it: the worker serves, and errors belong to whoever asked."""
        self._end = 0.0

    def allows(self, error: AtomrError, tries: int) -> bool:
        """Wait a moment, if the error may pass and there is time left; whether to try again.

        `tries` is how often that was so for this request.
        """
        passes = isinstance(error, OutOfMemory)
        if isinstance(error, LibraryError):
            passes = error.lib == "cuda" and error.status in _TRANSIENT
        pause = min(_FIRST * 2**tries, _LONGEST)
        if not passes or time.monotonic() + pause >= self._end:
            return False
        _log.warning("%s; tried again in %.0f ms", error, 1e3 * pause)
        time.sleep(pause)
        return True
