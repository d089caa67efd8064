"""Copies between host devices: enqueued, ordered by data on both, in every layout and type."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from actions import Gate, eventually, poison
from crash import overwrite

import atomr_native as an
from atomr_native.dtypes import DTYPES


@pytest.fixture(scope="module", params=["process", "thread"])
def system(request: pytest.FixtureRequest) -> Iterator[an.System]:
    with an.System(isolation=request.param, standby="off", allow_crash=True, timeout=60.0) as made:
        yield made


@pytest.fixture
def pair(system: an.System) -> tuple[an.Device, an.Device]:
    return system.device("host:1"), system.device("host")


VIEWS = {
    "whole": (),
    "rows": slice(1, 3),
    "every second column": (slice(None), slice(None, None, 2)),
    "one element": (2, 1),
    "nothing": slice(0, 0),
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_layout(pair: tuple[an.Device, an.Device], view: str) -> None:
    source, target = pair
    array = np.arange(24.0).reshape(4, 6)
    ref = source.put(array)[VIEWS[view]]
    for view_of, expected in ((ref, array[VIEWS[view]]), (ref.T, array[VIEWS[view]].T)):
        copied = target.copy(view_of)
        assert copied.device is target
        assert copied.layout.contiguous
        assert np.array_equal(copied.numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(pair: tuple[an.Device, an.Device], dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(DTYPES[dtype])
    assert pair[1].copy(pair[0].put(array)).numpy().tobytes() == array.tobytes()


def test_outputs_are_converted_and_broadcast(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    ref, out = source.put([1.5, 2.5, 3.5]), target.zeros((4, 3), "int32")
    assert target.copy(ref, out[1:3]) is not None
    assert out.numpy().tolist() == [[0] * 3, [1, 2, 3], [1, 2, 3], [0] * 3]
    exact = target.empty(3, "float64")
    assert target.copy(ref, exact) is exact
    assert exact.numpy().tolist() == [1.5, 2.5, 3.5]
    assert target.copy(ref, dtype="float32", durable=True).durable
    with pytest.raises(an.InvalidRequest, match="out must be a GpuRef of host"):
        target.copy(ref, source.empty(3, "float64"))


def test_it_does_not_wait_and_is_ordered_by_data_on_both_devices(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    target.copy(source.put([0.0]))  # the devices know each other from now on
    ref, out = source.zeros(1000), target.zeros(1000)
    with Gate(source.lane("mine")):
        overwrite(source.lane("mine"), ref, 1.0)  # behind the gate: the copy has to wait for it
        target.copy(ref, out)
        overwrite(source.lane("other"), ref, 2.0)
        later = target.copy(out)
        overwrite(target.lane("other"), out, 3.0)
    assert (later.numpy() == 1.0).all()
    assert (out.numpy() == 3.0).all()
    assert (ref.numpy() == 2.0).all()


def test_a_poisoned_source_poisons_the_copy(pair: tuple[an.Device, an.Device]) -> None:
    source, target = pair
    copied = target.copy(poison(source.lane("mine"), source.zeros(3)))
    with pytest.raises(an.LibraryError, match="boom"):
        copied.numpy()
    source.system.dead_letters.clear()


def test_a_death_of_the_source_fails_the_copy_and_not_the_target() -> None:
    with an.System(timeout=60.0, allow_crash=True) as system:
        source, target = system.device("host"), system.device("host:1")
        target.copy(source.put([0.0])).wait()
        ref, out, kept = source.zeros(4), target.zeros(4), target.put([5.0])
        for array in (ref, out, kept):
            array.wait()
        gate = Gate(source.lane("mine"))
        overwrite(source.lane("mine"), ref, 1.0)
        target.copy(ref, out)
        os.kill(source.worker_pid or 0, signal.SIGKILL)
        gate.open()  # its message may have been queued still, and then it runs again
        with pytest.raises((an.DependencyFailed, an.DeviceFault, an.GpuRefStale)):
            out.numpy()
        assert kept.numpy().tolist() == [5.0]
        eventually(lambda: source.restarts == 1)
        source.wait_ready(60)
        assert target.copy(source.put([4.0])).numpy().tolist() == [4.0]
        assert target.restarts == 0
