"""Handlers by annotation, behaviors that change, stashing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import atomr_native as an
from atomr_native.testing import Deterministic


@dataclass(frozen=True)
class Step:
    size: int


@dataclass(frozen=True)
class BigStep(Step):
    pass


class Counter(an.Actor):
    def __init__(self, total: int = 0) -> None:
        self.total = total

    @an.handler
    def on_step(self, message: Step) -> int:
        self.total += message.size
        return self.total

    @an.handler
    def on_big_step(self, message: BigStep) -> str:
        return "big"

    @an.handler
    def on_words(self, message: str | bytes) -> str:
        return str(message)


class Derived(Counter):
    def on_words(self, message: str | bytes) -> str:
        return "derived"

    @an.handler
    def on_number(self, message: float) -> float:
        return message


def test_handlers_by_type() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Counter, total=10)
        assert ref.ask(Step(5)).result() == 15
        assert ref.ask(BigStep(5)).result() == "big"
        assert ref.ask("a").result() == "a"
        assert ref.ask(b"a").result() == "b'a'"
        with pytest.raises(an.UnhandledMessage, match=r"no handler for int; it handles BigStep, Step, bytes, str"):
            ref.ask(3).result()
        ref.tell(3)
        sim.run()
        (letter,) = sim.system.dead_letters
        assert isinstance(letter.error, an.UnhandledMessage)
        assert ref.stats()["restarts"] == 0
        other = sim.system.spawn(Derived)
        assert other.ask("a").result() == "derived"
        assert other.ask(1.5).result() == 1.5
        assert other.ask(Step(1)).result() == 1


def test_unhandled_may_be_overridden() -> None:
    class Fallback(Counter):
        def unhandled(self, message: object) -> str:
            return f"no idea of {message}"

    with Deterministic() as sim:
        assert sim.system.spawn(Fallback).ask(3).result() == "no idea of 3"


def test_handlers_that_cannot_work_are_refused() -> None:
    with pytest.raises(an.InvalidRequest, match="both receive and handlers"):

        class Both(an.Actor):
            def receive(self, message: Any) -> None: ...

            @an.handler
            def on_int(self, message: int) -> None: ...

    class Twice(an.Actor):
        @an.handler
        def one(self, message: int) -> None: ...

        @an.handler
        def two(self, message: int | str) -> None: ...

    class Bare(an.Actor):
        @an.handler
        def one(self, message) -> None: ...  # type: ignore[no-untyped-def]

    class Many(an.Actor):
        @an.handler
        def one(self, message: int, other: int) -> None: ...

    class Generic(an.Actor):
        @an.handler
        def one(self, message: list[int]) -> None: ...

    class Unknown(an.Actor):
        @an.handler
        def one(self, message: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with Deterministic() as sim:
        for kind, why in (
            (Twice, "two handlers of int: one and two"), (Bare, "needs an annotation"), (Many, "one argument"),
            (Generic, "a class, or a union"), (Unknown, "cannot be resolved"),
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest, match=why):
                sim.system.spawn(kind)
        assert sim.system.stats()["actors"] == {}


# ---- behaviors and stashing


def test_become_and_unbecome() -> None:
    class Light(an.Actor):
        def receive(self, message: str) -> str:
            if message == "turn":
                self.context.become(self.green, discard_old=False)
            return "red"

        def green(self, message: str) -> str:
            if message == "turn":
                self.context.unbecome()
            elif message == "fail":
                raise ValueError
            elif message == "replace":
                self.context.become(lambda _: "other")
            return "green"

    with Deterministic() as sim:
        ref = sim.system.spawn(Light)
        assert [ref.ask(m).result() for m in ("a", "turn", "a", "turn", "a")] == ["red", "red", "green", "green", "red"]
        ref.tell("turn")
        assert ref.ask("a").result() == "green"
        ref.tell("fail")
        assert ref.ask("a").result() == "red"  # a restart goes back
        ref.tell("turn")
        assert [ref.ask(m).result() for m in ("replace", "a")] == ["green", "other"]


class Opening(an.Actor):
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def receive(self, message: Any) -> Any:
        if message == "open":
            self.context.become(self.opened)
            self.context.unstash_all()
            return None
        if message == "fail":
            raise ValueError
        self.context.stash()
        return "no answer"

    def opened(self, message: Any) -> Any:
        self.seen.append(message)
        return message


def test_stashed_messages_keep_their_order_and_their_askers() -> None:
    seen: list[Any] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Opening, seen)
        answers = [ref.ask(i) for i in range(3)]
        sim.run()
        assert not any(answer.done() for answer in answers)
        assert ref.stats()["stashed"] == 3
        ref.tell("open")
        ref.tell(3)
        sim.run()
        assert [answer.result() for answer in answers] == [0, 1, 2]
        assert seen == [0, 1, 2, 3]


def test_a_stash_is_bounded_and_outlives_a_restart() -> None:
    seen: list[Any] = []
    with Deterministic() as sim:
        ref = sim.system.spawn(Opening, seen, mailbox=an.Mailbox(2))
        ref.tell("a")
        ref.tell("b")
        sim.run()
        with pytest.raises(an.MailboxFull, match="stash"):
            ref.ask("c").result()  # which restarts it, and brings the stash back
        sim.run()
        assert ref.stats()["stashed"] == 2
        ref.tell("open")
        sim.run()
        assert seen == ["a", "b"]


def test_a_stash_is_answered_when_the_actor_stops() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Opening, [])
        answer = ref.ask("a")
        ref.tell("b")
        sim.run()
        ref.stop()
        with pytest.raises(an.ActorStopped):
            answer.result()
        assert [letter.text for letter in sim.system.dead_letters] == ["'b'"]
