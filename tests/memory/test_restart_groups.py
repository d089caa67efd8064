"""Durable groups through real deaths of workers: which commit they go back to, and what damages them."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
from actions import eventually, poison
from crash import PATIENT, await_generation, filled, kill, occupy, overwrite, restart, send, stray
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
def host(make_system: Make) -> an.Device:
    """Lend a host device, for what shows only where a commit is Python and memory is mapped here, too."""
    return make_system(**PATIENT).device("host")


def test_a_group_that_was_poisoned_goes_back(device: an.Device) -> None:
    a, b = filled(device, 1.0, size=1001), filled(device, 2.0)  # each has its own place in the shadow, of any size
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
        with pytest.raises(an.GpuRefStale, match=r"commit 1 of this group is lost.*write the members again"):
            group.restore()
        overwrite(lane, w, 7.0).result(60)
        assert group.commit(2).result(60) == 2
        overwrite(lane, w, 8.0).result(60)
    group.restore()
    assert (w.numpy() == (7.0 if shadow_too else 1.0)).all()


def test_commits_at_random_moments(device: an.Device, worker_process: Placement) -> None:
    """Kill while members change and are committed: all go back to one commit, bit for bit, and it says which."""
    rng = random.Random(20)
    # Sending a step takes less time than the step, so there is work until the worker dies.
    size = 200_000 if worker_process.fake or not worker_process.cuda else 4_000_000
    members = {name: device.zeros(size, durable=True) for name in "abc"}
    lanes = [device.lane(name) for name in "abc"]
    group = device.durable_group(members, checksum=True)
    group.commit(0).result(60)
    steps, interrupted = itertools.count(1), 0

    def keep_sending(replies: list[tuple[int, an.Reply]], stop: threading.Event) -> None:
        with contextlib.suppress(an.AtomrError):  # the members are those of the last commit, or torn
            while not stop.is_set():
                step = next(steps)
                for lane, ref in zip(lanes, members.values(), strict=True):
                    overwrite(lane, ref, float(step))
                replies.append((step, group.commit(step)))

    for _ in range(4 if worker_process.fake else 12 if worker_process.cuda else 6):
        replies: list[tuple[int, an.Reply]] = []
        acknowledged, stop, before = group.tag, threading.Event(), rng.randrange(1, 20)
        sender = threading.Thread(target=keep_sending, args=(replies, stop))
        sender.start()
        try:
            eventually(lambda: len(replies) > before and replies[before][1].done())  # noqa: B023
            restart(device)
        finally:
            stop.set()
            sender.join(60)
        assert not sender.is_alive()
        failed = 0
        for tag, reply in replies:
            assert reply.wait(60)
            if reply.exception() is None:
                acknowledged = tag
            else:
                failed += 1
        group.restore().result(60)
        arrays = [ref.numpy() for ref in members.values()]
        values = {float(bound) for array in arrays for bound in (array.min(), array.max())}
        assert values == {float(group.tag)}
        assert group.tag >= acknowledged
        interrupted += failed > 0
    assert interrupted  # else this proves nothing


@pytest.mark.parametrize(("before", "checksum"), [(0, True), (1, False)])
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
