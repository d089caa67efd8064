"""Messages that do not wait for tuning: they take a plan that is there, until the measured one is."""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakSet

from msgspec import structs

from ...errors import PlanQuarantined
from ...plans.actor import LibraryActor
from ...plans.plan import Plan
from ...plans.signature import Signature
from ...plans.spec import PlanSpec

__all__ = ["LaterTuned"]


def _tuned(spec: PlanSpec[Any], tune: str) -> PlanSpec[Any]:
    return structs.replace(spec, attributes=structs.replace(spec.attributes, tune=tune))


class LaterTuned(LibraryActor):
    """An actor whose requests have ``tune="later"``.

    Such a request has two plans: by what was measured before, or the heuristics, and by what is measured now.  The
    worker builds one after the other.
    """

    def __init__(self, device: Any, name: str) -> None:
        super().__init__(device, name)
        #: Plans that others follow, so that no call keeps them.
        self._passing: WeakSet[Plan] = WeakSet()

    def _plan(
        self, spec: PlanSpec[Any], signature: Signature | None = None, *, any_layout: bool | frozenset[str] = False
    ) -> Plan:
        """Return the plan of a specification: of a tuned one the measured plan, if the worker has it already."""
        if getattr(spec.attributes, "tune", "") != "later":
            return super()._plan(spec, signature, any_layout=any_layout)
        known = super()._plan(_tuned(spec, "known"), signature, any_layout=any_layout)
        if self.owner.kind == "host":  # where nothing is measured
            return known
        measured = super()._plan(_tuned(spec, "measure"), signature, any_layout=any_layout)
        record = measured.record
        if record.epoch != self.owner.core.epoch:  # the worker has died
            with contextlib.suppress(PlanQuarantined):
                self.owner.plans.start_build(record)
        build = record.build
        if build is None or not build.done():
            self._passing.add(known)
            return known
        self._passing.discard(known)
        return known if build.exception() is not None else measured

    def _keeps(self, plan: Plan) -> bool:
        """Whether calls may be remembered with a plan: no other is to follow it."""
        return plan not in self._passing
