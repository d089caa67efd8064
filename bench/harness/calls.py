"""What an operation of a library costs: told by its plan, called at once, asked, and sustained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.harness.common import PLACES, asks, burst, device, repeat, timed
from bench.harness.gpu import Sends, sustained
from bench.harness.harness import Setup

__all__ = ["Operation", "add_calls", "add_sustained"]


@dataclass(frozen=True)
class Operation:
    """An operation with its operands: the plan, the operands by name, an immediate call, and what to wait for."""

    plan: Any
    operands: Mapping[str, Any]
    call: Callable[[], Any]
    last: Any

    def sends(self) -> Sends:
        """Messages of the plan, with all handles by position."""
        given = tuple(self.operands[name] for name in self.plan.signature.operands)

        def tells(count: int) -> None:
            tell, handles = self.plan.tell, given
            for _ in range(count):
                tell(*handles)

        return Sends(self.plan, given, tells, partial(self.plan.ask, *given))


def add_calls(setup: Setup, what: str, make: Callable[[Any], Operation], *, many: int = 2000, few: int = 500) -> None:
    """Add the rows of an operation, which `make` prepares on a device, in both placements.

    *told* and *called* are what the caller pays while the lane is awake, `many` times a sample; *asked* waits for each
    reply, `few` times; *sustained* tells `many`, and waits for the last.  Operations that take much longer than their
    messages need fewer.
    """
    many, few = setup.count(many), setup.count(few)
    for place in PLACES:

        def operation(place: str = place) -> Operation:
            found = make(device(setup, place))
            found.plan.wait(60.0)
            return found

        with setup.attempt(name := f"atomr {what}, told, {place}"):
            made = operation()
            setup.add(name, burst(made.sends().tells, made.last.wait, many))
        with setup.attempt(name := f"atomr {what}, called, {place}"):
            made = operation()
            setup.add(name, burst(repeat(made.call), made.last.wait, many))
        with setup.attempt(name := f"atomr {what}, asked, {place}"):
            setup.add(name, timed(asks(operation().sends().ask), few))
        with setup.attempt(name := f"atomr {what}, sustained, {place}"):
            setup.add(name, sustained([operation().sends()], many))


def add_sustained(setup: Setup, what: str, make: Callable[[Any], Operation], *, many: int = 2000) -> str:
    """Add the one row of `add_calls` that says what the device does, in a process; returns its name."""
    with setup.attempt(name := f"atomr {what}, sustained, process"):
        made = make(device(setup, "process"))
        made.plan.wait(60.0)
        setup.add(name, sustained([made.sends()], setup.count(many)))
    return name
