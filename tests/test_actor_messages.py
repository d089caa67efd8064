"""Actors of one's own: sending, answering, handlers, behaviors, stashing."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Echo(an.Actor):
    def receive(self, message: Any) -> Any:
        return message


class Call(an.Actor):
    """Calls what it is sent with itself."""

    def receive(self, message: Callable[[Call], Any]) -> Any:
        return message(self)


@dataclass(frozen=True)
class Step:
    size: int


@dataclass(frozen=True)
class BigStep(Step):
    pass


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


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
    assert kept[0]() is None


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


def test_a_timeout_cancels_nothing(system: an.System) -> None:
    gate = threading.Event()
    ref = system.spawn(Call)
    answer = ref.ask(lambda _: gate.wait(30) and "late", timeout=0.0)
    for wait in (None, 0, -1, 0.001, float("nan")):
        with pytest.raises(an.AskTimeout, match="not cancelled"):
            answer.result(wait)
    with pytest.raises(an.InvalidRequest, match="not resolved"):
        answer.exception()
    with pytest.raises(an.InvalidRequest, match="timeout"):
        ref.ask("x", timeout="1")  # type: ignore[arg-type]
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


# ---- handlers by annotation


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


# ---- names, references, context


def test_names_and_look_up() -> None:
    class Parent(an.Actor):
        def pre_start(self) -> None:
            self.context.spawn(Echo, name="child")

        def receive(self, message: Any) -> Any:
            return self.context

    with Deterministic() as sim:
        system = sim.system
        parent = system.spawn(Parent, name="parent")
        context = parent.ask(1).result()
        child = system.find("/parent/child")
        assert child is not None
        assert child.path == "/parent/child"
        assert child.name == "child"
        assert context.children == (child,)
        assert context.self_ref == parent
        assert context.parent is None
        assert system.find("parent/child") == child
        assert system.find("/parent/nobody") is None
        assert system.find("/nobody/child") is None
        with pytest.raises(an.InvalidRequest, match="exists"):
            system.spawn(Echo, name="parent")
        for name in ("", "a/b", 3):
            with pytest.raises(an.InvalidRequest, match="name="):
                system.spawn(Echo, name=name)  # type: ignore[arg-type]
        with pytest.raises(an.InvalidRequest, match="path="):
            system.find("/")
        parent.stop()
        sim.run()
        assert system.find("/parent/child") is None
        again = system.spawn(Parent, name="parent")
        assert again != parent
        assert system.spawn(Echo).name == "Echo-1"


def test_references_travel(system: an.System) -> None:
    ref = system.spawn(Echo, name="one")
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert copy.deepcopy({"a": ref})["a"] is ref
    assert len({ref, copy.copy(ref)}) == 1
    assert "/one" in repr(ref)
    data = pickle.dumps(ref)
    ref.stop()
    ref.join(10)
    with pytest.raises(an.InvalidRequest, match="does not resolve"):
        pickle.loads(data)
    system.spawn(Echo, name="one")
    with pytest.raises(an.InvalidRequest, match="does not resolve"):
        pickle.loads(data)
    with pytest.raises(TypeError):
        an.ActorRef()


def test_a_context_belongs_to_its_thread(system: an.System) -> None:
    context = system.spawn(Call).ask(lambda actor: actor.context).result(10)
    for action in (
        lambda: context.spawn(Echo), lambda: context.stash(), lambda: context.reply(1),
        lambda: context.become(print), lambda: context.timers.start_once(1, 2),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match="another thread"):
            action()
    with pytest.raises(an.InvalidRequest, match="not made by spawn"):
        _ = Echo().context
    with pytest.raises(an.InvalidRequest, match="no message"):
        system.spawn(Early).ask(1).result(10)


class Early(an.Actor):
    def __init__(self) -> None:
        self.error: Exception | None = None
        assert self.context.self_ref.path
        try:
            self.context.reply(1)
        except an.InvalidRequest as error:
            self.error = error

    def receive(self, message: Any) -> None:
        assert self.error is not None
        raise self.error


def test_spawn_checks_what_it_is_given(system: an.System) -> None:
    for bad in (Echo(), lambda: Echo(), int, None):
        with pytest.raises(an.InvalidRequest, match="subclass of Actor"):
            system.spawn(bad)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="supervision="):
        system.spawn(Echo, supervision=3)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="mailbox="):
        system.spawn(Echo, mailbox=3)  # type: ignore[arg-type]
    assert system.stats()["actors"] == {}


def test_dead_letters_are_a_stream() -> None:
    with Deterministic() as sim:
        probe = Probe(sim.system)
        got: list[an.DeadLetter] = []
        end = sim.system.dead_letters.subscribe(probe.ref.try_tell)
        sim.system.dead_letters.subscribe(got.append)
        sim.system.dead_letters.subscribe(lambda letter: 1 / 0)
        ref = sim.system.spawn(Echo, name="gone")
        ref.kill()
        sim.run()
        message = object()
        probe.tell(ref, message)
        letter = probe.expect(an.DeadLetter)
        assert letter.message is message
        assert letter.sender == probe.ref.path
        assert got[0].message is message
        assert [kept.message for kept in sim.system.dead_letters] == [None]
        end()
        end()
        ref.tell("again")
        probe.expect_no_message()
        assert len(got) == 2
        with pytest.raises(an.InvalidRequest, match="callable"):
            sim.system.dead_letters.subscribe(3)  # type: ignore[arg-type]


def test_the_log_of_an_actor_names_it(system: an.System, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "atomr_native")
    system.spawn(Call, name="talker").ask(lambda actor: actor.context.log.info("at %d", 7)).result(10)
    (record,) = [r for r in caplog.records if "at 7" in r.getMessage()]
    assert record.getMessage() == "/talker: at 7"
    assert record.actor == "/talker"  # type: ignore[attr-defined]


def test_counters(system: an.System) -> None:
    ref = system.spawn(Call, name="counted")
    gate = threading.Event()
    ref.ask(lambda _: None).result(10)
    with pytest.raises(ZeroDivisionError):
        ref.ask(lambda _: 1 / 0).result(10)
    held = ref.ask(lambda _: gate.wait(30))
    ref.tell(lambda _: None)
    eventually(lambda: ref.stats()["processed"] == 3)
    stats = system.stats()["actors"]["/counted"]
    assert stats["state"] == "running"
    assert (stats["processed"], stats["failed"], stats["restarts"], stats["mailbox"]) == (3, 1, 1, 1)
    gate.set()
    held.result(10)
