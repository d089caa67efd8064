"""Allocation under load: reuse, limits, trimming."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from actions import Gate
from crowds import together

import atomr_native as an

Make = Callable[..., an.System]
MIB = 1 << 20


def pool(device: an.Device, name: str = "volatile") -> dict[str, int]:
    found: dict[str, int] = device.stats()["memory"]["pools"][name]
    return found


def test_an_eager_loop_needs_memory_for_one_round_only(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, memory_limit=64 * MIB).device()
    x = device.full((1 << 20,), 1.0, "float32")  # 4 MiB
    with Gate(device.elementwise):  # nothing is freed on the device meanwhile
        for _ in range(100):
            x = device.elementwise.run("x + 1", x=x)
    assert x.numpy()[[0, -1]].tolist() == [101, 101]
    assert device.stats()["memory"]["reserved"] <= 64 * MIB


def test_reused_memory_is_not_seen_by_who_had_it(device: an.Device) -> None:
    keep = []
    for i in range(300):
        x = device.full((257,), i, "int32")
        keep.append((i, device.copy(x)))
        del x
        if i % 3:
            keep.pop(random.Random(i).randrange(len(keep)))
    for i, ref in keep:
        assert (ref.numpy() == i).all()


def test_many_threads_allocate_write_read_and_free(device: an.Device) -> None:
    def work(seed: int) -> None:
        random_ = random.Random(seed)
        mine: list[tuple[int, an.GpuRef]] = []
        for i in range(120):
            value = seed * 1000 + i
            mine.append((value, device.full((random_.randrange(1, 60) * 53,), value, "int64")))
            if len(mine) > 8 or random_.random() < 0.3:
                value, ref = mine.pop(random_.randrange(len(mine)))
                assert (device.copy(ref).numpy() == value).all()

    together(work, range(4))


def test_the_limit_is_a_limit_and_the_error_says_all(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, memory_limit=32 * MIB).device()
    keep = [device.full((MIB,), i, "uint8") for i in range(20)]
    with pytest.raises(an.OutOfMemory, match="memory_limit") as caught:  # noqa: PT012
        for _ in range(100):
            keep.append(device.empty(MIB, "uint8", durable=len(keep) % 2 == 0))
    error = caught.value
    assert error.requested == MIB
    assert error.limit == 32 * MIB
    assert error.largest <= error.free < MIB * 32
    assert str(MIB) in str(error)
    assert device.stats()["memory"]["reserved"] <= 32 * MIB
    with pytest.raises(an.OutOfMemory) as caught:
        device.empty(64 * MIB, "uint8")
    assert caught.value.requested == 64 * MIB
    for i, ref in enumerate(keep[:20]):
        assert (ref.numpy() == i).all()
    ref = keep.pop(3)
    del ref
    assert device.full((MIB,), 1, "uint8").numpy().all()
    keep.clear()
    assert device.zeros(24 * MIB, "uint8").numpy().sum() == 0


@pytest.mark.parametrize("limit", [1, 4096, 100_000, 3 * MIB])
def test_small_limits(make_system: Make, isolation: str, limit: int) -> None:
    device = make_system(isolation=isolation, memory_limit=limit).device()
    got = 0
    keep = []
    with pytest.raises(an.OutOfMemory):  # noqa: PT012
        for _ in range(100):
            keep.append(device.empty(max(limit // 4, 1), "uint8"))
            got += limit // 4
    assert device.stats()["memory"]["reserved"] <= limit
    if limit >= (2 * MIB if device.name.startswith("cuda") else 4096):  # what memory is made in, at least
        assert keep


def test_memory_of_one_pool_is_given_to_another_that_needs_it(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, memory_limit=16 * MIB).device()
    x = device.zeros(12 * MIB, "uint8")
    x.wait()
    with pytest.raises(an.OutOfMemory):
        device.empty(12 * MIB, "uint8", durable=True)
    del x
    assert device.zeros(12 * MIB, "uint8", durable=True).numpy().sum() == 0


def test_fresh_memory_is_there_while_messages_still_use_what_was_freed(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, memory_limit=16 * MIB).device()
    x = device.full((8 * MIB,), 7, "uint8")
    out = device.host_array((8 * MIB,), "uint8")
    lane = device.lane("a")
    with Gate(device._memory):
        copies = [device.blas_lt for _ in range(1)]
        y = device.copy(x[: 4 * MIB])
        x.free()
        z = device.full((8 * MIB,), 9, "uint8")
    assert (y.numpy() == 7).all()
    assert (device.get(z, out) == 9).all()
    assert copies
    assert lane


def test_trim_gives_back_what_nobody_uses(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    keep = device.put(np.arange(10))
    big = device.zeros(100 * MIB, "uint8")
    durable = device.zeros(MIB, "uint8", durable=True)
    big.wait()
    durable.wait()
    device.trim()  # what the copies went through
    before = device.stats()["memory"]["reserved"]
    assert before >= 164 * MIB
    assert device.trim() == 0
    del big, durable
    given = device.trim()
    assert given >= 164 * MIB
    after = device.stats()["memory"]
    assert after["reserved"] <= before - 164 * MIB
    assert after["pools"]["durable"]["total"] == 0
    assert device.trim() == 0
    assert keep.numpy().tolist() == list(range(10))
    assert device.zeros(100 * MIB, "uint8", durable=True).numpy()[::4096].sum() == 0


def test_trim_takes_nothing_that_queued_messages_use(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    x = device.full((70 * MIB,), 5, "uint8")
    out = device.empty(10, "uint8")
    x.wait()
    with Gate(device._memory):
        device.copy(x[-10:], out)
        x.free()
        assert device.trim() == 0
    assert out.numpy().tolist() == [5] * 10
    assert device.trim() >= 70 * MIB


def test_host_memory_comes_back_when_messages_are_done(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation).device()
    x, out = np.zeros(4 * MIB, "uint8"), device.empty(4 * MIB, "uint8")
    for _ in range(80):  # 320 MiB through the staging memory
        device.put(x, out=out)
    out.wait()
    assert pool(device, "staging")["total"] <= 256 * MIB
    assert pool(device, "staging")["in_use"] <= 4 * MIB


def test_handles_are_reused_many_times(device: an.Device) -> None:
    before = pool(device)["in_use"]
    for _ in range(30_000):
        device.empty(64, "uint8")
    assert pool(device)["in_use"] == before
