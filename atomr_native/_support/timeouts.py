"""Users' timeouts: seconds, or None for no limit.  One check and one wording for all of them."""

from __future__ import annotations

import contextlib
import math
import time
from typing import SupportsFloat, SupportsIndex, overload

from ..errors import InvalidRequest

__all__ = ["deadline_of", "seconds_of"]

_MOST = 1e9  # thirty years, which every clock and lock can add up


@overload
def seconds_of(timeout: object, name: str = "timeout") -> float | None: ...
@overload
def seconds_of(timeout: object, name: str = "timeout", *, limited: bool) -> float: ...
def seconds_of(timeout: object, name: str = "timeout", *, limited: bool = False) -> float | None:
    """Return a user's timeout, checked: seconds, or None for no limit.

    Parameters
    ----------
    timeout : object
        What the user gave.
    name : str
        Name of the parameter.
    limited : bool
        Whether None is refused.

    Raises
    ------
    InvalidRequest
        For a negative number, NaN, a bool, or anything but a number.
    """
    if timeout is None and not limited:
        return None
    seconds = math.nan
    kind = getattr(getattr(timeout, "dtype", None), "kind", "")  # NumPy is not imported here: actors do without it
    refused = isinstance(timeout, bool) or kind == "b" or hasattr(timeout, "__dlpack__")  # an array could wait
    if isinstance(timeout, SupportsFloat | SupportsIndex) and not refused:
        with contextlib.suppress(TypeError, ValueError):
            try:
                seconds = float(timeout)
            except OverflowError:  # an integer
                seconds = math.inf if timeout > 0 else math.nan  # type: ignore[operator]
    if not seconds >= 0:
        raise InvalidRequest(
            f"{name}={timeout!r}; allowed: a number of seconds from 0 on{'' if limited else ', or None for no limit'}"
        )
    return min(seconds, _MOST)


def deadline_of(timeout: object) -> float | None:
    """Return the end of `timeout` seconds, in `time.monotonic`; None for no limit.

    Raises
    ------
    InvalidRequest
        As `seconds_of`.
    """
    seconds = seconds_of(timeout)
    return None if seconds is None else time.monotonic() + seconds
