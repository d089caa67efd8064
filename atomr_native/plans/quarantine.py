"""Quarantine of plans that have killed workers: they are refused, to keep the device alive.

A plan that was the only suspect of a death is guilty of it.  Of several suspects, those that have never completed a
message are likelier than the others; a plan that completes messages after a death is no suspect of it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..errors import PlanQuarantined
from .spec import PlanSpec

__all__ = ["Quarantine"]

_KILLS = 2  # deaths of workers until a plan is quarantined
_DOUBTS = 3  # the same for a plan that has completed messages before, and was never the only suspect


class Quarantine:
    """The deaths of workers that plans are suspected of.  Written by the supervisor's thread, and by `pardon`.

    Parameters
    ----------
    is_essential : callable
        Whether a device is useless without an operation, given by name: such an operation is never blamed.
    """

    def __init__(self, is_essential: Callable[[str], bool]) -> None:
        self._is_essential = is_essential
        self._kills: dict[PlanSpec, int] = {}  # deaths with one suspect
        self._doubts: dict[PlanSpec, int] = {}  # deaths with several suspects, since the plan's last good run
        self._proven: set[PlanSpec] = set()  # suspects that had completed messages
        self._refused: dict[PlanSpec, str] = {}

    def accuse(self, running: Mapping[PlanSpec, bool], building: Iterable[PlanSpec]) -> None:
        """Find the plan, among these, that killed a worker.

        An injected fault (see `Device.inject_fault`) accuses no other plan.

        Parameters
        ----------
        running : mapping
            The plans that ran, and whether each has completed a message since it was last accused.
        building : iterable
            The plans that were being built.
        """
        for spec, ran_well in running.items():
            if ran_well:
                self._proven.add(spec)
                self._doubts.pop(spec, None)
        demanded = {spec for spec in running if _is_demanded(spec)}
        specs = demanded or {spec for spec in {*running, *building} if not self._is_essential(spec.op)}
        if len(specs) == 1:
            (spec,) = specs
            self._kills[spec] = kills = self._kills.get(spec, 0) + 1
            if kills >= _KILLS:
                self._refuse(spec, f"was the only plan running, or being built, at {kills} deaths of the worker")
            return
        likely = specs - self._proven or specs
        for spec in likely:
            self._doubts[spec] = self._doubts.get(spec, 0) + 1
        most = max((self._doubts[spec] for spec in likely), default=0)
        worst = [spec for spec in likely if self._doubts[spec] == most]
        if len(worst) == 1 and most >= (_DOUBTS if worst[0] in self._proven else _KILLS):
            self._refuse(
                worst[0],
                f"is the likeliest of several plans that were running, or being built, at {most} deaths of the worker, "
                f"between which it completed no message",
            )

    def pardon(self, spec: PlanSpec) -> None:
        """Forget everything about a plan."""
        for found in (self._kills, self._doubts, self._refused):
            found.pop(spec, None)

    def _refuse(self, spec: PlanSpec, why: str) -> None:
        self._refused[spec] = (
            f"this plan of {spec.op} {why}; it is not tried again in this System, unless plan.pardon() lifts that"
        )

    def reason(self, spec: PlanSpec) -> str:
        """Return the reason for refusing a plan; empty if it is accepted."""
        return self._refused.get(spec, "")

    def check(self, spec: PlanSpec) -> None:
        """Raise `PlanQuarantined` if a plan is refused."""
        if reason := self.reason(spec):
            raise PlanQuarantined(reason)


def _is_demanded(spec: PlanSpec) -> bool:
    """Whether a plan is a fault that `Device.inject_fault` was asked for."""
    return isinstance(spec.attributes, tuple) and any(name == "demanded" for name, _ in spec.attributes)
