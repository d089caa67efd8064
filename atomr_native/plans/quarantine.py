"""Quarantine of plans that have killed workers: they are refused, to keep the device alive.

A plan is convicted by evidence only: it was the only suspect of two deaths, or it was a suspect of one and then ended
another worker while it ran alone.  The suspects of a death are on probation: the next worker runs the first message of
each alone (see cython/runtime/probation.c), and a message that it completes acquits its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from ..errors import PlanQuarantined
from .spec import PlanSpec

__all__ = ["Quarantine"]

_KILLS = 2  # deaths of workers, with one suspect, until a plan is quarantined


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
        self._suspects: dict[PlanSpec, None] = {}  # of a death since which they have not completed a message alone
        self._refused: dict[PlanSpec, str] = {}

    def accuse(self, running: Set[PlanSpec], *, sure: bool = True) -> str:
        """Find the plan that killed a worker; return the consequence, for an error, or nothing.

        An injected fault (see `Device.inject_fault`) accuses no other plan.

        Parameters
        ----------
        running : set
            The plans that ran, or were being built.
        sure : bool
            Whether one of them killed it for sure.
        """
        demanded = {spec for spec in running if _is_demanded(spec)}
        specs = demanded or {spec for spec in running if not self._is_essential(spec.op)}
        if len(specs) == 1:
            (spec,) = specs
            self._kills[spec] = kills = self._kills.get(spec, 0) + 1
            if kills >= _KILLS:
                return self._refuse(spec, f"was the only plan running, or being built, at {kills} deaths of the worker")
            if sure and spec in self._suspects:
                return self._refuse(
                    spec,
                    "was one of several plans that were running, or being built, at a death of the worker, and ended "
                    "the next one while it ran alone",
                )
        if demanded:
            return ""
        self._suspects |= dict.fromkeys(specs)
        if len(specs) < 2:
            return ""
        named = ", ".join(sorted({spec.op for spec in specs})[:4])
        return f"its {len(specs)} plans ({named}) are on probation: the next message of each runs alone"

    @property
    def has_suspects(self) -> bool:
        """Whether any plan is on probation."""
        return bool(self._suspects)

    def suspects(self, spec: PlanSpec) -> bool:
        """Whether a plan is on probation."""
        return spec in self._suspects

    def acquit(self, spec: PlanSpec) -> None:
        """End the probation of a plan that has completed a message alone."""
        self._suspects.pop(spec, None)

    def pardon(self, spec: PlanSpec) -> None:
        """Forget everything about a plan."""
        self._kills.pop(spec, None)
        self._suspects.pop(spec, None)
        self._refused.pop(spec, None)

    def _refuse(self, spec: PlanSpec, why: str) -> str:
        self._suspects.pop(spec, None)
        self._refused[spec] = (
            f"this plan of {spec.op} {why}; it is not tried again in this System, unless plan.pardon() lifts that"
        )
        return f"the plan of {spec.op} is quarantined until plan.pardon() lifts that: it {why}"

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
