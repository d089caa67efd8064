"""Real deaths of workers: what is lost, what is kept, and that everybody gets an answer."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import building_plan, eventually, poison
from crash import PATIENT, await_generation, filled, kill, occupy, operation, overwrite, restart, send
from placements import Placement

import atomr_native as an
from atomr_native.plans.spec import READ

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.System]


@pytest.fixture
def device(make_system: Make, worker_process: Placement) -> an.Device:
    """Lend a device that may die as often as it likes."""
    return make_system(**PATIENT).device()


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
