"""Traces of messages: what is recorded, and that nothing is when nobody asks."""

from __future__ import annotations

import gc
import json
import threading
import weakref

import actions
import numpy as np
import pytest
from observed_actors import Echo, Gate, Relay

import atomr_native as an
from atomr_native._lib.sender import SpanReader
from atomr_native.actors import cell
from atomr_native.observe import observers
from atomr_native.plans.spec import PlanSpec
from atomr_native.testing import FaultyDevice


def read(path):
    trace = json.loads(path.read_text(encoding="utf-8"))
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in trace["traceEvents"]
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    return trace, names


def of(trace, phase, category):
    return [e for e in trace["traceEvents"] if e["ph"] == phase and e["cat"] == category]


def test_messages_have_queue_time_handling_and_a_flow(make_system, tmp_path):
    system = make_system()
    echo = system.spawn(Echo, name="echo")
    relay = system.spawn(Relay, echo, name="relay")
    assert relay.ask(0).result(10) == 0  # before the trace
    with an.observe.trace(tmp_path / "trace.json", system):
        assert relay.ask("x").result(10) == "x"
        actions.eventually(lambda: relay.stats()["mailbox"] == 0)
    assert relay.ask(1).result(10) == 1  # after it
    trace, names = read(tmp_path / "trace.json")
    handled = {names[e["pid"], e["tid"]]: e for e in of(trace, "X", "message")}
    assert set(handled) == {"/relay", "/echo"}
    assert all(e["name"] == "str" and e["args"]["asked"] for e in handled.values())
    starts, ends = of(trace, "s", "message"), of(trace, "f", "message")
    flows = {e["id"]: [names[1, e["tid"]]] for e in starts}
    for e in ends:
        flows[e["id"]].append(names[1, e["tid"]])
    assert sorted(flows.values()) == [["/relay", "/echo"], [threading.current_thread().name, "/relay"]]
    inner, outer = handled["/echo"], handled["/relay"]
    assert outer["ts"] <= inner["ts"]
    for e in starts:  # a flow of an actor begins inside its message
        if names[1, e["tid"]] == "/relay":
            assert outer["ts"] <= e["ts"] <= outer["ts"] + outer["dur"]
    waits = {e["id"]: e["ts"] for e in of(trace, "b", "mailbox")}
    for e in of(trace, "e", "mailbox"):
        assert e["ts"] >= waits.pop(e["id"])
    assert not waits
    assert [e["name"] for e in of(trace, "X", "send")] == ["send str"]


def test_failures_and_what_is_not_handled_are_in_it(make_system, tmp_path):
    system = make_system()
    begun, release = threading.Event(), threading.Event()

    class Slow(an.Actor):
        def receive(self, message):
            if message == "wait":
                begun.set()
                release.wait(30)
            else:
                raise ValueError(message)

    slow = system.spawn(Slow, name="slow")
    try:
        with an.observe.trace(tmp_path / "t.json", system):
            with pytest.raises(ValueError, match="bad"):
                slow.ask("bad").result(10)
            slow.tell("wait")
            assert begun.wait(10)
            slow.tell("waiting")
    finally:
        release.set()
    trace, _ = read(tmp_path / "t.json")
    outcomes = [(e["args"]["failed"], e["args"]["finished"]) for e in of(trace, "X", "message")]
    assert outcomes == [(True, True), (False, False)]
    assert [e["args"]["handled"] for e in of(trace, "b", "mailbox")] == [True, True, False]


def test_coroutines_at_work_together_have_tracks_of_their_own(make_system, tmp_path):
    system = make_system()
    gate = system.spawn(Gate, name="gate")
    with an.observe.trace(tmp_path / "t.json", system):
        answers = [gate.ask(i) for i in range(2)] + [gate.ask("open")]
        assert an.gather(*answers, timeout=10) == [0, 1, "open"]
        gate.stop()
        assert gate.join(10)
    trace, names = read(tmp_path / "t.json")
    handled = of(trace, "X", "message")
    assert sorted(names[1, e["tid"]] for e in handled) == ["/gate", "/gate #2", "/gate #3"]
    assert all(e["args"]["finished"] and not e["args"]["failed"] for e in handled)


