"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
