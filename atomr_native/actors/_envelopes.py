"""Kinds of envelopes that the cell inspects before the actor sees them; 0 is an ordinary message."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVICE", "PIPE", "TERMINATED", "TIMER"]

TIMER: Final = 1
TERMINATED: Final = 2
DEVICE: Final = 3
PIPE: Final = 4
