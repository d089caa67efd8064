"""Timers of actors, on a clock that the test moves, and on the real one."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.actors.clock import Scheduled, SystemClock
from atomr_native.testing import Deterministic, FakeClock


class Timed(an.Actor):
    """Does to its timers what it is sent; keeps the rest, with the time."""

    def __init__(self, seen: list[Any], clock: Any) -> None:
        self.seen, self.clock = seen, clock

    def receive(self, message: Any) -> Any:
        if callable(message):
            return message(self.context.timers)
        if message == "fail":
            raise ValueError
        self.seen.append((round(self.clock.now(), 6), message))
        return None


def make(sim: Deterministic) -> tuple[an.ActorRef, list[Any]]:
    seen: list[Any] = []
    return sim.system.spawn(Timed, seen, sim.clock), seen


def test_once_and_periodic() -> None:
    with Deterministic() as sim:
        ref, seen = make(sim)
        key = ref.ask(lambda t: t.start_once(1.0, "once")).result()
        ref.tell(lambda t: t.start_periodic(0.5, "tick", key="p"))
        ref.tell(lambda t: t.start_periodic(1.0, "late", key="q", first=0.25))
        sim.run()
        for _ in range(12):
            sim.advance(0.125)
        assert seen == [
            (0.25, "late"), (0.5, "tick"), (1.0, "once"), (1.0, "tick"), (1.25, "late"), (1.5, "tick"),
        ]  # fmt: skip
        assert ref.ask(lambda t: (t.is_active(key), t.is_active("p"))).result() == (False, True)
        assert ref.ask(lambda t: (t.cancel("p"), t.cancel("p"), t.cancel("q"))).result() == (True, False, True)
        assert sim.clock.next_due() is None
        sim.advance(10)
        assert len(seen) == 6


def test_a_key_has_one_timer_and_what_it_replaced_is_silent() -> None:
    with Deterministic() as sim:
        ref, seen = make(sim)
        ref.ask(lambda t: t.start_once(1.0, "old", key="k")).result()
        sim.clock.advance(1.0)  # it is in the mailbox now
        ref.cell._put_back(an.actors.cell.Envelope(lambda t: t.start_once(1.0, "new", key="k")))  # and this before it
        sim.run()
        assert seen == []
        sim.advance(1.0)
        assert seen == [(2.0, "new")]


def test_timers_end_with_a_restart_and_with_the_actor() -> None:
    with Deterministic() as sim:
        ref, seen = make(sim)
        ref.ask(lambda t: t.start_periodic(1.0, "tick")).result()
        sim.advance(1.0)
        sim.clock.advance(1.0)  # in the mailbox
        ref.cell._put_back(an.actors.cell.Envelope("fail"))
        sim.run()
        sim.advance(5)
        assert seen == [(1.0, "tick")]
        ref.ask(lambda t: t.start_periodic(1.0, "tick")).result()
        ref.stop()
        sim.run()
        assert sim.clock.next_due() is None
        assert not sim.system.dead_letters


def test_a_tick_is_left_out_while_one_waits() -> None:
    with Deterministic() as sim:
        ref, seen = make(sim)
        ref.ask(lambda t: t.start_periodic(1.0, "tick")).result()
        sim.clock.advance(5.5)  # nothing runs meanwhile
        sim.run()
        assert seen == [(5.5, "tick")]
        sim.advance(0.5)
        assert seen == [(5.5, "tick"), (6.0, "tick")]


def test_a_timer_comes_to_a_full_mailbox() -> None:
    with Deterministic() as sim:
        seen: list[Any] = []
        ref = sim.system.spawn(Timed, seen, sim.clock, mailbox=an.Mailbox(1, "drop_oldest"))
        ref.ask(lambda t: t.start_once(1.0, "timer")).result()
        ref.tell("a")
        sim.clock.advance(1.0)
        ref.tell("b")
        sim.run()
        assert sorted(m for _, m in seen) == ["b", "timer"]
        assert [letter.text for letter in sim.system.dead_letters] == ["'a'"]


def test_bad_timers() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Timed, [], sim.clock, supervision=an.OneForOne({Exception: "resume"}))
        for start in (
            lambda t: t.start_once(-1, "x"), lambda t: t.start_once("1", "x"), lambda t: t.start_periodic(0, "x"),
            lambda t: t.start_periodic(True, "x"), lambda t: t.start_periodic(1, "x", first=float("nan")),
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest, match=r"seconds|above 0"):
                ref.ask(start).result()
        with pytest.raises(an.InvalidRequest, match="moves forward"):
            sim.clock.advance(-1)


def test_the_real_clock(nothing_left: None) -> None:
    with an.System() as system:
        seen: list[Any] = []
        ref = system.spawn(Timed, seen, system._tree().clock)
        began = time.monotonic()
        ref.tell(lambda t: t.start_once(0.02, "once"))
        ref.tell(lambda t: t.start_periodic(0.005, "tick"))
        eventually(lambda: len(seen) > 10)
        ticks = [when for when, message in seen if message == "tick"]
        assert ticks[0] >= began + 0.005
        eventually(lambda: any(message == "once" and when >= began + 0.02 for when, message in seen))
        assert any(t.name == "atomr_native-timers" for t in threading.enumerate())


def test_a_fake_clock_with_threads(nothing_left: None) -> None:
    clock = FakeClock(100.0)
    with an.System(clock=clock) as system:
        seen: list[Any] = []
        ref = system.spawn(Timed, seen, clock)
        ref.ask(lambda t: t.start_once(60.0, "once")).result(10)
        clock.advance(59)
        assert ref.ask(lambda t: None).result(10) is None
        assert seen == []
        assert clock.next_due() == 160
        assert clock.advance(1) == 1
        eventually(lambda: seen == [(160.0, "once")])


def test_timers_that_were_cancelled_do_not_pile_up() -> None:
    clock = SystemClock()
    try:
        for _ in range(5000):  # as an actor does that begins a timeout anew with each message
            clock.call_at(clock.now() + 3600, print).cancel()
        clock.call_at(clock.now() + 3600, print)
        assert sum(isinstance(each, Scheduled) for each in gc.get_objects()) < 1000
    finally:
        clock.close()
