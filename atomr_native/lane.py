"""Plain actors: a mailbox and a stream without operations of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .library_actor import LibraryActor
from .plan_spec import PlanSpec

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Lane"]


class Lane(LibraryActor):
    """One mailbox of a device; made by `Device.lane`."""

    def noop(self) -> Plan:
        """Return the plan that does nothing: to measure a device, or to wait until a mailbox has come to a point."""
        return self._plan(PlanSpec("noop", ()))
