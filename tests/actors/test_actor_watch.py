"""Death watch: who watches an actor is told once that it has stopped."""

from __future__ import annotations

from typing import Any

import pytest
from example_actors import Worker

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


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


@pytest.mark.parametrize("seed", range(30))
def test_a_death_that_was_queued_before_an_unwatch_is_not_told_to_the_next_watch(seed: int) -> None:
    class Renew(an.Actor):
        def __init__(self, probe: an.ActorRef, other: an.ActorRef) -> None:
            self.probe, self.other = probe, other

        def pre_start(self) -> None:
            self.context.watch(self.other)

        def receive(self, message: Any) -> None:
            if message == "renew":
                self.context.unwatch(self.other)
                self.context.watch(self.other)
                self.context.self_ref.tell("renewed")
            else:
                self.probe.tell(message)

    with Deterministic(seed) as sim:
        probe = Probe(sim.system)
        ref = sim.system.spawn(Worker)
        watcher = sim.system.spawn(Renew, probe.ref, ref)
        sim.run()
        ref.kill()
        watcher.tell("renew")
        got = probe.expect()
        if isinstance(got, an.Terminated):  # told before the watch was renewed
            got = probe.expect()
        assert got == "renewed"
        assert probe.expect(an.Terminated).ref == ref
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
