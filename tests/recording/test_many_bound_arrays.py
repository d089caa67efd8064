"""Recorded plans with thousands of bound arrays: each is kept, checked and ordered by each message."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from placements import Placement

import atomr_native as an

Make = Callable[..., an.System]

MANY = 4096


def test_as_many_as_there_can_be(device: an.Device, placement: Placement) -> None:
    arrays = [device.full(1, i, dtype="int32") for i in range(MANY)]
    place = device.zeros(1, dtype="int32")
    with device.record() as recording:
        more = recording.operand("x", place) + 1
        for array in arrays:
            device.copy(more, out=array)
        del more
    plan = recording.plan
    assert plan.nbytes, "there is a block of temporaries besides"
    plan.tell(place)
    for value in (10, 20):  # ordered before and after it, by data
        place.fill(value)
        arrays[0].fill(7)
        plan.tell(place)
        arrays[MANY - 1].fill(8)
    found = [int(arrays[i].numpy()[0]) for i in (0, 1, MANY // 2, MANY - 2, MANY - 1)]
    assert found == [21, 21, 21, 21, 8]
    if placement.cuda:
        assert plan.replays.launched == 2


def test_each_is_kept_and_checked(device: an.Device) -> None:
    arrays = [device.full(4, i) for i in range(600)]
    out = device.zeros(4)
    with device.record() as recording:
        given = recording.operand("out", out)
        for array in arrays:
            given += array
    plan = recording.plan
    plan.tell(out=out)
    kept, last = arrays[400], arrays[599]
    del arrays
    gc.collect()
    device.full(1 << 16, 9.0).wait()  # where they would be, if they were not kept
    plan.tell(out=out)
    assert out.numpy()[0] == 2 * sum(range(600))
    for shared in (kept, last[1:3]):
        with pytest.raises(an.InvalidRequest, match=r"operand 'out' is written and overlaps 'bound\[\d+\]'"):
            plan.tell(out=shared) if shared is kept else plan.tell(out=last)
    kept.free()
    with pytest.raises(an.GpuRefStale, match=r"bound array, operand .* of step 400 .*: .*freed.*plan\.bind") as caught:
        plan.tell(out=out)
    assert caught.value.reason == "freed"
    plan.bind(kept, device.full(4, 0.5))
    plan.tell(out=out)
    assert out.numpy()[0] == 3 * sum(range(600)) - 400 + 0.5


def test_a_parameter_that_shares_memory_with_what_is_only_read(device: an.Device) -> None:
    whole = device.full(600, 2.0)
    arrays = [device.full(4, 1.0) for _ in range(300)]
    out = device.zeros(4)
    with device.record() as recording:
        x, y = recording.operand("x", whole[:4]), recording.operand("out", out)
        for array in arrays:
            device.elementwise.run("out = x + array", x=x, array=array, out=y)
        device.copy(y + whole[4:8], out=y)
    recording.plan.tell(whole[8:12], out)
    assert out.numpy().tolist() == [5.0] * 4
    with pytest.raises(an.InvalidRequest, match="operand 'out' is written and overlaps"):
        recording.plan.tell(out[:4], out)


def test_a_mailbox_that_is_too_small(make_system: Make, placement: Placement) -> None:
    device = make_system(mailbox_size=32).device()
    arrays = [device.zeros(1) for _ in range(400)]
    with device.record() as recording:
        for array in arrays:
            array.fill(1)
    with pytest.raises(an.InvalidRequest, match="needs more room than the whole mailbox of 32 cells"):
        recording.plan.tell()
    with device.record() as recording:
        for array in arrays[:200]:
            array.fill(2)
    for _ in range(20):  # each waits for room
        recording.plan.tell()
    assert arrays[199].numpy()[0] == 2
