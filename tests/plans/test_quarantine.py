"""Quarantine: which plan is refused after deaths of workers, and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from actions import eventually
from crash import PATIENT, await_generation, operation

import atomr_native as an
from atomr_native.plans.quarantine import Quarantine
from atomr_native.plans.spec import READ, OperandSpec, PlanSpec

Make = Callable[..., an.System]
MAIN, A, B, C = (PlanSpec(name, ()) for name in ("main", "a", "b", "c"))
ESSENTIAL = PlanSpec("essential", ())


def deaths(*running: set[PlanSpec] | PlanSpec) -> set[str]:
    """Return the operations that are refused after deaths, each with what ran; a plan alone is acquitted."""
    quarantine = Quarantine(lambda op: op == "essential")
    for each in running:
        if isinstance(each, set):
            quarantine.accuse(each)
        else:
            quarantine.acquit(each)
    return {spec.op for spec in (MAIN, A, B, C, ESSENTIAL) if quarantine.reason(spec)}


def test_one_suspect_is_guilty() -> None:
    assert deaths({A}) == set()
    assert deaths({A}, A, {A}) == {"a"}  # good runs between do not help
    assert deaths({A, ESSENTIAL}, {A}) == {"a"}
    assert deaths(*[{ESSENTIAL}] * 5) == set()


def test_of_several_only_the_one_that_kills_alone_is_guilty() -> None:
    assert deaths({MAIN, A}, {A}) == {"a"}
    assert deaths({MAIN, A}, MAIN, {A}) == {"a"}
    assert deaths({MAIN, A}, {MAIN, B}, {MAIN, C}, {MAIN, A}) == set()
    assert deaths({MAIN, A}, MAIN, {MAIN}) == set()  # the first death was not its own
    assert deaths({MAIN, A}, A, {A}) == set()


def test_what_may_have_been_ended_from_outside_proves_less() -> None:
    quarantine = Quarantine(lambda op: False)
    quarantine.accuse({MAIN, A})
    quarantine.accuse({A}, sure=False)
    quarantine.check(A)
    quarantine.accuse({A}, sure=False)
    with pytest.raises(an.PlanQuarantined, match="2 deaths"):
        quarantine.check(A)


def test_suspects_are_on_probation() -> None:
    quarantine = Quarantine(lambda op: op == "essential")
    assert "2 plans (a, main) are on probation" in quarantine.accuse({MAIN, A, ESSENTIAL})
    assert quarantine.has_suspects
    assert [quarantine.suspects(spec) for spec in (MAIN, A, B, ESSENTIAL)] == [True, True, False, False]
    quarantine.acquit(MAIN)
    assert not quarantine.suspects(MAIN)
    assert "plan of a is quarantined until plan.pardon() lifts that" in quarantine.accuse({A})
    assert not quarantine.has_suspects


def test_a_pardon_forgets_all() -> None:
    quarantine = Quarantine(lambda op: False)
    for each in ({A}, {A}, {B, C}, {B}):
        quarantine.accuse(each)
    for spec, why in ((A, "was the only plan"), (B, "ended the next one while it ran alone")):
        with pytest.raises(an.PlanQuarantined, match=rf"plan of {spec.op} .*{why}.* unless plan\.pardon\(\) lifts"):
            quarantine.check(spec)
        quarantine.pardon(spec)
        quarantine.check(spec)
        quarantine.accuse({spec})
        quarantine.check(spec)
    quarantine.pardon(C)
    quarantine.accuse({C})
    quarantine.check(C)


# ---- devices


@pytest.fixture
def device(make_system: Make) -> an.Device:
    """Make a device that may die as often as it likes."""
    return make_system(**PATIENT).device("host")


class Server:
    """A plan that is at work whenever a device faults."""

    def __init__(self, device: an.Device) -> None:
        self.device = device
        self.plan = device.lane("main")._plan(PlanSpec("test.wait", (OperandSpec("flag", "uint8", (1,), (1,), READ),)))

    def ask(self, value: int) -> tuple[Any, Any]:
        """Send a message that ends once its flag is 1; return the flag and the reply."""
        flag = self.device.host_array((1,), "uint8")
        flag[0] = value
        return flag, self.plan.ask(self.device._memory.shared(flag))

    def serve(self) -> None:
        """Run well, once."""
        self.ask(1)[1].result(60)

    def begin(self) -> tuple[Any, Any]:
        """Send a message that goes on, and wait until it runs."""
        found = self.ask(0)
        eventually(lambda: self.device._core.lane_stats(self.plan.lane)["claimed"] == self.plan.last_ticket)
        return found

    def die(self, plan: an.Plan, generation: int) -> str:
        """Have a plan end the worker during a message; return its error."""
        replies = [self.begin()[1], plan.ask()]
        for reply in replies:
            with pytest.raises(an.DeviceFault) as caught:
                reply.result(60)
            assert len(caught.value.suspects) == len(replies)
        await_generation(self.device, generation)
        return str(caught.value)


def test_a_server_keeps_its_plan(device: an.Device) -> None:
    """Its main plan is at work at each death that others cause, and has never completed a message at the first."""
    server, other = Server(device), device.lane("other")
    for number in range(3):
        text = server.die(operation(other, how="segfault", number=number), number + 2)
        assert "(test.crash, test.wait) are on probation: the next message of each runs alone" in text
        server.serve()  # alone
    server.serve()
    quarantine = device._state.plans._quarantine
    eventually(lambda: not quarantine.suspects(server.plan.spec))


def test_a_suspect_runs_alone(device: an.Device) -> None:
    """The plan that ends its worker while nothing else runs is convicted at once; the others are not."""
    server = Server(device)
    guilty = operation(device.lane("other"), how="segfault")
    server.die(guilty, 2)
    server.serve()
    another = device.lane("another").noop().wait(60)
    guilty.wait(60)
    flag, at_work = server.begin()  # it was acquitted
    convicted = guilty.ask()  # waits until the device is its own
    later = another.ask()
    assert not convicted.done()
    flag[0] = 1
    at_work.result(60)
    with pytest.raises(
        an.DeviceFault, match=r"plan of test\.crash is quarantined until plan\.pardon\(\).*alone"
    ) as caught:
        convicted.result(60)
    assert [suspect.operation for suspect in caught.value.suspects] == ["test.crash"]
    assert later.result(60) is None
    with pytest.raises(an.PlanQuarantined, match=r"alone.*pardon"):
        guilty.ask()
    server.serve()


def test_a_build_that_kills_is_told_from_what_runs(device: an.Device) -> None:
    server, other = Server(device), device.lane("other")
    at_work = server.begin()[1]
    guilty = operation(other, how="segfault", when="build")
    with pytest.raises(an.DeviceFault, match=r"\(test\.crash, test\.wait\) are on probation"):
        at_work.result(60)
    await_generation(device, 2)
    server.serve()
    flag, at_work = server.begin()
    building = device.lane("third")._plan(guilty.spec)  # its build waits for the message that runs
    flag[0] = 1
    at_work.result(60)
    await_generation(device, 3)
    with pytest.raises(an.PlanQuarantined, match="alone"):
        building.ask()
    server.serve()


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
