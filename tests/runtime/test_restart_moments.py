"""Deaths at bad moments: while a worker comes up, while memory grows, while the device is closed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from actions import eventually
from crash import PATIENT, Moments, await_generation, filled, kill, occupy, overwrite, restart, send
from leaks import Baseline
from placements import Placement

import atomr_native as an
from atomr_native.plans.spec import READ

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.System]


@pytest.fixture
def device(make_system: Make, worker_process: Placement) -> an.Device:
    """Lend a device that may die as often as it likes."""
    return make_system(**PATIENT).device()


@pytest.fixture
def moments() -> Iterator[Moments]:
    """Lend what does something in the middle of a restart."""
    with Moments().watching() as made:
        yield made


def nothing_runs(before: Baseline) -> None:
    """Of a closed System whose handles are still held, only the parent's own memory is left."""

    def left() -> dict[str, Any]:
        extra: dict[str, Any] = before.extra()
        extra.pop("mappings", None)
        extra.get("descriptors", {}).pop("memfd:atomr", None)
        return {name: what for name, what in extra.items() if what}

    eventually(lambda: not left())


STEPS = ["init", "map_segment", "subscribe", "open_lane", "recover_groups", "build_plan", "self_test", "go"]


@pytest.mark.fake_only(step=["init", "recover_groups", "build_plan", "self_test", "go"])
@pytest.mark.parametrize(
    ("step", "after"),  # after a step is just before the next; the last has none
    [*((step, False) for step in STEPS), ("recover_groups", True), ("go", True)],
    ids=lambda value: {False: "before", True: "after"}.get(value, value),
)
def test_killed_while_it_comes_up(device: an.Device, moments: Moments, step: str, after: bool) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    group = device.durable_group({"a": a, "b": b})
    group.commit(1).result(60)
    counter, lane = filled(device, 0.0, size=2), device.lane("x")
    add = device.elementwise.plan("c + 1", out=counter, c=counter)
    overwrite(lane, a, 9.0).result(60)
    first = occupy(device.elementwise, counter, access=READ)
    queued = [add.ask(counter) for _ in range(20)]
    moments.kill_at(step, after=after)
    kill(device)
    with pytest.raises(an.DeviceFault):
        first.result(60)
    results = []
    for reply in queued:
        assert reply.wait(60)
        results.append(reply.exception())
    ran = sum(error is None for error in results)
    if step == "go":  # what ran, and what was running, when it died: of a GPU's lane, all that it had launched
        faults = [i for i, error in enumerate(results) if isinstance(error, an.DeviceFault)]
        assert faults == list(range(ran, ran + len(faults)))
        assert len(faults) <= 1 or device.name != "host"
    else:
        assert ran == 20
    if all(error is None for error in results):
        assert counter.numpy().tolist() == [20.0, 20.0]  # each exactly once
    assert not moments.plans
    group.restore().result(60)
    assert (a.numpy() == 1.0).all()
    assert (b.numpy() == 2.0).all()
    assert (group.sequence, group.tag) == (1, 1)


def test_a_budget_that_is_spent(make_system: Make, worker_process: Placement, moments: Moments) -> None:
    before = Baseline()
    system = make_system(max_restarts=2, standby="warm")
    device = system.device()
    x, y, lane = filled(device, 1.0), filled(device, 2.0), device.lane("a")
    claimed = occupy(lane, y)
    queued = [send(lane, x, access=READ) for _ in range(100)]
    answers: list[Any] = []
    queued[50].add_done_callback(lambda reply: answers.append(reply.exception()))

    def read() -> None:
        with pytest.raises(an.DeviceLost):
            y.numpy()

    async def wait_for_one() -> None:
        with pytest.raises(an.DeviceLost):
            await queued[60]

    waiter = threading.Thread(target=lambda: asyncio.run(wait_for_one()))
    waiter.start()
    blocked = threading.Thread(target=read)
    blocked.start()
    moments.kill_at("init", times=10)
    kill(device)
    with pytest.raises(an.DeviceFault):
        claimed.result(60)
    for reply in queued:
        with pytest.raises(an.DeviceLost, match=r"died 3 times within 60 s.*restart budget is 2"):
            reply.result(60)
    eventually(lambda: len(answers) == 1)
    assert isinstance(answers[0], an.DeviceLost)
    for thread in (waiter, blocked):
        thread.join(60)
        assert not thread.is_alive()
    for use in (x.numpy, lambda: lane.noop().ask(), lambda: device.put(1.0), lambda: device.wait_ready(1)):
        with pytest.raises(an.DeviceLost, match="restart budget"):
            use()
    assert len(moments.plans) == 8
    assert device.restarts == 0
    assert device.worker_pid is None
    assert "children" not in before.extra()  # not even a standby
    system.close()
    nothing_runs(before)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("durable", [False, True])
