"""Workspaces: scratch memory of plans, one a lane, out of the device's own pool.

That a message finds the workspace which was the last before it is shown in tests/native/runtime/test_workspace.c.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import Gate, eventually
from crash import restart
from crowds import alongside
from placements import Placement

import atomr_native as an
from atomr_native.plans.workspace_limits import WorkspaceLimits

Make = Callable[..., an.System]
KIB, MIB = 1 << 10, 1 << 20


def wanting(actor: Any, nbytes: int) -> an.Plan:
    """A plan that wants a workspace."""
    plan: an.Plan = actor._plan(an.PlanSpec("test.workspace", (), (), (("bytes", nbytes),)))
    return plan


def run(actor: Any, nbytes: int) -> None:
    wanting(actor, nbytes).ask().result(30)


def forget(actor: Any) -> None:
    actor._plans.clear()
    gc.collect()


def memory(device: an.Device) -> an.MemoryStats:
    return device.stats()["memory"]


def of_worker(device: an.Device) -> dict[int, int]:
    """What the worker says: bytes of each lane that has a workspace."""
    sizes = device._state.supervisor.links.serving().ask("stats").fields["workspaces"]
    return {lane: nbytes for lane, nbytes in enumerate(sizes) if nbytes}


def of_parent(device: an.Device) -> dict[int, int]:
    return {lane: nbytes for lane, nbytes in device._state.workspaces.sizes().items() if nbytes}


@pytest.fixture
def own(make_system: Make, placement: Placement) -> an.Device:
    return make_system(workspace_limit=1 << 30).device()


def test_a_lane_has_one_as_large_as_its_largest_plan(own: an.Device) -> None:
    lane = own.lane("a")
    assert memory(own)["workspaces"] == 0
    for nbytes, expected in [(1000, 1024), (10 * KIB, 10 * KIB), (5000, 10 * KIB), (0, 10 * KIB), (MIB, MIB)]:
        run(lane, nbytes)
        stats = own.stats()
        assert stats["memory"]["workspaces"] == stats["actors"]["a"]["workspace"] == expected
        assert stats["memory"]["pools"]["volatile"]["in_use"] == expected  # the smaller one is free
        assert of_worker(own) == {lane.lane: expected}
    assert own.stats()["actors"]["memory"]["workspace"] == 0


def test_a_plan_without_one_costs_nothing(own: an.Device) -> None:
    lane = own.lane("a")
    run(lane, 0)
    assert own.stats()["actors"]["a"]["sent"] == 1
    assert memory(own)["reserved"] == 0


def test_every_lane_has_its_own(own: an.Device) -> None:
    lanes = [own.lane(f"lane {i}") for i in range(61)]
    for i, lane in enumerate(lanes):
        run(lane, 256 * (i + 1))
    expected = {lane.lane: 256 * (i + 1) for i, lane in enumerate(lanes)}
    assert of_worker(own) == of_parent(own) == expected
    assert memory(own)["workspaces"] == memory(own)["in_use"] == sum(expected.values())
    for lane in lanes:
        forget(lane)
    eventually(lambda: own.trim() >= 0 and memory(own)["workspaces"] == 0)
    assert of_worker(own) == {}


def test_changing_it_waits_for_nobody(own: an.Device) -> None:
    """Messages that are queued keep what they were sent for; the range is handed on by order."""
    lane = own.lane("a")
    run(lane, 256 * KIB)
    small = wanting(lane, KIB).wait()
    with Gate(lane):
        before = [small.ask() for _ in range(3)]
        after = wanting(lane, MIB).ask()
        assert not after.done()
        assert memory(own)["workspaces"] == MIB
        assert of_worker(own) == {lane.lane: 256 * KIB}
        reused = own.full((256 * KIB,), 7, "uint8")  # the memory lane runs ahead only as far as it may
    an.gather(*before, after, timeout=30)
    assert of_worker(own) == {lane.lane: MIB}
    assert (reused.numpy() == 7).all()


def test_no_room_refuses_the_plan_and_leaves_the_device_usable(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=16 * MIB).device()
    lane = device.lane("a")
    run(lane, MIB)
    full = device.zeros(14 * MIB, "uint8")
    greedy = wanting(lane, 4 * MIB)
    for _ in range(2):
        with pytest.raises(an.OutOfMemory) as caught:
            greedy.tell()
        assert caught.value.requested == 4 * MIB
        assert caught.value.limit == 16 * MIB
    run(lane, MIB)
    assert of_worker(device) == of_parent(device) == {lane.lane: MIB}
    assert full.numpy().sum() == 0
    del full
    greedy.ask().result(30)
    assert of_worker(device) == of_parent(device) == {lane.lane: 4 * MIB}


def test_it_counts_in_the_limit(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=8 * MIB).device()
    run(device.lane("a"), 5 * MIB)
    assert memory(device)["reserved"] <= 8 * MIB
    with pytest.raises(an.OutOfMemory):
        device.empty(4 * MIB, "uint8")


def test_memory_that_runs_short_takes_what_no_plan_needs(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=8 * MIB).device()
    lane = device.lane("a")
    run(lane, 5 * MIB)
    forget(lane)
    assert (device.full((8 * MIB,), 3, "uint8").numpy() == 3).all()
    assert memory(device)["workspaces"] == 0
    assert of_worker(device) == {}


def test_trim_gives_back_only_what_no_plan_needs(own: an.Device) -> None:
    a, b = own.lane("a"), own.lane("b")
    kept = wanting(a, 2 * MIB)
    kept.ask().result(30)
    run(a, 70 * MIB)
    run(b, 66 * MIB)
    forget(a)
    forget(b)
    eventually(lambda: own.trim() >= 0 and memory(own)["workspaces"] == 70 * MIB)
    assert of_worker(own) == {a.lane: 70 * MIB}
    kept.ask().result(30)
    del kept
    gc.collect()
    eventually(lambda: own.trim() >= 0 and memory(own)["reserved"] == 0)
    assert of_worker(own) == {}
    run(a, KIB)
    assert of_worker(own) == {a.lane: KIB}


def test_trim_during_work_takes_nothing_from_queued_messages(own: an.Device) -> None:
    lane = own.lane("a")
    plan = wanting(lane, 70 * MIB)
    with Gate(lane):
        reply = plan.ask()
        del plan
        forget(lane)
        own.trim()
        assert memory(own)["workspaces"] == memory(own)["reserved"] == 70 * MIB
    reply.result(30)


def test_a_full_mailbox_puts_it_off(make_system: Make, placement: Placement) -> None:
    device = make_system(mailbox_size=32, mailbox="reject").device()
    lane = device.lane("a")
    noop, greedy = lane.noop().wait(), wanting(lane, KIB)
    with Gate(lane):
        with pytest.raises(an.MailboxFull):  # noqa: PT012
            for _ in range(40):
                noop.tell()
        with pytest.raises(an.MailboxFull):
            greedy.tell()
        assert device.trim() == 0
        assert memory(device)["workspaces"] == KIB
    eventually(lambda: device.stats()["actors"]["a"]["queued"] == 0)
    greedy.ask().result(30)
    assert of_worker(device) == of_parent(device) == {lane.lane: KIB}
    assert memory(device)["in_use"] == KIB


def test_it_outlives_the_worker_at_the_same_place(worker_process: Placement, make_system: Make) -> None:
    system = make_system(max_restarts=10)
    device = system.device()
    lanes = [device.lane(name) for name in "abc"]
    for i, lane in enumerate(lanes):
        run(lane, KIB << i)
    places = [device._state.workspaces.place(lane.lane) for lane in lanes]
    expected = of_parent(device)
    for _ in range(2):
        restart(device)
        assert of_worker(device) == of_parent(device) == expected
        assert [device._state.workspaces.place(lane.lane) for lane in lanes] == places
        assert memory(device)["in_use"] == sum(expected.values())
    run(lanes[0], MIB)
    assert of_worker(device)[lanes[0].lane] == MIB
    assert system.dead_letters.total == 0


def test_a_restart_while_it_changes(worker_process: Placement, make_system: Make) -> None:
    """The message that changes it is refused with the rest; the next worker is told the newest at once."""
    system = make_system(max_restarts=10)
    device = system.device()
    lane = device.lane("a")
    run(lane, KIB)
    kept = wanting(lane, KIB).wait()
    gate = Gate(lane)
    eventually(lambda: (of := device.stats()["actors"]["a"])["claimed"] == of["sent"])  # else it would stay queued
    before, after = kept.ask(), wanting(lane, MIB).ask()
    restart(device)
    an.gather(before, after, timeout=30)  # neither uses volatile memory of the user's
    assert of_worker(device) == of_parent(device) == {lane.lane: MIB}
    assert memory(device)["in_use"] == MIB
    with pytest.raises(an.DeviceFault):
        gate.reply.result(30)
    assert system.dead_letters.total == 0


def test_many_restarts_while_lanes_grow(worker_process: Placement, make_system: Make) -> None:
    system = make_system(max_restarts=100, standby="warm")
    device = system.device()
    stop = threading.Event()

    def work(name: str) -> None:
        lane, nbytes = device.lane(name), 256
        while not stop.is_set() and nbytes < MIB:
            with contextlib.suppress(an.DeviceFault, an.GpuRefStale):
                run(lane, nbytes)
                nbytes += 256

    with alongside(work, "ab"):
        for _ in range(5):
            restart(device)
        stop.set()
    for name in "ab":
        device.lane(name).noop().ask().result(30)
    assert of_worker(device) == of_parent(device)
    for name in "ab":
        run(device.lane(name), 2 * MIB)
    assert set(of_worker(device).values()) == {2 * MIB}
    assert system.dead_letters.total == 0


def test_what_a_worker_wants_is_checked(make_system: Make, placement: Placement) -> None:
    device = make_system(workspace_limit=4096).device()
    lane = device.lane("a")
    run(lane, 4096)
    for wrong in (4097, -1):
        with pytest.raises(an.AtomrError, match=f"{wrong} bytes; the limit is 4096"):
            wanting(lane, wrong).tell()
    assert of_worker(device) == {lane.lane: 4096}


@pytest.mark.parametrize("wrong", [-1, 2.5, "32M", True, 1 << 41])
def test_wrong_limits(wrong: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="workspace_limit"):
        an.System(workspace_limit=wrong)


# ---- kernels and libraries that use it


@pytest.fixture
def gpu(cuda_engine: str, make_system: Make) -> an.Device:
    return make_system(max_restarts=50).device("cuda:0")


def total(device: an.Device, x: an.GpuRef) -> an.GpuRef:
    """Sum many numbers to one, which goes through partial sums in the workspace."""
    return device.elementwise.reduce("sum", x)


def test_reductions_of_a_gpu_share_the_lanes(gpu: an.Device) -> None:
    lane = gpu.elementwise.lane
    expected = []
    refs = []
    for n in (1 << 14, 1 << 20, 1 << 17, 3 << 19):  # the workspace grows and grows again, while nobody waits
        x = np.random.default_rng(n).integers(-100, 100, n)
        refs += [total(gpu, gpu.put(x.astype(np.float64))) for _ in range(5)]
        expected += [x.sum()] * 5
    assert [float(ref.numpy()) for ref in refs] == expected
    assert of_worker(gpu) == of_parent(gpu)
    assert of_worker(gpu)[lane] > 0
    assert gpu.stats()["actors"]["elementwise"]["workspace"] == memory(gpu)["workspaces"]


def test_matmuls_of_a_gpu_use_their_lanes(gpu: an.Device, cuda_engine: str) -> None:
    rng = np.random.default_rng(2)
    for n in (32, 64, 128, 256):
        a = rng.standard_normal((n, n), np.float32)
        found = gpu.blas_lt.matmul(gpu.put(a), gpu.put(a)).numpy()
        np.testing.assert_allclose(found, a.astype(np.float64) @ a, atol=1e-3)
    size = gpu.stats()["actors"]["blas_lt"]["workspace"]
    assert size <= 32 * MIB
    assert of_worker(gpu) == of_parent(gpu)
    if cuda_engine == "fake":  # whose algorithms all want so much
        assert size == 4096


def test_they_work_after_a_restart_as_before(gpu: an.Device) -> None:
    x = np.arange(1 << 20, dtype=np.float64)
    keep = gpu.put(x, durable=True)
    a = np.eye(64, dtype=np.float32) * 3
    plan = gpu.elementwise.plan_reduce("sum", keep)
    out = gpu.empty((), "float64", durable=True)
    plan.ask(keep, out=out).result(60)
    for _ in range(3):
        place = gpu._state.workspaces.place(gpu.elementwise.lane)
        restart(gpu)
        assert gpu._state.workspaces.place(gpu.elementwise.lane) == place
        plan.tell(keep, out=out)
        product = gpu.blas_lt.matmul(gpu.put(a), gpu.put(a))
        assert float(out.numpy()) == x.sum()
        assert (product.numpy() == a * 3).all()
        assert of_worker(gpu) == of_parent(gpu)
    assert gpu.system.dead_letters.total == 0


def test_queued_messages_find_it_in_the_next_worker(gpu: an.Device) -> None:
    """Commits with checksums need one, and survive a restart while they are queued."""
    state = gpu.put(np.zeros(200_000), durable=True)
    group = gpu.durable_group({"state": state}, checksum=True)
    group.commit(0).result(60)
    assert gpu.stats()["actors"]["memory"]["workspace"] > 0
    for _ in range(3):
        for i in range(group.tag + 1, group.tag + 40):
            gpu.elementwise.run("s += 1", s=state)
            group.commit(i)
        restart(gpu)
        group.restore()
        assert (state.numpy() == group.tag).all()
    assert of_worker(gpu) == of_parent(gpu)


def test_no_workspace_allowed(cuda_engine: str, make_system: Make) -> None:
    device = make_system(workspace_limit=0).device("cuda:0")
    with pytest.raises(an.Unsupported, match=r"raise System\(workspace_limit=\)"):
        total(device, device.zeros((1 << 20,), "float64"))
    assert device.full((3,), 2.0).numpy().tolist() == [2, 2, 2]


def test_a_plan_that_needs_more_than_libraries_prefer(cuda_engine: str, make_system: Make) -> None:
    """The bare product, 2049 x 2049 float64, is kept in the workspace until the kernel after it applies ReLU."""
    n = 2049
    need = 8 * n * n
    assert need > WorkspaceLimits.of(None, 1 << 40).preferred
    x, y = np.linspace(-1, 1, n).reshape(n, 1), np.linspace(-2, 2, n).reshape(1, n)
    device = make_system().device("cuda:0")
    a, b = device.put(x), device.put(y)
    np.testing.assert_allclose(device.blas_lt.matmul(a=a, b=b, epilogue="relu").numpy(), np.maximum(x @ y, 0))
    assert device.stats()["actors"]["blas_lt"]["workspace"] >= need
    bounded = make_system(workspace_limit=need - 1).device("cuda:0")
    a, b = bounded.put(x), bounded.put(y)
    with pytest.raises(an.Unsupported, match=f"the limit is {need - 1}; raise System"):
        bounded.blas_lt.matmul(a=a, b=b, epilogue="relu")


@pytest.mark.parametrize(
    ("given", "total", "limits"),
    [
        (None, 80 << 30, (32 * MIB, 10 << 30)),
        (None, 100 * MIB, (32 * MIB, 32 * MIB)),
        (5, 80 << 30, (5, 5)),
        (1 << 40, 0, (1 << 40, 1 << 40)),
    ],
)
def test_limits(given: int | None, total: int, limits: tuple[int, int]) -> None:
    found = WorkspaceLimits.of(given, total)
    assert (found.preferred, found.most) == limits


def test_no_room_on_a_gpu(cuda_engine: str, make_system: Make) -> None:
    device = make_system(memory_limit=16 * MIB).device("cuda:0")
    x = device.zeros((1 << 20,), "float64")
    fill = [device.empty(256, "uint8")]
    for size in (MIB, 16 * KIB, 256):
        while (largest := memory(device)["pools"]["volatile"]["largest"]) >= size:
            fill.append(device.empty(size, "uint8"))
    assert largest == 0
    assert memory(device)["reserved"] == 16 * MIB
    out = fill.pop(0)[:8].view("float64").reshape(())
    plan = device.elementwise.plan_reduce("sum", x)
    with pytest.raises(an.OutOfMemory) as caught:
        plan.tell(x, out=out)
    assert caught.value.limit == 16 * MIB
    del fill[:2]
    plan.ask(x, out=out).result(60)
    assert float(out.numpy()) == 0
