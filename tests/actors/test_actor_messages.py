"""Actors: what is told and asked, and how it is answered."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually
from example_actors import Call, Echo

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


class Refused(OSError):
    """Has its number from its constructor."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)


def _raise(error: Exception) -> None:
    raise error


def test_tell_and_ask(system: an.System) -> None:
    seen: list[Any] = []

    class Keep(an.Actor):
        def receive(self, message: Any) -> int:
            seen.append(message)
            return len(seen)

    ref = system.spawn(Keep)
    assert ref.tell("a") is True
    answer = ref.ask("b")
    assert answer.result(10) == 2
    assert answer.result() == 2
    assert answer.done()
    assert answer.exception() is None
    assert seen == ["a", "b"]
    assert "resolved" in repr(answer)


def test_messages_of_one_sender_stay_in_order(system: an.System) -> None:
    seen: dict[int, list[int]] = {i: [] for i in range(4)}

    class Keep(an.Actor):
        def receive(self, message: tuple[int, int]) -> None:
            seen[message[0]].append(message[1])

    ref = system.spawn(Keep, mailbox=an.Mailbox(16))

    def send(sender: int) -> None:
        for i in range(500):
            (ref.ask if i % 7 == 0 else ref.tell)((sender, i))

    threads = [threading.Thread(target=send, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ref.stop()
    assert ref.join(30)
    assert all(numbers == list(range(500)) for numbers in seen.values())


def test_an_error_reaches_the_asker_without_frames(system: an.System) -> None:
    class Big:
        pass

    kept: list[weakref.ref[Big]] = []

    def fail(actor: Any) -> None:
        big = Big()
        kept.append(weakref.ref(big))
        raise ValueError("because")

    ref = system.spawn(Call)
    answer = ref.ask(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="because") as caught:
            answer.result(10)
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert "fail" not in frames
    error = answer.exception()
    assert isinstance(error, ValueError)
    assert error.__traceback__ is None
    del error, caught
    gc.collect()
    eventually(lambda: kept[0]() is None)  # the actor's thread lets go of it after it has answered


def test_errors_that_cannot_be_copied_are_raised_all_the_same(system: an.System) -> None:
    class Picky(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")
            self.a = a

    def fail(actor: Any) -> None:
        raise Picky(1, 2)

    answer = system.spawn(Call).ask(fail)
    for _ in range(2):
        with pytest.raises(Picky, match="1 and 2") as caught:
            answer.result(10)
        assert caught.value.a == 1


@pytest.mark.parametrize(
    ("error", "field", "value"),
    [(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no start"), "reason", "no start"), (Refused(2, "gone"), "errno", 2)],
)
def test_an_error_that_is_raised_twice_keeps_the_fields_of_its_class(error: Exception, field: str, value: Any) -> None:
    with Deterministic() as sim:
        answer = sim.system.spawn(Call).ask(lambda _: _raise(error))
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                answer.result()
            assert caught.value is not error
            assert getattr(caught.value, field) == value


def test_an_answered_asker_keeps_no_value() -> None:
    class Value:
        pass

    class Keep(an.Actor):
        def receive(self, message: Any) -> None:
            kept.append(self.context.reply_later())

    kept: list[an.ReplyTo] = []
    with Deterministic() as sim:
        answer = sim.system.spawn(Keep).ask("value")
        sim.run()
        value = Value()
        alive = weakref.ref(value)
        assert kept[0].reply(value)
        assert answer.result() is value
        del answer, value
        gc.collect()
        assert alive() is None
        assert not kept[0].reply()


def test_a_timeout_cancels_nothing(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call)
    answer = ref.ask(lambda _: gate.wait(30) and "late", timeout=0.0)
    for wait in (None, 0, 0.001):
        with pytest.raises(an.AskTimeout, match="not cancelled"):
            answer.result(wait)
    with pytest.raises(an.InvalidRequest, match="not resolved"):
        answer.exception()
    other = system.pool(Call, size=2)
    for wrong in ("1", True, -1, float("nan"), [1]):
        for use in (
            lambda t: ref.ask("x", timeout=t), lambda t: other.ask("x", timeout=t), answer.wait, answer.result,
            ref.join, lambda t: asyncio.run(ref.ask_async("x", timeout=t)), system.close,
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest) as caught:
                use(wrong)  # type: ignore[operator]
            assert f"timeout={wrong!r}; allowed: a number of seconds from 0 on" in str(caught.value)
    gate.set()
    assert ref.ask(lambda _: "next").result(10) == "next"
    assert answer.result() == "late"


def test_a_stopped_actor_answers_at_once(system: an.System) -> None:
    ref = system.spawn(Echo, name="gone")
    ref.stop()
    assert ref.join(10)
    assert ref.stopped
    answer = ref.ask(1)
    assert answer.done()
    with pytest.raises(an.ActorStopped, match="/gone"):
        answer.result(0)
    assert ref.tell("lost") is False
    letters = list(system.dead_letters)
    assert [(letter.actor, letter.text) for letter in letters] == [("/gone", "'lost'")]


def test_callbacks_and_gather(system: an.System) -> None:
    ref = system.spawn(Call)
    gate = threading.Event()
    got: list[Any] = []
    first = ref.ask(lambda _: gate.wait(30))
    first.add_done_callback(lambda answer: got.append(("a", answer.result(0))))
    first.add_done_callback(lambda answer: 1 / 0)
    first.add_done_callback(lambda answer: got.append(("b", answer.result(0))))
    with pytest.raises(an.InvalidRequest, match="callable"):
        first.add_done_callback(3)  # type: ignore[arg-type]
    assert got == []
    gate.set()
    second = ref.ask(lambda _: 5)
    assert an.gather(first, second, timeout=10) == [True, 5]
    eventually(lambda: len(got) == 2)
    assert got == [("a", True), ("b", True)]
    second.add_done_callback(lambda answer: got.append(answer.result(0)))
    assert got[-1] == 5
    with pytest.raises(ZeroDivisionError):
        an.gather(ref.ask(lambda _: 1 / 0), ref.ask(lambda _: 2), timeout=10)
    with pytest.raises(an.InvalidRequest, match="gather takes"):
        an.gather(3)


def test_gather_with_a_device(nothing_left: None) -> None:
    with an.System(standby="off") as system:
        x = system.device("host").put([1.0, 2.0])
        answer = system.spawn(Echo).ask("here")
        assert an.gather(x, answer, timeout=30) == [x, "here"]


def test_await_from_several_loops(system: an.System) -> None:
    ref = system.spawn(Echo)
    slow = system.spawn(Call)
    gate = threading.Event()
    results: list[list[Any]] = []

    async def main() -> list[Any]:
        late = slow.ask(lambda _: gate.wait(30))
        values = [await ref.ask(i) for i in range(50)]
        values += await asyncio.gather(*(ask(ref, i) for i in range(50)))
        gate.set()
        return [*values, await late, await late]

    async def ask(ref: an.ActorRef, message: int) -> Any:
        return await ref.ask(message, timeout=30)

    def run() -> None:
        results.append(asyncio.run(main()))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[*range(50), *range(50), True, True]] * 3


def test_await_with_a_timeout(system: an.System) -> None:
    gate = threading.Event()

    async def main() -> None:
        answer = system.spawn(Call).ask(lambda _: gate.wait(30), timeout=0.01)
        with pytest.raises(an.AskTimeout):
            await answer
        with pytest.raises(an.AskTimeout):
            await answer.settled()
        gate.set()

    asyncio.run(main())


def test_a_loop_that_closes_first_is_no_error(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref.ask(lambda _: gate.wait(30)).settled(), 0.01)

    asyncio.run(main())
    gate.set()
    assert ref.ask(lambda _: 1).result(10) == 1


def test_sender_reply_and_forward() -> None:
    class Front(an.Actor):
        def __init__(self, back: an.ActorRef) -> None:
            self.back = back

        def receive(self, message: Any) -> None:
            self.context.forward(self.back)

    class Back(an.Actor):
        def receive(self, message: Any) -> Any:
            sender = self.context.sender
            self.context.reply((message, None if sender is None else sender.path))
            return "this is no answer any more"

    with Deterministic() as sim:
        back = sim.system.spawn(Back, name="back")
        front = sim.system.spawn(Front, back, name="front")
        assert front.ask("x").result() == ("x", None)
        probe = Probe(sim.system, name="probe")
        probe.tell(front, "y")
        probe.expect(("y", "/probe"))
        assert probe.sender == back
        back.stop()
        answer = front.ask("z")
        with pytest.raises(an.ActorStopped, match="/back"):
            answer.result()


def test_a_reply_comes_before_the_handler_is_done(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call)
    answer = ref.ask(lambda actor: (actor.context.reply("early"), gate.wait(30)))
    assert answer.result(20) == "early"
    gate.set()


def test_replying_later_and_never() -> None:
    class Later(an.Actor):
        def __init__(self) -> None:
            self.waiting: list[an.ReplyTo] = []

        def receive(self, message: str) -> Any:
            if message == "keep":
                self.waiting.append(self.context.reply_later())
                with pytest.raises(an.InvalidRequest, match="already"):
                    self.context.reply_later()
                return "no answer"
            if message == "drop":
                self.waiting.clear()
            elif message == "give":
                assert self.waiting[0].reply(1) is True
                assert self.waiting[0].reply(2) is False
            elif message == "fail":
                self.waiting[0].fail(KeyError("k"))
            return len(self.waiting)

    with Deterministic() as sim:
        ref = sim.system.spawn(Later)
        one = ref.ask("keep")
        sim.run()
        assert not one.done()
        ref.tell("give")
        assert one.result() == 1
        two = ref.ask("keep")
        ref.tell("drop")
        with pytest.raises(an.NoReply, match="without an answer"):
            two.result()
        three = ref.ask("keep")
        ref.tell("fail")
        with pytest.raises(KeyError):
            three.result()


def test_what_a_killed_actor_has_kept_is_answered(system: an.System) -> None:
    class Keeper(an.Actor):
        def __init__(self) -> None:
            self.kept: list[an.ReplyTo] = []

        def receive(self, message: Any) -> None:
            self.kept.append(self.context.reply_later())

    ref = system.spawn(Keeper)
    answers = [ref.ask(i) for i in range(3)]
    eventually(lambda: ref.stats()["processed"] == 3)
    ref.kill()
    assert ref.join(10)
    gc.collect()
    for answer in answers:
        with pytest.raises(an.NoReply):
            answer.result(10)


def test_answering_with_an_error_is_no_failure() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Call)
        with pytest.raises(KeyError):
            ref.ask(lambda actor: actor.context.fail(KeyError("x"))).result()
        assert ref.stats()["restarts"] == 0
        assert ref.stats()["failed"] == 0


def test_waiting_for_oneself_is_refused(system: an.System) -> None:
    ref = system.spawn(Call)
    with pytest.raises(an.InvalidRequest, match="very actor that waits"):
        ref.ask(lambda actor: actor.context.self_ref.ask(lambda _: 1).result(), timeout=10).result()


def test_pipe_to_self() -> None:
    class Front(an.Actor):
        def __init__(self, back: an.ActorRef) -> None:
            self.back = back
            self.got: list[Any] = []

        def receive(self, message: Any) -> Any:
            if message == "got":
                return self.got
            if isinstance(message, tuple):
                self.got.append(message)
                return None
            self.context.pipe_to_self(self.back.ask(message), lambda value, error: (value, type(error)))
            return None

    with Deterministic() as sim:
        front = sim.system.spawn(Front, sim.system.spawn(Call))
        front.tell(lambda _: 5)
        front.tell(lambda _: 1 / 0)
        sim.run()
        sim.advance(1)
        assert front.ask("got").result() == [(5, type(None)), (None, ZeroDivisionError)]


def test_what_cannot_be_piped_is_a_failure_and_does_not_hold_up_a_stop() -> None:
    class Front(an.Actor):
        def receive(self, message: Any) -> None:
            self.context.pipe_to_self(message, lambda value, error: 1 / value)

    with Deterministic() as sim:
        front = sim.system.spawn(Front)
        kept: list[an.ReplyTo] = []
        back = sim.system.spawn(Call)
        front.tell(back.ask(lambda actor: kept.append(actor.context.reply_later())))
        sim.run()
        front.stop()
        sim.run()
        assert not front.stopped  # what is piped to it is still to come
        assert kept[0].reply(0)
        sim.run()
        assert front.stopped
        assert front.stats()["failed"] == 1
