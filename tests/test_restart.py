"""Real deaths of workers: what is lost, what is kept, and that everybody gets an answer."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from actions import building_plan, eventually, poison
from crash import PATIENT, Moments, await_generation, kill, occupy, operation, overwrite, restart, send
from leaks import Baseline
from placements import Placement
from scripts import assert_dead, start

import atomr_native as an
from atomr_native import _watchdog
from atomr_native.plan_spec import READ

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.System]


@pytest.fixture
def moments() -> Iterator[Moments]:
    """Lend what does something in the middle of a restart."""
    with Moments().watching() as made:
        yield made


@pytest.fixture
def device(make_system: Make, worker_process: Placement) -> an.Device:
    """Lend a device that may die as often as it likes."""
    return make_system(**PATIENT).device()


def filled(device: an.Device, value: float, *, durable: bool = True, size: int = 64) -> an.GpuRef:
    return device.put(np.full(size, value), durable=durable).wait()


def stray(device: an.Device, ref: an.GpuRef, value: float) -> None:
    """Write the first half of memory that a message only says to read."""
    send(device.lane("stray"), ref, half=value, access=READ).result(60)


@pytest.fixture
def host(make_system: Make) -> an.Device:
    """Lend a host device, for what shows only where a commit is Python and memory is mapped here, too."""
    return make_system(**PATIENT).device("host")


def nothing_runs(before: Baseline) -> None:
    """Of a closed System whose handles are still held, only the parent's own memory is left."""

    def left() -> dict[str, Any]:
        extra: dict[str, Any] = before.extra()
        extra.pop("mappings", None)
        extra.get("descriptors", {}).pop("memfd:atomr", None)
        return {name: what for name, what in extra.items() if what}

    eventually(lambda: not left())


# ---- ways to die


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("exit", "exit status 3"),
    ],
)
@pytest.mark.parametrize("where", ["lane", "control"])
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
    pool = device._supervisor._standby
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
    monkeypatch.setattr(_watchdog, "_QUIET", 0.5)
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
        pool = device._supervisor._standby
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


# ---- what becomes of what


def test_what_a_death_leaves(device: an.Device) -> None:
    """The sequence of the design: claimed, queued, torn, rolled back, stale."""
    lane, other = device.lane("a"), device.lane("b")
    torn, whole = filled(device, 1.0), filled(device, 1.0)
    free, volatile = filled(device, 1.0), filled(device, 1.0, durable=False)
    member, companion = filled(device, 1.0), filled(device, 2.0)
    clean = filled(device, 5.0)
    group = device.durable_group({"m": member, "c": companion})
    unharmed = device.durable_group({"x": clean})
    assert group.commit(11).result(60) == 1
    assert unharmed.commit(12).result(60) == 1
    overwrite(other, member, 3.0).result(60)  # after the commit: it goes back, and its companion with it

    claimed = occupy(lane, torn, half=7.0)
    also = occupy(other, whole, half=7.0)
    runs = send(lane, free, half=4.0)
    reads_clean = send(lane, clean, access=READ)
    stale = send(lane, volatile, half=4.0)
    reads_torn = send(lane, torn, access=READ)
    back = send(lane, companion, access=READ)
    both = send(lane, companion, volatile, access=READ)
    mends = overwrite(lane, whole, 9.0)
    reads_mended = send(lane, whole, access=READ)
    operation(lane, torn, access=READ).tell(torn)  # nobody holds its reply
    copied = device.copy(whole, durable=True)  # waits for what mends it, and holds up the commit that comes next
    third = unharmed.commit(13)
    kill(device)

    for reply in (claimed, also):
        with pytest.raises(an.DeviceFault, match="SIGKILL") as caught:
            reply.result(60)
        suspects = {(s.actor, s.ticket) for s in caught.value.suspects}
        assert suspects >= {("a", claimed.ticket), ("b", also.ticket)}
        # Work that a GPU was still at is suspect as well; the host has done what it has taken.
        assert {actor for actor, _ in suspects} <= {"a", "b", "memory"}
    assert runs.result(60) is free
    reads_clean.result(60)
    for reply, reason in [
        (stale, "device restarted"),
        (reads_torn, "torn"),
        (back, "rolled back"),
        (both, "rolled back"),
    ]:
        with pytest.raises(an.GpuRefStale) as refused:
            reply.result(60)
        assert refused.value.reason == reason
        assert "not run" in str(refused.value)
    assert mends.result(60) is whole
    reads_mended.result(60)
    assert third.result(60) == 2
    assert (unharmed.sequence, unharmed.tag) == (2, 13)

    assert free.numpy().tolist() == [4.0] * 32 + [1.0] * 32
    assert (whole.numpy() == 9.0).all()
    assert (copied.numpy() == 9.0).all()
    assert (clean.numpy() == 5.0).all()
    with pytest.raises(
        an.GpuRefStale, match=r"group\.restore\(\)"
    ) as refused:  # whoever has not noticed goes no further
        member.numpy()
    assert refused.value.reason == "rolled back"
    with pytest.raises(an.GpuRefStale, match="last commit"):
        group.commit(12)
    group.restore().result(60)
    assert (member.numpy() == 1.0).all()
    assert (companion.numpy() == 2.0).all()
    assert (group.sequence, group.tag) == (1, 11)
    with pytest.raises(an.GpuRefStale, match=r"clear_error\(\)") as refused:
        torn.numpy()
    assert refused.value.reason == "torn"
    torn.clear_error()
    assert torn.numpy().tolist() == [7.0] * 32 + [1.0] * 32
    letters = device.system.dead_letters
    eventually(lambda: letters.total == 1)
    assert isinstance(next(iter(letters)).error, an.GpuRefStale)


