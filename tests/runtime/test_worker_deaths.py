"""Ways in which workers die: by faults, from outside, by the watchdog, with the program."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from actions import eventually
from crash import PATIENT, await_generation, filled, restart, send
from placements import Placement
from processes import assert_dead
from scripts import start

import atomr_native as an
from atomr_native.plans.spec import READ
from atomr_native.runtime import watchdog

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.System]


@pytest.fixture
def device(make_system: Make, worker_process: Placement) -> an.Device:
    """Lend a device that may die as often as it likes."""
    return make_system(**PATIENT).device()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("exit", "exit status 3"),
    ],
)
@pytest.mark.parametrize("where", ["lane", "control"])
@pytest.mark.fake_only(how=["segfault"])
def test_a_fault_of_the_worker(device: an.Device, how: str, said: str, where: str) -> None:
    kept, lost = filled(device, 1.5), filled(device, 2.5, durable=False)
    lane = device.lane("a")
    if where == "lane":
        reply = send(lane, kept, how=how, access=READ)
        with pytest.raises(an.DeviceFault, match=said) as caught:
            reply.result(60)
        assert [(s.actor, s.ticket, s.operation) for s in caught.value.suspects] == [("a", 1, "test.crash")]
        assert caught.value.restarted
        assert "send again" in str(caught.value)
        if how == "segfault":
            assert "Segmentation fault" in str(caught.value)  # the worker's last words
    else:
        device.inject_fault(how)
    await_generation(device, 2)
    assert (kept.numpy() == 1.5).all()
    with pytest.raises(an.GpuRefStale) as stale:
        lost.numpy()
    assert stale.value.reason == "device restarted"
    assert not lost.valid
    assert lane.noop().ask().result(60) is None
    eventually(lambda: device.restarts == 1)
    assert device.stats()["state"] == "open"


def test_killed_while_idle_and_twice_in_a_row(device: an.Device) -> None:
    kept = filled(device, 3.0)
    for _ in range(2):
        restart(device)
    assert device.generation == 3
    assert (kept.numpy() == 3.0).all()
    eventually(lambda: device.restarts == 2)
    timeline = device.restart_timeline()
    assert timeline["total"] >= timeline["prove"] > 0
    steps = ("reap", "account", "worker", "init", "map", "groups", "plans", "prove", "open")
    assert tuple(timeline) == (*steps, "total")
    assert sum(timeline[step] for step in steps) <= timeline["total"]


def test_a_warm_standby_serves_next(make_system: Make, worker_process: Placement) -> None:
    device = make_system(standby="warm").device()
    pool = device._state.supervisor._standby
    assert pool is not None
    eventually(lambda: pool.pid is not None)
    waiting = pool.pid
    restart(device)
    assert device.worker_pid == waiting
    eventually(lambda: pool.pid not in (None, waiting))
    os.kill(pool.pid or 0, signal.SIGKILL)  # a dead standby is no obstacle
    restart(device)
    assert device.lane("a").noop().ask().result(60) is None


@pytest.mark.parametrize("how", ["hang", "sleep"])
def test_the_watchdog_ends_a_message_that_hangs(make_system: Make, worker_process: Placement, how: str) -> None:
    device = make_system(watchdog=0.3).device()
    kept = filled(device, 1.0)
    reply = send(device.lane("a"), kept, how=how, seconds=60.0 if how == "sleep" else 0.0, access=READ)
    with pytest.raises(an.DeviceFault, match=r"watchdog: message 1 of 'a' ran for more than 0\.3 s") as caught:
        reply.result(60)
    assert caught.value.suspects[0].operation == "test.crash"
    await_generation(device, 2)
    assert (kept.numpy() == 1.0).all()


def test_the_watchdog_ends_a_worker_that_does_not_answer(
    make_system: Make, worker_process: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_QUIET", 0.5)
    device = make_system(watchdog=0.2).device()
    device.inject_fault("hang")  # nothing runs, and nothing can be asked
    await_generation(device, 2)
    assert device.lane("a").noop().ask().result(60) is None


def test_the_watchdog_lets_others_run(make_system: Make, worker_process: Placement) -> None:
    device = make_system(watchdog=2.0).device()
    lane = device.lane("a")
    for _ in range(8):  # longer than allowed all together, but not each
        send(lane, seconds=0.3).result(60)
    assert device.generation == 1


@pytest.mark.parametrize("hanging", [False, True])
def test_nobody_outlives_the_parent(hanging: bool) -> None:
    code = """
        import sys, time, atomr_native as an
        system = an.System(standby="warm", allow_crash=True)
        device = system.device("host")
        pool = device._state.supervisor._standby
        while pool.pid is None: time.sleep(0.01)
        if len(sys.argv) > 1:
            device.inject_fault("hang")  # with the GIL held
            time.sleep(0.3)
        print(device.worker_pid, pool.pid, flush=True)
        time.sleep(100)
    """
    with start(code, *(["hang"] if hanging else [])) as process:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.readline().split()))
        process.kill()
        process.communicate(timeout=60)
    assert len(pids) == 2
    assert_dead(*pids)


def test_a_worker_thread_that_ends_is_the_end(make_system: Make) -> None:
    device = make_system(isolation="thread").device("host")
    kept = filled(device, 1.0)
    callbacks: list[str] = []
    device.lane("a").noop().ask().add_done_callback(lambda _: callbacks.append("done"))
    device.inject_fault("exit")
    eventually(lambda: device.stats()["state"] == "lost")
    plan = device.lane("a").noop()
    with pytest.raises(an.DeviceLost, match=r"thread placement cannot restart.*isolation='process'"):
        plan.ask()
    with pytest.raises(an.DeviceLost, match="thread placement"):
        kept.numpy()
    with pytest.raises(an.DeviceLost, match="thread placement"):
        device.wait_ready(1)
    eventually(lambda: callbacks == ["done"])
