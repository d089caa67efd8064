"""Quarantine: which plan is refused after deaths of workers, and until when."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from actions import eventually
from crash import PATIENT, await_generation, operation

import atomr_native as an
from atomr_native.plans.quarantine import Quarantine
from atomr_native.plans.spec import READ, OperandSpec, PlanSpec
from atomr_native.plans.table import PlanRecord

Make = Callable[..., an.System]
MAIN, A, B, C = (PlanSpec(name, ()) for name in ("main", "a", "b", "c"))
ESSENTIAL = PlanSpec("essential", ())


def deaths(*running: dict[PlanSpec, bool]) -> set[str]:
    """Return the operations that are refused after deaths, each with what ran, and whether it had run well since."""
    quarantine = Quarantine(lambda op: op == "essential")
    for each in running:
        quarantine.accuse(each, ())
    return {spec.op for spec in (MAIN, A, B, C, ESSENTIAL) if quarantine.reason(spec)}


def test_one_suspect_is_guilty() -> None:
    assert deaths({A: False}) == set()
    assert deaths({A: False}, {A: True}) == {"a"}  # good runs between do not help
    assert deaths({A: False, ESSENTIAL: True}, {A: False}) == {"a"}
    assert deaths(*[{ESSENTIAL: False}] * 5) == set()


def test_a_plan_that_works_is_no_suspect_of_others_deaths() -> None:
    assert deaths({MAIN: True, A: False}, {MAIN: True, B: False}) == set()
    assert deaths({MAIN: True, A: True}, {MAIN: True, B: True}, {MAIN: True, C: True}) == set()
    assert deaths({MAIN: True, A: False}, {MAIN: False, B: False}, {MAIN: False, C: False}) == set()
    storm = [{MAIN: True, (A, B, C)[i % 3]: True} for i in range(30)]
    assert deaths(*storm) == set()


def test_the_likeliest_of_several_is_refused() -> None:
    assert deaths({MAIN: True, A: False}, {MAIN: False, A: False}) == {"a"}
    assert deaths({A: False, B: False}, {A: False, C: False}) == {"a"}
    assert deaths({A: False, B: False}, {A: False, B: False}) == set()
    assert deaths({A: False, B: False}, {A: False, B: False}, {A: False, C: False}) == {"a"}
    assert deaths({A: False, B: False}, {A: True, C: False}) == set()


def test_a_plan_that_stops_working_is_refused_at_the_third_death() -> None:
    three = [{MAIN: True, A: True}, {MAIN: False, B: True}, {MAIN: False, C: True}]
    assert deaths(*three[:2]) == set()
    assert deaths(*three) == {"main"}


def test_a_pardon_forgets_all() -> None:
    quarantine = Quarantine(lambda op: False)
    for each in ({A: False}, {A: False}, {B: False, C: False}, {B: False, MAIN: False}):
        quarantine.accuse(each, ())
    for spec, why in ((A, "was the only plan running"), (B, "is the likeliest of several")):
        with pytest.raises(an.PlanQuarantined, match=rf"plan of {spec.op} {why}.* unless plan\.pardon\(\) lifts"):
            quarantine.check(spec)
        quarantine.pardon(spec)
        quarantine.check(spec)
        quarantine.accuse({spec: False}, ())
        quarantine.check(spec)


def test_only_messages_since_the_last_accusation_count() -> None:
    record, plan = PlanRecord(0, 0, A), SimpleNamespace(first_ticket=0)
    record.plan = cast("Any", lambda: plan)
    assert not record.ran_well(9)
    plan.first_ticket = 5
    assert not record.ran_well(5)
    assert record.ran_well(6)
    record.forget_runs()
    assert not record.ran_well(9)


# ---- devices


@pytest.fixture
def device(make_system: Make) -> an.Device:
    """Make a device that may die as often as it likes."""
    return make_system(**PATIENT).device("host")


def test_a_server_keeps_its_plan(device: an.Device) -> None:
    """Its main plan is at work at each death that others cause."""
    lane, other = device.lane("main"), device.lane("other")
    plan = lane._plan(PlanSpec("test.wait", (OperandSpec("flag", "uint8", (1,), (1,), READ),)))

    def flag(value: int) -> Any:
        made = device.host_array((1,), "uint8")
        made[0] = value
        return device._memory.shared(made)

    for number in range(3):
        plan.ask(flag(1)).result(60)
        at_work = plan.ask(flag(0))
        eventually(lambda: device._core.lane_stats(plan.lane)["claimed"] >= plan.last_ticket)
        killer = operation(other, how="segfault", number=number).ask()
        for reply in (at_work, killer):
            with pytest.raises(an.DeviceFault):
                reply.result(60)
        await_generation(device, number + 2)
    plan.ask(flag(1)).result(60)


def test_a_pardoned_plan_runs_again(device: an.Device) -> None:
    lane = device.lane("a")
    plan = operation(lane, how="segfault")
    replies = [plan.ask() for _ in range(4)]
    assert [type(reply.exception()) for reply in replies if reply.wait(60)][2:] == [an.PlanQuarantined] * 2
    for each in (plan, operation(lane, how="segfault")):  # another one can be made, too
        with pytest.raises(an.PlanQuarantined, match=r"pardon"):
            each.ask()
    for generation in (4, 5):
        assert plan.pardon() is plan
        with pytest.raises(an.DeviceFault):
            plan.ask().result(60)
        await_generation(device, generation)
        plan.wait(60)
    assert lane.noop().ask().result(60) is None
