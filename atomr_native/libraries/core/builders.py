"""Builders of the runtime's own operations, the same on every kind of device."""

from __future__ import annotations

from typing import Any

from ...builders.context import Built
from ...errors import PlanQuarantined
from ...plans.spec import PlanSpec, QuarantinedAttributes

__all__ = ["QuarantinedAttributes", "build_noop", "build_quarantined"]


def build_noop(_spec: PlanSpec, _context: Any) -> Built:
    """Build a message that only takes its turn."""
    return Built("noop")


def build_quarantined(spec: PlanSpec[QuarantinedAttributes], _context: Any) -> Built:
    """Build the run of messages that were queued for a plan which has killed the worker twice: each fails."""
    reason = spec.attributes.reason

    def run(*_: Any) -> None:
        raise PlanQuarantined(reason)

    return Built(run)
