"""Memory of a GPU for other libraries: DLPack, __cuda_array_interface__, lending; on the fake driver, and on a GPU."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import fake_cuda
import numpy as np
import pytest
import scripts
from actions import Gate, bits, eventually
from cuda_arrays import Array, Library, extent, view_of
from layouts import NAMES, filled
from lending import check_lending_waits_for_readers, fill_others, in_use

import atomr_native as an
from atomr_native._lib import dlpack
from atomr_native.dtypes import DTYPES

pytestmark = [pytest.mark.plain, pytest.mark.alike]

VIEWS: list[Callable[[Any], Any]] = [lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[2, 1:2]]
PLAIN = [name for name in NAMES if not name.startswith(("bfloat", "float8"))]
MANY = 300  # fills of 8 MiB on one stream: milliseconds after the last call has returned
LARGE = 8 << 20


@pytest.fixture
def device(parent_system: an.System) -> Iterator[an.Device]:
    found = parent_system.device("cuda:0")
    settle(found)
    yield found
    assert found.stats()["state"] == "open"
    parent_system.dead_letters.clear()


def settle(device: an.Device) -> None:
    """Wait until loans that consumers have let go of are back."""

    class Token:
        pass

    gc.collect()
    token = Token()
    gone = weakref.ref(token)
    device._state.exports._returned.put([token])
    del token
    if device._state.exports._collector is None:
        device._state.exports.drain()
    eventually(lambda: gone() is None)


def imported(ref: Any, **options: Any) -> Any:
    return dlpack.from_capsule(ref.__dlpack__(**options))


def seen_by(library: Library, x: Any) -> np.ndarray[Any, Any]:
    """What a consumer of DLPack reads."""
    low, high = extent(x.shape, x.strides, x.dtype.itemsize)
    raw = bytearray(library.read(x.address + low, high - low))
    return np.ndarray(x.shape, x.dtype, raw, -low, x.strides).copy()


# ---- what is described


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("version", [None, (1, 1)])
def test_dlpack_shows_the_memory(device: an.Device, library: Library, name: str, view: Any, version: Any) -> None:
    data = filled((3, 4), DTYPES[name])
    ref = device.put(data)
    x = imported(view(ref), max_version=version, stream=1)
    assert (x.device_type, x.device_id) == view(ref).__dlpack_device__() == device.dlpack_device == (2, library.device)
    assert (x.shape, x.strides, x.dtype) == (view(ref).shape, view(ref).strides, DTYPES[name])
    assert (x.readonly, x.copied) == (version is None, False)  # a capsule without a version does not say
    assert bits(seen_by(library, x)) == bits(view(data))
    library.write(imported(ref).address, filled((3, 4), DTYPES[name], 1).tobytes())
    assert bits(view(ref).numpy()) == bits(view(filled((3, 4), DTYPES[name], 1)))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("view", VIEWS)
def test_the_interface_shows_the_memory(device: an.Device, library: Library, name: str, view: Any) -> None:
    data = filled((3, 4), DTYPES[name])
    ref = view(device.put(data))
    found = ref.__cuda_array_interface__
    assert found["version"] == 3
    assert found["stream"] is None
    assert found["data"][1] is False
    assert (found["strides"] is None) == ref.layout.contiguous
    assert bits(view_of(library, found)) == bits(view(data))
    ref.fill(1)
    ref.wait()
    assert bits(view_of(library, found)) == bits(np.ones_like(view(data)))


def test_what_the_interface_cannot_name(device: an.Device, parent_system: an.System) -> None:
    for name, integers in (("bfloat16", "uint16"), ("float8_e4m3fn", "uint8"), ("float8_e5m2", "uint8")):
        ref = device.put(filled((3, 4), DTYPES[name]))
        assert not hasattr(ref, "__cuda_array_interface__")
        with pytest.raises(an.NoCudaArrayInterface, match=integers) as caught:
            _ = ref.__cuda_array_interface__
        assert caught.value.obj is None  # it keeps no memory
        assert ref.view(integers).__cuda_array_interface__["typestr"] == DTYPES[integers].str
        with ref.lend() as lent, pytest.raises(an.NoCudaArrayInterface):
            _ = lent.__cuda_array_interface__
    host = parent_system.device("host").put([1.0])
    assert not hasattr(host, "__cuda_array_interface__")
    with pytest.raises(an.NoCudaArrayInterface, match="host"):
        _ = host.__cuda_array_interface__


def test_empty_and_scalar_arrays(device: an.Device, library: Library) -> None:
    for ref in (device.zeros((3, 0)), device.put(5.0)):
        x, found = imported(ref), ref.__cuda_array_interface__
        assert x.shape == found["shape"] == ref.shape
        assert view_of(library, found).tolist() == ref.numpy().tolist()
        with ref.lend() as lent:
            assert lent.__cuda_array_interface__["shape"] == ref.shape


# ---- the arguments


@pytest.mark.parametrize("stream", [0, -2, True, 1.5, "1", object()])
def test_streams_that_are_none(device: an.Device, stream: Any) -> None:
    ref = device.put([1.0])
    with pytest.raises(an.InvalidRequest, match="stream"):
        ref.__dlpack__(stream=stream)
    with pytest.raises(an.InvalidRequest, match="stream"), ref.lend(stream=stream):
        pass


def test_streams_and_devices(device: an.Device, library: Library) -> None:
    ref = device.put(np.arange(6.0))
    own = ref.__dlpack_device__()
    stream = library.stream()
    for options in ({"stream": None}, {"stream": 1}, {"stream": 2}, {"stream": -1}, {"stream": stream},
                    {"dl_device": own}, {"copy": False}, {"dl_device": own, "copy": False}):  # fmt: skip
        x = imported(ref, **options)
        assert x.address == imported(ref).address
        assert seen_by(library, x).tolist() == [0, 1, 2, 3, 4, 5]
    for options in ({"dl_device": (2, 99)}, {"dl_device": (3, 0)}, {"dl_device": (1, 0), "copy": False}):
        with pytest.raises(BufferError):
            ref.__dlpack__(**options)
    for options in ({"dl_device": 2}, {"copy": "no"}, {"max_version": 1}):
        with pytest.raises(an.InvalidRequest):
            ref.__dlpack__(**options)


def test_copies(device: an.Device, library: Library) -> None:
    before = in_use(device)
    ref = device.put(np.arange(6.0).reshape(2, 3))
    x = imported(ref.T, copy=True, max_version=(1, 0))
    assert x.copied
    assert x.address != imported(ref).address
    ref.fill(9)
    ref.wait()
    assert seen_by(library, x).tolist() == [[0, 3], [1, 4], [2, 5]]
    for copy in (None, True):
        host = imported(ref, dl_device=(1, 0), copy=copy, max_version=(1, 0))
        assert (host.device_type, host.device_id, host.copied) == (1, 0, True)
        assert dlpack.as_numpy(host).tolist() == [[9, 9, 9], [9, 9, 9]]
    np.testing.assert_array_equal(np.from_dlpack(ref, device="cpu"), np.full((2, 3), 9.0))
    with pytest.raises(an.Unsupported, match=r"numpy\(\)"):
        ref.__array__(copy=False)
    del ref, x, host
    gc.collect()
    eventually(lambda: in_use(device) == before)


# ---- order


def test_an_export_waits_for_the_last_writer(device: an.Device, library: Library) -> None:
    x = device.put([1.0])
    for export in (imported, lambda y: y.__cuda_array_interface__):
        with Gate(device.elementwise) as gate:
            y = device.elementwise.run("x + 1", x=x)
            timer = threading.Timer(0.03, gate.open)
            timer.start()
            found = export(y)
            address = found["data"][0] if isinstance(found, dict) else found.address
            assert library.read(address, 8) == np.float64(2).tobytes()
            timer.join()


def test_lending_is_ordered_with_messages(device: an.Device, library: Library) -> None:
    stream = library.stream()
    ref = device.zeros((LARGE,), "uint8")
    for which in (None, stream):
        device.elementwise.run("x + 1", x=ref, out=ref)
        before = int(ref[:1].numpy()[0])
        with ref.lend(stream=which) as lent:
            address = lent.__cuda_array_interface__["data"][0]
            assert library.read(address + LARGE - 1, 1) == bytes([before])
            library.fill(address, 7, LARGE, stream, times=MANY)  # the last one writes sevens
        ref_after = device.elementwise.run("x + 1", x=ref)
        assert (ref_after.numpy() == 8).all()
        with pytest.raises(an.InvalidRequest, match="over"):
            _ = lent.__cuda_array_interface__
        with pytest.raises(an.InvalidRequest, match="over"):
            lent.__dlpack__()


def test_lending_waits_for_readers_too(device: an.Device, library: Library) -> None:
    def write(lent: Any) -> None:
        library.write(imported(lent).address, np.full(3, 5.0).tobytes())
        assert lent.__dlpack_device__() == device.dlpack_device

    check_lending_waits_for_readers(device, write)


def test_lending_accepts_objects_with_a_stream(device: an.Device, library: Library) -> None:
    class Stream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, self.handle)

    ref = device.zeros((4,), "uint8")
    for handle in (0, 1, library.stream()):
        with ref.lend(stream=Stream(handle)) as lent:
            library.fill(lent.__cuda_array_interface__["data"][0], 3, 4, handle)
        assert ref.numpy().tolist() == [3] * 4


# ---- leases


@pytest.mark.parametrize("how", ["dlpack", "interface", "lend"])
def test_lent_memory_is_not_reused(device: an.Device, library: Library, how: str) -> None:
    ref = device.put(np.arange(1000.0))
    lend = ref.lend()
    if how == "dlpack":
        holder: Any = imported(ref)
        address = holder.address
    else:
        holder = ref if how == "interface" else lend.__enter__()
        address = holder.__cuda_array_interface__["data"][0]
    if how == "interface":
        ref.free()
    else:
        ref.free()
        ref = None  # type: ignore[assignment]
    fill_others(device)
    assert np.frombuffer(library.read(address, 8000)).tolist() == list(range(1000))
    before = in_use(device)
    if how == "lend":
        lend.__exit__(None, None, None)
    del holder, lend, ref
    gc.collect()
    eventually(lambda: in_use(device) == before - 8192)


def test_consumers_may_still_be_at_work_when_they_let_go(device: an.Device, library: Library) -> None:
    """What they have enqueued before is done before the memory is handed out again."""
    stream = library.stream()
    for turn in range(3):
        x = imported(device.empty((LARGE,), "uint8"))
        library.fill(x.address, turn, LARGE, stream, times=MANY)
        del x
        fresh = device.full((LARGE,), 200, "uint8")  # the same bytes, or others while those are lent
        fresh.wait()
        library.wait(stream)
        assert (fresh.numpy() == 200).all()
        del fresh


def test_leases_hold_across_a_restart(parent_system: an.System, device: an.Device, library: Library) -> None:
    if parent_system.config.isolation == "thread":
        pytest.skip("a thread does not restart")
    ref, durable = device.put(np.arange(1000.0)), device.put(np.arange(10.0), durable=True)
    x, kept = imported(ref), imported(durable)
    generation = device.generation
    device.inject_fault("abort")
    eventually(lambda: device.generation > generation)
    device.wait_ready(60)
    fill_others(device)
    assert seen_by(library, x).tolist() == list(range(1000))
    with pytest.raises(an.GpuRefStale) as caught:
        ref.numpy()
    assert caught.value.reason == "device restarted"
    library.write(kept.address, np.float64(55).tobytes())
    assert durable.numpy()[0] == 55
    before = in_use(device)
    del x
    gc.collect()
    eventually(lambda: in_use(device) == before - 8192)


def test_an_unused_capsule_ends_its_lease(device: an.Device) -> None:
    before = in_use(device)
    ref = device.put(np.arange(3.0))
    capsules = [ref.__dlpack__(), ref.__dlpack__(max_version=(1, 0))]
    del ref
    assert in_use(device) > before
    capsules.clear()
    gc.collect()
    eventually(lambda: in_use(device) == before)


def test_one_loan_for_all_exports(device: an.Device) -> None:
    ref = device.put(np.arange(3.0))
    xs = [imported(ref), imported(ref[1:]), ref.__cuda_array_interface__]
    assert len(device._state.exports._loans) == 1
    assert xs[1].address == xs[0].address + 8 == xs[2]["data"][0] + 8
    assert device._state.exports.find(xs[1].address, xs[1].address + 16).allocation.slot == ref.allocation.slot


def test_what_comes_back_is_the_memory_itself(device: an.Device, library: Library) -> None:
    ref = device.put(np.arange(12.0).reshape(3, 4))
    with ref.lend() as lent:
        again = device.asarray(lent, copy=False)
        assert again.allocation.slot == ref.allocation.slot
    borrowed = Array(library, (2, 4), np.float64, None, (32, 8), 32, imported(ref))
    row = device.asarray(borrowed, copy=False)
    assert (row.allocation.slot, row.offset) == (ref.allocation.slot, 32)
    ref.fill(3)
    assert (row.numpy() == 3).all()
    ref.free()
    with pytest.raises(an.Unsupported, match="freed"):
        device.asarray(borrowed, copy=False)
    assert (device.asarray(borrowed).numpy() == 3).all()


# ---- the life of mappings


def test_nothing_of_cuda_happens_before_somebody_asks(parent_engine: str, each_isolation: Any) -> None:
    with an.System(isolation=each_isolation, standby="off") as system:
        device = system.device("cuda:0")
        ref = device.put(np.arange(3.0))
        _ = ref.numpy()
        exports = device._state.exports
        assert (exports._ordinal, exports._context, exports._mappings) == (None, None, {})
        assert exports._collector is None
        assert ref.__dlpack_device__()[0] == 2
        assert exports._context is None  # asked for a number only
        x = imported(ref)
        assert list(exports._mappings) == [ref.allocation.segment]
        others = [imported(device.put(np.arange(3.0))) for _ in range(5)]
        assert len(exports._mappings) == 1
        device.trim()
        assert len(exports._mappings) == 1  # it is lent
        del x, ref, others
        settle(device)
        assert in_use(device) == 0
        assert device.trim() > 0
        assert exports._mappings == {}
        again = device.put(np.arange(3.0))
        assert imported(again).shape == (3,)


def test_exports_outlive_the_system(parent_engine: str, each_isolation: Any, library: Library) -> None:
    system = an.System(isolation=each_isolation, standby="off")
    device = system.device("cuda:0")
    exports = weakref.ref(device._state.exports)
    ref = device.put(np.arange(10.0))
    x, found = imported(ref), ref.__cuda_array_interface__
    system.close()
    assert seen_by(library, x).tolist() == list(range(10))
    with pytest.raises(an.ActorStopped):
        ref.__dlpack__()
    assert np.frombuffer(library.read(found["data"][0], 80)).tolist() == list(range(10))
    del system, device, ref
    gc.collect()
    assert seen_by(library, x).tolist() == list(range(10))
    del x
    gc.collect()
    assert exports() is None


def test_a_forked_child_leaves_the_parents_be(device: an.Device, library: Library) -> None:
    ref = device.put(np.arange(10.0))
    x = imported(ref)
    if (child := os.fork()) == 0:
        status = 1
        try:
            for use in (imported, lambda r: r.__cuda_array_interface__, lambda r: r.lend().__enter__()):
                with pytest.raises(an.DeviceLost):
                    use(ref)
            del x, ref
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert seen_by(library, x).tolist() == list(range(10))


PROGRAM = """
import os, sys
import numpy as np, atomr_native as an
from atomr_native._lib import dlpack
with an.System(standby="off") as system:
    devices = [system.device(name) for name in sys.argv[2:]]
    refs = [device.put(np.arange(3.0)) for device in devices]
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]  # what this process sees, once it looks
    for ref in refs:
        try:
            x = dlpack.from_capsule(ref.__dlpack__())
            print(x.device_type, x.device_id, ref.device.dlpack_device[1], hasattr(ref, "__cuda_array_interface__"))
        except an.Unsupported as error:
            print("no:", error)
            assert ref.numpy().tolist() == [0, 1, 2]
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("0,1", ["2 0 0 True", "2 1 1 True"]), ("1,0", ["2 1 1 True", "2 0 0 True"]), ("1", ["no", "2 0 0 True"]),
     ("", ["no", "no"])],
)  # fmt: skip
def test_the_gpu_is_found_by_its_uuid(fake_environment: dict[str, str], visible: str, expected: list[str]) -> None:
    with fake_cuda.using({**fake_environment, "FAKE_CUDA_DEVICES": "2"}):
        lines = scripts.run(PROGRAM, visible, "cuda:0", "cuda:1").splitlines()
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)
        assert not line.startswith("no") or "CUDA_VISIBLE_DEVICES" in line
