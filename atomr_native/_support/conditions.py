"""Conditions whose lock refuses a nested wait."""

from __future__ import annotations

import threading
from typing import Any

from .._lib.guard import Lock

__all__ = ["condition"]


def condition() -> threading.Condition:
    """Return a condition for threads of this package.

    A destructor that runs under its lock may come back to it, but must not wait: shielded functions are refused there.
    Its own methods are Python code, so only shielded functions may use it.
    """
    lock: Any = Lock(reentrant=True, leaf=True)
    return threading.Condition(lock)
