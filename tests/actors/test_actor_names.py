"""Names, references and contexts of actors; what becomes known of them: dead letters, logs, counters."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually
from example_actors import Call, Echo

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Plain(an.Actor):
    pass


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System() as made:
        yield made


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
    with pytest.raises(an.InvalidRequest, match="is not handling a message"):
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


def test_arguments_without_a_constructor_are_refused(system: an.System) -> None:
    for wrong in (
        lambda: system.spawn(Plain, 3), lambda: system.spawn(Plain, colour="x"),
        lambda: system.pool(Plain, size=2, colour="x"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match="Plain has no constructor, so it takes no arguments; given:"):
            wrong()
    with pytest.raises(an.InvalidRequest, match="stages=3; they must be one or more"):
        an.Pipeline(3)  # type: ignore[arg-type]
    with pytest.raises(an.UnhandledMessage, match="it handles nothing: it has no receive"):
        system.spawn(Plain).ask(1).result(10)


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
