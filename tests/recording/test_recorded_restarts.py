"""Deaths of the worker, failures and quarantine of recorded plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from actions import eventually, failing_plan, poison
from crash import PATIENT, await_generation, operation
from placements import Placement

import atomr_native as an
from atomr_native.plans.spec import WRITE

Make = Callable[..., an.System]


def _die(device: an.Device) -> None:
    generation = device.generation
    device.inject_fault("segfault")
    await_generation(device, generation + 1)


def test_a_restart_builds_the_plan_anew(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    w, total = device.full((4, 4), 2.0, durable=True), device.zeros((4, 4), durable=True)

    @device.graph
    def step(x: an.GpuRef, *, rate: float) -> None:
        h = device.blas_lt.matmul(x, w) + total
        device.elementwise.run("out = h * rate", h=h, rate=rate, out=total)

    x = np.ones((4, 4), "float32")
    plan = step.plan(device.put(x), rate=1.0)
    for _ in range(3):
        plan.tell(device.put(x))
    assert set(total.numpy().ravel().tolist()) == {24.0}
    _die(device)
    for _ in range(3):
        plan.tell(device.put(x), rate=2.0)
    assert set(total.numpy().ravel().tolist()) == {2 * (2 * (2 * 32.0 + 8) + 8)}
    if worker_process.cuda:
        assert plan.replays.launched == 2


def test_bound_volatile_arrays_are_stale_until_another_is_bound(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    w, out = device.full(4, 2.0), device.zeros(4, durable=True)

    @device.graph
    def step(x: an.GpuRef) -> None:
        device.copy(x * w, out=out)

    x = device.ones(4, durable=True)
    plan = step.plan(x)
    plan.tell(x)
    assert out.numpy().tolist() == [2.0] * 4
    _die(device)
    with pytest.raises(an.GpuRefStale, match=r"bound array, operand .* of step 0") as caught:
        plan.tell(x)
    assert caught.value.reason == "device restarted"
    assert out.numpy().tolist() == [2.0] * 4, "something has run"
    plan.bind(w, device.full(4, 3.0))
    plan.tell(x)
    assert out.numpy().tolist() == [3.0] * 4


def test_a_failed_step_fails_the_message_and_poisons_what_it_writes(device: an.Device) -> None:
    a, b, source = device.zeros(4), device.zeros(4), device.zeros(4)
    failing = failing_plan(device.lane("f"), device.zeros(4), text="at the third step")

    with device.record() as recording:
        x = recording.operand("x", source)
        a.fill(1)
        device.copy(x, out=b)
        failing.tell(out=a)
    reply = recording.plan.ask(source)
    with pytest.raises(an.LibraryError, match=r"step 2 of 3.*at the third step"):
        reply.result(60)
    for array in (a, b):
        with pytest.raises(an.LibraryError, match="at the third step"):
            array.numpy()
    b.fill(3)
    assert b.numpy().tolist() == [3.0] * 4


def test_a_replay_that_reads_poison_is_not_run(device: an.Device) -> None:
    source, kept, out = device.ones(4), device.ones(4), device.zeros(4)

    @device.graph
    def step(x: an.GpuRef) -> None:
        out.fill(5)  # overwritten before it is read: its own poison does not matter
        device.copy(x + kept + out, out=out)

    plan = step.plan(source)
    poison(device.lane("p"), out)
    plan.tell(source)
    assert out.numpy().tolist() == [7.0] * 4
    with device.record() as part:
        kept[:2].fill(1)  # which leaves the rest of it as it was
        device.copy(part.operand("x", source) + kept, out=out)
    part.plan.wait()
    poison(device.lane("p"), kept, text="the first cause")
    for one in (plan, part.plan):
        with pytest.raises(an.DependencyFailed, match="the first cause"):
            one.ask(source).result(60)


def test_a_program_that_kills_two_workers_is_quarantined(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT, max_restarts=5).device()
    out = device.zeros(4, durable=True)
    deadly = operation(device.lane("d"), out, how="segfault", access=WRITE)
    with device.record() as recording:
        out.fill(1)
        deadly.tell(out)
    plan = recording.plan
    for _ in range(2):
        out.clear_error()
        with pytest.raises(an.DeviceFault, match=r"program\.replay of memory\.fill, test"):
            plan.ask().result(60)
    eventually(lambda: device.stats()["state"] == "open")
    with pytest.raises(an.PlanQuarantined):
        plan.ask().result(60)
    out.clear_error()
    out.fill(2)
    assert out.numpy().tolist() == [2.0] * 4
