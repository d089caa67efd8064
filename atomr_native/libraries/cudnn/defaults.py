"""Real numbers that options are by default: requests and methods have the same objects, which calls are known by."""

from __future__ import annotations

from typing import Final

__all__ = ["EPSILON", "MOMENTUM", "ONE", "RESPONSE_POWER", "RESPONSE_SCALE", "ZERO"]

ONE: Final = 1.0
ZERO: Final = 0.0
EPSILON: Final = 1e-5
MOMENTUM: Final = 0.1
RESPONSE_SCALE: Final = 1e-4
RESPONSE_POWER: Final = 0.75
