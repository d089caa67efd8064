"""Device memory and other libraries: __array__, DLPack, leases."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import placements
import pytest
from actions import Gate, bits
from layouts import NAMES, filled
from lending import check_lending_waits_for_readers, fill_others, in_use
from placements import Placement

import atomr_native as an
from atomr_native._lib import dlpack
from atomr_native.dtypes import DTYPES

Make = Callable[..., an.System]
DLPACK_OF_NUMPY = [name for name in NAMES if not name.startswith(("bfloat", "float8"))]


def ranges_overlap(x: np.ndarray[Any, Any], ref: an.GpuRef) -> bool:
    start = ref.allocation.address
    low, high = np.lib.array_utils.byte_bounds(x)
    return start < high and low < start + ref.allocation.nbytes


# NumPy shows memory that this process has mapped, which that of a CUDA device is not.
@pytest.fixture(scope="module", params=placements.HOSTS)
def placement(request: pytest.FixtureRequest) -> Placement:
    """Return the placements of the host device."""
    return placements.resolve(request)


# ---- __array__


def test_array_protocol(device: an.Device) -> None:
    ref = device.put(np.arange(4.0))
    assert np.asarray(ref, dtype="float32").dtype == np.float32
    assert np.asarray(ref, dtype=int).tolist() == [0, 1, 2, 3]
    assert np.add(np.asarray(ref), 1).tolist() == [1, 2, 3, 4]
    copied = ref.__array__(copy=True)
    copied[...] = 9
    assert ref.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="float32"):
        ref.__array__(np.float32, copy=False)
    assert np.asarray(device.put(5)).shape == ()


def test_array_without_a_copy_is_the_memory(device: an.Device) -> None:
    ref = device.put(np.arange(6.0).reshape(2, 3))
    view = ref.__array__(copy=False)
    view[0, 0] = 100
    ref[1].fill(7)
    ref.wait()
    assert view.tolist() == [[100, 1, 2], [7, 7, 7]]
    assert ref.numpy()[0, 0] == 100
    assert ref.T[1:].__array__(copy=False).tolist() == [[1, 7], [2, 7]]


# ---- DLPack


@pytest.mark.parametrize("name", DLPACK_OF_NUMPY)
def test_from_dlpack_shares_the_memory(device: an.Device, name: str) -> None:
    x = filled((3, 4), DTYPES[name])
    ref = device.put(x)
    for view, expected in ((ref, x), (ref.T, x.T), (ref[1:, ::2], x[1:, ::2])):
        found = np.from_dlpack(view)
        assert bits(found) == bits(expected)
        assert found.__array_interface__["data"][0] == ref.allocation.address + view.offset
    ref.fill(1)
    ref.wait()
    assert (np.from_dlpack(ref) == 1).all()
    assert found.flat[0] == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)])
def test_every_dtype_goes_through_a_capsule(device: an.Device, name: str, version: Any) -> None:
    x = filled((2, 3), DTYPES[name])
    imported = dlpack.from_capsule(device.put(x).__dlpack__(max_version=version))
    assert imported.dtype == x.dtype
    assert (imported.device_type, imported.device_id) == device.dlpack_device
    assert bits(dlpack.as_numpy(imported)) == bits(x)


def test_put_takes_a_view_through_dlpack(device: an.Device) -> None:
    ref = device.put(np.arange(6.0).reshape(2, 3))
    again = device.put(np.from_dlpack(ref.T))
    assert again.numpy().tolist() == np.arange(6.0).reshape(2, 3).T.tolist()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"stream": 1}, an.InvalidRequest), ({"max_version": 1}, an.InvalidRequest),
        ({"copy": "no"}, an.InvalidRequest),
        ({"dl_device": 3}, an.InvalidRequest), ({"dl_device": (2, 0)}, BufferError),
    ],
)  # fmt: skip
def test_exports_that_cannot_be(device: an.Device, arguments: Any, error: type[Exception]) -> None:
    before = in_use(device)
    ref = device.put(np.arange(3))
    with pytest.raises(error):
        ref.__dlpack__(**arguments)
    del ref
    assert in_use(device) == before


def test_export_of_a_copy_lends_nothing(device: an.Device) -> None:
    before = in_use(device)
    ref = device.put(np.arange(3.0))
    found = dlpack.as_numpy(dlpack.from_capsule(ref.__dlpack__(copy=True, max_version=(1, 0))))
    found[...] = 9
    assert ref.numpy().tolist() == [0, 1, 2]
    del ref
    assert in_use(device) == before
    assert found.tolist() == [9, 9, 9]


def test_an_unused_capsule_ends_its_lease(device: an.Device) -> None:
    before = in_use(device)
    ref = device.put(np.arange(3.0))
    capsules = [ref.__dlpack__(), ref.__dlpack__(max_version=(1, 0))]
    del ref
    assert in_use(device) > before
    capsules.clear()
    gc.collect()
    assert in_use(device) == before


def test_export_waits_for_the_last_writer(device: an.Device) -> None:
    x = device.put([1.0])
    with Gate(device.elementwise) as gate:
        y = device.elementwise.run("x + 1", x=x)
        timer = threading.Timer(0.03, gate.open)
        timer.start()
        assert np.from_dlpack(y).tolist() == [2]
        timer.join()


def test_empty_and_scalar_exports(device: an.Device) -> None:
    assert np.from_dlpack(device.zeros((3, 0))).shape == (3, 0)
    assert np.from_dlpack(device.put(5)).tolist() == 5


# ---- leases


@pytest.mark.parametrize("how", ["dlpack", "array", "lend"])
def test_lent_memory_is_not_reused(device: an.Device, how: str) -> None:
    ref = device.put(np.arange(1000.0))
    lend = ref.lend()
    view = {
        "dlpack": lambda: np.from_dlpack(ref),
        "array": lambda: ref.__array__(copy=False),
        "lend": lend.__enter__,
    }[how]()
    ref.free()
    others = fill_others(device)
    assert view.tolist() == list(range(1000))
    assert not any(ranges_overlap(view, other) for other in others)
    with pytest.raises(an.GpuRefStale):
        ref.numpy()
    before = in_use(device)
    if how == "lend":
        lend.__exit__(None, None, None)
    del view, lend
    gc.collect()
    assert in_use(device) == before - 8192


def test_views_of_views_keep_the_lease(device: an.Device) -> None:
    view = np.from_dlpack(device.put(np.arange(100.0)))[10:20][::2]
    for _ in range(20):
        device.full((100,), -1.0, "float64").wait()
    assert view.tolist() == [10, 12, 14, 16, 18]


def test_lend_waits_for_readers_too(device: an.Device) -> None:
    check_lending_waits_for_readers(device, lambda array: array.fill(5))


def test_lend_ends_also_after_an_exception(device: an.Device) -> None:
    before = in_use(device)
    x = device.put(np.arange(3.0))
    with pytest.raises(KeyError), x.lend() as array:  # noqa: PT012
        array[0] = 8
        raise KeyError
    del array
    assert x.numpy().tolist() == [8, 1, 2]
    del x
    gc.collect()
    assert in_use(device) == before


def test_leases_hold_across_a_restart(make_system: Make) -> None:
    device = make_system().device()
    ref, durable = device.put(np.arange(1000.0)), device.put(np.arange(10.0), durable=True)
    view, kept = np.from_dlpack(ref), np.from_dlpack(durable)
    os.kill(device.worker_pid or 0, signal.SIGKILL)
    device.lane("a").noop().ask().result(30)
    assert device.generation == 2
    others = fill_others(device)
    assert view.tolist() == list(range(1000))
    assert not any(ranges_overlap(view, other) for other in others)
    with pytest.raises(an.GpuRefStale) as caught:
        ref.numpy()
    assert caught.value.reason == "device restarted"
    kept[0] = 55
    assert durable.numpy()[0] == 55
    before = in_use(device)
    del view
    gc.collect()
    assert in_use(device) == before - 8192


def test_exports_outlive_the_system(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    device = system.device()
    view, host = np.from_dlpack(device.put(np.arange(10.0))), device.host_array(3)
    system.close()
    del system, device
    gc.collect()
    assert view.tolist() == list(range(10))
    view[...] = 1
    host[...] = 2
    assert host.tolist() == [2, 2, 2]