def check_arrows(trace):
    """Each arrow begins inside of a slice and ends at the begin of one, later; returns pairs of slices by category."""
    slices, ends, arrows = {}, {}, {}
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            slices.setdefault((e["pid"], e["tid"]), []).append(e)
        elif e["ph"] == "f":
            assert e["bp"] == "e"
            ends[e["cat"], e["name"], e["id"]] = e
    for e in trace["traceEvents"]:
        if e["ph"] == "s":
            end = ends.pop((e["cat"], e["name"], e["id"]))
            assert e["ts"] <= end["ts"]
            inside = [x for x in slices[e["pid"], e["tid"]] if x["ts"] <= e["ts"] < x["ts"] + x["dur"]]
            begun = [x for x in slices[end["pid"], end["tid"]] if x["ts"] == end["ts"]]
            assert inside, e
            assert begun, end
            arrows.setdefault(e["cat"], []).append((inside[-1]["name"], begun[-1]["name"]))
    assert not ends
    return arrows


@pytest.mark.usefixtures("placement")
def test_messages_to_devices(make_system, tmp_path):
    system = make_system()
    device = system.device()
    x = device.put(np.ones(8, np.float32))
    plan = device.lane("mine").noop()
    plan.ask().result(10)
    with an.observe.trace(tmp_path / "t.json", system) as running:
        plan.tell()
        reply = plan.ask()
        reply.result(10)
        device.elementwise.run("x + 1", x=x).wait(10)
        done = threading.Event()
        plan.ask().add_done_callback(lambda _: done.set())  # callbacks come in order
        assert done.wait(10)
    assert running.untimed == 0
    trace, names = read(tmp_path / "t.json")
    mine = [
        e
        for e in trace["traceEvents"]
        if e["ph"] in "bieX" and e["cat"] != "send" and names.get((e["pid"], e["tid"])) == "mine"
    ]
    assert [e["ph"] for e in mine] == ["X", "b", "e", "X", "b", "e", "X"]
    assert mine[1]["id"] == mine[2]["id"] == f"{device.name}/mine/{reply.ticket}"
    assert mine[1]["args"]["resolved"]
    told, begun, resolved, asked = mine[:4]
    assert (told["args"]["asked"], asked["args"]["asked"]) == (False, True)
    assert begun["ts"] <= asked["ts"] <= asked["ts"] + asked["dur"] <= resolved["ts"]
    assert told["ts"] + told["dur"] <= asked["ts"] + 1e-3  # a lane does one after the other
    assert told["dur"] > 0
    assert {"elementwise"} <= set(names.values())
    assert any(e["ph"] == "M" and e["args"]["name"] == f"device {device.name}" for e in trace["traceEvents"])
    assert check_arrows(trace)["message"].count(("send noop", "noop")) >= 3


@pytest.mark.usefixtures("placement")
def test_arrows_from_actors_to_lanes_and_between_lanes(make_system, tmp_path):
    system = make_system(allow_crash=True)
    device = system.device()
    x = device.put(np.ones(1024, np.float32))
    device.copy(device.elementwise.run("x + 1", x=x)).wait(10)

    class Worker(an.Actor):
        def receive(self, message):
            with actions.Gate(device.elementwise):  # so that nothing is done when the next is sent
                y = device.elementwise.run("x + 1", x=x)
                copied = device.copy(y)
                again = device.elementwise.run("x + 1", x=y)  # of the same lane: ordered by that
            copied.wait(10)
            again.wait(10)

    worker = system.spawn(Worker, name="worker")
    with an.observe.trace(tmp_path / "t.json", system):
        worker.ask("go").result(30)
    trace, _ = read(tmp_path / "t.json")
    arrows = check_arrows(trace)
    waits = ("elementwise.program", "noop")  # by which `again` is waited for, if it is not done yet
    assert [arrow for arrow in arrows["dependency"] if arrow != waits] == [("elementwise.program", "memory.copy")]
    assert ("send str", "str") in arrows["message"]
    assert arrows["message"].count(("str", "elementwise.program")) == 2
    assert ("str", "memory.copy") in arrows["message"]


