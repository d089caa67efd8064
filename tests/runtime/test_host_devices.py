"""Several host devices of one System, and the list of devices that can be used."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
from actions import eventually

import atomr_native as an
from atomr_native.doctor.verdict import needs
from atomr_native.runtime.addresses import HOST_DEVICES, address_of
from atomr_native.runtime.listing import gpu_count


def test_addresses_have_one_name_each() -> None:
    assert address_of("host") == address_of("host:0") == ("host", 0)
    assert [address_of(name).name for name in ("host:0", "host:15", "cuda:0", "cuda:12")] == [
        "host", "host:15", "cuda:0", "cuda:12",
    ]  # fmt: skip
    assert HOST_DEVICES == 16


@pytest.mark.parametrize("name", ["host:16", "host:-1", "host:01", "host:", "Host", "gpu", "cuda", "cuda:1000", "", 0])
def test_other_names_are_refused_with_the_allowed_ones(name: object) -> None:
    with an.System(standby="off") as system, pytest.raises(an.InvalidRequest, match=r"'host:1' to 'host:15', 'cuda:0'"):
        system.device(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_each_has_a_worker_memory_and_statistics_of_its_own(isolation: str) -> None:
    with an.System(isolation=isolation, standby="off", memory_limit=8 << 20) as system:  # type: ignore[arg-type]
        first, second = system.device("host:0"), system.device("host:1")
        assert first is system.device("host")
        assert first is not second
        assert (first.name, second.name) == ("host", "host:1")
        assert (first.kind, first.index, first.number) == ("host", 0, 0)
        assert (second.kind, second.index, second.number) == ("host", 1, 1)
        assert repr(second) == "<Device 'host:1', generation 1>"
        assert repr(system) == "<System of host, host:1>"
        kept = [device.zeros(4 << 20, "int8") for device in (first, second)]  # more than one device's limit together
        assert all((ref.numpy() == 0).all() for ref in kept)
        if isolation == "process":
            assert first.worker_pid != second.worker_pid
        stats = system.stats()["devices"]
        assert [stats[name]["name"] for name in ("host", "host:1")] == ["host", "host:1"]
        assert stats["host:1"]["memory"]["in_use"] == 4 << 20
        with pytest.raises(an.InvalidRequest, match="another device"):
            first.blas_lt.matmul(*(device.put([[1.0]]) for device in (first, second)))
        assert pickle.loads(pickle.dumps(kept[1])).device is second


def test_a_death_leaves_the_other_devices_as_they_are() -> None:
    with an.System() as system:
        first, second = system.device("host"), system.device("host:1")
        volatile, durable = first.put([1.0, 2.0]), second.put([3.0], durable=True)
        lost = second.put([4.0])
        for ref in (volatile, durable, lost):
            ref.wait()
        assert second.worker_pid is not None
        os.kill(second.worker_pid, signal.SIGKILL)
        eventually(lambda: second.restarts == 1)
        second.wait_ready(30)
        assert (first.restarts, first.generation, second.generation) == (0, 1, 2)
        assert volatile.numpy().tolist() == [1.0, 2.0]
        assert durable.numpy().tolist() == [3.0]
        with pytest.raises(an.GpuRefStale, match="host:1 has restarted"):
            lost.numpy()
        assert [system.stats()["devices"][name]["restarts"] for name in ("host", "host:1")] == [0, 1]


def test_listing_starts_nothing_and_tells_of_what_is_used() -> None:
    with an.System(standby="off", memory_limit=1 << 20) as system:
        host = next(d for d in system.devices() if d.name == "host")
        assert (host.kind, host.index, host.state, host.memory_limit) == ("host", 0, "not started", None)
        assert host.memory_total is not None
        assert host.memory_free is not None
        assert 0 < host.memory_free <= host.memory_total
        assert system.stats()["devices"] == {}
        second = system.device("host:3")
        held = second.empty(1 << 18, "int8")
        listed = {d.name: d for d in system.devices() if d.kind == "host"}
        assert list(listed) == ["host", "host:3"]
        assert listed["host"].state == "not started"
        assert (listed["host:3"].state, listed["host:3"].memory_free) == ("open", (1 << 20) - (1 << 18))
        second.close()
        assert {d.name: d.state for d in system.devices()}["host:3"] == "closed"
        del held


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 3), ("", 0), ("0", 1), ("2,0", 2), ("0,7,1", 1), ("GPU-abc", 1), ("-1", 0)]
)
def test_gpus_are_counted_as_the_environment_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    for i in range(3):
        (tmp_path / f"proc/driver/nvidia/gpus/000{i}").mkdir(parents=True)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_count(tmp_path) == count


def test_doctor_needs_for_a_host_device_what_the_host_needs() -> None:
    assert needs("host:2", "process") == needs("host", "process") != needs("cuda:0", "process")


def test_host_devices_compute_alike() -> None:
    x = np.arange(12.0).reshape(3, 4)
    with an.System(standby="off") as system:
        results = [system.device(f"host:{i}").put(x) for i in range(2)]
        sums = [ref.device.blas_lt.matmul(ref, ref.device.put(x.T)).numpy() for ref in results]
    assert sums[0].tobytes() == sums[1].tobytes()
