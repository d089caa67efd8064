"""Memory grows ahead of need, within the limit and what the device has, and only for programs that grow.

When a pool asks is shown in tests/native/runtime/test_growth.c.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import fake_cuda
import numpy as np
import pytest
from actions import Gate, eventually
from placements import Placement

import atomr_native as an
from atomr_native._lib.guard import shielded
from atomr_native._lib.sender import DURABLE, STAGING, VOLATILE
from atomr_native.protocol.messages import WorkerGone
from atomr_native.runtime.statistics import PoolStats

Make = Callable[..., an.System]
MIB, GIB = 1 << 20, 1 << 30


def pool(device: an.Device, name: str = "volatile") -> PoolStats:
    return device.stats()["memory"]["pools"][name]


def reserved(device: an.Device) -> int:
    return device.stats()["memory"]["reserved"]


def settle(device: an.Device) -> None:
    """Wait until what was asked for is there, or was given up."""
    core = device._core
    eventually(lambda: not any(core.asks_for_growth(kind) for kind in (VOLATILE, DURABLE, STAGING)))
    with device._memory.segments.lock:
        pass


class Held:
    """Holds growth up while it makes a segment, outside of the caller's threads."""

    def __init__(self, device: an.Device, error: Callable[[], Exception] | None = None) -> None:
        self.links = device._state.supervisor.links
        self.make = self.links.create_segment
        self.error = error
        self.began, self.go_on = threading.Event(), threading.Event()
        self.threads: list[int] = []
        self.links.create_segment = self.create  # type: ignore[method-assign]

    def create(self, number: int, nbytes: int, pool: int) -> int:
        self.threads.append(threading.get_ident())
        self.began.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            error, self.error = self.error, None
            raise error()
        return self.make(number, nbytes, pool)

    def end(self) -> None:
        self.go_on.set()
        self.links.create_segment = self.make  # type: ignore[method-assign]


@pytest.fixture(params=["host in a process", "host in a thread", "fake GPU"])
def device(request: pytest.FixtureRequest, make_system: Make) -> Iterator[an.Device]:
    """Lend a device with room for 2 GiB."""
    if request.param == "fake GPU":
        with fake_cuda.using(request.getfixturevalue("fake_environment")):
            yield make_system(memory_limit=2 * GIB).device("cuda:0")
    else:
        isolation = request.param.split()[-1]
        yield make_system(memory_limit=2 * GIB, isolation=isolation).device("host")


@pytest.mark.parametrize("durable", [False, True])
def test_a_program_that_grows_steadily_waits_once(device: an.Device, durable: bool) -> None:
    name, kept = "durable" if durable else "volatile", []
    for i in range(600):
        kept.append(device.empty(MIB, "uint8", durable=durable))
        settle(device)
        found = pool(device, name)
        assert found["waited"] == 1
        assert found["in_use"] == (i + 1) * MIB
        assert found["total"] <= found["in_use"] * 9 // 8 + 128 * MIB
    assert found["segments"] == found["ahead"] + 1 <= 12
    assert reserved(device) == found["total"]


def test_host_memory_grows_ahead_too(device: an.Device) -> None:
    kept = []
    for _ in range(100):
        kept.append(device.host_array((MIB,), "uint8"))
        settle(device)
    assert pool(device, "staging")["waited"] == 1
    assert pool(device, "staging")["ahead"] >= 1


def test_a_program_that_does_not_grow_keeps_what_it_has(device: an.Device) -> None:
    x = device.full((4 * MIB,), 1, "uint8")
    for _ in range(30):
        kept = [device.empty(MIB, "uint8") for _ in range(50)]
        settle(device)
        del kept
    assert (pool(device)["waited"], pool(device)["ahead"]) == (1, 0)
    for _ in range(30):  # near the edge: one segment more, once
        kept = [device.empty(MIB, "uint8") for _ in range(58)]
        settle(device)
        del kept
    assert (pool(device)["waited"], pool(device)["ahead"]) == (1, 1)
    assert reserved(device) == 128 * MIB
    assert x.numpy().all()


def test_nothing_grows_before_it_is_used(device: an.Device) -> None:
    settle(device)
    assert reserved(device) == 0
    device.empty(1, "uint8")
    settle(device)
    assert (reserved(device), pool(device)["ahead"]) == (64 * MIB, 0)


def test_large_arrays_get_segments_of_their_own(device: an.Device) -> None:
    kept = [device.empty(256 * MIB, "uint8") for _ in range(4)]
    settle(device)
    assert (pool(device)["waited"], pool(device)["ahead"]) == (4, 0)
    assert reserved(device) == 1024 * MIB == sum(ref.nbytes for ref in kept)
    kept += [device.empty(100 * MIB, "uint8")]  # more than half of the next segment, of 128 MiB
    assert reserved(device) == 1124 * MIB
    kept += [device.empty(60 * MIB, "uint8")]
    assert reserved(device) == 1264 * MIB
    settle(device)