def test_a_message_that_still_waits_is_in_it_without_a_time_in_its_lane(make_system, tmp_path):
    system = make_system(allow_crash=True)
    device = system.device("host")
    gate = actions.Gate(device.elementwise)
    plan = device.elementwise._plan(PlanSpec("noop", ()))
    with gate, an.observe.trace(tmp_path / "t.json", system):
        plan.tell()
        plan.ask()
    trace, _ = read(tmp_path / "t.json")
    assert [e["ph"] for e in trace["traceEvents"] if e.get("cat") == "device"] == ["i", "b", "e"]
    assert not of(trace, "b", "device")[0]["args"]["resolved"]
    assert not of(trace, "X", "lane")


def test_small_copies_are_messages_too(make_system, tmp_path):
    system = make_system()
    device = system.device("host")
    small = np.ones(4, np.float32)
    device.put(small).numpy()  # the first of a layout goes another way
    with an.observe.trace(tmp_path / "t.json", system):
        device.put(small).numpy()
    trace, _ = read(tmp_path / "t.json")
    assert len(of(trace, "X", "lane")) == 2
    assert len(of(trace, "b", "device")) == 1  # the one that is waited for


def test_lanes_note_nothing_while_no_trace_runs(make_system, tmp_path):
    system = make_system()
    device = system.device("host")
    plan = device.lane("mine").noop()
    reader = SpanReader(device._core, plan.lane)
    plan.ask().result(10)
    assert reader.read() == []
    with an.observe.trace(tmp_path / "1.json", system):
        with an.observe.trace(tmp_path / "2.json", system):
            plan.ask().result(10)
        plan.ask().result(10)
    spans = reader.read()
    assert [ticket for ticket, _, _ in spans] == [2, 3]
    assert all(began <= ended for _, began, ended in spans)
    plan.ask().result(10)
    assert reader.read() == []
    for number, count in ((1, 2), (2, 1)):
        trace, _ = read(tmp_path / f"{number}.json")
        assert len(of(trace, "X", "lane")) == count


def test_a_trace_goes_on_when_the_device_restarts(make_system, tmp_path):
    with FaultyDevice() as faulty, an.observe.trace(tmp_path / "t.json", faulty.system) as running:
        plan = faulty.device.lane("mine").noop()
        plan.ask().result(30)
        actions.eventually(lambda: running._lanes._found)  # before the worker's memory goes
        faulty.restart()
        plan.ask().result(30)
    trace, names = read(tmp_path / "t.json")
    mine = [e for e in of(trace, "X", "lane") if names[e["pid"], e["tid"]] == "mine"]
    assert [e["args"]["ticket"] for e in mine] == [1, 2]


def test_an_ask_whose_reply_is_dropped_is_a_dead_letter_also_when_traced(make_system, tmp_path):
    system = make_system()
    device = system.device("host")
    out = device.empty(4)
    with an.observe.trace(tmp_path / "t.json", system):
        with actions.Gate(device.elementwise):
            actions.fail(device.elementwise, out)
        device.elementwise._plan(PlanSpec("noop", ())).ask().result(30)
    assert [letter.actor for letter in system.dead_letters] == ["elementwise"]


