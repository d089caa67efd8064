"""The way back of a CUDA device: its proof, faults in the middle of it, and a driver that is not ready yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernel_shim
import numpy as np
import pytest
import scripts
from actions import eventually
from crash import PATIENT, Moments, await_generation, kill, overwrite
from gpu import gpu_fault, gpu_plan

import atomr_native as an
from atomr_native._support import disk_cache
from atomr_native.builders.cuda import cubin
from atomr_native.runtime.placement import StandbyPool, worker_environment
from atomr_native.worker.cuda import proof

pytestmark = pytest.mark.usefixtures("nothing_left")
Make = Callable[..., an.Device]
FIRST = "GPU-fa1f4469-8eb3-d8fd-2247-6c91b6db0000"  # of the fake driver
STEPS = ("map_segment", "subscribe", "open_lane", "recover_groups", "build_plan", "self_test", "go")


@pytest.fixture
def moments() -> Iterator[Moments]:
    """Lend what does something in the middle of a restart."""
    with Moments().watching() as made:
        yield made


def works(device: an.Device) -> None:
    """The device computes, and computes right."""
    x = device.put(np.full((8, 8), 2.0))
    assert (device.elementwise.run("a * 3", a=x).numpy() == 6.0).all()


# ---- the proof


class Cache:
    """A disk cache of kernels that holds the proof, or something else in its place."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder, self.engine = folder, engine

    @property
    def file(self) -> Path:
        (found,) = self.folder.rglob("*.cubin")
        return found

    def falsify(self) -> None:
        """Put a kernel that computes something else in the place of the proof."""
        file = self.file
        right = disk_cache._load(file)
        assert right is not None
        source = proof._SOURCE.replace(", 1.0)", ", 2.0)")
        assert source != proof._SOURCE
        wrong = kernel_shim.compile_module(source) if self.engine == "fake" else cubin.compile_cubin(source, "sm_90a")
        names = 8 + int.from_bytes(right[:8], "little")  # before the code, which lies behind them
        disk_cache._save(self.folder, file, right[:names] + wrong)


