"""Failures of actors: directives, budgets, pauses, trees, death watch."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Worker(an.Actor):
    """Raises what it is sent, if that can be raised, and counts the rest."""

    def __init__(self, notes: list[str] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.count = 0
        self.notes.append("made")

    def pre_start(self) -> None:
        self.notes.append("pre_start")

    def post_stop(self) -> None:
        self.notes.append("post_stop")

    def pre_restart(self, error: BaseException, message: object) -> None:
        self.notes.append(f"pre_restart {error!r} {message!r}")
        super().pre_restart(error, message)

    def post_restart(self, error: BaseException) -> None:
        self.notes.append(f"post_restart {error!r}")
        super().post_restart(error)

    def receive(self, message: Any) -> int:
        if isinstance(message, BaseException):
            raise message
        self.count += 1
        return self.count


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


def test_children_that_fail_while_their_parent_restarts_change_nothing() -> None:
    class Up(Tree):
        supervision = an.OneForOne({ValueError: "escalate"})

    for seed in range(30):
        with Deterministic(seed) as sim:
            ref = sim.system.spawn(Up, "abc", [], name="t", supervision=an.OneForOne(max_restarts=10, backoff=0))
            sim.run()
            for name in "abc":
                sim.system.find(f"/t/{name}").tell(ValueError())  # type: ignore[union-attr]
            ref.tell(KeyError())
            assert ref.ask("x").result() == "x"
            sim.run()
            assert 1 <= ref.stats()["restarts"] <= 4
            assert len(sim.system.stats()["actors"]) == 4


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


def test_children_of_an_actor_that_is_resumed_go_on() -> None:
    class Parent(an.Actor):
        def pre_start(self) -> None:
            self.context.spawn(Worker, name="child")

        def receive(self, message: Any) -> None:
            raise ValueError(message)

    with Deterministic() as sim:
        parent = sim.system.spawn(Parent, name="p", supervision=an.OneForOne({ValueError: "resume"}))
        sim.run()
        child = sim.system.find("/p/child")
        assert child is not None
        assert child.ask("one").result() == 1
        parent.tell("fail")
        sim.run()
        assert child.ask("two").result() == 2


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


# ---- trees


class Tree(an.Actor):
    """Has children as told, under a strategy of its class."""

    def __init__(self, names: str, notes: list[str]) -> None:
        self.notes = notes
        self.names = names

    def pre_start(self) -> None:
        self.notes.append("up")
        for name in self.names:
            self.context.spawn(Leaf, name, self.notes, name=name)

    def post_stop(self) -> None:
        self.notes.append("down")

    def receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class Leaf(an.Actor):
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def pre_start(self) -> None:
        self.notes.append(f"up {self.name}")

    def post_stop(self) -> None:
        self.notes.append(f"down {self.name}")

    def receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        self.notes.append(f"{message} {self.name}")
        return message


class TogetherTree(Tree):
    supervision = an.AllForOne({KeyError: "stop", OSError: "resume"}, backoff=0)


@pytest.mark.parametrize("seed", range(5))
def test_all_for_one_restarts_all(seed: int) -> None:
    notes: list[str] = []
    with Deterministic(seed) as sim:
        sim.system.spawn(TogetherTree, "abc", notes, name="t")
        sim.run()
        refs = [sim.system.find(f"/t/{name}") for name in "abc"]
        notes.clear()
        refs[1].tell(ValueError())  # type: ignore[union-attr]
        sim.run()
        assert sorted(notes) == ["down a", "down b", "down c", "up a", "up b", "up c"]
        assert [ref.stats()["restarts"] for ref in refs] == [1, 1, 1]  # type: ignore[union-attr]
        notes.clear()
        refs[1].tell(OSError())  # type: ignore[union-attr]
        sim.run()
        assert notes == []
        refs[0].tell(KeyError())  # type: ignore[union-attr]
        sim.run()
        assert sorted(notes) == ["down a", "down b", "down c"]
        assert sim.system.find("/t") is not None


def test_all_for_one_by_the_object_given_to_spawn() -> None:
    notes: list[str] = []
    group = an.AllForOne(backoff=0)
    with Deterministic() as sim:
        a = sim.system.spawn(Leaf, "a", notes, supervision=group)
        sim.system.spawn(Leaf, "b", notes, supervision=group)
        sim.system.spawn(Leaf, "c", notes, supervision=an.AllForOne())
        sim.system.spawn(Leaf, "d", notes)
        sim.run()
        notes.clear()
        a.tell(ValueError())
        sim.run()
        assert sorted(notes) == ["down a", "down b", "up a", "up b"]


@pytest.mark.parametrize("seed", range(20))
def test_a_group_that_fails_together_restarts_once(seed: int) -> None:
    notes: list[str] = []
    with Deterministic(seed) as sim:
        sim.system.spawn(TogetherTree, "ab", notes, name="t")
        sim.run()
        a, b = (sim.system.find(f"/t/{name}") for name in "ab")
        notes.clear()
        a.tell(ValueError())  # type: ignore[union-attr]
        b.tell(ValueError())  # type: ignore[union-attr]
        sim.run()
        counts = (a.stats()["restarts"], b.stats()["restarts"])  # type: ignore[union-attr]
        assert counts in {(1, 1), (2, 2)}  # together, or one after the other
        assert a.ask("x").result() == "x"  # type: ignore[union-attr]
        assert b.ask("x").result() == "x"  # type: ignore[union-attr]


def test_children_stop_before_their_parent_and_restart_with_it() -> None:
    notes: list[str] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Tree, "ab", notes, name="t")
        sim.run()
        child = sim.system.find("/t/a")
        assert child is not None
        assert notes[0] == "up"
        notes.clear()
        ref.tell(ValueError())
        sim.run()
        # The old instance goes down, its children end, and only then comes the new one.
        assert notes[0] == "down"
        assert sorted(notes[1:3]) == ["down a", "down b"]
        assert notes[3] == "up"
        assert sorted(notes[4:]) == ["up a", "up b"]
        assert child.stopped
        notes.clear()
        ref.stop()
        sim.run()
        assert sorted(notes[:2]) == ["down a", "down b"]
        assert notes[2:] == ["down"]


def test_escalation_climbs_and_ends_at_the_top(caplog: pytest.LogCaptureFixture) -> None:
    class Up(Tree):
        supervision = an.OneForOne({ValueError: "escalate"})

    notes: list[str] = []
    with Deterministic() as sim:
        top = sim.system.spawn(Up, "a", notes, name="t", supervision=an.OneForOne({ValueError: "resume"}))
        sim.run()
        child = sim.system.find("/t/a")
        assert child is not None
        notes.clear()
        child.tell(ValueError("up"))
        sim.run()
        assert child.ask("still").result() == "still"  # the parent was resumed, and so was the child
        assert top.ask("here").result() == "here"
        assert notes == ["still a"]
        other = sim.system.spawn(Up, "b", notes, name="u", supervision=an.OneForOne({ValueError: "escalate"}))
        sim.run()
        sim.system.find("/u/b").tell(ValueError("top"))  # type: ignore[union-attr]
        sim.run()
        assert other.stopped
        assert sim.system.find("/u") is None
        assert "nobody is above" in caplog.text
        assert top.ask("here").result() == "here"


def test_a_parent_that_restarts_after_escalation_replaces_its_children() -> None:
    class Up(Tree):
        supervision = an.OneForOne({ValueError: "escalate"})

    notes: list[str] = []
    with Deterministic() as sim:
        sim.system.spawn(Up, "ab", notes, name="t")
        sim.run()
        child = sim.system.find("/t/a")
        child.tell(ValueError())  # type: ignore[union-attr]
        sim.run()
        assert child.stopped  # type: ignore[union-attr]
        assert sim.system.find("/t/a").ask("new").result() == "new"  # type: ignore[union-attr]
        assert notes.count("up") == 2


def test_a_parent_keeps_nothing_of_children_that_it_has_replaced() -> None:
    class Up(Tree):
        supervision = an.OneForOne({ValueError: "escalate"})

    with Deterministic() as sim:
        sim.system.spawn(Up, "a", [], name="t")
        sim.run()
        child = sim.system.find("/t/a")
        assert child is not None
        gone = weakref.ref(child.cell)
        child.tell(ValueError())
        sim.run()
        assert child.stopped
        del child
        gc.collect()
        assert gone() is None


# ---- death watch


@pytest.mark.parametrize("seed", range(10))
def test_terminated_comes_once_and_after_what_was_sent(seed: int) -> None:
    class Talker(an.Actor):
        def __init__(self, to: an.ActorRef) -> None:
            self.to = to

        def receive(self, message: Any) -> None:
            self.to.tell(message)

    with Deterministic(seed) as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Talker, probe.ref)
        probe.watch(ref)
        probe.watch(ref)
        for i in range(5):
            ref.tell(i)
        ref.stop()
        for i in range(5):
            probe.expect(i)
        assert probe.expect_terminated(ref).error is None
        probe.expect_no_message()
        probe.watch(ref)  # dead already
        probe.expect_terminated(ref)
        probe.expect_no_message()


class Watcher(an.Actor):
    def __init__(self, probe: an.ActorRef) -> None:
        self.probe = probe

    def receive(self, message: Any) -> None:
        if isinstance(message, tuple):
            what, target = message
            getattr(self.context, what)(target)
        elif isinstance(message, BaseException):
            raise message
        else:
            self.probe.tell(message)


def test_a_terminated_that_nobody_handles_is_no_failure() -> None:
    class Only(an.Actor):
        @an.handler
        def on_ref(self, message: an.ActorRef) -> None:
            self.context.watch(message)

    with Deterministic() as sim:
        watched = sim.system.spawn(Worker)
        ref = sim.system.spawn(Only)
        ref.ask(watched).result()
        watched.stop()
        sim.run()
        assert ref.stats()["failed"] == 0
        (letter,) = sim.system.dead_letters
        assert isinstance(letter.error, an.UnhandledMessage)


def test_unwatch_holds_back_what_is_queued() -> None:
    for seed in range(30):
        with Deterministic(seed) as sim:
            probe = Probe(sim.system)
            ref = sim.system.spawn(Worker)
            watcher = sim.system.spawn(Watcher, probe.ref)
            watcher.tell(("watch", ref))
            sim.run()
            ref.kill()
            watcher.tell(("unwatch", ref))
            watcher.tell("end")
            got = probe.expect()
            # Either it was delivered before the unwatch was handled, or not at all.
            assert got == "end" or (isinstance(got, an.Terminated) and probe.expect("end"))
            probe.expect_no_message()


def test_a_watch_outlives_the_restart_of_the_watcher() -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker)
        watcher = sim.system.spawn(Watcher, probe.ref)
        watcher.tell(("watch", ref))
        watcher.tell(ValueError())
        sim.run()
        ref.stop()
        assert probe.expect(an.Terminated).ref == ref


def test_a_restart_is_no_death() -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker)
        probe.watch(ref)
        ref.tell(ValueError())
        probe.expect_no_message()
        assert ref.ask(1).result() == 1


def test_the_watched_are_told_nothing_and_watchers_may_die_first() -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker)
        watcher = sim.system.spawn(Watcher, probe.ref)
        watcher.tell(("watch", ref))
        sim.run()
        watcher.kill()
        sim.run()
        ref.kill()
        sim.run()
        assert ref.stopped
        probe.expect_no_message()
        assert not sim.system.dead_letters


def test_actors_of_another_system_can_be_watched() -> None:
    with an.System() as one, an.System() as two:
        probe = Probe(one)
        running, stopped = two.spawn(Worker), two.spawn(Worker)
        stopped.stop()
        assert stopped.join(10)
        for ref in (running, stopped):
            probe.watch(ref)
        probe.expect_terminated(stopped)
        two.close()
        probe.expect_terminated(running)


def test_what_cannot_be_watched() -> None:
    class Self(an.Actor):
        def receive(self, message: Any) -> None:
            self.context.watch(self.context.self_ref if message == "me" else message, escalate=message != "me")

    with Deterministic() as sim:
        ref = sim.system.spawn(Self, supervision=an.OneForOne({Exception: "resume"}))
        with pytest.raises(an.InvalidRequest, match="cannot watch itself"):
            ref.ask("me").result()
        with pytest.raises(an.InvalidRequest, match="is for devices"):
            ref.ask(ref).result()
        with pytest.raises(an.InvalidRequest, match="allowed: an ActorRef or a Device"):
            ref.ask(3).result()
