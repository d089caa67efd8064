"""Statistics are true: bytes, messages, what the device is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from actions import Gate, eventually, fail
from placements import Placement

import atomr_native as an
from atomr_native._support.host_memory import host_memory
from atomr_native.runtime import statistics
from atomr_native.runtime.statistics import checked_facts, checked_handles, checked_memory

Make = Callable[..., an.System]
MIB = 1 << 20


def memory(device: an.Device) -> an.MemoryStats:
    return device.stats()["memory"]


def conforms(value: Any, hint: type) -> None:
    assert set(value) == set(get_type_hints(hint))


def test_keys_are_those_of_the_types(system: an.System, device: an.Device) -> None:
    device.put([1.0])
    stats = device.stats()
    conforms(stats, an.DeviceStats)
    conforms(stats["hardware"], an.DeviceFacts)
    conforms(stats["memory"], an.MemoryStats)
    assert set(stats["memory"]["pools"]) == {"volatile", "durable", "staging"}
    for pool in stats["memory"]["pools"].values():
        conforms(pool, statistics.PoolStats)
    for actor in stats["actors"].values():
        conforms(actor, statistics.ActorStats)
    conforms(system.stats(), an.SystemStats)
    assert json.loads(json.dumps(stats))["name"] == device.name


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_what_the_host_is(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device("host")
    facts = device.stats()["hardware"]
    assert facts is device.facts
    assert facts["name"]
    assert facts["total_memory"] == host_memory()[1]
    assert {facts[key] for key in ("uuid", "compute_capability", "multiprocessors", "driver_version")} == {None}


def test_life(make_system: Make, placement: Placement) -> None:
    device = make_system().device()
    stats = device.stats()
    assert (stats["name"], stats["state"], stats["generation"], stats["restarts"]) == (device.name, "open", 1, 0)
    assert stats["worker_pid"] == device.worker_pid
    assert (stats["worker_pid"] is None) == (placement.isolation == "thread")
    device.system.close()
    stats = device.stats()
    assert (stats["state"], stats["worker_pid"]) == ("closed", None)
    assert stats["memory"]["device_free"] is None


def test_bytes_of_each_pool(make_system: Make, placement: Placement) -> None:
    device = make_system().device()
    assert memory(device)["reserved"] == memory(device)["in_use"] == 0
    kept = [device.empty(n, "uint8") for n in (1, 256, 257, 1000, 0)]
    durable = device.empty(5000, "uint8", durable=True)
    volatile_bytes, durable_bytes = 256 + 256 + 512 + 1024 + 256, 5120
    stats = memory(device)
    pools = stats["pools"]
    assert (pools["volatile"]["in_use"], pools["volatile"]["blocks"]) == (volatile_bytes, 5)
    assert (pools["durable"]["in_use"], pools["durable"]["blocks"]) == (durable_bytes, 1)
    assert stats["in_use"] == volatile_bytes + durable_bytes
    assert stats["reserved"] == pools["volatile"]["total"] + pools["durable"]["total"]
    assert stats["free"] == stats["reserved"] - stats["in_use"]
    assert stats["deferred"] == 0
    for pool in pools.values():
        assert pool["total"] == pool["in_use"] + pool["free"] + pool["deferred"]
        assert pool["largest"] <= pool["free"]
    del kept[2]
    assert memory(device)["pools"]["volatile"]["in_use"] == volatile_bytes - 512
    kept.clear()
    volatile = memory(device)["pools"]["volatile"]
    assert (volatile["in_use"], volatile["blocks"]) == (0, 0)
    assert volatile["largest"] * volatile["segments"] >= volatile["free"] == volatile["total"]
    durable.free()
    assert device.trim() > 0
    assert memory(device)["reserved"] == 0


def test_reserved_is_what_the_pools_have_while_a_segment_is_added(
    make_system: Make, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make_system().device()
    links, seen = device._state.supervisor.links, []
    tell = links.tell

    def told(*what: Any) -> None:
        seen.append(device.stats(timeout=0.01)["memory"])  # the worker is not asked just now
        tell(*what)

    monkeypatch.setattr(links, "tell", told)
    device.zeros(1000)
    device.zeros(1000, durable=True)
    for memory in (*seen, device.stats()["memory"]):
        assert memory["reserved"] == memory["pools"]["volatile"]["total"] + memory["pools"]["durable"]["total"]
    assert len(seen) >= 2


def test_largest_block(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=16 * MIB).device()
    blocks = [device.empty(4 * MIB, "uint8") for _ in range(4)]
    assert memory(device)["pools"]["volatile"]["largest"] == 0
    del blocks[2]
    del blocks[0]
    volatile = memory(device)["pools"]["volatile"]
    assert (volatile["free"], volatile["largest"]) == (8 * MIB, 4 * MIB)
    device.empty(4 * MIB, "uint8")
    with pytest.raises(an.OutOfMemory) as caught:
        device.empty(5 * MIB, "uint8")
    assert (caught.value.free, caught.value.largest) == (8 * MIB, 4 * MIB)


def test_staging_memory_is_deferred_while_messages_use_it(make_system: Make, placement: Placement) -> None:
    device = make_system().device()
    array = device.host_array((MIB,), "uint8")
    source = device._memory.shared(array)
    assert source is not None
    before = memory(device)["pools"]["staging"]["in_use"]
    with Gate(device._memory):
        target = device.copy(source)
        del source, array
        staging = memory(device)["pools"]["staging"]
        assert staging["deferred"] == MIB
        assert staging["in_use"] == before - MIB + 256  # and the gate's flag
        assert memory(device)["deferred"] == 0
    target.wait()
    assert memory(device)["pools"]["staging"]["deferred"] == 0


def test_lent_memory_is_in_use_until_it_is_given_back(make_system: Make, placement: Placement) -> None:
    device = make_system().device()
    ref = device.empty(4096, "uint8")
    lease = ref.allocation.lease()
    ref.free()
    assert memory(device)["in_use"] == 4096
    del lease
    assert memory(device)["in_use"] == 0


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_what_the_host_has_left(make_system: Make, isolation: str) -> None:
    stats = memory(make_system(isolation=isolation).device("host"))
    free, total = host_memory()
    assert stats["device_total"] == total
    assert stats["device_free"] is not None
    assert 0 < stats["device_free"] <= total
    assert abs(stats["device_free"] - free) < total / 4  # other programs allocate and free, too


def test_nothing_waits_for_a_worker_that_does_not_answer(worker_process: Placement, make_system: Make) -> None:
    device = make_system(watchdog=None).device()
    keep = device.put([1.0]).wait()
    device.inject_fault("hang")
    stats = device.stats(timeout=0.05)
    assert stats["state"] == "open"
    assert (stats["memory"]["device_free"], stats["memory"]["device_total"]) == (None, None)
    assert stats["memory"]["pools"]["volatile"]["in_use"] == 256
    assert keep.shape == (1,)


def test_during_a_restart_there_is_no_word_of_the_device(worker_process: Placement, make_system: Make) -> None:
    device = make_system().device()
    device.put([1.0], durable=True).wait()
    seen = []
    recover = device._state.supervisor._starter._recover

    def watch(link: Any, report: Any) -> None:
        seen.append(device.stats())
        recover(link, report)

    device._state.supervisor._starter._recover = watch  # type: ignore[method-assign]
    generation = device.generation
    device.inject_fault("exit")
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    (stats,) = seen
    assert (stats["state"], stats["generation"], stats["worker_pid"]) == ("restarting", 2, None)
    assert (stats["memory"]["device_free"], stats["memory"]["device_total"]) == (None, None)
    assert memory(device)["device_total"] == device.facts["total_memory"]


def test_messages(device: an.Device) -> None:
    lane = device.lane("counted exactly")
    plan, out = lane.noop(), device.empty(4)
    for _ in range(10):
        plan.ask().result(30)
    assert fail(lane, out).wait(30)
    with Gate(lane):
        queued = [plan.ask() for _ in range(5)]
        eventually(lambda: device.stats()["actors"]["counted exactly"]["claimed"] == 12)
        began = time.monotonic_ns()
        busy = device.stats()["actors"]["counted exactly"]
        assert (busy["sent"], busy["completed"], busy["queued"]) == (17, 11, 6)
        held = time.monotonic_ns() - began
    an.gather(*queued)
    idle = device.stats()["actors"]["counted exactly"]
    assert (idle["sent"], idle["completed"], idle["queued"], idle["failed"]) == (17, 17, 0, 1)
    assert idle["messages"] == 17
    if device.name == "host":  # a GPU's lane is free when it has launched
        assert idle["busy_ns"] > held / 2


GOOD: dict[str, Any] = {
    "name": "x", "uuid": None, "compute_capability": [9, 0], "multiprocessors": 132, "driver_version": 13000,
    "total_memory": 1,
}  # fmt: skip


def test_facts_of_a_worker_are_checked() -> None:
    assert checked_facts(GOOD)["compute_capability"] == (9, 0)
    conforms(checked_facts({"name": "x", "total_memory": 1}), an.DeviceFacts)


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], {**GOOD, "name": 3}, {**GOOD, "uuid": 5}, {**GOOD, "total_memory": -1},
        {**GOOD, "total_memory": True},
        {**GOOD, "compute_capability": [9, -1]}, {**GOOD, "compute_capability": [1000, 0]},
        {**GOOD, "compute_capability": [9]}, {**GOOD, "compute_capability": "90"}, {**GOOD, "multiprocessors": 1.5},
        {key: value for key, value in GOOD.items() if key != "name"},
    ],
)  # fmt: skip
def test_facts_that_make_no_sense(wrong: Any) -> None:
    with pytest.raises(an.AtomrError, match="the worker reports"):
        checked_facts(wrong)


def test_memory_and_handles_that_make_no_sense() -> None:
    assert checked_memory({"memory_free": 2, "memory_total": 2}) == (2, 2)
    for free, total in ((3, 2), (-1, 2), (1, 1 << 63), (True, 2), (1.0, 2), (1, None)):
        assert checked_memory({"memory_free": free, "memory_total": total}) is None
    assert checked_handles({"native_handles": {"cublas": 2}}) == {"cublas": 2}
    many = {f"library {i}": 1 for i in range(1000)}
    for wrong in (None, [1], many, {"x" * 1000: 1}, {"cublas": -1}, {"cublas": True}, {"cublas": 1 << 63}):
        assert checked_handles({"native_handles": wrong}) == {}


MEMINFO = "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  600 kB\nHugePages_Total:  0\n"
KIB = 1 << 10


def test_host_memory_is_that_of_the_machine(tmp_path: Path) -> None:
    assert host_memory(tmp_path, "0::/\n", MEMINFO) == (600 * KIB, 1000 * KIB)


def test_host_memory_is_bounded_by_every_control_group(tmp_path: Path) -> None:
    leaf = tmp_path / "a" / "b"
    leaf.mkdir(parents=True)
    (leaf / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text(f"{500 * KIB}\n")
    (tmp_path / "a" / "memory.current").write_text(f"{300 * KIB}\n")
    assert host_memory(tmp_path, "0::/a/b\n", MEMINFO) == (200 * KIB, 500 * KIB)
    (tmp_path / "a" / "memory.stat").write_text(f"anon 7\ninactive_file {100 * KIB}\n")  # cache gives way
    assert host_memory(tmp_path, "0::/a/b\n", MEMINFO) == (300 * KIB, 500 * KIB)
    (tmp_path / "a" / "memory.current").write_text(f"{900 * KIB}\n")
    assert host_memory(tmp_path, "0::/a/b\n", MEMINFO) == (0, 500 * KIB)


def test_host_memory_under_control_groups_of_version_1(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(f"{2000 * KIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{1700 * KIB}\n")
    (folder / "memory.stat").write_text(f"total_inactive_file {50 * KIB}\n")
    assert host_memory(tmp_path, "5:memory:/\n", MEMINFO) == (350 * KIB, 1000 * KIB)


# ---- a GPU


@pytest.fixture
def gpu(cuda_engine: str, make_system: Make) -> an.Device:
    return make_system().device("cuda:0")


def test_what_a_gpu_is(gpu: an.Device, cuda_engine: str) -> None:
    stats = gpu.stats()
    facts = stats["hardware"]
    assert facts is gpu.facts
    assert facts["name"]
    assert re.fullmatch(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", facts["uuid"] or "")
    assert (facts["compute_capability"] or (0, 0)) >= (7, 0)
    assert (facts["multiprocessors"] or 0) > 0
    assert (facts["driver_version"] or 0) >= 12000
    assert stats["memory"]["device_total"] == facts["total_memory"]
    json.dumps(stats)


def test_what_a_gpu_has_left_is_what_its_driver_says(gpu: an.Device, cuda_engine: str) -> None:
    before = memory(gpu)["device_free"]
    assert before is not None
    kept = gpu.empty(300 * MIB, "uint8")
    stats = memory(gpu)
    assert stats["in_use"] == kept.nbytes == 300 * MIB
    assert stats["reserved"] >= 300 * MIB
    if cuda_engine == "fake":  # others use a real one
        assert stats["device_free"] == before - stats["reserved"]
    kept.free()
    assert gpu.trim() >= 300 * MIB
    if cuda_engine == "fake":
        assert memory(gpu)["device_free"] == before


def test_queue_of_a_gpu(gpu: an.Device) -> None:
    x = gpu.zeros((1000,), "float32")
    plan = gpu.elementwise.plan("x = x + 1", x=x)
    for _ in range(100):
        plan.tell(x)
    actor = gpu.stats()["actors"]["elementwise"]
    assert actor["sent"] == 100
    assert actor["queued"] == actor["sent"] - actor["completed"] >= 0
    assert x.numpy()[0] == 100
    actor = gpu.stats()["actors"]["elementwise"]
    assert (actor["completed"], actor["queued"], actor["failed"]) == (100, 0, 0)
