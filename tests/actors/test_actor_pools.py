"""Pools and pipelines of actors."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import threading
from collections import Counter
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.testing import Deterministic


class Who(an.Actor):
    """Answers with its name; raises and waits on demand."""

    def receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        if isinstance(message, threading.Event):
            message.wait(30)
        return self.context.self_ref.name


def test_round_robin() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Who, size=3, name="pool")
        assert [pool.ask(i).result() for i in range(6)] == ["1", "2", "3", "1", "2", "3"]
        assert [ref.path for ref in pool.refs] == ["/pool/1", "/pool/2", "/pool/3"]
        assert pool.size == 3
        assert "round_robin" in repr(pool)


def test_least_loaded(nothing_left: None) -> None:
    gate = threading.Event()
    with an.System() as system:
        pool = system.pool(Who, size=3, routing="least_loaded")
        busy = [pool.refs[0].ask(gate), pool.refs[0].ask(1), pool.refs[1].ask(gate)]
        eventually(lambda: pool.refs[0].stats()["processed"] == pool.refs[1].stats()["processed"] == 1)
        assert {pool.ask(1).result(10) for _ in range(5)} == {"3"}
        gate.set()
        an.gather(*busy, timeout=10)


def test_by_key_stays_with_one_actor_and_a_resize_moves_few() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Who, size=4, routing="by_key", key=lambda message: message)
        keys: list[Any] = [*range(200), *(f"user-{i}" for i in range(200)), *((i, i) for i in range(50)), b"x"]
        before = {key: pool.ask(key).result() for key in keys}
        assert all(pool.ask(key).result() == before[key] for key in keys)
        assert set(before.values()) == {"1", "2", "3", "4"}
        pool.resize(5)
        after = {key: pool.ask(key).result() for key in keys}
        moved = [key for key in keys if after[key] != before[key]]
        assert 0 < len(moved) < len(keys) / 2
        assert all(after[key] == "5" for key in moved)
        pool.resize(4)
        assert {key: pool.ask(key).result() for key in keys} == before


def test_broadcast() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Who, size=3, routing="broadcast")
        assert pool.ask("who").result() == ["1", "2", "3"]
        assert pool.tell("who") is True
        with pytest.raises(KeyError):
            pool.ask(KeyError("x")).result()
        sim.run()
        assert [ref.stats()["processed"] for ref in pool.refs] == [3, 3, 3]


def test_resizing_loses_no_message(nothing_left: None) -> None:
    handled: Counter[Any] = Counter()
    lock = threading.Lock()

    class Count(an.Actor):
        def receive(self, message: Any) -> None:
            with lock:
                handled[message] += 1

    with an.System() as system:
        pool = system.pool(Count, size=4)
        stop = threading.Event()

        def resize() -> None:
            size = 0
            while not stop.is_set():
                size += 1
                pool.resize(1 + size % 5)

        resizer = threading.Thread(target=resize)
        resizer.start()

        def send(sender: int) -> None:
            for i in range(1000):
                assert pool.tell((sender, i))

        threads = [threading.Thread(target=send, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        resizer.join()
        pool.stop()
        assert pool.join(30)
        assert not system.dead_letters
    assert len(handled) == 2000
    assert set(handled.values()) == {1}


def test_one_that_stops_for_good_leaves_the_pool() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Who, size=2, supervision=an.OneForOne({KeyError: "stop"}))
        pool.refs[0].tell(KeyError())
        sim.run()
        assert [pool.ask(1).result() for _ in range(3)] == ["2", "2", "2"]
        pool.refs[0].tell(ValueError())  # a restart is no end
        sim.run()
        assert pool.size == 1
        pool.refs[0].tell(KeyError())
        sim.run()
        assert pool.size == 0
        with pytest.raises(an.ActorStopped, match="no actor left"):
            pool.ask(1).result()
        assert pool.tell("lost") is False
        assert [letter.text for letter in sim.system.dead_letters] == ["'lost'"]
        pool.resize(1)
        assert pool.ask(1).result() == "3"


def test_a_message_to_an_actor_that_has_just_stopped_goes_to_another() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Who, size=3)
        pool.refs[1].stop()  # the pool has not heard of it
        answers = [pool.ask(i) for i in range(6)]
        assert {answer.result() for answer in answers} == {"1", "3"}
        assert not sim.system.dead_letters


def test_pools_below_actors_end_with_them() -> None:
    class Parent(an.Actor):
        def __init__(self) -> None:
            self.pool = self.context.pool(Who, size=2, name="helpers", routing="least_loaded")

        def receive(self, message: Any) -> Any:
            return self.pool

    with Deterministic() as sim:
        parent = sim.system.spawn(Parent, name="p")
        pool = parent.ask(1).result()
        assert pool.refs[0].path == "/p/helpers/1"
        parent.stop()
        sim.run()
        assert pool.join(0)
        assert all(ref.stopped for ref in [pool.head])


def test_forwarding_to_a_pool() -> None:
    class Front(an.Actor):
        def __init__(self, back: Any) -> None:
            self.back = back

        def receive(self, message: Any) -> None:
            self.context.forward(self.back)

    with Deterministic() as sim:
        front = sim.system.spawn(Front, sim.system.pool(Who, size=2))
        assert [front.ask(i).result() for i in range(3)] == ["1", "2", "1"]
        for back in (sim.system.pool(Who, size=2, routing="broadcast"), 3):
            with pytest.raises(an.InvalidRequest, match="target="):
                sim.system.spawn(Front, back).ask(1).result()


def test_bad_pools() -> None:
    with Deterministic() as sim:
        for options in (
            {"size": 0}, {"size": "2"}, {"size": 2, "routing": "random"}, {"size": 2, "routing": "by_key"},
            {"size": 2, "key": len}, {"size": 2, "name": "a/b"}, {"size": 2, "mailbox": 3},
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest):
                sim.system.pool(Who, **options)  # type: ignore[arg-type]
        with pytest.raises(an.InvalidRequest):
            sim.system.pool(int, size=1)  # type: ignore[type-var]
        assert sim.system.stats()["actors"] == {}


# ---- pipelines


class Add(an.Actor):
    def __init__(self, what: Any, gate: threading.Event | None = None) -> None:
        self.what, self.gate = what, gate

    def receive(self, message: Any) -> Any:
        if self.gate is not None:
            self.gate.wait(30)
        return message + self.what


def test_a_pipeline_keeps_order() -> None:
    with Deterministic() as sim:
        stages = [sim.system.spawn(Add, letter) for letter in "abc"]
        pipe = an.Pipeline(stages, in_flight=4)
        assert list(pipe.map(str(i) for i in range(30))) == [f"{i}abc" for i in range(30)]
        assert pipe.inside == 0


def test_an_item_that_fails_takes_nothing_with_it() -> None:
    with Deterministic() as sim:
        stages = [sim.system.spawn(Add, letter) for letter in "ab"]
        pipe = an.Pipeline(stages, in_flight=3)
        answers = [pipe.submit(item) for item in ("1", 2, "3")]
        assert answers[0].result() == "1ab"
        with pytest.raises(TypeError):
            answers[1].result()
        assert answers[2].result() == "3ab"
        assert pipe.inside == 0
        stages[1].kill()
        sim.run()
        with pytest.raises(an.ActorStopped):
            pipe.submit("4").result()
        assert pipe.inside == 0


def test_in_flight_is_bounded_and_the_producer_waits(nothing_left: None) -> None:
    gate = threading.Event()
    with an.System(timeout=None) as system:
        # The mailboxes are smaller than what is in flight: the bound of the pipeline is the one that counts.
        stages = [system.spawn(Add, 1, mailbox=an.Mailbox(1, "reject")), system.spawn(Add, 10, gate)]
        pipe = an.Pipeline(stages, in_flight=3)
        answers: list[Any] = []

        def produce() -> None:
            answers.extend(pipe.submit(i) for i in range(20))

        thread = threading.Thread(target=produce)
        thread.start()
        eventually(lambda: pipe.inside == 3)
        thread.join(0.1)
        assert thread.is_alive()
        assert stages[0].stats()["processed"] == 3
        gate.set()
        thread.join(30)
        assert an.gather(*answers, timeout=30) == [i + 11 for i in range(20)]


def test_a_full_pipeline_refuses_actors_and_late_producers(nothing_left: None) -> None:
    gate = threading.Event()

    class Producer(an.Actor):
        def receive(self, pipe: an.Pipeline) -> Any:
            return type(pipe.submit(1).exception())

    with an.System(timeout=0.05) as system:
        pipe = an.Pipeline([system.spawn(Add, 1, gate)], in_flight=1)
        first = pipe.submit(0)
        assert system.spawn(Producer).ask(pipe).result(10) is an.MailboxFull
        with pytest.raises(an.MailboxFull, match="no place"):
            pipe.submit(1).result(0)

        async def main() -> Any:
            with pytest.raises(an.MailboxFull):
                await (await pipe.submit_async(2))
            gate.set()
            await first
            return await (await pipe.submit_async(3))

        assert asyncio.run(main()) == 4
        assert pipe.inside == 0


def test_pools_as_stages() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Add, "b", size=3)
        pipe = an.Pipeline([sim.system.spawn(Add, "a"), pool], in_flight=5)
        assert list(pipe.map("0123456")) == [f"{i}ab" for i in range(7)]
        assert sum(ref.stats()["processed"] for ref in pool.refs) == 7
        small = sim.system.pool(Add, "c", size=1, mailbox=an.Mailbox(1, "reject"))
        pipe = an.Pipeline([small], in_flight=5)  # the bound of the pipeline is the one that counts
        assert [answer.result() for answer in [pipe.submit(i) for i in "01234"]] == [f"{i}c" for i in range(5)]
        everybody = sim.system.pool(Who, size=2, routing="broadcast")
        for stages in ([], [3], [everybody]):
            with pytest.raises(an.InvalidRequest, match="stage"):
                an.Pipeline(stages)  # type: ignore[arg-type]
        with pytest.raises(an.InvalidRequest, match="in_flight"):
            an.Pipeline([pool], in_flight=0)


def test_an_item_without_a_key_fails_and_leaves_its_place() -> None:
    with Deterministic() as sim:
        pool = sim.system.pool(Add, "b", size=2, routing="by_key", key=lambda item: item[0])
        for stages in ([pool], [sim.system.spawn(Add, ""), pool]):
            pipe = an.Pipeline(stages, in_flight=1)
            for _ in range(2):
                with pytest.raises(IndexError):
                    pipe.submit("").result()
                assert pipe.inside == 0
            assert pipe.submit("x").result() == "xb"


def test_a_pipeline_over_device_data(nothing_left: None) -> None:
    class Scale(an.Actor):
        def __init__(self, device: an.Device, program: str) -> None:
            self.device, self.program = device, program

        def receive(self, x: an.GpuRef) -> an.GpuRef:
            return self.device.elementwise.run(self.program, x=x)

    with an.System(standby="off") as system:
        device = system.device("host")
        pipe = an.Pipeline([system.spawn(Scale, device, "x * 2"), system.spawn(Scale, device, "x + 1")], in_flight=2)
        inputs = [device.put([float(i)]) for i in range(10)]
        assert [float(y.numpy()[0]) for y in pipe.map(inputs)] == [2.0 * i + 1 for i in range(10)]


def test_a_producer_that_is_interrupted_keeps_no_place(nothing_left: None) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    gate = threading.Event()
    try:
        with an.System() as system:
            pipeline = an.Pipeline([system.spawn(Who, name="who")], in_flight=1)
            first = pipeline.submit(gate)
            main = threading.get_ident()
            timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGUSR1))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                pipeline.submit(1)
            timer.join()
            gate.set()
            assert first.result(10) == "who"
            assert pipeline.submit(2).result(10) == "who"
            eventually(lambda: pipeline.inside == 0)
    finally:
        gate.set()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt inside of a destructor
def test_interrupts_at_any_moment_keep_no_place(nothing_left: None) -> None:
    """Of `submit_async`, whose steps run in the thread that a signal interrupts."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # callbacks of the garbage collector, which swallow an interrupt and report it
    rng, interrupted = random.Random(3), 0
    try:
        with an.System() as system:
            pipeline = an.Pipeline([system.spawn(Who, name="who")], in_flight=1)
            for _ in range(300):
                step = pipeline.submit_async(1)
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-4))
                    with contextlib.suppress(StopIteration):  # there is room, so the first step is the last
                        step.send(None)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    interrupted += 1
                step.close()
                eventually(lambda: pipeline.inside == 0)
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
