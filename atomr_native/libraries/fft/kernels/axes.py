"""What kernels of functions and their launches agree on."""

from __future__ import annotations

from typing import Final

__all__ = ["AXES"]

#: Axes that arrays have at most, when those that are consecutive in all of them are one.
AXES: Final = 8
