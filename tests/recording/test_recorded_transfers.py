"""Copies from and to host arrays inside of recorded plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from crash import PATIENT, await_generation
from placements import Placement

import atomr_native as an


def test_each_replay_copies_the_bytes_of_its_time(device: an.Device, placement: Placement) -> None:
    source, target = device.host_array((100,)), device.host_array((2, 50))
    total = device.zeros(100)

    @device.graph
    def step(factor: float) -> None:
        x = device.put(source, blocking=False)
        device.elementwise.run("out = t + f * x", t=total, f=factor, x=x, out=total)
        device.get_into(total.reshape(50, 2).T, target)

    plan = step.plan(1.0)
    assert [one.operation.partition(".")[0] for one in plan.steps] == ["memory", "elementwise", "memory"]
    target[:] = -1
    expected = np.zeros(100)
    for number, factor in enumerate((1.0, 2.0, 2.0, 0.5)):
        source[:] = np.arange(100) + number
        expected += factor * source
        plan.ask(factor=factor).result(60)  # then it has read and written
        np.testing.assert_array_equal(target, expected.reshape(50, 2).T)
    if placement.cuda:
        assert plan.replays.launched == 3


def test_a_loop_leaves_its_progress_in_host_memory(device: an.Device) -> None:
    at, more = device.zeros((), dtype="int32"), device.ones((), dtype="bool")
    shown = device.host_array((), "int32")
    with device.record() as g, g.while_(more, limit=10):
        device.copy(at + 1, out=at)
        device.get_into(at, shown)
        device.elementwise.run("out = n % 7 != 0", n=at, out=more)
    for turn in range(3):
        more.fill(1)
        g.plan.ask().result(60)
        assert shown == 7 * (turn + 1)


def test_host_arrays_after_a_restart(make_system: Callable[..., an.System], worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    source, target = device.host_array((8,)), device.host_array((8,))
    with device.record() as g:
        device.get_into(device.put(source, blocking=False) * 2, target)
    plan = g.plan
    for number in range(4):
        source[:] = number
        plan.ask().result(60)
        assert target.tolist() == [2.0 * number] * 8
        if number == 1:
            generation = device.generation
            device.inject_fault("segfault")
            await_generation(device, generation + 1)


def test_memory_of_copies_under_way_is_refused(device: an.Device) -> None:
    x = device.zeros(4)
    with pytest.raises(an.InvalidRequest, match="no others from or to the host"), device.record():
        device.put(np.ones(4), out=x)
