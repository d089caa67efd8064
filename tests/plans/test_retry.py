"""Messages that are sent again when a death of the worker has caught them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from actions import failing_plan
from crash import PATIENT, filled, occupy, operation
from placements import Placement

import atomr_native as an
from atomr_native.plans.retry import caught_by_restart
from atomr_native.plans.spec import READ

Make = Callable[..., an.System]


@pytest.fixture
def device(make_system: Make, worker_process: Placement) -> an.Device:
    """Lend a device that may die as often as it likes."""
    return make_system(**PATIENT).device()


@pytest.fixture
def once(tmp_path: Path) -> dict[str, str]:
    """Options of a message that ends its worker the first time, and does nothing later."""
    return {"how": "exit", "once": str(tmp_path / "once")}


def test_a_message_that_a_death_has_caught_is_sent_again(device: an.Device, once: dict[str, str]) -> None:
    kept = filled(device, 1.5)
    reply = operation(device.lane("a"), kept, access=READ, **once).ask(kept, retry=3)
    called = threading.Event()
    reply.add_done_callback(lambda found: called.set() if found is reply and found.done() else None)
    assert reply.result(60) is None
    assert (reply.ticket, reply.exception(), reply.done()) == (2, None, True)
    assert device.generation == 2
    assert called.wait(30)
    assert an.gather(reply, timeout=30) == [None]
    assert (kept.numpy() == 1.5).all()


def test_at_most_once_is_the_default(device: an.Device, once: dict[str, str]) -> None:
    kept = filled(device, 1.5)
    plan = operation(device.lane("a"), kept, access=READ, **once)
    for given in ({}, {"retry": 0}):
        Path(once["once"]).unlink(missing_ok=True)
        with pytest.raises(an.DeviceFault):
            plan.ask(kept, **given).result(60)
        plan.pardon()


def test_a_stale_operand_ends_it(device: an.Device, once: dict[str, str]) -> None:
    lost = filled(device, 1.5, durable=False)
    reply = operation(device.lane("a"), lost, access=READ, **once).ask(lost, retry=3)
    for _ in range(2):
        with pytest.raises(an.GpuRefStale) as caught:
            reply.result(60)
        assert caught.value.reason == "device restarted"
    assert reply.exception() is not reply.exception()


def test_a_plan_that_kills_is_refused_and_not_sent_for_ever(device: an.Device) -> None:
    kept = filled(device, 1.5)
    reply = operation(device.lane("a"), kept, access=READ, how="exit").ask(kept, retry=50)
    with pytest.raises(an.PlanQuarantined):
        reply.result(120)
    assert device.generation == 3  # two deaths, by the rule of quarantine


def test_the_number_of_sends_is_bounded(device: an.Device) -> None:
    kept = filled(device, 1.5)
    reply = operation(device.lane("a"), kept, access=READ, how="exit").ask(kept, retry=1)
    with pytest.raises(an.DeviceFault):
        reply.result(120)
    assert reply.ticket == 2


def test_outputs_of_a_request_are_allocated_again(device: an.Device) -> None:
    y = filled(device, 1.5)
    busy = occupy(device.elementwise, y, access=READ)
    request = an.ElementwiseRequest(program="2 * y", operands={"y": y})
    once, again = device.elementwise.ask(request), device.elementwise.ask(request, retry=2)
    first = again.value
    device.inject_fault("exit")
    assert isinstance((busy.wait(60), busy.exception())[1], an.DeviceFault)
    with pytest.raises(an.GpuRefStale):  # it was queued, and its output is gone
        once.result(60)
    assert (again.result(60).numpy() == 3).all()
    assert not first.valid


def test_other_failures_are_not_sent_again(device: an.Device) -> None:
    x = device.empty(3)
    plan = failing_plan(device.lane("a"), x)
    reply = plan.ask(out=x, retry=5)
    with pytest.raises(an.LibraryError):
        reply.result(30)
    assert reply.ticket == 1


def test_it_can_be_awaited(device: an.Device, once: dict[str, str]) -> None:
    kept = filled(device, 1.5)
    plan = operation(device.lane("a"), kept, access=READ, **once)

    async def both() -> list[Any]:
        first = await plan.send_async(kept, retry=2)
        return await asyncio.gather(first, first)

    assert asyncio.run(both()) == [None, None]
    assert device.generation == 2


def test_a_wait_has_its_timeout(device: an.Device, tmp_path: Path) -> None:
    kept = filled(device, 1.5)
    plan = operation(device.lane("a"), kept, access=READ, how="sleep", seconds=60.0)
    reply = plan.ask(kept, retry=1)
    assert not reply.wait(0.01)
    assert not reply.done()
    with pytest.raises(an.InvalidRequest, match="not resolved"):
        reply.exception()
    with pytest.raises(an.AskTimeout):
        reply.result(0.01)
    with pytest.raises(an.InvalidRequest, match="timeout=-1"):
        reply.wait(-1)


def test_the_end_of_a_device_is_the_end(make_system: Make, worker_process: Placement, once: dict[str, str]) -> None:
    device = make_system(max_restarts=0).device()
    kept = filled(device, 1.5)
    reply = operation(device.lane("a"), kept, access=READ, **once).ask(kept, retry=9)
    with pytest.raises((an.DeviceLost, an.DeviceFault)):
        reply.result(60)


@pytest.mark.parametrize("retry", [-1, True, 1.5, "2", 10**6])
def test_other_numbers_are_refused(system: an.System, retry: Any) -> None:
    device = system.device("host")
    with pytest.raises(an.InvalidRequest, match="retry="):
        device.lane("a").noop().ask(retry=retry)
    x = device.put([1.0])
    with pytest.raises(an.InvalidRequest, match="retry="):
        device.elementwise.ask(an.ElementwiseRequest(program="x", operands={"x": x}), retry=retry)
    with pytest.raises(an.InvalidRequest, match="retry="):
        asyncio.run(device.lane("a").noop().send_async(retry=retry))


def test_which_errors_a_restart_explains() -> None:
    fault = an.DeviceFault("died")
    assert caught_by_restart(fault)
    assert caught_by_restart(an.DependencyFailed("not run", fault))
    assert caught_by_restart(an.GpuRefStale("gone", "device restarted"))
    for error in (
        None, an.DeviceFault("died", restarted=False), an.GpuRefStale("gone", "freed"), an.DeviceLost("lost"),
        an.GpuRefStale("gone", "rolled back"), an.GpuRefStale("gone", "torn"), an.PlanQuarantined("no"),
        an.DependencyFailed("not run", an.LibraryError("lib", 1, "name", "op")), ValueError("x"),
    ):  # fmt: skip
        assert not caught_by_restart(error)