def test_a_told_message_that_was_running_is_a_dead_letter(device: an.Device) -> None:
    lane = device.lane("a")
    operation(lane, how="segfault").tell()
    await_generation(device, 2)
    letters = device.system.dead_letters
    eventually(lambda: letters.total == 1)
    letter = next(iter(letters))
    assert (letter.device, letter.actor, letter.ticket) == (device.name, "a", 1)
    assert isinstance(letter.error, an.DeviceFault)


def test_address_and_mailbox_survive(make_system: Make, worker_process: Placement) -> None:
    """A sender that waits for room in a full mailbox waits through a restart; order and numbers go on."""
    device = make_system(mailbox_size=32, **PATIENT).device()
    lane, log = device.lane("a"), filled(device, 0.0, size=2)
    occupy(lane)
    replies: list[Any] = []

    def sender() -> None:
        plan = operation(lane, log, half=1.0)
        for _ in range(200):
            replies.append(plan.ask(log))

    thread = threading.Thread(target=sender)
    thread.start()
    eventually(lambda: device.stats()["actors"]["a"]["cells_in_use"] == 32)
    kill(device)
    thread.join(60)
    assert not thread.is_alive()
    assert device.lane("a") is lane
    assert [r.ticket for r in replies] == list(range(2, 202))
    for reply in replies:
        reply.result(60)
    assert log.numpy().tolist() == [1.0, 0.0]


def test_poison_of_durable_memory_becomes_torn(device: an.Device) -> None:
    bad, good = filled(device, 1.0), filled(device, 2.0)
    poison(device.lane("a"), bad)
    with pytest.raises(an.LibraryError, match="boom"):
        bad.numpy()
    restart(device)
    with pytest.raises(an.GpuRefStale) as refused:
        bad.numpy()
    assert refused.value.reason == "torn"
    assert (good.numpy() == 2.0).all()
    assert (bad.fill(3.0).numpy() == 3.0).all()


def test_a_group_that_was_poisoned_goes_back(device: an.Device) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    group = device.durable_group({"a": a, "b": b})
    group.commit(1).result(60)
    overwrite(device.lane("x"), a, 8.0).result(60)
    poison(device.lane("x"), b)
    with pytest.raises(an.DependencyFailed):
        group.commit(2).result(60)
    restart(device)
    group.restore().result(60)
    assert (a.numpy() == 1.0).all()
    assert (b.numpy() == 2.0).all()
    assert (group.sequence, group.tag) == (1, 1)
    assert group.commit(3).result(60) == 3
    restart(device)  # nothing has changed since
    assert (group.sequence, group.tag) == (3, 3)


def test_a_group_without_a_commit_is_torn(device: an.Device) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    group = device.durable_group({"a": a, "b": b})
    with pytest.raises(an.InvalidRequest, match="nothing has been committed"):
        group.restore()
    occupy(device.lane("x"), a, half=5.0)
    restart(device)
    with pytest.raises(an.GpuRefStale, match="clear_error"):
        a.numpy()
    assert (b.numpy() == 2.0).all()
    assert group.sequence == 0


