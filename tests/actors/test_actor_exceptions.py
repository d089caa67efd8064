"""Exceptions that resist handling, and askers that no handler answers."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.testing import Deterministic


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """None of its attributes can be set."""

    code: int


class Mute(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Opaque(Exception):
    """Neither its attributes nor a copy can be had."""

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError(f"{name} is read only")

    def __copy__(self) -> Any:
        raise TypeError("there is one only")

    __reduce_ex__ = __copy__  # type: ignore[assignment]


class Run(an.Actor):
    def receive(self, message: Any) -> Any:
        return message(self)


class RunAsync(an.Actor):
    async def receive(self, message: Any) -> Any:
        result = message(self)
        return await result if asyncio.iscoroutine(result) else result


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


def thrown(error: BaseException) -> Any:
    def throw(actor: Any) -> None:
        raise error

    return throw


@pytest.mark.parametrize("kind", [Run, RunAsync])
@pytest.mark.parametrize("error", [Frozen(3), Mute("x"), Opaque("y")], ids=["frozen", "mute", "opaque"])
def test_any_exception_reaches_the_asker_and_restarts_the_actor(
    system: an.System, kind: type[an.Actor], error: Exception
) -> None:
    ref = system.spawn(kind, supervision=an.OneForOne(backoff=0))
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            ref.ask(thrown(error)).result(30)
        assert caught.value.args == error.args
        assert vars(caught.value) == vars(error)
    assert ref.ask(lambda _: "fine").result(30) == "fine"
    assert ref.stats()["restarts"] == 2
    assert error.__traceback__ is None


@pytest.mark.parametrize("error", [Frozen(3), Mute("x"), Opaque("y")], ids=["frozen", "mute", "opaque"])
@pytest.mark.parametrize("directive", ["resume", "stop", "escalate"])
def test_any_exception_is_supervised(error: Exception, directive: str) -> None:
    class Parent(an.Actor):
        supervision = an.OneForOne({type(error): directive})

        def pre_start(self) -> None:
            self.child = self.context.spawn(Run, name="child")

        def receive(self, message: Any) -> None:
            self.child.tell(message)

    with Deterministic() as sim:
        parent = sim.system.spawn(Parent, name="p")
        sim.run()
        child = sim.system.find("/p/child")
        assert child is not None
        parent.tell(thrown(error))
        sim.run()
        assert child.stopped == (directive != "resume")
        assert parent.stats()["restarts"] == (directive == "escalate")
        if child.stopped:
            with pytest.raises(an.ActorStopped):
                child.ask(1).result()


def test_hooks_and_deciders_may_raise_anything() -> None:
    class Hooks(Run):
        def pre_restart(self, error: BaseException, message: object) -> None:
            raise Frozen(1)

        def post_stop(self) -> None:
            raise Mute("x")

    def decide(error: BaseException) -> an.Directive:
        raise SystemExit(4) if isinstance(error, Mute) else Mute("of the decider")

    with Deterministic() as sim:
        ref = sim.system.spawn(Hooks)
        with pytest.raises(KeyError):
            ref.ask(thrown(KeyError())).result()
        assert ref.ask(lambda _: 1).result() == 1
        for error in (Mute("x"), KeyError()):
            decided = sim.system.spawn(Run, supervision=an.OneForOne(decide))
            with pytest.raises(type(error)):
                decided.ask(thrown(error)).result()
            sim.run()
            assert decided.stopped  # a decider that fails escalates


def test_dropped_answers_may_be_any_exception() -> None:
    """`fail` and `reply_later` take errors of users, too."""
    with Deterministic() as sim:
        ref = sim.system.spawn(Run)
        with pytest.raises(Frozen):
            ref.ask(lambda actor: actor.context.fail(Frozen(5)) and None).result()
        with pytest.raises(Opaque):
            ref.ask(lambda actor: actor.context.reply_later().fail(Opaque("z")) and None).result()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("where", ["handler", "pre_start", "task", "callback"])
def test_exits_of_coroutines_are_supervised(
    system: an.System, error: BaseException, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[str] = []

    class Parent(RunAsync):
        supervision = an.OneForOne({type(error): "restart"}, backoff=0)

    class Child(RunAsync):
        async def pre_start(self) -> None:
            made.append("made")
            await asyncio.sleep(0)
            if where == "pre_start" and len(made) == 1:
                raise error

    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    async def begin(actor: Child) -> None:
        actor.task = asyncio.create_task(leave())  # type: ignore[attr-defined]

    async def call(actor: Child) -> None:
        asyncio.get_running_loop().call_soon(thrown(error), None)

    parent = system.spawn(Parent)
    child = parent.ask(lambda actor: actor.context.spawn(Child)).result(30)
    if where == "handler":
        asked = child.ask(lambda _: leave())
        with pytest.raises(type(error)):
            asked.result(30)
    elif where != "pre_start":
        assert child.ask(begin if where == "task" else call).result(30) is None
    eventually(lambda: len(made) == 2)
    assert child.ask(lambda _: "fine").result(30) == "fine"
    assert child.stats()["restarts"] == 1
    assert parent.stats()["restarts"] == 0
    assert ("failed in a background task" in caplog.text) == (where in ("task", "callback"))


def test_an_exit_of_a_background_task_at_the_end_leaves_nothing(
    system: an.System, caplog: pytest.LogCaptureFixture
) -> None:
    async def stay() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            raise SystemExit(1)

    async def begin(actor: Any) -> None:
        actor.task = asyncio.create_task(stay())
        await asyncio.sleep(0)

    ref = system.spawn(RunAsync, name="exits")
    ref.ask(begin).result(30)
    thread = ref.cell.thread
    assert thread is not None
    ref.stop()
    assert ref.join(30)
    thread.join(30)
    assert not thread.is_alive()
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("how", ["sync", "coroutine", "stash"])
def test_close_answers_the_askers_of_actors_that_block(how: str, caplog: pytest.LogCaptureFixture) -> None:
    gate, began = threading.Event(), threading.Event()

    class Both(an.Actor):
        reentrant = 2

        @an.handler
        def on_int(self, message: int) -> None:
            began.set()
            gate.wait(60)

        @an.handler
        async def on_str(self, message: str) -> None:
            await asyncio.sleep(0)
            self.on_int(1)

        @an.handler
        def on_bytes(self, message: bytes) -> None:
            self.context.stash()

    system = an.System()
    ref = system.spawn(Both)
    asked = []
    if how == "stash":
        asked.append(ref.ask(b"later"))
    asked += [ref.ask("x"), ref.ask("y")] if how == "coroutine" else [ref.ask(1)]
    assert began.wait(30)
    asked.append(ref.ask(2))
    system.close(0.2)
    try:
        for answer in asked:
            with pytest.raises(an.ActorStopped):
                answer.result(0)
    finally:
        gate.set()
    thread = ref.cell.thread
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()
    assert ref.path in caplog.text


def test_a_pool_without_actors_refuses() -> None:
    for routing in ("broadcast", "round_robin"):
        with Deterministic() as sim:
            pool = sim.system.pool(Run, size=2, routing=routing)
            sim.run()
            letters: list[an.DeadLetter] = []
            sim.system.dead_letters.subscribe(letters.append)
            for ref in pool.refs:
                ref.stop()
            sim.run()
            assert pool.size == 0
            assert pool.tell("lost") is False
            with pytest.raises(an.ActorStopped, match="no actor left"):
                pool.ask("lost").result()
            assert [(letter.actor, letter.message) for letter in letters] == [(pool.head.path, "lost")]


def test_the_exceptions_of_these_tests_resist(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise they prove nothing."""
    for error in (Frozen(1), Opaque("x")):
        with pytest.raises((AttributeError, TypeError)):
            error.__traceback__ = None
        with pytest.raises((AttributeError, TypeError)):
            copy.copy(error)
    with pytest.raises(RuntimeError):
        str(Mute())
    with pytest.raises(RuntimeError):
        logging.getLogger("atomr_native.test").error("%s", Mute())
    caplog.clear()
