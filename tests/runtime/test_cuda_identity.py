"""Which GPU a device is: resolved once, then found by its UUID; several GPUs have a worker each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import fake_cuda
import gpu
import numpy as np
import pytest
from actions import eventually
from crash import kill, restart
from placements import GPU

import atomr_native as an

GIB = 1 << 30
UUID = r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def two_fake_gpus(fake_environment: dict[str, str]) -> Iterator[None]:
    with fake_cuda.using({**fake_environment, "FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_MEMORY": str(2 * GIB)}):
        yield


@pytest.fixture(params=["fake", *GPU])
def two_gpus(request: pytest.FixtureRequest) -> str:
    """See to it that there are two GPUs."""
    engine: str = request.param
    if engine == "fake":
        request.getfixturevalue("two_fake_gpus")
    elif (count := gpu.visible()) < 2:
        pytest.skip(f"{count} NVIDIA GPU to be seen here; this needs two")
    return engine


def next_workers_see(device: an.Device, visible: str) -> None:
    """Have the workers of a device that are still to come see these GPUs."""
    pool = device._state.supervisor._standby
    assert pool is not None
    pool._environment["CUDA_VISIBLE_DEVICES"] = visible


def test_two_gpus_of_one_system_have_a_worker_each(two_gpus: str, nothing_left: None) -> None:
    with an.System(max_restarts=10) as system:
        first, second = system.device("cuda:0"), system.device("cuda:1")
        assert len({os.getpid(), first.worker_pid, second.worker_pid}) == 3
        uuids = [device.facts["uuid"] for device in (first, second)]
        assert len(set(uuids)) == 2
        assert all(re.fullmatch(UUID, uuid or "") for uuid in uuids)
        xs = [device.put(np.full(1000, i), durable=True) for i, device in enumerate((first, second))]
        with pytest.raises(an.InvalidRequest, match="another device"):
            second.get(xs[0])
        ys = [device.elementwise.run("x * 2 + 1", x=x) for device, x in zip((first, second), xs, strict=True)]
        assert [int(y.numpy()[7]) for y in ys] == [1, 3]
        before = second.stats()["memory"]["device_free"]
        for device in (first, second):
            assert 0 < (device.stats()["memory"]["device_free"] or 0) < device.facts["total_memory"]
        worker = second.worker_pid
        restart(first)
        assert (second.generation, second.worker_pid) == (1, worker)  # nothing happened to the other
        assert [device.facts["uuid"] for device in (first, second)] == uuids
        assert [int(x.numpy()[7]) for x in xs] == [0, 1]
        if two_gpus == "fake":  # nobody else is there
            assert second.stats()["memory"]["device_free"] == before


def test_a_worker_uses_memory_of_its_own_gpu_only(two_fake_gpus: None, nothing_left: None) -> None:
    with an.System() as system:
        first, second = system.device("cuda:0"), system.device("cuda:1")
        free = second.stats()["memory"]["device_free"]
        keep = first.empty(GIB, "uint8")
        assert second.stats()["memory"]["device_free"] == free
        assert (first.stats()["memory"]["device_free"] or 0) <= (free or 0) - GIB
        assert keep.nbytes == GIB


def test_a_gpu_is_found_again_when_numbers_change(two_fake_gpus: None, nothing_left: None) -> None:
    with an.System(max_restarts=10, standby="off") as system:
        device = system.device("cuda:0")
        uuid = device.facts["uuid"]
        kept = device.put(np.arange(1000), durable=True).wait()
        for visible in ("1,0", "0", f"{uuid}"):
            next_workers_see(device, visible)
            restart(device)
            assert device.facts["uuid"] == uuid
            assert (kept.numpy() == np.arange(1000)).all()
        found = device._state.supervisor.links.serving().ask("stats").fields
        assert found["memory_total"] == device.facts["total_memory"]


def test_a_gpu_that_is_gone_loses_the_device(two_fake_gpus: None, nothing_left: None) -> None:
    with an.System(max_restarts=10, standby="off") as system:
        device, other = system.device("cuda:0"), system.device("cuda:1")
        uuid = device.facts["uuid"]
        kept = device.put(np.arange(10), durable=True).wait()
        next_workers_see(device, "1")
        kill(device)
        eventually(lambda: device.stats()["state"] == "lost")
        for use in (kept.numpy, lambda: device.put([1]), lambda: device.wait_ready(10)):
            with pytest.raises(an.DeviceLost, match=f"{uuid} is gone"):
                use()
        assert device.restarts == 0
        assert other.put([5]).numpy() == [5]  # the other goes on


@pytest.mark.parametrize("name", ["cuda:2", "cuda:999"])
def test_a_gpu_that_is_not_there(two_fake_gpus: None, nothing_left: None, name: str) -> None:
    with an.System() as system:
        with pytest.raises(an.Unsupported, match=rf"there is no CUDA device {name[5:]}: the driver has 2"):
            system.device(name)
        assert system.device("cuda:1").put([1]).numpy() == [1]


def test_visible_devices_count(fake_environment: dict[str, str], nothing_left: None) -> None:
    settings = {**fake_environment, "FAKE_CUDA_DEVICES": "3"}
    with fake_cuda.using(settings), an.System() as system:
        uuids = [system.device(f"cuda:{i}").facts["uuid"] for i in range(3)]
    with fake_cuda.using({**settings, "CUDA_VISIBLE_DEVICES": "2,1"}), an.System() as system:
        assert [system.device(f"cuda:{i}").facts["uuid"] for i in range(2)] == [uuids[2], uuids[1]]
        with pytest.raises(an.Unsupported, match="the driver has 2"):
            system.device("cuda:2")
    with (
        fake_cuda.using({**settings, "CUDA_VISIBLE_DEVICES": ""}),
        an.System() as system,
        pytest.raises(an.Unsupported, match="cuda:0"),
    ):
        system.device("cuda:0")
