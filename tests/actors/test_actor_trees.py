"""Failures in trees of actors: groups that restart together, children and their parents, escalation."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from example_actors import Worker

import atomr_native as an
from atomr_native.testing import Deterministic


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
        assert "it has no supervisor" in caplog.text
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