def test_a_group_is_over_when_a_member_is_freed(device: an.Device) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    group = device.durable_group({"a": a, "b": b})
    group.commit(1).result(60)
    a.free()
    occupy(device.lane("x"), b, half=5.0)
    restart(device)
    with pytest.raises(an.GpuRefStale) as refused:  # not whole, and not silently so
        b.numpy()
    assert refused.value.reason == "torn"
    with pytest.raises(an.GpuRefStale, match="freed"):
        group.commit(2)
    again = device.durable_group({"b": b.fill(4.0)})
    assert again.commit(1).result(60) == 1


def test_members_of_a_refused_group_stay_free(device: an.Device) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    first = device.durable_group({"b": b})
    with pytest.raises(an.InvalidRequest, match="one group only"):
        device.durable_group({"a": a, "b": b})
    second = device.durable_group({"a": a})
    assert first.commit().result(60) == second.commit().result(60) == 1


def test_a_restore_without_a_complete_commit_is_refused(device: an.Device) -> None:
    a = filled(device, 1.0)
    group = device.durable_group({"a": a})
    poison(device.lane("x"), a)
    group.commit(1)
    with pytest.raises(an.InvalidRequest, match="nothing to restore"):
        group.restore().result(60)


def test_checksums(device: an.Device) -> None:
    a, b = filled(device, 1.0), filled(device, 2.0)
    ga, gb = (device.durable_group({"x": ref}, checksum=True) for ref in (a, b))
    ga.commit(1).result(60)
    gb.commit(1).result(60)
    for group in (ga, gb):  # as a stray kernel would
        stray(device, group._shadow[8:10], 0x40)
    overwrite(device.lane("x"), b, 3.0).result(60)
    restart(device)
    assert (a.numpy() == 1.0).all()  # the members were as committed: the shadow is made good from them
    with pytest.raises(an.GpuRefStale) as refused:
        b.numpy()
    assert refused.value.reason == "torn"
    overwrite(device.lane("x"), a, 4.0).result(60)
    restart(device)
    ga.restore()
    assert (a.numpy() == 1.0).all()


@pytest.mark.parametrize("shadow_too", [False, True])
def test_what_a_checksum_finds_is_not_read_by_what_was_queued(device: an.Device, shadow_too: bool) -> None:
    w, other, lane = filled(device, 1.0), filled(device, 2.0), device.lane("x")
    group = device.durable_group({"w": w}, checksum=True)
    group.commit(1).result(60)
    stray(device, w[2:6], 5.0)
    if shadow_too:
        stray(device, group._shadow[8:10], 0x40)
    occupy(lane)
    queued = [send(lane, w, access=READ), send(lane, other, access=READ)]
    kill(device)
    queued[1].result(60)
    with pytest.raises(an.GpuRefStale, match=r"clear_error\(\)") as refused:
        queued[0].result(60)
    assert refused.value.reason == "torn"
    with pytest.raises(an.GpuRefStale, match="write it whole"):
        w.numpy()
    if shadow_too:
        with pytest.raises(an.GpuRefStale, match=r"commit 1 of this group is lost.*write the members anew"):
            group.restore()
        overwrite(lane, w, 7.0).result(60)
        assert group.commit(2).result(60) == 2
        overwrite(lane, w, 8.0).result(60)
    group.restore()
    assert (w.numpy() == (7.0 if shadow_too else 1.0)).all()


def test_names_of_arrays_are_never_used_again(device: an.Device) -> None:
    seen: set[tuple[int, int]] = set()
    old: list[an.GpuRef] = []
    for _ in range(3):
        refs = [device.empty(4, durable=i % 2 == 0) for i in range(150)]
        names = {(r.allocation.slot, r.allocation.generation) for r in refs}
        assert len(names) == len(refs)
        assert not names & seen
        seen |= names
        old.append(pickle.loads(pickle.dumps(refs[1])))
        restart(device)
        del refs
    for ref in old:
        with pytest.raises(an.GpuRefStale):
            ref.numpy()


def test_generations_are_told_and_may_use_the_device(device: an.Device) -> None:
    told: list[tuple[int, float]] = []

    def again(generation: int) -> None:
        told.append((generation, float(device.put(np.full(3, generation)).numpy()[0])))
        device.lane(f"lane of {generation}").noop().ask().result(60)

    device.on_generation(again)
    for number in (1, 2):
        restart(device)
        eventually(lambda number=number: len(told) == number)
    assert told == [(2, 2.0), (3, 3.0)]


# ---- plans


