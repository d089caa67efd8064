"""Actors whose handlers are coroutines."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


class Run(an.Actor):
    """Calls what it is sent, and awaits what that returns."""

    notes: list[str]

    def __init__(self, notes: list[str] | None = None) -> None:
        self.notes = [] if notes is None else notes

    async def pre_start(self) -> None:
        await asyncio.sleep(0)
        self.notes.append("pre_start")

    async def post_stop(self) -> None:
        await asyncio.sleep(0)
        self.notes.append("post_stop")

    async def receive(self, message: Any) -> Any:
        result = message(self)
        return await result if asyncio.iscoroutine(result) else result


class Wide(Run):
    reentrant = 3


class Serial(an.Actor):
    def __init__(self) -> None:
        self.at_work = 0
        self.most = 0

    async def receive(self, message: float) -> int:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await asyncio.sleep(message)
        self.at_work -= 1
        return self.most


class SerialWide(Serial):
    reentrant = 4


def test_one_message_at_a_time_unless_reentrant(system: an.System) -> None:
    ref = system.spawn(Serial)
    assert an.gather(*(ref.ask(0.001) for _ in range(10)), timeout=30)[-1] == 1
    wide = system.spawn(SerialWide)
    assert max(an.gather(*(wide.ask(0.01) for _ in range(10)), timeout=30)) == 4


def test_handlers_may_be_coroutines_or_not(system: an.System) -> None:
    class Mixed(an.Actor):
        @an.handler
        async def on_int(self, message: int) -> int:
            await asyncio.sleep(0)
            return message + 1

        @an.handler
        def on_str(self, message: str) -> str:
            return message.upper()

    ref = system.spawn(Mixed)
    assert an.gather(ref.ask(1), ref.ask("a"), ref.ask(2), timeout=30) == [2, "A", 3]
    with pytest.raises(an.UnhandledMessage):
        ref.ask(1.5).result(10)


def test_actors_await_each_other(system: an.System) -> None:
    class Front(an.Actor):
        def __init__(self, back: an.ActorRef) -> None:
            self.back = back

        async def receive(self, message: int) -> int:
            total: int = await self.back.ask(message, timeout=10)
            return total + 1

    class Back(an.Actor):
        def receive(self, message: int) -> int:
            return message * 2

    front = system.spawn(Front, system.spawn(Back))
    assert an.gather(*(front.ask(i) for i in range(50)), timeout=30) == [2 * i + 1 for i in range(50)]


@pytest.mark.parametrize("kind", [Run, Wide])
def test_failures_restart_and_reach_the_asker(system: an.System, kind: type[Run]) -> None:
    notes: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("late")

    ref = system.spawn(kind, notes, supervision=an.OneForOne(backoff=0))
    with pytest.raises(ValueError, match="late"):
        ref.ask(lambda _: fail()).result(10)
    with pytest.raises(KeyError):
        ref.ask(lambda _: {}["x"]).result(10)
    assert ref.ask(lambda _: 3).result(10) == 3
    eventually(lambda: ref.stats()["restarts"] == 2)
    assert notes == ["pre_start", "post_stop"] * 2 + ["pre_start"]
    ref.stop()
    assert ref.join(10)
    assert notes[-1] == "post_stop"


def test_kill_cancels_what_is_at_work(system: an.System) -> None:
    notes: list[str] = []

    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            notes.append("cancelled")
            raise

    ref = system.spawn(Run, notes)
    at_work, waiting = ref.ask(lambda _: sleep()), ref.ask(lambda _: 1)
    eventually(lambda: ref.stats()["processed"] == 1)
    ref.kill()
    for answer in (at_work, waiting):
        with pytest.raises(an.ActorStopped):
            answer.result(10)
    assert ref.join(10)
    assert notes == ["pre_start", "cancelled", "post_stop"]


def test_kill_cancels_a_start_that_waits(system: an.System) -> None:
    class Slow(an.Actor):
        async def pre_start(self) -> None:
            await asyncio.sleep(60)

        async def receive(self, message: Any) -> None: ...

    ref = system.spawn(Slow)
    asked = ref.ask(1)
    eventually(lambda: ref.cell.instance is not None)
    ref.kill()
    assert ref.join(30)
    with pytest.raises(an.ActorStopped):
        asked.result(0)
    with pytest.raises(an.ActorStopped):
        ref.started.result(10)


def test_kill_cancels_a_restart_that_waits(system: an.System) -> None:
    begun: list[str] = []

    class Slow(an.Actor):
        async def pre_start(self) -> None:
            if begun:
                begun.append("again")
                await asyncio.sleep(60)

        async def pre_restart(self, error: BaseException, message: object) -> None:
            begun.append("pre_restart")
            await asyncio.sleep(60)

        async def receive(self, message: Any) -> None:
            raise ValueError(message)

    ref = system.spawn(Slow)
    ref.tell(1)
    eventually(lambda: begun)
    asked = ref.ask(2)
    ref.kill()
    assert ref.join(30)
    assert begun == ["pre_restart"]
    with pytest.raises(an.ActorStopped):
        asked.result(0)


def test_an_actor_that_gets_no_event_loop_is_no_zombie(
    system: an.System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*args: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", none)
        ref = system.spawn(Run, name="run")
        assert ref.join(10)
    with pytest.raises(an.ActorStopped, match="Too many open files"):
        ref.ask(lambda _: 1).result(10)
    with pytest.raises(an.ActorStopped):
        ref.started.result(10)
    assert "internal error" in caplog.text
    assert system.spawn(Run, name="run").ask(lambda _: 1).result(10) == 1


def test_an_async_actor_knows_its_load(system: an.System) -> None:
    gate = threading.Event()

    async def wait() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.001)

    ref = system.spawn(Run)
    answers = [ref.ask(lambda _: wait()) for _ in range(3)]
    eventually(lambda: ref.stats()["processed"] == 1)
    assert ref.cell.load == 3
    gate.set()
    an.gather(*answers, timeout=10)


@pytest.mark.parametrize("kind", [Run, Wide])
def test_stop_waits_for_what_is_at_work(system: an.System, kind: type[Run]) -> None:
    ref = system.spawn(kind)

    async def sleep(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    answers = [ref.ask(lambda _: sleep(0.02)) for _ in range(5)]
    ref.stop()
    assert an.gather(*answers, timeout=10) == [0.02] * 5
    assert ref.join(10)


def test_a_sibling_failure_cancels_the_others_of_a_reentrant_actor(system: an.System) -> None:
    async def sleep() -> None:
        await asyncio.sleep(60)

    ref = system.spawn(Wide)
    slow = [ref.ask(lambda _: sleep()) for _ in range(2)]
    with pytest.raises(ZeroDivisionError):
        ref.ask(lambda _: 1 / 0).result(10)
    for answer in slow:
        with pytest.raises(an.ActorStopped, match="restarted"):
            answer.result(10)
    assert ref.ask(lambda _: 1).result(10) == 1


def test_several_failures_of_a_reentrant_actor_are_one(system: an.System) -> None:
    async def fail(error: Exception) -> None:
        await asyncio.sleep(0.001)
        raise error

    ref = system.spawn(Wide, supervision=an.OneForOne(max_restarts=100, backoff=0))
    for _ in range(20):
        answers = [ref.ask(lambda _: fail(ValueError())) for _ in range(3)]
        for answer in answers:
            assert answer.wait(10)
            assert isinstance(answer.exception(), ValueError | an.ActorStopped)
        assert ref.ask(lambda _: 1).result(10) == 1


def test_system_messages_come_while_a_handler_awaits(system: an.System) -> None:
    gate = threading.Event()
    probe = Probe(system)

    async def wait() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.001)

    ref = system.spawn(Run)
    at_work = ref.ask(lambda actor: wait())
    eventually(lambda: ref.stats()["processed"] == 1)
    probe.watch(ref)
    ref.stop()
    probe.expect_no_message(0.02)
    gate.set()
    at_work.result(10)
    probe.expect_terminated(ref)


def test_reply_later_sender_and_timers(system: an.System) -> None:
    class Later(an.Actor):
        def pre_start(self) -> None:
            self.context.timers.start_periodic(0.001, "tick")
            self.ticks = 0

        async def receive(self, message: Any) -> Any:
            if message == "tick":
                self.ticks += 1
                return None
            reply_to = self.context.reply_later()
            await asyncio.sleep(0.005)
            reply_to.reply(self.context.sender)
            return "no answer"

    ref = system.spawn(Later)
    assert ref.ask("x").result(10) is None
    eventually(lambda: ref.cell.instance.ticks > 3)  # type: ignore[attr-defined]


def test_a_reentrant_handler_knows_its_own_message(system: an.System) -> None:
    class Crossed(an.Actor):
        reentrant = 8

        async def receive(self, message: int) -> None:
            await asyncio.sleep(0.01 / message)  # the later the message, the sooner its reply
            self.context.reply(message * 10)

    ref = system.spawn(Crossed)
    assert an.gather(*(ref.ask(i) for i in range(1, 9)), timeout=10) == [10 * i for i in range(1, 9)]


def test_background_tasks_end_with_the_actor(system: an.System) -> None:
    notes: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            notes.append("ended")

    class Owner(an.Actor):
        async def receive(self, message: Any) -> None:
            self.task = asyncio.ensure_future(background())

    ref = system.spawn(Owner)
    ref.ask(1).result(10)
    ref.stop()
    assert ref.join(10)
    eventually(lambda: notes == ["ended"])


def test_a_handler_that_is_cancelled_by_others_fails(system: an.System) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    ref = system.spawn(Run)
    with pytest.raises(an.AtomrError, match="cancelled"):
        ref.ask(lambda _: cancelled()).result(10)
    assert ref.ask(lambda _: 1).result(10) == 1
    assert ref.stats()["restarts"] == 1


def test_stash_and_become_in_coroutines(system: an.System) -> None:
    class Opening(an.Actor):
        async def receive(self, message: Any) -> Any:
            if message == "open":
                self.context.become(self.opened)
                self.context.unstash_all()
            else:
                self.context.stash()

        async def opened(self, message: Any) -> Any:
            return message

    ref = system.spawn(Opening)
    answers = [ref.ask(i) for i in range(3)]
    ref.tell("open")
    assert an.gather(*answers, timeout=10) == [0, 1, 2]


def test_what_cannot_be() -> None:
    with pytest.raises(an.InvalidRequest, match="reentrant"):

        class Zero(an.Actor):
            reentrant = 0

    with Deterministic() as sim, pytest.raises(an.Unsupported, match="coroutines"):
        sim.system.spawn(Run)


def test_an_awaitable_from_a_plain_hook_is_an_error(system: an.System) -> None:
    async def nothing() -> None:
        await asyncio.sleep(0)

    class Odd(an.Actor):
        def pre_start(self) -> Any:
            return nothing()

        def receive(self, message: Any) -> None: ...

    ref = system.spawn(Odd, supervision=an.OneForOne({an.AtomrError: "stop"}))
    assert ref.join(10)
    with pytest.raises(an.ActorStopped):
        ref.ask(1).result(0)


def test_many_messages_through_the_event_loop(system: an.System) -> None:
    class Count(an.Actor):
        def __init__(self) -> None:
            self.count = 0

        async def receive(self, message: int) -> int:
            self.count += message
            return self.count

    ref = system.spawn(Count, mailbox=an.Mailbox(8))

    def send() -> None:
        for _ in range(300):
            ref.tell(1)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ref.ask(0).result(30) == 900
