"""Faults of a GPU: what everybody is told, what is lost, and what is kept.  On the fake driver, and on a GPU."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import eventually
from crash import PATIENT, await_generation, kill, overwrite
from gpu import CODES, free_memory, gpu_fault, gpu_plan, hold_memory

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.memory.cuda.groups import build_checksum
from atomr_native.plans.spec import WRITE, OperandSpec
from atomr_native.worker.cuda.faults import KINDS, build_fault
from atomr_native.worker.cuda.proof import build_proof, expected

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.Device]


@pytest.fixture(scope="module")
def device(cuda_engine: str, nothing_left: None) -> Iterator[an.Device]:
    """Lend a device that may die as often as it likes."""
    with an.System(allow_crash=True, watchdog=20.0, **PATIENT) as system:
        yield system.device("cuda:0")


def numbers(device: an.Device, value: float, *, durable: bool = True, size: int = 1000) -> an.GpuRef:
    return device.put(np.arange(float(size)) + value, durable=durable).wait()


def works(device: an.Device) -> None:
    """The device computes, and computes right."""
    x = device.put(np.full((8, 8), 2.0))
    assert (device.elementwise.run("a * 3", a=x).numpy() == 6.0).all()
    assert (device.blas_lt.matmul(x, x).numpy() == 32.0).all()


# ---- the kernels, without a device


@pytest.mark.parametrize("how", KINDS)
def test_kernels_that_fault_are_compiled_by_nvrtc_alone(
    how: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    attributes = (("how", how), ("nbytes", 3), ("offset", -8), ("milliseconds", 20))
    operand = OperandSpec("x", "uint8", (1,), (1,), WRITE)
    program = build_fault(an.PlanSpec("test.gpu_fault", (operand,), (), attributes), Target("sm_90a"))
    assert program.cubin[:4] == b"\x7fELF"
    assert (b"__assertfail" in program.cubin) is (how == "assert")
    assert "{" not in program.source.replace("{\n", "")  # nothing was left unfilled


def test_kernels_of_a_restart_are_compiled_by_nvrtc_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))
    assert build_proof(Target("sm_90a")).cubin[:4] == b"\x7fELF"
    program, blocks = build_checksum(Target("sm_90a", 3))
    assert (program.launches[0].grid, blocks) == ((24, 1, 1), 24)
    words = expected(3)
    assert words.shape == (384,)
    assert np.unique(words).size > 190  # each word, but for those that are exchanged, is its own


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(an.InvalidRequest, match=r"'meteor'.*illegal address.*assert.*slow"):
        build_fault(an.PlanSpec("test.gpu_fault", (), (), (("how", "meteor"),)), Target("sm_90a"))


# ---- each kind of fault


@pytest.mark.parametrize("how", CODES)
def test_a_fault_of_a_kernel(device: an.Device, how: str) -> None:
    weights, volatile = numbers(device, 0.0), numbers(device, 1.0, durable=False)
    group = device.durable_group({"w": weights}, checksum=True)
    group.commit(3).result(60)
    weights.fill(0.0)
    generation, lane = device.generation, device.lane("faults")
    reply = gpu_fault(lane, how, numbers(device, 2.0))
    with pytest.raises(an.DeviceFault) as caught:
        reply.result(60)
    fault = caught.value
    assert (fault.code, fault.name) == CODES[how]
    assert fault.restarted
    assert [(s.actor, s.operation) for s in fault.suspects] == [("faults", "test.gpu_fault")]
    assert f"{fault.name} ({fault.code}): " in str(fault)
    assert "send again" in str(fault)
    copy = pickle.loads(pickle.dumps(fault))
    assert (copy.code, copy.name, copy.suspects, copy.restarted) == (*CODES[how], fault.suspects, True)
    await_generation(device, generation + 1)
    with pytest.raises(an.GpuRefStale) as stale:
        volatile.numpy()
    assert stale.value.reason == "device restarted"
    group.restore()
    np.testing.assert_array_equal(weights.numpy(), np.arange(1000.0))
    assert (group.sequence, group.tag) == (1, 3)
    works(device)


@pytest.mark.parametrize("how", [*CODES, "illegal address while idle"])
def test_faults_on_demand(device: an.Device, how: str) -> None:
    kept, generation = numbers(device, 5.0), device.generation
    device.system.dead_letters.clear()
    device.inject_fault(how)
    await_generation(device, generation + 1)
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 5)
    works(device)
    if how in CODES:  # nobody waited for that message
        eventually(lambda: len(device.system.dead_letters) >= 1)
        error = next(iter(device.system.dead_letters)).error
        assert isinstance(error, an.DeviceFault)
        assert (error.code, error.name) == CODES[how]


def test_what_can_be_injected(make_device: Make, make_system: Callable[..., an.System]) -> None:
    device = make_device()
    with pytest.raises(an.InvalidRequest, match=r"'meteor'.*cuda:0.*segfault.*illegal address.*endless.*while idle"):
        device.inject_fault("meteor")
    with pytest.raises(an.InvalidRequest, match=r"allowed on host: segfault, abort, exit, hang, raise$"):
        device.system.device("host").inject_fault("trap")
    with pytest.raises(an.Unsupported, match="allow_crash"):
        make_device(allow_crash=False).inject_fault("trap")


def test_faults_while_nothing_runs_are_found(device: an.Device) -> None:
    """No message commits them, and nobody waits: the device is looked after all the same."""
    kept = numbers(device, 1.0)
    generation, letters = device.generation, device.system.dead_letters.total
    device.inject_fault("illegal address while idle")
    eventually(lambda: device.generation > generation, 60)  # nothing is sent meanwhile
    device.wait_ready(60)
    assert device.system.dead_letters.total == letters
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 1)


def test_many_faults_in_a_row(device: an.Device) -> None:
    kept = numbers(device, 2.0)
    generation = device.generation
    for n, how in enumerate(["trap", "trap", "illegal address", "assert"]):
        with pytest.raises(an.DeviceFault):
            gpu_fault(device.lane("faults"), how).result(60)
        await_generation(device, generation + n + 1)
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 2)
    works(device)


def test_of_two_suspects_the_kernel_that_faults_alone_is_quarantined(make_device: Make) -> None:
    """A main kernel is at work at each fault of others, and is never refused; a kernel that faults twice is."""
    device = make_device(**PATIENT)
    x, faults = numbers(device, 0.0), device.lane("faults")
    main = gpu_plan(device.lane("main"), "slow", x, milliseconds=500).wait(60)
    bad = [gpu_plan(faults, how).wait(60) for how in ("trap", "illegal address")]

    def is_at_work() -> bool:
        return device._core.lane_stats(main.lane)["claimed"] == main.last_ticket

    for generation, plan in enumerate(bad, 2):
        plan.wait(60)
        at_work = main.ask(x)
        eventually(is_at_work)
        with pytest.raises(an.DeviceFault, match=r"2 plans .* on probation") as caught:
            plan.ask().result(60)
        assert {suspect.actor for suspect in caught.value.suspects} == {"main", "faults"}
        assert at_work.wait(60)
        assert isinstance(at_work.exception(), an.DeviceFault)
        await_generation(device, generation)
        x = numbers(device, 0.0)
        main.ask(x).result(60)
    replies = [main.ask(x)]
    eventually(is_at_work)  # of two lanes without common data, either may come first
    replies += [bad[0].ask(), main.ask(x)]
    with pytest.raises(an.DeviceFault, match=r"quarantined until plan") as caught:
        replies[1].result(60)
    assert [suspect.actor for suspect in caught.value.suspects] == ["faults"]
    assert replies[0].wait(60)
    assert replies[0].exception() is None
    await_generation(device, 4)
    with pytest.raises(an.PlanQuarantined, match=r"test\.gpu_fault.* ran alone.*plan\.pardon"):
        bad[0].ask()
    main.ask(numbers(device, 0.0)).result(60)
    works(device)
    assert device.generation == 4


def test_the_likely_suspect_comes_first(device: an.Device) -> None:
    """Of several that were running, those that waited for another one of them come later."""
    x, y = numbers(device, 0.0), numbers(device, 0.0)
    lanes = [device.lane(name) for name in ("s0", "s1", "s2")]
    for lane in lanes:
        lane.noop().ask().result(60)
    gate = gpu_plan(lanes[2], "slow", x, milliseconds=1000).wait(60)
    crash = gpu_plan(lanes[2], "trap", x).wait(60)
    waits = [gpu_plan(lane, "slow", x, y, milliseconds=0).wait(60) for lane in lanes[:2]]
    replies = [gate.ask(x), crash.ask(x), *(plan.ask(x, y) for plan in waits)]
    with pytest.raises(an.DeviceFault) as caught:
        replies[1].result(60)
    assert caught.value.suspects[0].actor == "s2"
    assert len(caught.value.suspects) >= 2
    device.wait_ready(60)
    works(device)


def test_messages_that_meet_the_fault_are_no_failures_of_their_own(device: an.Device) -> None:
    """What is launched after the fault, and before it is known, fails to launch: that is the same fault."""
    x = numbers(device, 0.0)
    for i in range(5):
        generation = device.generation
        # Others each time: what was running at two deaths is quarantined.
        crash, slow = gpu_plan(device.lane("faults"), "trap"), gpu_plan(device.lane("s0"), "slow", milliseconds=1)
        add = device.elementwise.plan(f"c + {i}", out=x, c=x)
        for plan in (crash, add, slow):
            plan.wait(60)
        replies = [crash.ask()]
        with contextlib.suppress(an.GpuRefStale):  # on a slow machine the fault is known before all are sent
            for _ in range(30):
                replies.append(add.ask(x))
        replies += [slow.ask() for _ in range(30)]
        for reply in replies:
            assert reply.wait(60)
            error = reply.exception()
            assert error is None or isinstance(error, an.DeviceFault | an.GpuRefStale | an.DependencyFailed), error
            if isinstance(error, an.DeviceFault):
                assert error.code == 719
        await_generation(device, generation + 1)
        x.clear_error()
    works(device)


def test_a_kill_is_named(device: an.Device) -> None:
    slow = gpu_plan(device.lane("s0"), "slow", milliseconds=60_000).wait(60)
    for number, name in ((signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM")):
        generation = device.generation
        reply = slow.ask()
        eventually(lambda reply=reply: device._core.lane_stats(reply.lane)["claimed"] >= reply.ticket)
        kill(device, number)
        with pytest.raises(an.DeviceFault, match=name) as caught:
            reply.result(60)
        assert (caught.value.code, caught.value.name) == (number, name)
        await_generation(device, generation + 1)
    works(device)


def test_an_endless_kernel_is_ended_by_the_watchdog(make_device: Make) -> None:
    device = make_device(watchdog=1.0)
    kept = numbers(device, 3.0)
    plan = gpu_plan(device.lane("stuck"), "endless").wait(60)
    others = [device.lane("s0").noop(), device.lane("s1").noop()]
    reply = plan.ask()
    for other in others:  # they go on beside it
        other.ask().result(60)
    with pytest.raises(an.DeviceFault, match=r"watchdog: message 1 of 'stuck' ran for more than 1 s") as caught:
        reply.result(60)
    assert (caught.value.code, caught.value.name) == (9, "watchdog")
    assert caught.value.suspects[0].operation == "test.gpu_fault"
    await_generation(device, 2)
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 3)
    device.inject_fault("endless")
    await_generation(device, 3)
    works(device)


def test_the_watchdog_counts_from_the_head_of_the_stream(make_device: Make) -> None:
    """Messages that were launched long ago, and wait for others, do not run."""
    device = make_device(watchdog=1.0)
    x = numbers(device, 0.0)
    slow = gpu_plan(device.lane("s0"), "slow", x, milliseconds=300).wait(60)
    after = gpu_plan(device.lane("s1"), "slow", x, milliseconds=0).wait(60)
    an.gather(*[slow.ask(x) for _ in range(5)], after.ask(x), timeout=60)
    for _ in range(5):
        slow.tell(x)
    an.gather(after.ask(x), timeout=60)
    assert device.generation == 1


def test_memory_of_the_dead_is_given_back(make_device: Make) -> None:
    """Kernels, streams and volatile memory that nobody names any more are gone with the worker; segments stay."""
    device = make_device(**PATIENT)
    kept = device.put(np.ones(8 << 20, np.uint8), durable=True).wait()
    device.full((64 << 20,), 1, "uint8").wait()
    works(device)
    os.kill(device.worker_pid or 0, signal.SIGKILL)
    await_generation(device, 2)
    works(device)
    before = free_memory()
    for generation in range(3, 6):  # a worker that stays would hold more than 64 MiB
        with pytest.raises(an.DeviceFault):
            gpu_fault(device.lane("faults"), "illegal address").result(60)
        await_generation(device, generation)
        works(device)
    # A driver may take its time; another process's context is not the same size every time.
    eventually(lambda: free_memory() >= before - (32 << 20), 10)
    assert (kept.numpy() == 1).all()


# ---- out of bounds: no fault at all


def test_stray_writes_are_found_by_checksums(device: an.Device) -> None:
    """A kernel writes past its operand, into what a group has saved, or into a member."""
    for target, checked in (("shadow", True), ("member", True), ("shadow", False), ("member", False)):
        w, x = numbers(device, 0.0), numbers(device, 1.0)
        group = device.durable_group({"w": w}, checksum=checked)
        group.commit(7).result(60)
        if target == "shadow":
            overwrite(device.lane("s0"), w, 9.0).result(60)  # so that it must go back
        victim = (group._shadow if target == "shadow" else w).allocation
        assert victim.segment == x.allocation.segment
        stray = {"offset": victim.offset + 64 - x.allocation.offset, "nbytes": 3}
        gpu_fault(device.lane("s1"), "out of bounds", x, **stray).result(60)  # which nobody notices
        generation = device.generation
        kill(device)
        await_generation(device, generation + 1)
        if not checked:
            group.restore()
            assert bool(w.numpy()[8] == 8.0) is (target == "member")  # restored, but for what the shadow lost
            continue
        with pytest.raises(an.GpuRefStale) as refused:
            w.numpy()
        assert refused.value.reason == "torn"
        if target == "member":
            group.restore()
        else:
            with pytest.raises(an.GpuRefStale, match=r"commit 1 of this group is lost.*write the members again"):
                group.restore()
            device.put(np.arange(1000.0), out=w)
            group.commit(8).result(60)
            w.fill(0.0)
            group.restore()
        np.testing.assert_array_equal(w.numpy(), np.arange(1000.0))


# ---- out of memory


def test_more_than_the_gpu_has(device: an.Device) -> None:
    kept = numbers(device, 4.0)
    with pytest.raises(an.OutOfMemory) as caught:
        device.empty((1 << 44,), "uint8")
    assert caught.value.requested == 1 << 44
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 4)
    works(device)


def test_the_gpu_is_full_of_another_process(make_device: Make) -> None:
    """The driver refuses a segment that the limit allows: that is OutOfMemory, and everything else goes on."""
    device = make_device(**PATIENT)
    kept = numbers(device, 6.0)
    works(device)
    with hold_memory(1 << 30) as other:
        try:
            for durable in (False, True):
                with pytest.raises(an.OutOfMemory, match="which other programs use, too") as caught:
                    device.empty((2 << 30,), "uint8", durable=durable)
                assert caught.value.requested >= 2 << 30
            works(device)
            kill(device)  # a restart finds room for its context, too
            await_generation(device, 2)
            np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 6)
            works(device)
        finally:
            other.kill()
            other.communicate()
    big: Any = None

    def fits() -> bool:
        nonlocal big
        try:
            big = device.empty((2 << 30,), "uint8")
        except an.OutOfMemory:
            return False
        return True

    eventually(fits, 30)
    ends = big[:: 1 << 20]
    assert (ends.fill(1).numpy() == 1).all()


# ---- commits


@pytest.mark.parametrize("how", ["kill", "trap"])
def test_death_in_the_middle_of_a_commit(device: an.Device, how: str) -> None:
    """At random moments of a large commit: the group is as of the last one, or of this one, and never torn."""
    rng, lane = random.Random(how), device.lane("s0")
    a, b = (device.zeros((1 << 20,), "float64", durable=True) for _ in "ab")
    group = device.durable_group({"a": a, "b": b}, checksum=True)
    group.commit(0).result(60)
    for step in range(1, 4):
        generation = device.generation
        crash = gpu_plan(device.lane("faults"), "trap").wait(60)
        overwrite(lane, a, float(step))
        overwrite(device.elementwise, b, float(-step))
        reply = group.commit(step)
        later = overwrite(lane, a, 1e9)
        time.sleep(0.004 * rng.random())
        if how == "kill":
            kill(device)
        else:
            crash.tell()
        await_generation(device, generation + 1)
        assert reply.wait(60)
        assert later.wait(60)
        group.restore()
        left, right, tag = a.numpy(), b.numpy(), group.tag
        assert tag in (step, step - 1)
        assert tag == step or reply.exception() is not None
        assert (left == tag).all()
        assert (right == -tag).all()
        overwrite(lane, a, float(step))
        overwrite(device.elementwise, b, float(-step))
        group.commit(step).result(60)


# ---- plans


def test_a_plan_whose_building_faults_twice_is_quarantined(make_device: Make) -> None:
    """As a plan that is tuned, by running what faults."""
    device = make_device(**PATIENT)
    kept, lane = numbers(device, 1.0), device.lane("a")
    plan = gpu_plan(lane, "illegal address", when="build")
    with pytest.raises(an.PlanQuarantined, match=r"test\.gpu_fault"):
        plan.ask()
    await_generation(device, 3)
    with pytest.raises(an.PlanQuarantined):
        plan.wait(60)
    assert device.generation == 3
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 1)
    works(device)


def test_a_fault_while_a_plan_is_tuned(
    make_device: Make, cuda_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's: the plan is built by the next worker, and whoever waits for it waits on."""
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path))  # in which nothing is known yet
    monkeypatch.setenv("FAKE_CUDA_DELAY_US", "20000")  # so that measuring takes long enough on the fake driver
    device = make_device(**PATIENT)
    kept, crash = numbers(device, 1.0), gpu_plan(device.lane("faults"), "trap").wait(60)
    shape = (37, 61) if cuda_engine == "fake" else (1264, 1136)
    a = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    x, y = (device.put(array, durable=True).wait() for array in (a, a.T))
    replies: list[Any] = []

    def progress(done: int, total: int, text: str) -> None:
        if not replies:
            replies.append(crash.ask())

    plan = device.blas_lt.plan(x, y, tune=True, progress=progress)
    assert plan.tuning.startswith("tuned: ")
    with pytest.raises(an.DeviceFault, match="CUDA_ERROR_LAUNCH_FAILED"):
        replies[0].result(60)
    await_generation(device, 2)
    out = device.empty((shape[0], shape[0]))
    plan.ask(x, y, out=out).result(60)
    np.testing.assert_allclose(out.numpy(), a.astype(float) @ a.T, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(kept.numpy(), np.arange(1000.0) + 1)
    assert device.generation == 2


def test_a_plan_that_faults_twice_is_quarantined(make_device: Make) -> None:
    device = make_device(**PATIENT)
    plan = gpu_plan(device.lane("a"), "assert")
    for generation in (2, 3):
        with pytest.raises(an.DeviceFault):
            plan.ask().result(60)
        await_generation(device, generation)
    with pytest.raises(an.PlanQuarantined, match=r"test\.gpu_fault"):
        plan.ask()
    works(device)
    assert device.generation == 3
