"""Transient errors of a device while the driver cleans up after a dead worker."""

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
    """Decides whether a failed request is retried.

    The driver releases memory and channels of a dead process some time after its death is known.  An error that
    persists longer is a failure.

    Parameters
    ----------
    seconds : float
        Duration of the retries from now on; 0 for the first worker of a device, whose errors are reported at once.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds if seconds > 0 else 0.0

    def over(self) -> None:
        """End the retries: the worker serves, and errors belong to the caller."""
        self._end = 0.0

    def allows(self, error: AtomrError, tries: int) -> bool:
        """Wait briefly if the error may pass and there is time left; return whether to try again.

        `tries` is the number of earlier retries of this request.
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
