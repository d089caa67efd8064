"""A contender that cannot run here, and errors in one line."""

from __future__ import annotations

__all__ = ["Unavailable", "describe"]


class Unavailable(Exception):
    """A contender that cannot run here; the message is the reason shown to the reader."""


def describe(error: BaseException) -> str:
    """One line for a report: the type and the first line of the message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
