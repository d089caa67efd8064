"""The kit for tests of programs that use actors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import atomr_native as an
from atomr_native.testing import Deterministic, FakeClock, Probe


class Echo(an.Actor):
    def receive(self, message: Any) -> None:
        assert self.context.sender is not None
        self.context.sender.tell(message)


def test_a_probe_in_threads(nothing_left: None) -> None:
    with an.System() as system:
        probe = Probe(system, name="probe", timeout=10)
        echo = system.spawn(Echo)
        probe.tell(echo, "a")
        assert probe.expect("a") == "a"
        assert probe.sender == echo
        probe.tell(echo, 3)
        assert probe.expect(int) == 3
        probe.tell(echo, 4)
        assert probe.expect(matching=lambda m: m > 3) == 4
        probe.expect_no_message(0.01)
        answer = probe.ref.ask("question")
        probe.expect("question")
        assert probe.reply("answer") is True
        assert probe.reply("again") is False
        assert answer.result(10) == "answer"
        answer = probe.ref.ask("question")
        probe.expect()
        probe.fail(KeyError("x"))
        with pytest.raises(KeyError):
            answer.result(10)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_a_probe_objects_to(nothing_left: None, deterministic: bool) -> None:
    def check(system: an.System) -> None:
        probe = Probe(system, timeout=0.05)
        with pytest.raises(an.InvalidRequest, match="expected no message yet"):
            probe.reply(1)
        with pytest.raises(AssertionError, match="no message within"):
            probe.expect()
        with pytest.raises(AssertionError, match="no message within"):
            probe.expect("x", timeout=0.01)
        for expectation in ({"what": str}, {"what": 4}, {"matching": lambda m: m > 3}):
            probe.ref.tell(3)
            with pytest.raises(AssertionError, match="3"):
                probe.expect(timeout=10, **expectation)
        probe.ref.tell("unexpected")
        with pytest.raises(AssertionError, match="unexpected"):
            probe.expect_no_message(10)

    if deterministic:
        with Deterministic() as sim:
            check(sim.system)
    else:
        with an.System() as system:
            check(system)


class Noter(an.Actor):
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def receive(self, message: Any) -> None:
        self.notes.append(f"{self.name}{message}")


def schedule(seed: int) -> list[str]:
    notes: list[str] = []
    with Deterministic(seed) as sim:
        refs = [sim.system.spawn(Noter, name, notes) for name in "abc"]
        for i in range(5):
            for ref in refs:
                ref.tell(i)
        assert sim.run() > 15
    return notes


def test_a_seed_decides_the_schedule() -> None:
    assert schedule(3) == schedule(3)
    schedules = [schedule(seed) for seed in range(10)]
    assert len({tuple(each) for each in schedules}) > 5
    for notes in schedules:
        for name in "abc":
            assert [note for note in notes if note[0] == name] == [f"{name}{i}" for i in range(5)]


def test_a_race_that_a_seed_finds() -> None:
    class Account(an.Actor):
        def __init__(self) -> None:
            self.amount = 0

        def receive(self, message: Any) -> int:
            if message is not None:
                self.amount = message
            return self.amount

    class Deposit(an.Actor):
        def receive(self, account: an.ActorRef) -> None:
            amount = account.ask(None).result()  # read, and then write: the schedule decides what is lost
            account.tell(amount + 1)

    totals = set()
    for seed in range(30):
        with Deterministic(seed) as sim:
            account = sim.system.spawn(Account)
            for _ in range(3):
                sim.system.spawn(Deposit).tell(account)
            sim.run()
            totals.add(account.ask(None).result())
    assert 3 in totals
    assert totals - {3}


def test_no_threads_and_no_time() -> None:
    before = threading.active_count()
    with Deterministic() as sim:
        echo = sim.system.spawn(Noter, "x", [])
        for i in range(10):
            echo.tell(i)
        assert threading.active_count() == before
        assert sim.clock.now() == 0
        sim.advance(5)
        assert sim.clock.now() == 5


def test_what_never_comes_to_rest_is_an_error() -> None:
    class Forever(an.Actor):
        def receive(self, message: Any) -> None:
            self.context.self_ref.tell(message)

    with Deterministic() as sim:
        ref = sim.system.spawn(Forever)
        ref.tell(1)
        with pytest.raises(an.AtomrError, match="did not come to rest within 100"):
            sim.run(max_steps=100)
        ref.kill()


def test_waiting_for_what_never_comes() -> None:
    class Silent(an.Actor):
        def receive(self, message: Any) -> None:
            self.kept = self.context.reply_later()

    with Deterministic() as sim:
        ref = sim.system.spawn(Silent)
        answer = ref.ask(1)
        with pytest.raises(an.AskTimeout):
            answer.result()
        assert answer.wait(1000) is False


def test_awaiting_runs_the_actors() -> None:
    class Double(an.Actor):
        def receive(self, message: int) -> int:
            return 2 * message

    with Deterministic() as sim:
        ref = sim.system.spawn(Double)

        async def main() -> int:
            value: int = await ref.ask(3)
            return value

        assert asyncio.run(main()) == 6


def test_ctrl_c_in_a_stepped_actor_is_the_tests() -> None:
    class Interrupted(an.Actor):
        def receive(self, message: Any) -> None:
            raise KeyboardInterrupt

    with Deterministic() as sim:
        sim.system.spawn(Interrupted).tell(1)
        with pytest.raises(KeyboardInterrupt):
            sim.run()


def test_the_fake_clock_alone() -> None:
    clock = FakeClock(10)
    calls: list[Any] = []
    clock.call_at(12, lambda: calls.append(("b", clock.now())))
    clock.call_at(11, lambda: calls.append(("a", clock.now())))
    clock.call_at(12, lambda: 1 / 0)  # is logged
    item = clock.call_at(11.5, lambda: calls.append("cancelled"))
    item.cancel()
    clock.call_at(11, lambda: clock.call_at(11.5, lambda: calls.append("nested")))
    assert clock.next_due() == 11
    assert clock.advance(1.75) == 3
    assert calls == [("a", 11), "nested"]
    assert clock.now() == 11.75
    assert clock.advance(10) == 2
    assert calls[-1] == ("b", 12)
    assert clock.next_due() is None
    clock.call_at(100, lambda: None)
    clock.close()
    assert clock.advance(1000) == 0
