"""Starts of Ray on a busy machine: it gives up after 30 s, a limit that cannot be set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = ["patiently"]

_T = TypeVar("_T")
_MOST = 5


def patiently(start: Callable[[], _T]) -> _T:
    """Start a node of Ray; again where Ray has given up, five times at most."""
    for _ in range(_MOST - 1):
        try:
            return start()
        except Exception as error:
            if type(error) is not Exception:  # as Ray raises it where a start has taken too long
                raise
            print(error, file=sys.stderr)  # noqa: T201
    return start()