def test_plans_are_built_again(device: an.Device) -> None:
    x, w = filled(device, 2.0, size=16).reshape(4, 4), filled(device, 3.0, size=16).reshape(4, 4)
    y = device.put(np.zeros((4, 4)), durable=True)
    plan = device.blas_lt.plan(x, w)
    for _ in range(3):
        plan.ask(x, w, out=y).result(60)
        assert (y.numpy() == 24.0).all()
        assert (device.elementwise.run("a + b", a=x, b=w).numpy() == 5.0).all()
        restart(device)
    queued = [occupy(device.blas_lt), plan.ask(x, w, out=y)]
    kill(device)
    assert queued[1].result(60) is y


@pytest.mark.parametrize("when", ["run", "build"])
def test_a_plan_that_kills_twice_is_quarantined(device: an.Device, when: str) -> None:
    lane = device.lane("a")
    plan = operation(lane, how="segfault", when=when)
    if when == "run":
        for _ in range(2):
            with pytest.raises(an.DeviceFault):
                plan.ask().result(60)
    with pytest.raises(an.PlanQuarantined, match=r"test\.crash"):
        plan.ask()
    await_generation(device, 3)
    with pytest.raises(an.PlanQuarantined):
        operation(lane, how="segfault", when=when).ask()
    assert device.generation == 3
    assert lane.noop().ask().result(60) is None


def test_queued_messages_of_a_quarantined_plan(device: an.Device) -> None:
    lane = device.lane("a")
    plan = operation(lane, how="segfault")
    replies = [plan.ask() for _ in range(4)]
    errors = []
    for reply in replies:
        assert reply.wait(60)
        errors.append(type(reply.exception()))
    assert errors == [an.DeviceFault, an.DeviceFault, an.PlanQuarantined, an.PlanQuarantined]
    del plan, reply, replies
    assert lane.noop().ask().result(60) is None


def test_innocent_plans_are_not_blamed_for_kills_from_outside(device: an.Device) -> None:
    lane = device.lane("a")
    for _ in range(3):
        reply = occupy(lane)
        kill(device)
        with pytest.raises(an.DeviceFault):
            reply.result(60)


def test_killed_while_a_plan_is_built(device: an.Device, tmp_path: Any) -> None:
    x, go = filled(device, 1.0), tmp_path / "go"
    plan = building_plan(device.lane("a"), go, x)
    waiting = threading.Thread(target=lambda: plan.wait(60))
    waiting.start()
    restart(device)
    restart(device)
    go.touch()
    waiting.join(60)
    assert not waiting.is_alive()
    assert plan.wait(60) is plan
    assert device.generation == 3


# ---- deaths at bad moments

STEPS = ["init", "map_segment", "subscribe", "open_lane", "recover_groups", "build_plan", "self_test", "go"]


@pytest.mark.fake_only(after=[True])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
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
    if step == "go":  # what ran, and what was running, when it died
        assert sum(isinstance(error, an.DeviceFault) for error in results) <= 1
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
    links = device._supervisor.links
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
        lane = device.lane("late")  # no worker serves: this does not wait
        results.append(lane.name)
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


def test_threads_go_on_through_restarts(device: an.Device) -> None:
    """Requests of every kind while workers come and go: nothing hangs, and only typed errors come out."""
    stop, oddities = threading.Event(), []
    kept = filled(device, 4.0)

    def work(number: int) -> None:
        rng = random.Random(number)
        while not stop.is_set():
            try:
                match rng.randrange(6):
                    case 0:
                        device.put(np.ones(rng.randrange(1, 100_000))).numpy()
                    case 1:
                        device.elementwise.run(f"a * {rng.randrange(1000)}", a=kept).wait(60)
                    case 2:
                        device.lane(f"l{rng.randrange(20)}").noop().ask().result(60)
                    case 3:
                        device.trim()
                    case 4:
                        asyncio.run(asyncio.wait_for(device.get_async(kept), 60))
                    case 5:
                        device.empty(rng.choice([10, 70 << 20]), "uint8")
            except (an.DeviceFault, an.GpuRefStale, an.DependencyFailed):
                pass
            except BaseException as error:
                oddities.append(error)
                raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    rng = random.Random(7)
    for _ in range(6):
        time.sleep(rng.uniform(0.0, 0.1))
        restart(device)
    stop.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not oddities
    assert (kept.numpy() == 4.0).all()


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


