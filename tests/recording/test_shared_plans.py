"""Recorded plans that have something together: the bytes of their temporaries, or all that the worker has built."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from crash import PATIENT, await_generation
from placements import Placement

import atomr_native as an

Make = Callable[..., an.System]


def _in_use(device: an.Device) -> int:
    return device.stats()["memory"]["pools"]["volatile"]["in_use"]


def _chain(device: an.Device, x: an.GpuRef, out: an.GpuRef, factor: float) -> None:
    """Multiply by a factor three times, with two temporaries that live at the same time."""
    for _ in range(3):
        x = x * factor
    device.copy(x, out=out)


def test_temporaries_of_several_plans_have_the_same_bytes(device: an.Device) -> None:
    small, large = device.ones(1024), device.ones(4096)
    outs = device.zeros(1024), device.zeros(4096), device.zeros(1024)
    outs[0].wait()
    before = _in_use(device)
    with device.record() as first:
        _chain(device, small, outs[0], 2.0)
    alone = first.plan.nbytes
    assert _in_use(device) - before == alone
    with device.record(share=first.plan) as second:  # which needs more
        _chain(device, large, outs[1], 3.0)
    with device.record(share=second.plan) as third:
        _chain(device, small, outs[2], 5.0)
    plans = [first.plan, second.plan, third.plan]
    assert {plan.nbytes for plan in plans} == {4 * alone}
    first.plan.tell()  # what it used before is free from now on
    assert _in_use(device) - before == 4 * alone
    for _ in range(3):  # nothing waits in between
        for out in outs:
            out.fill(0)
        for plan in plans:
            plan.tell()
        assert [set(out.numpy().tolist()) for out in outs] == [{8.0}, {27.0}, {125.0}]
    del first, second, plans[:2], plan
    gc.collect()
    third.plan.tell()
    assert outs[2].numpy()[0] == 125
    assert _in_use(device) - before == 4 * alone
    del third, plans
    gc.collect()
    assert _in_use(device) == before


def test_plans_of_one_function_share_a_block(device: an.Device) -> None:
    @device.graph(share=True)
    def step(x: an.GpuRef, out: an.GpuRef) -> None:
        _chain(device, x, out, 2.0)

    arrays = {n: (device.ones(n), device.zeros(n)) for n in (500, 2000, 64)}
    plans = {n: step.plan(*pair) for n, pair in arrays.items()}
    assert len({plan.nbytes for plan in plans.values()}) == 1
    for n, plan in plans.items():
        plan.tell(arrays[n][0], out=arrays[n][1])
    assert all(set(out.numpy().tolist()) == {8.0} for _, out in arrays.values())

    @device.graph(share=plans[64])
    def other(x: an.GpuRef, out: an.GpuRef) -> None:
        _chain(device, x, out, 3.0)

    assert other.plan(*arrays[64]).nbytes == plans[64].nbytes
    assert step.plan(*arrays[500]).nbytes == plans[64].nbytes


def test_a_shared_plan_in_a_recording(device: an.Device) -> None:
    x, out = device.ones(1000), device.zeros(1000)
    with device.record() as first:
        _chain(device, x, out, 2.0)
    with device.record(share=first.plan) as second:
        x.fill(3)
    with device.record(share=first.plan) as outer:
        first.plan.tell()
        second.plan.tell()
        first.plan.tell()
    assert second.plan.nbytes == outer.plan.nbytes >= first.plan.nbytes
    outer.plan.tell()
    assert set(out.numpy().tolist()) == {24.0}


@pytest.mark.parametrize("value", [True, "plan", 3])
def test_share_takes_recorded_plans(device: an.Device, value: object) -> None:
    with pytest.raises(an.InvalidRequest, match=r"share is .*; allowed: a recorded plan of this device"):
        device.record(share=value)  # type: ignore[arg-type]
    if value is not True:
        with pytest.raises(an.InvalidRequest, match=r"share is .*; allowed: a recorded plan of this device"):
            device.graph(share=value)  # type: ignore[call-overload]


@pytest.mark.host_only
def test_share_takes_plans_of_the_same_device(make_system: Make, placement: Placement) -> None:
    system = make_system()
    device, other = system.device("host"), system.device("host:1")
    x = other.ones(3)
    with other.record() as recording:
        x.fill(1)
    with pytest.raises(an.InvalidRequest, match=r"share is a plan of another device or System: .*; allowed"):
        device.record(share=recording.plan)


def test_shared_temporaries_after_a_restart(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    x, outs = device.ones(1000, durable=True), [device.zeros(1000, durable=True) for _ in range(2)]
    with device.record() as first:
        _chain(device, x, outs[0], 2.0)
    with device.record(share=first.plan) as second:
        _chain(device, x, outs[1], 3.0)
    for _ in range(3):
        generation = device.generation
        device.inject_fault("segfault")
        await_generation(device, generation + 1)
        for out in outs:
            out.fill(0)
        first.plan.tell()
        second.plan.tell()
        assert [set(out.numpy().tolist()) for out in outs] == [{8.0}, {27.0}]


def test_the_same_structure_again_is_built_once(device: an.Device, placement: Placement) -> None:
    w = device.put(np.eye(4, dtype="float32") * 2)
    x, out = device.ones((4, 4)), device.zeros((4, 4))

    @device.graph
    def step(x: an.GpuRef, out: an.GpuRef, *, rate: float) -> None:
        h = device.blas_lt.matmul(x, w)
        device.elementwise.run("out = h * rate", h=h, rate=rate, out=out)

    first = step.plan(x, out, rate=1.0)
    before = _in_use(device)
    second = step.plan(x, out, rate=3.0)  # another default of the same number
    assert second is not first
    assert second.record is first.record
    assert _in_use(device) == before, "the temporaries are those of the first"
    for plan, expected in ((first, 2.0), (second, 6.0), (first, 2.0)):
        plan.tell(x, out=out)
        assert set(out.numpy().ravel().tolist()) == {expected}
    if placement.cuda:
        assert (second.replays.stepwise, second.replays.launched) == (1, 2)
    del first
    gc.collect()
    second.tell(x, out=out)
    third = step.plan(x, out, rate=1.0)
    assert third.record is second.record
    del second
    gc.collect()
    third.tell(x, out=out, rate=4.0)
    assert set(out.numpy().ravel().tolist()) == {8.0}


def test_other_bound_arrays_are_another_structure(device: an.Device) -> None:
    arrays, out = [device.full(4, 2.0), device.full(4, 3.0)], device.zeros(4)

    def record(w: an.GpuRef) -> an.RecordedPlan:
        with device.record() as recording:
            device.copy(w * 2, out=out)
        return recording.plan

    plans = [record(w) for w in arrays]
    assert plans[0].record is not plans[1].record
    again = record(arrays[0])
    assert again.record is plans[0].record
    again.bind(arrays[0], arrays[1])  # of this plan only
    for plan, expected in ((plans[0], 4.0), (again, 6.0), (plans[1], 6.0), (plans[0], 4.0)):
        plan.tell()
        assert set(out.numpy().tolist()) == {expected}
