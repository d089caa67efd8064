"""Actors that watch devices, and the test kit's device that fails on command."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from actions import eventually
from leaks import Baseline

import atomr_native as an
from atomr_native.testing import FaultyDevice, Probe


class Owner(an.Actor):
    """Keeps an array on a device, and puts it again when the device has restarted."""

    def __init__(self, device: an.Device, probe: an.ActorRef, escalate: bool = False) -> None:
        self.device, self.probe = device, probe
        self.context.watch(device, escalate=escalate)
        self.x = device.put([1.0, 2.0])

    @an.handler
    def on_restart(self, message: an.DeviceRestarted) -> None:
        self.x = self.device.put([1.0, 2.0])
        self.probe.tell(message)

    @an.handler
    def on_end(self, message: an.DeviceEnded) -> None:
        self.probe.tell(message)

    @an.handler
    def on_factor(self, factor: float) -> Any:
        return self.device.elementwise.run("x * f", x=self.x, f=factor).numpy()

    @an.handler
    def on_word(self, word: str) -> None:
        getattr(self.context, word)(self.device)


def test_a_watcher_learns_of_each_restart() -> None:
    before = Baseline()
    with FaultyDevice() as faulty:
        probe = Probe(faulty.system, timeout=60)
        ref = faulty.system.spawn(Owner, faulty.device, probe.ref)
        assert ref.ask(2.0).result(60).tolist() == [2, 4]
        for _ in range(2):
            generation = faulty.restart()
            message = probe.expect(an.DeviceRestarted)
            assert message.device is faulty.device
            assert message.generation == generation
            assert ref.ask(3.0).result(60).tolist() == [3, 6]
        ref.ask("unwatch").result(10)
        faulty.restart()
        probe.expect_no_message(0.2)
        ref.ask("watch").result(10)
        faulty.restart()
        probe.expect(an.DeviceRestarted)
    del faulty, ref, probe, message
    before.check()


def test_a_watcher_learns_of_the_loss_once() -> None:
    with FaultyDevice(within=60.0, max_restarts=0) as faulty:
        probe = Probe(faulty.system, timeout=60)
        ref = faulty.system.spawn(Owner, faulty.device, probe.ref)
        ref.ask(1.0).result(60)
        faulty.lose()
        message = probe.expect(an.DeviceEnded)
        assert isinstance(message.error, an.DeviceLost)
        assert message.device is faulty.device
        probe.expect_no_message(0.1)
        # Who comes later is told at once.
        other = faulty.system.spawn(Late, faulty.device, probe.ref)
        assert isinstance(probe.expect(an.DeviceEnded).error, an.DeviceLost)
        assert other.stats()["failed"] == 0


class Late(an.Actor):
    def __init__(self, device: an.Device, probe: an.ActorRef) -> None:
        self.probe = probe
        self.context.watch(device)

    def receive(self, message: Any) -> None:
        self.probe.tell(message)


def test_a_lost_device_escalates_to_the_supervisor_of_the_watcher() -> None:
    class Boss(an.Actor):
        supervision = an.OneForOne({an.DeviceLost: "escalate"})

        def __init__(self, device: an.Device, probe: an.ActorRef) -> None:
            self.context.spawn(Owner, device, probe, True, name="owner")

        def receive(self, message: Any) -> None: ...

    with FaultyDevice(within=60.0, max_restarts=0) as faulty:
        probe = Probe(faulty.system, timeout=60)
        boss = faulty.system.spawn(
            Boss, faulty.device, probe.ref, name="boss", supervision=an.OneForOne({an.DeviceLost: "stop"})
        )
        probe.watch(boss)
        owner = faulty.system.find("/boss/owner")
        eventually(lambda: faulty.system.find("/boss/owner") is not None)
        owner = faulty.system.find("/boss/owner")
        assert owner is not None
        owner.ask(1.0).result(60)
        faulty.lose()
        assert isinstance(probe.expect_terminated(boss).error, an.DeviceLost)
        assert owner.stopped


def test_replies_of_a_device_are_piped_to_an_actor() -> None:
    class Asks(an.Actor):
        def __init__(self, device: an.Device) -> None:
            self.lane = device.lane("a")

        def receive(self, message: Any) -> Any:
            if isinstance(message, tuple):
                reply_to, error = message
                return reply_to.reply("done") if error is None else reply_to.fail(error)
            reply_to = self.context.reply_later()
            reply = self.lane.noop().ask()
            self.context.pipe_to_self(reply, lambda _, error: (reply_to, error))
            return None

    with FaultyDevice() as faulty:
        ref = faulty.system.spawn(Asks, faulty.device)
        assert an.gather(*(ref.ask(i) for i in range(20)), timeout=60) == ["done"] * 20


def test_a_device_that_is_closed_has_ended() -> None:
    with FaultyDevice() as faulty:
        probe = Probe(faulty.system, timeout=60)
        faulty.system.spawn(Owner, faulty.device, probe.ref).ask(1.0).result(60)
        faulty.device.close()
        assert isinstance(probe.expect(an.DeviceEnded).error, an.ActorStopped)


def test_failing_by_itself_and_what_cannot_be() -> None:
    with FaultyDevice() as faulty:
        generation = faulty.device.generation
        faulty.fail("segfault")
        eventually(lambda: faulty.device.generation > generation)
        faulty.device.wait_ready(60)
        assert np.array_equal(faulty.device.put([1, 2]).numpy(), [1, 2])
        with pytest.raises(an.Unsupported, match="restart without limit"):
            faulty.lose()
        with pytest.raises(an.InvalidRequest, match="unknown fault"):
            faulty.fail("boredom")
    with pytest.raises(an.Unsupported, match="isolation"):
        FaultyDevice(isolation="thread")


def test_device_callbacks_can_be_forgotten() -> None:
    with FaultyDevice() as faulty:
        calls: list[Any] = []
        faulty.device.on_end(calls.append)
        faulty.device.on_end(calls.append)
        faulty.device.forget(calls.append)
        faulty.device.forget(print)
        with pytest.raises(an.InvalidRequest, match="callable"):
            faulty.device.on_end(3)  # type: ignore[arg-type]
        device = faulty.device
    assert len(calls) == 1
    device.on_end(calls.append)
    assert len(calls) == 2
