"""Log records that machines read: fields with stable names."""

from __future__ import annotations

import logging
import os
import signal

import numpy as np
import pytest
from actions import eventually
from crash import occupy

import atomr_native as an
from atomr_native._support.log_events import EVENTS, FIELDS
from atomr_native.plans.spec import READ


class Echo(an.Actor):
    def receive(self, message):
        if message == "fail":
            raise ValueError("bad luck")
        return message


@pytest.fixture
def events(caplog):
    caplog.set_level(logging.INFO, "atomr_native")

    def found(*names):
        records = [r for r in caplog.records if getattr(r, "event", None) in names]
        for record in records:
            assert all(hasattr(record, field) for field in FIELDS)
            assert record.event in EVENTS
        return records

    return found


def test_the_life_of_an_actor(make_system, events):
    system = make_system()
    ref = system.spawn(Echo, name="echo")
    with pytest.raises(ValueError, match="bad luck"):
        ref.ask("fail").result(10)
    assert ref.ask(1).result(10) == 1
    ref.stop()
    assert ref.join(10)
    ref.tell("too late")
    names = ("actor_started", "actor_failed", "actor_restarted", "actor_stopped", "dead_letter")
    records = events(*names)
    assert [r.event for r in records] == list(names)
    assert {r.actor for r in records} == {"/echo"}
    assert [r.restarts for r in records] == [0, 0, 1, 1, None]
    assert [r.cause for r in records[:3]] == [None, "ValueError: bad luck", "ValueError: bad luck"]
    assert records[3].cause is None
    assert records[4].cause.startswith("ActorStopped: ")
    assert all(type(r.cause) in (str, type(None)) for r in records)  # no frames are kept


def test_why_an_actor_was_stopped(make_system, events):
    system = make_system()
    ref = system.spawn(Echo, name="echo", supervision=an.OneForOne({ValueError: "stop"}))
    ref.tell("fail")
    assert ref.join(10)
    (record,) = events("actor_stopped")
    assert record.cause == "ValueError: bad luck"


def test_the_life_of_a_device(make_system, events):
    system = make_system(max_restarts=1)
    device = system.device("host")
    device.lane("x").noop().ask().result(30)
    for number in (1, 2):
        pid = device.worker_pid
        os.kill(pid, signal.SIGKILL)
        if number == 1:
            eventually(lambda: device.generation > 1 and device.restarts == 1, 30)
    eventually(lambda: events("device_lost"), 30)
    records = events("device_started", "device_failed", "device_restarted", "device_lost")
    assert [r.event for r in records] == [
        "device_started", "device_failed", "device_restarted", "device_failed", "device_lost",
    ]  # fmt: skip
    assert {r.device for r in records} == {"host"}
    assert [r.restarts for r in records] == [0, 0, 1, 1, 1]
    assert "SIGKILL" in records[1].cause
    assert records[2].generation > records[0].generation


def test_dead_letters_of_devices(make_system, events):
    system = make_system()
    device = system.device("host")
    x = device.put([1.0], "int32")
    letters = system._state.dead_letters
    letters.report(*letters.of_device("host", "memory", 7, an.AtomrError("why")))
    (record,) = events("dead_letter")
    assert (record.device, record.actor, record.cause) == ("host", "memory", "AtomrError: why")
    x.wait(10)


def test_the_death_of_a_worker_is_one_line(make_system, events, caplog):
    system = make_system(within=0.0)
    device = system.device("host")
    x = device.put(np.ones(4, np.float32), durable=True)
    busy = occupy(device.elementwise, x, access=READ)
    for _ in range(5):  # queued, with outputs that the death takes away
        device.elementwise.run("2 * x", x=x)
    caplog.clear()
    os.kill(device.worker_pid, signal.SIGKILL)
    assert busy.wait(60)
    eventually(lambda: len(system.dead_letters) == 5 and device.restarts == 1, 30)
    (line,) = [r for r in caplog.records if r.name.startswith("atomr_native") and r.levelno >= logging.WARNING]
    assert line.event == "device_failed"
    assert "1 messages were running, 5 queued ones cannot run; restarting" in line.getMessage()