def test_commits_at_random_moments(device: an.Device, worker_process: Placement) -> None:
    """Kill while members change and are committed: all go back to one commit, bit for bit, and it says which."""
    rng = random.Random(20)
    members = {name: device.zeros(200_000, durable=True) for name in "abc"}
    lanes = [device.lane(name) for name in "abc"]
    group = device.durable_group(members, checksum=True)
    group.commit(0).result(60)
    step = 0
    interrupted = 0
    for _ in range(5 if worker_process.fake else 12):
        acknowledged, replies = group.tag, []
        for _ in range(30):
            step += 1
            for lane, ref in zip(lanes, members.values(), strict=True):
                overwrite(lane, ref, float(step))
            replies.append((step, group.commit(step)))
        time.sleep(rng.uniform(0.0, 0.004))
        restart(device)
        for tag, reply in replies:
            assert reply.wait(60)
            if reply.exception() is None:
                acknowledged = tag
        group.restore().result(60)
        values = {float(v) for ref in members.values() for v in np.unique(ref.numpy())}
        assert len(values) == 1, values
        assert group.tag == values.pop()
        assert group.tag >= acknowledged
        interrupted += group.tag < step
        step = max(step, group.tag)
    assert interrupted  # else this proves nothing


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_commit_that_is_found_begun_is_completed(device: an.Device, before: int, checksum: bool) -> None:
    a = filled(device, 1.0, size=1000)
    group = device.durable_group({"a": a}, checksum=checksum)
    for _ in range(before):
        group.commit(5).result(60)
    overwrite(device.lane("x"), a, 2.0).result(60)
    # What the beginning of a commit writes into the header: its sequence number, and its tag.
    stray(device, group._header[:2], before + 1)
    stray(device, group._header[2:4], 77)
    restart(device)
    assert (group.sequence, group.tag) == (before + 1, 77)
    group.restore().result(60)
    assert (a.numpy() == 2.0).all()
    overwrite(device.lane("x"), a, 3.0).result(60)
    restart(device)
    group.restore().result(60)
    assert (a.numpy() == 2.0).all()
    assert (group.sequence, group.tag) == (before + 1, 77)


@pytest.mark.parametrize("before", [0, 1])
def test_a_commit_that_was_interrupted_counts(host: an.Device, before: int) -> None:
    """The new worker finds it begun, completes it, and goes back to it from then on."""
    device = host
    a = device.put(np.full(64 << 20, 1, np.uint8), durable=True)
    group = device.durable_group({"a": a}, checksum=True)
    for _ in range(before):
        group.commit(5).result(60)
    a.fill(2)
    with group._header.lend() as header:
        reply = group.commit(77)
        while header[0] != before + 1:
            pass  # it takes tens of milliseconds from here; on a machine that stands still meanwhile it is complete
        kill(device)
    assert reply.wait(60)
    assert isinstance(reply.exception(), an.DeviceFault | None)
    await_generation(device, 2)
    assert (group.sequence, group.tag) == (before + 1, 77)
    group.restore().result(60)
    assert (a[:: 1 << 16].numpy() == 2).all()
    overwrite(device.lane("x"), a[: 1 << 10], 3.0).result(60)
    restart(device)
    group.restore().result(60)
    assert (a[:: 1 << 9].numpy() == 2).all()
    assert (group.sequence, group.tag) == (before + 1, 77)


@pytest.mark.parametrize("before", [0, 1])
def test_a_commit_that_was_taken_and_not_begun_does_not_count(host: an.Device, before: int) -> None:
    device = host
    a = filled(device, 1.0)
    group = device.durable_group({"a": a})
    for _ in range(before):
        group.commit(5).result(60)
    overwrite(device.lane("x"), a, 2.0).result(60)
    send(device.lane("x"), how="hang")  # holds the GIL, which the commit needs
    core, lane = device._core, device._memory.lane
    eventually(lambda: core.lane_stats(device.lane("x").lane)["claimed"] == 2)
    reply = group.commit(77)
    eventually(lambda: core.lane_stats(lane)["claimed"] == reply.ticket)
    kill(device)
    with pytest.raises(an.DeviceFault):
        reply.result(60)
    await_generation(device, 2)
    assert (group.sequence, group.tag) == ((1, 5) if before else (0, 0))
    if before:
        group.restore().result(60)
    assert (a.numpy() == (1.0 if before else 2.0)).all()
    occupy(device.lane("x"), a, half=3.0)
    restart(device)
    if before:
        group.restore().result(60)
        assert (a.numpy() == 1.0).all()
    else:
        with pytest.raises(an.GpuRefStale, match="clear_error"):
            a.numpy()