def test_killed_while_memory_grows(device: an.Device, moments: Moments, durable: bool, after: bool) -> None:
    kept = filled(device, 1.0)
    moments.kill_at("create_segment", after=after, times=2)
    big = device.empty(100 << 20, "uint8", durable=durable)  # more than a segment holds
    await_generation(device, 2)
    for attempt in range(3):  # the second kill may come as late as now
        try:
            device.wait_ready(60)
            big.fill(3)
            found = big[:: 1 << 20].numpy()
            break
        except (an.GpuRefStale, an.DeviceFault):
            assert attempt < 2
            if not durable:  # it was made, and its owner died
                big = device.empty(100 << 20, "uint8")
    assert (found == 3).all()
    assert (kept.numpy() == 1.0).all()


def test_a_segment_made_during_a_restart_is_known_to_the_next_worker(
    device: an.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old worker makes memory and dies; the new one has mapped everything before the parent adds it."""
    links = device._state.supervisor.links
    original = links.create_segment

    def create(*arguments: int) -> int:
        made = original(*arguments)
        restart(device)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(links, "create_segment", create)
        found = device.empty(100 << 20, "uint8", durable=True)
    assert device.generation == 2
    assert (found.fill(7)[:: 1 << 20].numpy() == 7).all()


def test_lanes_and_loops_that_come_during_a_restart(device: an.Device, moments: Moments) -> None:
    results: list[Any] = []
    kept = filled(device, 1.0)

    async def use() -> None:
        lane = device.lane("late")
        results.append(await lane.noop().send_async())
        await asyncio.gather(*[overwrite(lane, kept, float(i)) for i in range(50)])

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]

    def add(_: Any) -> None:
        # No worker serves, so this does not wait.  The supervisor's own thread must not open lanes.
        late = threading.Thread(target=lambda: results.append(device.lane("late").name))
        late.start()
        late.join(60)
        for thread in threads:
            thread.start()

    moments.at("self_test", add)
    kill(device)
    await_generation(device, 2)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert results[0] == "late"
    assert len(results) == 4
    assert (kept.numpy() == 49.0).all()


@pytest.mark.parametrize("step", ["init", "recover_groups", "self_test"])
def test_closed_while_it_comes_up(make_system: Make, worker_process: Placement, moments: Moments, step: str) -> None:
    before = Baseline()
    system = make_system(**PATIENT)
    device = system.device()
    a = filled(device, 1.0)
    group = device.durable_group({"a": a})
    group.commit(1).result(60)
    reached, closed = threading.Event(), threading.Event()

    def pause(link: Any) -> None:
        os.kill(link.worker.pid, signal.SIGSTOP)  # it will not answer
        reached.set()

    moments.at(step, pause)
    occupy(device.lane("a"))
    queued = send(device.lane("a"), a)
    kill(device)
    assert reached.wait(60)
    closing = threading.Thread(target=lambda: (system.close(0.2), closed.set()))
    closing.start()
    closing.join(30)
    assert closed.is_set()
    with pytest.raises(an.ActorStopped):
        queued.result(60)
    nothing_runs(before)


def test_log_records_do_not_keep_the_device(
    make_system: Make, worker_process: Placement, moments: Moments, caplog: Any
) -> None:
    device = make_system(**PATIENT).device()
    moments.kill_at("go")
    restart(device)
    await_generation(device, 3)
    for record in caplog.records:
        assert not any(isinstance(argument, BaseException) for argument in record.args or ())


def test_closed_from_a_callback(make_system: Make, worker_process: Placement) -> None:
    system = make_system()
    device = system.device()
    closed = threading.Event()
    device.lane("a").noop().ask().add_done_callback(lambda _: (system.close(), closed.set()))
    assert closed.wait(60)