def test_segments_stay_few(make_system: Make) -> None:
    device = make_system(memory_limit=64 * GIB).device("host")  # whose memory takes none until it is written
    kept = [device.empty(8 * MIB, "uint8") for _ in range(20 * 128)]
    settle(device)
    found = pool(device)
    assert found["segments"] <= 45
    assert found["total"] <= sum(ref.nbytes for ref in kept) + GIB


@pytest.mark.fake_only(limit=[70 * MIB])
@pytest.mark.parametrize("limit", [70 * MIB, 100 * MIB, 200 * MIB])
def test_the_limit_bounds_it(make_system: Make, placement: Placement, limit: int) -> None:
    device = make_system(memory_limit=limit).device()
    kept = []
    for _ in range(limit // MIB):
        kept.append(device.empty(MIB, "uint8"))
        settle(device)
        assert reserved(device) <= limit
    with pytest.raises(an.OutOfMemory):
        device.empty(MIB, "uint8")
    del kept[:8]
    assert device.full((MIB,), 1, "uint8").numpy().all()


def test_arrays_in_cycles_are_collected_before_memory_is_refused(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=8 * MIB).device()
    kept = device.empty(MIB, "uint8")
    for size in (6 * MIB, 5 * MIB, 6 * MIB):
        cycle: list[Any] = [device.full((size,), 1, "uint8")]
        cycle.append(cycle)
        del cycle
    with pytest.raises(an.OutOfMemory, match="1048576 in use"):
        device.empty(8 * MIB, "uint8")
    assert kept.nbytes == MIB


def test_it_leaves_room_for_other_pools(make_system: Make, placement: Placement) -> None:
    device = make_system(memory_limit=160 * MIB).device()
    kept = [device.empty(MIB, "uint8") for _ in range(62)]
    settle(device)
    assert pool(device)["ahead"] == 1
    assert pool(device)["total"] == (64 + 48) * MIB  # half of what was left
    durable = device.empty(90 * MIB, "uint8", durable=True)  # for which what nobody uses is given up
    assert pool(device)["total"] == 64 * MIB
    assert durable.nbytes + sum(ref.nbytes for ref in kept) <= reserved(device) <= 160 * MIB


def test_nobody_waits_while_it_goes_on(device: an.Device) -> None:
    device.put(np.zeros(MIB, np.uint8)).wait()
    held = Held(device)
    kept = [device.empty(MIB, "uint8") for _ in range(58)]
    assert held.began.wait(30)
    kept += [device.empty(MIB, "uint8") for _ in range(6)]  # to the last byte, while growth is held up
    assert pool(device)["free"] == 0
    assert device.put(np.arange(3), out=kept[0][:24].view("int64")).numpy().tolist() == [0, 1, 2]
    more: list[an.GpuRef] = []
    other = threading.Thread(target=lambda: more.append(device.empty(MIB, "uint8")))
    other.start()  # needs what is being made, and waits for that instead of making more
    held.end()
    other.join(30)
    settle(device)
    assert len(more) == 1
    assert threading.get_ident() not in held.threads
    assert (pool(device)["waited"], pool(device)["ahead"]) == (1, 1)


def test_trim_cancels_what_was_asked(device: an.Device) -> None:
    device.empty(MIB, "uint8")

    @shielded  # so that trim runs in this thread, which has the lock
    def fill_and_trim() -> list[an.GpuRef]:
        with device._memory.segments.lock:  # which the thread needs
            kept = [device.empty(MIB, "uint8") for _ in range(58)]
            assert device._core.asks_for_growth(VOLATILE)
            device.trim()
            assert not device._core.asks_for_growth(VOLATILE)
        return kept

    kept = fill_and_trim()
    settle(device)
    assert pool(device)["ahead"] == 0
    assert reserved(device) == 64 * MIB
    kept += [device.empty(MIB, "uint8")]  # grows on
    settle(device)
    assert pool(device)["ahead"] == 1
    assert device.trim() == 64 * MIB
    assert reserved(device) == 64 * MIB


@pytest.mark.parametrize(
    "error",
    [lambda: an.OutOfMemory("none left"), lambda: WorkerGone("gone"), lambda: OSError(24, "too many open files")],
    ids=["full", "gone", "no descriptor"],
)
def test_growth_that_fails_is_no_ones_error(device: an.Device, error: Callable[[], Exception]) -> None:
    device.empty(MIB, "uint8")
    held = Held(device, error)
    kept = [device.empty(MIB, "uint8") for _ in range(60)]
    assert held.began.wait(30)
    held.end()
    settle(device)
    assert pool(device)["ahead"] == 0
    kept += [device.empty(MIB, "uint8") for _ in range(60)]
    settle(device)
    assert pool(device)["waited"] + pool(device)["ahead"] >= 2
    assert device.full((MIB,), 7, "uint8").numpy().min() == 7


def test_closing_while_it_goes_on(make_system: Make, placement: Placement) -> None:
    system = make_system()
    device = system.device()
    held = Held(device)
    held.go_on.set()
    kept = [device.empty(MIB, "uint8")]
    held.go_on.clear()
    held.began.clear()
    kept += [device.empty(MIB, "uint8") for _ in range(60)]
    assert held.began.wait(30)
    closing = threading.Thread(target=system.close)
    closing.start()
    eventually(lambda: device._state.supervisor.links.current is None)
    held.end()
    closing.join(60)
    assert not closing.is_alive()
    assert len(kept) == 61


# ---- a device that has little


@pytest.fixture
def small_gpu(fake_environment: dict[str, str]) -> Iterator[None]:
    """Have a GPU of 512 MiB, which Systems share."""
    with fake_cuda.using({**fake_environment, "FAKE_CUDA_MEMORY": str(512 * MIB)}):
        yield


def limits(device: an.Device) -> tuple[int, int, int]:
    stats = device.stats()["memory"]
    assert stats["device_free"] is not None
    assert stats["device_total"] is not None
    return stats["limit"], stats["device_free"], stats["device_total"]


def test_the_limit_is_nine_tenths_of_what_is_free(small_gpu: None, make_system: Make) -> None:
    first = make_system().device("cuda:0")
    limit, free, total = limits(first)
    assert limit == free * 9 // 10 < total
    keep = first.empty(200 * MIB, "uint8")
    second = make_system().device("cuda:0")
    limit, free, _ = limits(second)
    assert limit == free * 9 // 10
    assert free <= total - keep.nbytes
    assert first.stats()["memory"]["limit"] == (total * 9 // 10 if limit == 0 else first._memory.limit)


def test_a_limit_that_is_given(small_gpu: None, make_system: Make) -> None:
    assert limits(make_system(memory_limit=100 * MIB).device("cuda:0"))[0] == 100 * MIB
    limit, _, total = limits(make_system(memory_limit=1 << 40).device("cuda:0"))
    assert limit == total
    with pytest.raises(an.OutOfMemory, match=f"segments of at least {2 * MIB} bytes: raise System"):
        make_system(memory_limit=MIB).device("cuda:0").zeros(3)


def test_others_take_the_memory(small_gpu: None, make_system: Make) -> None:
    """The limit would allow it, the device does not have it: a typed error, and everything goes on."""
    mine = make_system(memory_limit=512 * MIB).device("cuda:0")
    theirs = make_system(memory_limit=512 * MIB).device("cuda:0")
    x = mine.full((MIB,), 3, "uint8").wait()
    free = limits(mine)[1]
    keep: Any = theirs.empty((free // (2 * MIB) - 40) * 2 * MIB, "uint8")  # leaves 80 MiB
    free = limits(mine)[1]
    assert free == 80 * MIB
    with pytest.raises(an.OutOfMemory, match="other programs use") as caught:
        mine.empty(100 * MIB, "uint8")
    error = caught.value
    assert (error.requested, error.limit) == (100 * MIB, 512 * MIB)
    assert error.free == pool(mine)["free"] + pool(mine, "durable")["free"] + 80 * MIB
    assert error.largest == 80 * MIB
    large = mine.full((70 * MIB,), 5, "uint8")  # less than a usual segment would leave
    assert large.numpy().min() == 5
    kept = [mine.empty(MIB, "uint8") for _ in range(60)]  # asks for more, which is not there
    settle(mine)
    with pytest.raises(an.OutOfMemory):
        mine.empty(40 * MIB, "uint8")
    assert (x.numpy() == 3).all()
    del keep
    assert theirs.trim() > 0
    assert mine.full((100 * MIB,), 9, "uint8").numpy().min() == 9
    assert len(kept) == 60


def test_freed_memory_is_waited_for_before_giving_up(
    small_gpu: None, make_system: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make_system(memory_limit=512 * MIB).device("cuda:0")
    a, b = device.zeros(200 * MIB, "uint8"), device.zeros(200 * MIB, "uint8", durable=True)
    free = limits(device)[1]
    assert free < 130 * MIB
    device.copy(a[:4], out=b[:4]).wait(60)  # so that nothing is built later
    lane, segments = device._memory, device._memory.segments
    gate, wait = Gate(lane), segments.settle

    def wait_for_all() -> None:
        gate.open()
        wait()

    monkeypatch.setattr(segments, "settle", wait_for_all)
    device.copy(a[:4], out=b[:4])
    a.free()  # still in use by what was sent
    large = device.full((300 * MIB,), 1, "uint8")
    assert gate.flag[0]
    assert large[-5:].numpy().tolist() == [1] * 5
    assert b[-5:].numpy().tolist() == [0] * 5