@pytest.fixture
def cache(cuda_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Lend a cache that the Systems made from here on use."""
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache", cuda_engine)


def test_a_device_that_computes_wrongly_is_not_opened(make_device: Make, cache: Cache) -> None:
    device = make_device()
    device.system.close()
    cache.falsify()
    with pytest.raises(
        an.LibraryError, match=r"known-answer computation: \d+ of \d+ words are wrong; word 0"
    ) as caught:
        make_device()
    assert (caught.value.lib, caught.value.name) == ("cuda", "WrongAnswer")


def test_a_wrong_answer_is_another_restart(make_device: Make, cache: Cache, moments: Moments) -> None:
    device = make_device(**PATIENT)
    kept = device.put(np.arange(10.0), durable=True).wait()
    right, file = cache.file.read_bytes(), cache.file
    cache.falsify()
    moments.at("self_test", lambda _: None)
    moments.at("self_test", lambda _: file.write_bytes(right))
    kill(device)
    await_generation(device, 2)
    assert not moments.plans
    assert kept.numpy().tolist() == list(range(10))
    works(device)
    eventually(lambda: device.restarts == 1)


def test_wrong_answers_spend_the_budget(make_device: Make, cache: Cache) -> None:
    device = make_device(max_restarts=2)
    x = device.put(np.arange(10.0), durable=True).wait()
    cache.falsify()
    kill(device)
    eventually(lambda: device.stats()["state"] == "lost", 60)
    with pytest.raises(an.DeviceLost, match=r"restart budget is 2") as caught:
        device.wait_ready(60)
    assert "WrongAnswer" in str(caught.value)
    with pytest.raises(an.DeviceLost, match="WrongAnswer"):
        x.numpy()


# ---- a fault, or a death, while it comes up


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_while_it_comes_up(make_device: Make, moments: Moments, step: str) -> None:
    """The standby faults in the middle of recovery, building or proof: the next one does all of it again."""
    device = make_device(mailbox_size=4096, **PATIENT)
    a, b = (device.put(np.full(1000, v), durable=True).wait() for v in (1.0, 2.0))
    group = device.durable_group({"a": a, "b": b}, checksum=True)
    group.commit(1).result(60)
    busy, counter = (device.put(np.zeros(2), durable=True).wait() for _ in range(2))
    overwrite(device.lane("y"), a, 9.0).result(60)
    actor = device.elementwise
    stop = gpu_plan(actor, "slow", busy, milliseconds=60_000).wait(60)
    fill, add = (actor.plan("c + 1", out=ref, c=ref).wait(60) for ref in (busy, counter))
    stopped = stop.ask(busy)
    eventually(lambda: device._core.lane_stats(stopped.lane)["claimed"] >= stopped.ticket)
    for _ in range(3000):  # more than the GPU's own queue holds: what comes later stays in the mailbox
        fill.tell(busy)
    queued = [add.ask(counter) for _ in range(20)]
    assert device._core.lane_stats(stopped.lane)["claimed"] < queued[0].ticket
    moments.at(step, lambda link: link.ask("crash_device", how="illegal address while idle").close())
    kill(device)
    await_generation(device, 2)
    results = []
    for reply in queued:
        assert reply.wait(60)
        results.append(reply.exception())
    assert not moments.plans
    if step == "go":  # the fault is found while they run
        assert all(e is None or isinstance(e, an.DeviceFault | an.GpuRefStale) for e in results)
        await_generation(device, 3)
    else:
        assert results == [None] * 20
        assert counter.numpy().tolist() == [20.0, 20.0]  # each exactly once
        assert device.generation == 2
    group.restore().result(60)
    assert (a.numpy() == 1.0).all()
    assert (b.numpy() == 2.0).all()
    assert (group.sequence, group.tag) == (1, 1)
    works(device)


@pytest.mark.parametrize("standby", ["warm", "hot"])
def test_the_steps_of_a_restart(make_device: Make, standby: str) -> None:
    device = make_device(standby=standby, **PATIENT)
    works(device)
    pool = device._state.supervisor._standby
    assert pool is not None
    eventually(lambda: pool.pid is not None)
    waiting = pool.pid
    with pytest.raises(an.DeviceFault):
        gpu_fault(device.lane("x"), "trap").result(60)
    await_generation(device, 2)
    assert device.worker_pid == waiting
    eventually(lambda: "total" in device.restart_timeline())
    timeline = device.restart_timeline()
    steps = ("reap", "account", "worker", "init", "map", "groups", "plans", "prove", "open")
    assert tuple(timeline) == (*steps, "total")
    assert all(timeline[step] >= 0 for step in steps)
    assert sum(timeline[step] for step in steps) <= timeline["total"]


def test_a_hot_standby_has_made_products(cuda_engine: str) -> None:
    assert scripts.run("""
from atomr_native._lib.cuda import CudaBackend
from atomr_native.libraries.blas_lt.cuda import heat
heat.heat_up(CudaBackend(0))  # a hot standby passes over its errors
print(*heat._TRIED)
""").split() == ["float32", "bfloat16", "float16"]  # fmt: skip


# ---- a driver that is not ready yet; the fake's


def test_errors_that_pass_while_the_dead_are_cleaned_up(
    refuse: Callable[..., Path], make_system: Callable[..., an.System], moments: Moments
) -> None:
    device = make_system(**PATIENT).device("cuda:0")
    kept = device.put(np.arange(10.0), durable=True).wait()
    group = device.durable_group({"k": kept}, checksum=True)
    group.commit(1).result(60)
    moments.seen.clear()
    path = refuse(
        cuInit=(999, 1), cuDevicePrimaryCtxRetain=(2, 2), cuMemHostRegister_v2=(304, 2), cuStreamCreate=(2, 2),
        cuMemMap=(2, 1), cuModuleLoadData=(999, 1),
    )  # fmt: skip
    kill(device)
    await_generation(device, 2)
    assert path.read_text() == ""
    assert moments.seen.count("init") == 1, "it took more than one worker"
    assert kept.numpy().tolist() == list(range(10))
    works(device)


def test_errors_that_stay_are_told(refuse: Callable[..., Path], make_system: Callable[..., an.System]) -> None:
    device = make_system(max_restarts=1).device("cuda:0")
    x = device.put(np.ones(4), durable=True).wait()
    path = refuse(cuDevicePrimaryCtxRetain=(2, 10**6))
    began = time.monotonic()
    kill(device)
    eventually(lambda: device.stats()["state"] == "lost", 60)
    assert time.monotonic() - began > 1.5, "it was not patient"
    with pytest.raises(an.DeviceLost, match=r"restart budget is 1") as caught:
        x.numpy()
    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(caught.value)
    assert int(path.read_text().split()[2]) < 10**6 - 3


def test_errors_that_never_pass_are_told_at_once(
    refuse: Callable[..., Path], make_system: Callable[..., an.System]
) -> None:
    device = make_system(max_restarts=2).device("cuda:0")
    path = refuse(cuDevicePrimaryCtxRetain=(101, 10))
    kill(device)
    eventually(lambda: device.stats()["state"] == "lost", 60)
    with pytest.raises(an.DeviceLost, match="CUDA_ERROR_INVALID_DEVICE"):
        device.wait_ready(60)
    assert path.read_text().split()[2] == "8"  # once in each of two workers


def test_the_first_worker_is_not_patient(refuse: Callable[..., Path], make_system: Callable[..., an.System]) -> None:
    path = refuse(cuStreamCreate=(2, 5))
    with pytest.raises(an.OutOfMemory, match="CUDA_ERROR_OUT_OF_MEMORY"):
        make_system().device("cuda:0")
    assert path.read_text() == "cuStreamCreate 2 4\n"


def test_a_segment_that_the_driver_refuses(refuse: Callable[..., Path], make_system: Callable[..., an.System]) -> None:
    device = make_system().device("cuda:0")
    kept = device.put(np.arange(10.0), durable=True).wait()
    for call in ("cuMemCreate", "cuMemMap"):
        refuse(**{call: (2, 1000)})
        with pytest.raises(an.OutOfMemory) as caught:
            device.empty((100 << 20,), "uint8")
        assert caught.value.requested == 100 << 20
        refuse()
        big = device.full((100 << 20,), 3, "uint8")
        assert big[-3:].numpy().tolist() == [3, 3, 3]
        del big
        device.trim()
    assert kept.numpy().tolist() == list(range(10))
    assert device.generation == 1


@pytest.mark.parametrize(("kind", "call"), [("warm", "cuInit"), ("hot", "cuInit"), ("hot", "cuDevicePrimaryCtxRetain")])
def test_a_standby_whose_driver_refuses_is_none(refuse: Callable[..., Path], kind: Any, call: str) -> None:
    path = refuse(**{call: (999, 1)})
    pool = StandbyPool("cuda:0", worker_environment(), kind=kind)
    try:
        pool.refill(FIRST)
        eventually(lambda: path.read_text() == "")
        worker = pool.take()  # from scratch
        assert worker.alive()
        worker.kill()
        worker.close(0.0)
    finally:
        pool.close()
