"""Failures of actors: directives, budgets, pauses, constructors and hooks that fail."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from actions import eventually
from example_actors import Call, Worker

import atomr_native as an
from atomr_native.testing import Deterministic, FakeClock, Probe


def test_a_restart_keeps_address_and_mailbox_and_does_not_retry() -> None:
    notes: list[str] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, notes)
        ref.tell(1)
        failed = ref.ask(ValueError("x"))
        behind = [ref.ask(i) for i in range(3)]
        sim.run()
        with pytest.raises(ValueError, match="x"):
            failed.result()
        assert [answer.result() for answer in behind] == [1, 2, 3]  # new state, same mailbox
        assert ref.stats()["processed"] == 5
        assert ref.stats()["restarts"] == 1
        assert notes == [
            "made", "pre_start", "pre_restart ValueError('x') ValueError('x')", "post_stop",
            "made", "post_restart ValueError('x')", "pre_start",
        ]  # fmt: skip


@pytest.mark.parametrize("directive", ["resume", an.Directive.RESUME])
def test_resume_keeps_the_state(directive: Any) -> None:
    notes: list[str] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, notes, supervision=an.OneForOne({ValueError: directive}, max_restarts=0))
        assert ref.ask(1).result() == 1
        for _ in range(5):
            ref.tell(ValueError())
        assert ref.ask(1).result() == 2
        assert notes == ["made", "pre_start"]
        assert ref.stats()["failed"] == 5


def test_stop_by_type() -> None:
    strategy = an.OneForOne({OSError: "stop", FileNotFoundError: "resume", Exception: "restart"})
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker, supervision=strategy)
        probe.watch(ref)
        assert ref.ask(1).result() == 1
        ref.tell(FileNotFoundError())
        assert ref.ask(1).result() == 2
        ref.tell(KeyError())
        assert ref.ask(1).result() == 1
        ref.tell(PermissionError("no"))
        late = ref.ask(1)
        with pytest.raises(an.ActorStopped, match="PermissionError: no"):
            late.result()
        assert isinstance(probe.expect_terminated(ref).error, PermissionError)


def test_deciders_may_be_functions_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def decide(error: BaseException) -> an.Directive:
        if str(error) == "odd":
            return "what?"  # type: ignore[return-value]
        return an.Directive.RESUME

    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, supervision=an.OneForOne(decide))
        ref.tell(ValueError("even"))
        assert ref.ask(1).result() == 1
        ref.tell(ValueError("odd"))
        sim.run()
        assert ref.stopped  # escalated, and nobody is above
        assert "decider" in caplog.text


def test_bad_strategies_are_refused() -> None:
    for options in (
        {"max_restarts": -1}, {"max_restarts": 1.5}, {"max_restarts": True}, {"within": -1}, {"within": "x"},
        {"backoff": -1}, {"jitter": 2}, {"max_backoff": None}, {"decide": 3}, {"decide": {3: "stop"}},
        {"decide": {ValueError: "explode"}}, {"decide": {int: "stop"}},
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest):
            an.OneForOne(**options)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="supervision"):

        class Bad(an.Actor):
            supervision = 3  # type: ignore[assignment]


# ---- budgets and pauses


def test_the_first_restart_is_at_once_and_later_ones_pause() -> None:
    strategy = an.OneForOne(max_restarts=10, within=100.0, backoff=1.0, max_backoff=4.0, jitter=0.0)
    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, supervision=strategy)
        for pause in (0.0, 1.0, 2.0, 4.0, 4.0):
            ref.tell(ValueError())
            answer = ref.ask("after")
            sim.run()
            if pause:
                assert ref.stats()["state"] == "waiting"
                sim.advance(pause - 0.01)
                assert not answer.done()
                sim.advance(0.01)
            assert answer.result() == 1
        assert ref.stats()["restarts"] == 5
        sim.advance(100)  # the window has passed
        ref.tell(ValueError())
        assert ref.ask("at once").result() == 1


def test_pauses_have_jitter() -> None:
    pauses = []
    for seed in range(20):
        with Deterministic(seed) as sim:
            ref = sim.system.spawn(Worker, supervision=an.OneForOne(backoff=1.0, jitter=0.5))
            ref.tell(ValueError())
            ref.tell(ValueError())
            sim.run()
            due = sim.clock.next_due()
            assert due is not None
            pauses.append(due)
    assert all(0.5 <= pause <= 1.5 for pause in pauses)
    assert len(set(pauses)) > 10


def test_a_seed_decides_the_pauses_of_a_system() -> None:
    """`System(seed=)`: the pauses of actors that fail one after the other; without one they differ each time."""

    def pauses(seed: int | None) -> list[float]:
        clock, found = FakeClock(), []
        with an.System(seed=seed, clock=clock) as system:
            for _ in range(6):
                ref = system.spawn(Worker, supervision=an.OneForOne(backoff=1.0, jitter=0.5))
                ref.tell(ValueError())
                ref.tell(ValueError())
                eventually(lambda ref=ref: ref.stats()["state"] == "waiting" and clock.next_due() is not None)
                due = clock.next_due()
                assert due is not None
                found.append(due - clock.now())
                clock.advance(10.0)
        return found

    assert pauses(5) == pauses(5) != pauses(6)
    assert pauses(None) != pauses(None)


def test_a_spent_budget_stops_the_actor(caplog: pytest.LogCaptureFixture) -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker, supervision=an.OneForOne(max_restarts=2, within=10, backoff=0))
        probe.watch(ref)
        for _ in range(3):
            ref.tell(ValueError())
        asked = ref.ask("never")
        with pytest.raises(an.ActorStopped):
            asked.result()
        probe.expect_terminated(ref)
        assert ref.stats()["restarts"] == 2
        assert "more than 2 restarts within 10 s" in caplog.text


def test_budgets_are_those_of_each_child() -> None:
    class Parent(an.Actor):
        supervision = an.OneForOne(max_restarts=2, within=100, backoff=0)

        def pre_start(self) -> None:
            for i in range(3):
                self.context.spawn(Worker, name=str(i))

        def receive(self, message: Any) -> None: ...

    with Deterministic() as sim:
        sim.system.spawn(Parent, name="p")
        sim.run()
        for _ in range(2):
            for i in range(3):
                ref = sim.system.find(f"/p/{i}")
                assert ref is not None
                ref.tell(ValueError())
        sim.run()
        assert [sim.system.stats()["actors"][f"/p/{i}"]["restarts"] for i in range(3)] == [2, 2, 2]


def test_no_limit() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, supervision=an.OneForOne(max_restarts=None, backoff=0))
        for _ in range(50):
            ref.tell(ValueError())
        assert ref.ask(1).result() == 1
        assert ref.stats()["restarts"] == 50


# ---- constructors and hooks that fail


def test_a_throwing_constructor_leaves_no_zombie() -> None:
    class Broken(an.Actor):
        made = 0

        def __init__(self) -> None:
            type(self).made += 1
            raise RuntimeError("cannot")

    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Broken, name="broken", supervision=an.OneForOne(max_restarts=2, backoff=0))
        probe.watch(ref)
        asked = ref.ask("x")
        ref.tell("y")
        with pytest.raises(an.ActorStopped, match="cannot"):
            asked.result()
        probe.expect_terminated(ref)
        assert Broken.made == 3
        assert sim.system.find("/broken") is None
        assert [letter.text for letter in sim.system.dead_letters] == ["'y'"]
        sim.system.spawn(Worker, name="broken")  # the name is free


def test_children_of_a_throwing_constructor_end_with_it() -> None:
    class Half(an.Actor):
        def __init__(self) -> None:
            self.context.spawn(Worker, name="child")
            raise RuntimeError("half-way")

    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Half, name="half", supervision=an.OneForOne(max_restarts=1, backoff=0))
        probe.watch(ref)
        probe.expect_terminated(ref)
        assert set(sim.system.stats()["actors"]) == {probe.ref.path}


def test_a_constructor_that_works_the_second_time() -> None:
    class Shy(an.Actor):
        made = 0

        def __init__(self) -> None:
            type(self).made += 1
            if self.made == 1:
                raise RuntimeError("not yet")

        def receive(self, message: Any) -> Any:
            return message

    for directive in ("restart", "resume"):  # there is nothing to resume
        Shy.made = 0
        with Deterministic() as sim:
            ref = sim.system.spawn(Shy, supervision=an.OneForOne({RuntimeError: directive}))
            assert ref.ask(3).result() == 3


def test_resuming_what_cannot_be_constructed_is_bounded_by_its_budget() -> None:
    class Broken(an.Actor):
        made = 0

        def __init__(self) -> None:
            type(self).made += 1
            raise RuntimeError("cannot")

    class Up(an.Actor):
        supervision = an.OneForOne({RuntimeError: "escalate"}, max_restarts=2, backoff=0)

        def pre_start(self) -> None:
            self.context.spawn(Broken, name="broken")

        def receive(self, message: Any) -> Any:
            return message

    resume = {RuntimeError: "resume"}
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Broken, supervision=an.OneForOne(resume, max_restarts=3, backoff=0))
        probe.watch(ref)
        probe.expect_terminated(ref)
        assert Broken.made == 4
        Broken.made = 0
        up = sim.system.spawn(Up, name="up", supervision=an.OneForOne(resume))
        sim.run()
        assert Broken.made == 3
        assert sim.system.find("/up/broken") is None
        assert up.ask("here").result() == "here"


def test_an_actor_that_is_resumed_after_pre_start_has_started() -> None:
    class Shaky(an.Actor):
        def pre_start(self) -> None:
            raise RuntimeError("never mind")

        def receive(self, message: Any) -> Any:
            return message

    with Deterministic() as sim:
        ref = sim.system.spawn(Shaky, supervision=an.OneForOne({RuntimeError: "resume"}))
        assert ref.ask(1).result() == 1
        assert ref.started.result() is None


@pytest.mark.parametrize("hook", ["pre_start", "post_restart", "pre_restart", "post_stop"])
def test_hooks_that_fail(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    class Bad(Worker):
        def __init__(self) -> None:
            super().__init__()

    def fail(self: Any, *args: Any) -> None:
        calls.append(hook)
        if len(calls) == 1:
            raise RuntimeError(f"in {hook}")

    setattr(Bad, hook, fail)
    with Deterministic() as sim:
        ref = sim.system.spawn(Bad, supervision=an.OneForOne(backoff=0, max_restarts=5))
        ref.tell(ValueError())
        assert ref.ask(1).result() == 1
        ref.stop()
        sim.run()
        assert ref.stopped
        assert calls
        assert f"in {hook}" in caplog.text
    assert not sim.system.dead_letters


def test_restarts_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Deterministic() as sim:
        ref = sim.system.spawn(Worker, name="logged")
        ref.tell(ValueError("why"))
        sim.run()
    text = caplog.text
    assert "actor /logged failed at ValueError: Traceback" in text
    assert "ValueError: why" in text
    assert "actor /logged restarted (1 so far) after ValueError: why" in text


def test_by_default_an_actor_restarts_three_times_in_a_minute() -> None:
    with Deterministic() as sim:
        ref, other = sim.system.spawn(Worker), sim.system.spawn(Worker)
        for failures in range(1, 5):
            ref.tell(ValueError())
            sim.advance(15)
            assert ref.stopped == (failures == 4)
        for _ in range(6):
            other.tell(ValueError())
            sim.advance(21)  # never more than three in a minute
        sim.advance(1)  # the last pause
        assert other.stats()["restarts"] == 6


def test_what_is_no_exception_escalates_by_default() -> None:
    class Parent(an.Actor):
        def pre_start(self) -> None:
            self.context.spawn(Worker, name="child")

        def receive(self, message: Any) -> None: ...

    with Deterministic() as sim:
        parent = sim.system.spawn(Parent, name="p", supervision=an.OneForOne({SystemExit: "restart"}))
        sim.run()
        child = sim.system.find("/p/child")
        assert child is not None
        with pytest.raises(SystemExit):
            child.ask(SystemExit(3)).result()
        sim.run()
        assert parent.stats()["restarts"] == 1
        assert child.stopped
        assert sim.system.find("/p/child") not in (None, child)


@pytest.mark.parametrize(("directive", "handled"), [("restart", 2), ("resume", 2), ("stop", 0), ("escalate", 0)])
def test_a_child_that_fails_while_its_parent_stops_is_supervised(directive: str, handled: int) -> None:
    """Its parent waits for it to finish what it has: nothing else would decide about it."""
    notes: list[str] = []

    class Parent(an.Actor):
        supervision = an.OneForOne({ValueError: directive}, backoff=0)

        def pre_start(self) -> None:
            self.child = self.context.spawn(Worker, notes)

        def receive(self, message: Any) -> None:
            for each in (ValueError("one"), 1, ValueError("two"), 2):
                answers.append(self.child.ask(each))

    answers: list[an.Answer] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Parent)
        ref.tell("go")
        ref.stop()
        sim.run()
        assert ref.join(0)
        assert sum(answer.exception() is None for answer in answers) == handled
        assert notes.count("made") == (3 if directive == "restart" else 1)
        assert notes[-1] == "post_stop"


@pytest.mark.parametrize("seed", range(4))
def test_a_child_whose_parent_stops_before_it_is_decided_about_stops(seed: int) -> None:
    """The parent fails with its child, and is stopped before its own supervisor has said what becomes of them."""

    class Parent(an.Actor):
        supervision = an.OneForOne({ValueError: "escalate"})

        def pre_start(self) -> None:
            self.child = self.context.spawn(Worker)

        def receive(self, message: Any) -> None:
            for each in (ValueError(), 1):
                answers.append(self.child.ask(each))

    answers: list[an.Answer] = []
    with Deterministic(seed=seed) as sim:
        ref = sim.system.spawn(Parent)
        ref.tell("go")
        assert sim.run_until(lambda: ref.stats()["state"] == "failed")
        ref.stop()
        sim.run()
        assert ref.join(0)
        for answer in answers:
            assert answer.exception() is not None


def test_a_failure_after_a_restart_with_others_is_decided_about() -> None:
    """It fails, is restarted with its sibling, and fails again before its parent has looked at the first failure."""
    gates = {name: threading.Event() for name in ("child", "parent")}
    children: list[an.ActorRef] = []

    def fail(actor: Any) -> None:
        raise ValueError("at once")

    def fail_later(actor: Any) -> None:
        gates["child"].wait(30)
        raise ValueError("later")

    class Parent(Call):
        supervision = an.AllForOne(max_restarts=None, backoff=0)

        def pre_start(self) -> None:
            children.extend(self.context.spawn(Call) for _ in range(2))

    with an.System() as system:
        parent = system.spawn(Parent)
        parent.ask(lambda _: None).result(30)
        child, sibling = children
        child.tell(fail_later)
        eventually(lambda: child.stats()["processed"] == 1)
        sibling.tell(fail)
        eventually(lambda: sibling.stats()["restarts"] == 1)  # so the child has been told to restart, too
        parent.tell(lambda _: gates["parent"].wait(30))
        eventually(lambda: parent.stats()["processed"] == 2)
        child.tell(fail)
        gates["child"].set()
        eventually(lambda: child.stats()["failed"] == 2)
        gates["parent"].set()
        assert child.ask(lambda _: "fine").result(30) == "fine"
