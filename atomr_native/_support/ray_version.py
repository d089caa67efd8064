"""The oldest Ray that clusters work with, for code that must not import Ray."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["OLDEST_RAY", "is_too_old"]

OLDEST_RAY: Final = (2, 55)


def is_too_old(version: str) -> bool:
    """Whether a version of Ray, such as ``"2.55.1"``, is older than the oldest one."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_RAY