def test_each_system_has_its_own(make_system, tmp_path):
    one, two = make_system(), make_system()
    first, second = one.spawn(Echo, name="one"), two.spawn(Echo, name="two")
    with an.observe.trace(tmp_path / "1.json", one), an.observe.trace(tmp_path / "2.json", two):
        an.gather(first.ask(1), second.ask(2), timeout=10)
        for ref in (first, second):
            ref.stop()
            assert ref.join(10)
    for number, name in ((1, "/one"), (2, "/two")):
        trace, names = read(tmp_path / f"{number}.json")
        assert [names[1, e["tid"]] for e in of(trace, "X", "message")] == [name]


def test_a_trace_is_bounded(make_system, tmp_path, caplog):
    system = make_system()
    echo = system.spawn(Echo)
    with an.observe.trace(tmp_path / "t.json", system, limit=3) as trace:
        for i in range(5):
            echo.ask(i).result(10)
    assert trace.dropped == 2
    assert "2 more came" in caplog.text
    told, _ = read(tmp_path / "t.json")
    assert told["otherData"]["dropped"] == 2
    assert len(of(told, "b", "mailbox")) == 3


def test_a_trace_keeps_neither_messages_nor_actors(make_system, tmp_path):
    system = make_system()

    class Box:
        pass

    with an.observe.trace(tmp_path / "t.json", system):
        message = Box()
        gone = weakref.ref(message)
        ref = system.spawn(Echo)
        ref.tell(message)
        ref.stop()
        assert ref.join(10)
        actor = weakref.ref(ref.cell) if type(ref.cell).__weakrefoffset__ else None
        del message, ref
        gc.collect()
        actions.eventually(lambda: gone() is None)
        assert actor is None or actor() is None or isinstance(actor(), cell.Cell)


@pytest.mark.parametrize(
    ("path", "options", "match"),
    [("missing/t.json", {}, "existing folder"), ("", {}, "existing folder"), ("t", {"limit": 0}, "limit=0")],
)
def test_bad_arguments(make_system, tmp_path, path, options, match):
    with pytest.raises(an.InvalidRequest, match=match):
        an.observe.trace(tmp_path / path, make_system(), **options)
    with pytest.raises(an.InvalidRequest, match="must be the path"):
        an.observe.trace(7, make_system())
    with pytest.raises(an.InvalidRequest, match="must be a System"):
        an.observe.trace(tmp_path / "t", None)


def test_stopping_twice_is_nothing(make_system, tmp_path):
    trace = an.observe.trace(tmp_path / "t.json", make_system())
    trace.stop()
    (tmp_path / "t.json").unlink()
    trace.stop()
    assert not list(tmp_path.iterdir())


def test_nothing_is_marked_while_nobody_observes(make_system, tmp_path):
    system = make_system()
    marks = []

    class Look(an.Actor):
        def receive(self, message):
            marks.append(self.context._cell.envelope().mark)

    look = system.spawn(Look)
    look.ask(1).result(10)
    with an.observe.trace(tmp_path / "t.json", system):
        look.ask(2).result(10)
    look.ask(3).result(10)
    assert [mark is None for mark in marks] == [True, False, True]


def test_an_observer_that_fails_harms_no_message(make_system, caplog):
    system = make_system()

    class Bad:
        def begin(self, cell):
            raise RuntimeError("begin")

        def leave(self):
            raise RuntimeError("leave")

        def end(self, failed):
            raise RuntimeError("end")

        def sent(self, cell, envelope):
            if envelope.message == 2:
                raise RuntimeError("sent")
            return self

        def sent_to_device(self, plan, reply, ticket):
            raise RuntimeError("device")

    bad = Bad()
    observers.add(bad)
    try:
        for kind in (Echo, Gate):
            ref = system.spawn(kind)
            message = "open" if kind is Gate else 1
            assert ref.ask(message).result(10) == message
        assert system.spawn(Echo).ask(2).result(10) == 2
        system.device("host").lane("x").noop().ask().result(10)
    finally:
        observers.remove(bad)
    assert {str(r.exc_info[1]) for r in caplog.records if r.exc_info} == {"begin", "leave", "end", "sent", "device"}
    caplog.clear()  # of the errors, whose frames keep the System
