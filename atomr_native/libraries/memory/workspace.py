"""The message that changes a lane's workspace, the same on every kind of device."""

from __future__ import annotations

from typing import Any

from ...builders.context import Built
from ...plans.spec import PlanSpec

__all__ = ["build_workspace"]


def build_workspace(_spec: PlanSpec, _context: Any) -> Built:
    """Build the message after which a lane's later messages use another range of memory as their workspace."""
    return Built("workspace")
