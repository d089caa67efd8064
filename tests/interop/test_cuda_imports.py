"""Arrays of other libraries on a GPU as memory of a device; on the fake driver, and on a GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from actions import Gate, bits, eventually, operand, poison
from crash import restart
from crowds import together
from cuda_arrays import Array, Block, DlpackArray, Library
from layouts import NAMES, filled
from lending import check_array_is_taken_up_again, check_owner_is_kept, opened

import atomr_native as an
from atomr_native._lib import dlpack
from atomr_native._lib.guard import own_thread
from atomr_native.dtypes import DTYPES
from atomr_native.plans.spec import READ

pytestmark = [pytest.mark.plain, pytest.mark.alike]

MANY = 300  # fills of 8 MiB on one stream: milliseconds after the last call has returned
LARGE = 8 << 20
VIEWS: list[Any] = [lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[2, 1:2]]


@pytest.fixture
def device(parent_system: an.System) -> Iterator[an.Device]:
    """Lend a device with nothing imported before and after."""
    found = parent_system.device("cuda:0")
    yield found
    if found._state.imports._imports:
        gc.collect()
    eventually(lambda: not found._state.imports._imports and opened(found) == 0)
    assert found.stats()["state"] == "open"
    parent_system.dead_letters.clear()


def dlpack_array(library: Library, data: np.ndarray, stream: int | None = None) -> DlpackArray:
    made = library.array(data)
    return DlpackArray(library, made.shape, made.dtype, stream, made.strides, 0, made.block)


# ---- what is shared


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("view", VIEWS)
def test_an_array_is_the_memory(device: an.Device, library: Library, name: str, view: Any) -> None:
    data = filled((4, 6), DTYPES[name])
    arrays: list[Array] = [dlpack_array(library, data)]
    if not name.startswith(("bfloat", "float8")):
        arrays.append(library.array(data))
    for array in arrays:
        x = array.like(view)
        ref = device.asarray(x, copy=False)
        expected = view(data)
        assert (ref.shape, ref.dtype, ref.strides) == (expected.shape, expected.dtype, x.strides)
        assert ref.allocation.origin + ref.offset == x.address
        assert bits(ref.numpy()) == bits(expected)
        ref.fill(1)
        ref.wait()
        after = data.copy()
        view(after)[...] = 1
        assert library.read(array.address, data.nbytes) == after.tobytes()
        library.write(array.address, filled((4, 6), DTYPES[name], 5).tobytes())
        assert bits(ref.numpy()) == bits(view(filled((4, 6), DTYPES[name], 5)))


def test_messages_read_and_write_it(device: an.Device, library: Library) -> None:
    x, out = library.array(np.arange(12.0).reshape(3, 4)), library.array(np.zeros((3, 3)))
    a = device.asarray(x)
    device.blas_lt.matmul(a, a.T, out=device.asarray(out)).wait()
    np.testing.assert_array_equal(out.numpy(), x.numpy() @ x.numpy().T)


def test_an_array_twice_is_one_allocation(device: an.Device, library: Library) -> None:
    x = library.array(np.arange(24.0).reshape(4, 6))
    a, b, part = device.asarray(x), device.asarray(x.like(lambda i: i.T)), device.asarray(x.like(lambda i: i[1:3, 2:4]))
    assert a.allocation.slot == b.allocation.slot == part.allocation.slot
    reader = device.lane("reader")
    with Gate(device.elementwise) as gate:
        device.elementwise.run("x * 2", x=a, out=a)
        reply = reader._plan(an.PlanSpec("noop", (operand("x", part, READ),))).ask(part)
        device.lane("other").noop().ask().result(30)
        assert not reply.done()
        gate.open()
        reply.result(30)
    np.testing.assert_array_equal(part.numpy(), 2 * np.arange(24.0).reshape(4, 6)[1:3, 2:4])


def test_arrays_that_share_bytes_are_ordered(device: an.Device, library: Library) -> None:
    base = library.array(np.zeros(30))
    left, right = device.asarray(base.like(lambda i: i[:12])), device.asarray(base.like(lambda i: i[10:20]))
    whole = device.asarray(base)
    reader = device.lane("reader")
    with Gate(device.elementwise) as gate:
        device.elementwise.run("x + 1", x=left, out=left)
        reply = reader._plan(an.PlanSpec("noop", (operand("x", right, READ),))).ask(right)
        device.lane("other").noop().ask().result(30)
        assert not reply.done()
        gate.open()
    whole.fill(4)
    assert (left.numpy() == 4).all()
    poison(device.elementwise, right, text="not written")
    with pytest.raises(an.LibraryError, match="not written"):
        left.numpy()
    left.clear_error()
    assert (right.numpy() == 4).all()


def test_arrays_of_one_allocation_share_its_mapping(device: an.Device, library: Library) -> None:
    block = Block(library, 64 << 10, "plain")
    arrays = [Array(library, (256,), np.uint8, None, (1,), 256 * i, block) for i in range(200)]
    refs = [device.asarray(x) for x in arrays]
    assert len({ref.allocation.slot for ref in refs}) == 200
    assert opened(device) <= 1
    for i, ref in enumerate(refs):
        ref.fill(i % 250)
    an.gather(*refs)
    found = np.frombuffer(library.read(block.address, 200 * 256), np.uint8).reshape(200, 256)
    np.testing.assert_array_equal(found[:, 7], np.arange(200) % 250)


# ---- when


@pytest.mark.parametrize("protocol", ["dlpack", "interface"])
def test_what_the_producer_has_enqueued_is_waited_for(device: an.Device, library: Library, protocol: str) -> None:
    stream = library.stream()
    for turn in range(3):
        block = Block(library, LARGE, "plain")
        kind = DlpackArray if protocol == "dlpack" else Array
        x = kind(library, (LARGE,), np.uint8, stream, (1,), 0, block)
        library.fill(block.address, turn, LARGE, stream, times=MANY)
        ref = device.asarray(x, copy=False)
        assert (device.elementwise.run("x + 1", x=ref).numpy() == turn + 1).all()
        if protocol == "dlpack":
            assert x.asked not in (None, 0, -1)  # our stream, which it makes wait


@pytest.mark.parametrize("stream", [1, 2, None])
def test_default_streams_and_none(device: an.Device, library: Library, stream: int | None) -> None:
    block = Block(library, LARGE, "plain")
    library.fill(block.address, 9, LARGE, stream or 1, times=MANY)
    if stream is None:  # its library says that there is nothing to wait for
        library.wait(1)
    x = Array(library, (LARGE,), np.uint8, stream, (1,), 0, block)
    assert (device.asarray(x).numpy() == 9).all()


@pytest.mark.parametrize(
    "change",
    [
        {"stream": 0}, {"stream": -1}, {"stream": "1"}, {"shape": 3}, {"shape": None}, {"typestr": "<V3"},
        {"typestr": "?!"}, {"typestr": ">f8"}, {"data": None}, {"strides": (8, 8)}, {"mask": object()},
        {"shape": (-1,)},
    ],
)  # fmt: skip
def test_descriptions_that_are_wrong(device: an.Device, library: Library, change: dict[str, Any]) -> None:
    x = library.array(np.arange(3.0))

    class Wrong:
        @property
        def __cuda_array_interface__(self) -> Any:
            return x.__cuda_array_interface__ | change

    with pytest.raises(an.InvalidRequest):
        device.asarray(Wrong())


def test_producers_that_refuse(device: an.Device, library: Library) -> None:
    class Refuses:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("tensors that require gradients")

    class Lies(DlpackArray):
        def __dlpack__(self, **_: Any) -> Any:
            return np.zeros(3).__dlpack__()

    class OldDlpack(DlpackArray):
        def __dlpack__(self, stream: int | None = None) -> Any:  # type: ignore[override]
            return super().__dlpack__(stream=stream)

    class NoInterface:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise TypeError("sparse")

    class ListInterface:
        __cuda_array_interface__ = (1, 2)

    x = dlpack_array(library, np.arange(3.0))
    for bad, match in ((Refuses(), "gradients"), (ListInterface(), "dict"),
                       (Lies(library, (3,), "f8", None, (8,), 0, x.block), "came on")):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=match):
            device.asarray(bad)
    assert not hasattr(NoInterface, "__dlpack__")
    with pytest.raises((an.InvalidRequest, TypeError), match="sparse"):
        device.asarray(NoInterface())
    old = OldDlpack(library, (3,), "f8", None, (8,), 0, x.block)
    assert device.asarray(old, copy=False).numpy().tolist() == [0, 1, 2]


# ---- what is copied


def reasons(library: Library, isolation: str) -> list[tuple[Any, str]]:
    """Arrays that a device cannot share, and a word of the rule."""
    found: list[tuple[Any, str]] = [
        (np.arange(6.0), "host memory"), ([0.0, 1, 2, 3, 4, 5], "no memory"),
        (library.array(np.arange(6.0)[::-1].copy()).like(lambda i: i[::-1]), "non-negative strides"),
    ]  # fmt: skip
    if isolation == "process":
        found.append((library.array(np.arange(6.0), "managed"), "managed"))
        found.append((virtual(library, np.arange(6.0)), "cudaMalloc"))
    return found


def virtual(library: Library, data: np.ndarray) -> Array:
    """An array in memory of virtual memory management, as expandable segments are."""
    size = 2 << 20
    properties = (ctypes.c_uint64 * 6)()  # CUmemAllocationProp: pinned, no handles, device 0
    properties[0], properties[1] = 1, 1 | library.device << 32
    handle, base = ctypes.c_uint64(), ctypes.c_uint64()
    n, none, zero = ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0)
    with library.current():
        library.call("cuMemCreate", ctypes.byref(handle), n, properties, zero)
        library.call("cuMemAddressReserve", ctypes.byref(base), n, none, zero, zero)
        library.call("cuMemMap", base, n, none, handle, zero)
        library.call("cuMemRelease", handle)
        library.call("cuMemSetAccess", base, n, (ctypes.c_int * 3)(1, library.device, 3), ctypes.c_size_t(1))
    library.write(base.value, data.tobytes())

    class Mapped:
        address = base.value

        def __del__(self) -> None:
            with library.current():
                library.call("cuMemUnmap", base, n)
                library.call("cuMemAddressFree", base, n)

    return Array(library, data.shape, data.dtype, None, data.strides, 0, Mapped())


def test_what_can_only_be_copied(device: an.Device, library: Library, each_isolation: str) -> None:
    for x, rule in reasons(library, each_isolation):
        with pytest.raises(an.Unsupported, match=rule):
            device.asarray(x, copy=False)
        for copy in (None, True):
            ref = device.asarray(x, copy=copy)
            assert ref.allocation.keep is None
            assert ref.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    if each_isolation == "thread":  # the worker sees all of this process
        for x in (library.array(np.arange(6.0), "managed"), virtual(library, np.arange(6.0))):
            assert device.asarray(x, copy=False).numpy().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["plain", "managed"])
def test_a_copy_is_one(device: an.Device, library: Library, view: Any, kind: str) -> None:
    data = np.arange(24.0).reshape(4, 6)
    base = library.array(data, kind)
    ref = device.asarray(base.like(view), copy=True)
    assert ref.allocation.keep is None
    library.write(base.address, bytes(data.nbytes))
    assert bits(ref.numpy()) == bits(view(data))


def test_a_copy_sees_what_messages_have_written(device: an.Device, library: Library) -> None:
    x = library.array(np.zeros(6))
    ref = device.asarray(x)
    with Gate(device.elementwise) as gate:
        device.elementwise.run("x + 1", x=ref, out=ref)
        timer = threading.Timer(0.03, gate.open)
        timer.start()
        reverse = x.like(lambda i: i[::-1])  # which can only be copied
        assert device.asarray(reverse).numpy().tolist() == [1] * 6
        timer.join()


def test_the_host_device_copies(parent_system: an.System, library: Library) -> None:
    host = parent_system.device("host")
    data = np.arange(24.0).reshape(4, 6)
    x = library.array(data)
    for view in VIEWS:
        with pytest.raises(an.Unsupported, match="lies on GPU 0"):
            host.asarray(x.like(view), copy=False)
        assert bits(host.asarray(x.like(view)).numpy()) == bits(view(data))
    empty = Array(library, (0, 3), np.float32, None, (12, 4), 0, x.block)
    assert host.asarray(empty).shape == (0, 3)


def test_nothing_is_shared_of_no_elements(device: an.Device, library: Library) -> None:
    block = Block(library, 16, "plain")
    for kind in (Array, DlpackArray):
        ref = device.asarray(kind(library, (0, 3), np.float32, None, (12, 4), 0, block), copy=False)
        assert (ref.shape, ref.dtype) == ((0, 3), np.float32)


# ---- how long


def test_the_owner_is_kept_for_handles_and_messages(device: an.Device, library: Library) -> None:
    check_owner_is_kept(device, lambda: library.array(np.arange(10.0)), lambda x: x.block)
    assert opened(device) == 0  # the worker's mapping went before the memory did


def test_an_array_is_taken_up_again_with_its_messages(device: an.Device, library: Library) -> None:
    check_array_is_taken_up_again(device, library.array(np.zeros(8)))


@pytest.mark.parametrize("open_", [True, False])
def test_the_last_handle_goes_in_a_thread_that_must_not_wait(
    parent_engine: str, each_isolation: Any, library: Library, open_: bool
) -> None:
    """As in the supervisor's thread, which drops the handles of an interrupted call."""
    system = an.System(isolation=each_isolation, standby="off")
    device = system.device("cuda:0")
    x, lent = library.array(np.arange(6.0)), library.array(np.arange(3.0))
    gone = [weakref.ref(x.block), weakref.ref(lent.block)]
    last = [device.asarray(x, copy=False), dlpack.from_capsule(device.asarray(lent, copy=False).__dlpack__())]
    del x, lent
    if not open_:
        system.close()

    def end() -> None:
        own_thread(serving=True)
        last.clear()

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    eventually(lambda: [g() for g in gone] == [None, None])
    system.close()


def test_memory_that_comes_and_goes(device: an.Device, library: Library) -> None:
    """The same addresses again and again, of other allocations each time."""
    for turn in range(30):
        x = library.array(np.full(1000, float(turn)))
        gone = weakref.ref(x.block)
        y = device.elementwise.run("x + 1", x=device.asarray(x, copy=False))
        assert (y.numpy() == turn + 1).all()
        del x
        gc.collect()
        eventually(lambda ref=gone: ref() is None)


def test_exports_of_imports(device: an.Device, library: Library) -> None:
    x = library.array(np.arange(6.0))
    gone = weakref.ref(x.block)
    ref = device.asarray(x)
    taken = dlpack.from_capsule(ref.__dlpack__())
    assert taken.address == ref.__cuda_array_interface__["data"][0] == x.address
    with ref.lend() as lent:
        library.write(lent.__cuda_array_interface__["data"][0], np.float64(50).tobytes())
    assert ref.numpy()[0] == 50
    again = device.asarray(Array(library, (6,), "f8", None, (8,), 0, taken), copy=False)
    assert again.allocation.slot == ref.allocation.slot
    del x, ref, again, lent
    gc.collect()
    assert np.frombuffer(library.read(taken.address, 48))[0] == 50
    assert gone() is not None
    del taken
    gc.collect()
    eventually(lambda: gone() is None)


def test_a_restart_makes_imports_stale_and_lets_go(
    parent_system: an.System, device: an.Device, library: Library
) -> None:
    if parent_system.config.isolation == "thread":
        pytest.skip("a thread does not restart")
    x, y = library.array(np.arange(6.0)), library.array(np.zeros(6))
    gone = [weakref.ref(x.block), weakref.ref(y.block)]
    refs = [device.asarray(x), device.asarray(y)]
    with Gate(device.elementwise):
        device.elementwise.run("x + 1", x=refs[0], out=refs[1])  # queued
        restart(device)
    for ref in refs:
        with pytest.raises(an.GpuRefStale) as caught:
            ref.numpy()
        assert caught.value.reason == "device restarted"
    again = device.asarray(x)
    assert again.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert y.numpy().tolist() == [0] * 6
    del x, y, again
    gc.collect()
    eventually(lambda: all(g() is None for g in gone))  # although stale handles are left


def test_a_lost_device_lets_go(parent_engine: str, each_isolation: Any, library: Library) -> None:
    with an.System(isolation=each_isolation, standby="off", max_restarts=0, allow_crash=True) as system:
        device = system.device("cuda:0")
        x = library.array(np.arange(6.0))
        gone = weakref.ref(x.block)
        ref = device.asarray(x)
        del x
        device.inject_fault("abort" if each_isolation == "process" else "exit")
        eventually(lambda: gone() is None)
        with pytest.raises(an.DeviceLost):
            ref.numpy()


def test_a_worker_that_dies_while_it_maps(parent_system: an.System, device: an.Device, library: Library) -> None:
    if parent_system.config.isolation == "thread":
        pytest.skip("a thread does not restart")
    for _ in range(5):
        x = library.array(np.arange(6.0))
        generation, pid = device.generation, device.worker_pid
        assert pid is not None
        timer = threading.Timer(0.002, os.kill, (pid, signal.SIGKILL))
        timer.start()
        try:
            ref = device.asarray(x, copy=False)
            assert ref.numpy().tolist() == [0, 1, 2, 3, 4, 5]
        except (an.GpuRefStale, an.DeviceFault):
            assert device.asarray(x).numpy().tolist() == [0, 1, 2, 3, 4, 5]
        timer.join()
        eventually(lambda before=generation: device.generation > before)
        device.wait_ready(60)


def test_closing_lets_go(parent_engine: str, each_isolation: Any, library: Library) -> None:
    system = an.System(isolation=each_isolation, standby="off")
    device = system.device("cuda:0")
    x, lent = library.array(np.arange(6.0)), library.array(np.arange(3.0))
    gone = [weakref.ref(x.block), weakref.ref(lent.block)]
    ref, taken = device.asarray(x), dlpack.from_capsule(device.asarray(lent).__dlpack__())
    del x, lent
    system.close()
    gc.collect()
    assert gone[0]() is None
    assert np.frombuffer(library.read(taken.address, 24)).tolist() == [0, 1, 2]
    del taken
    gc.collect()
    assert gone[1]() is None
    assert not ref.valid


def test_threads_that_import_and_let_go(device: an.Device, library: Library) -> None:
    block = Block(library, 64 << 10, "plain")
    library.write(block.address, bytes(64 << 10))

    def work(number: int) -> None:
        for turn in range(40):
            own = library.array(np.full(64, number, np.uint8))
            x = Array(library, (64,), np.uint8, None, (1,), 64 * number, block)
            shared, mine = device.asarray(x, copy=False), device.asarray(own, copy=False)
            device.elementwise.run("x + y", x=shared, y=mine, out=shared)
            if turn % 7 == 0:
                shared.wait()

    together(work, range(4))
    device.asarray(Array(library, (256,), np.uint8, None, (1,), 0, block)).wait()
    found = np.frombuffer(library.read(block.address, 256), np.uint8).reshape(4, 64)
    np.testing.assert_array_equal(found[:, 0], np.arange(4) * 40 % 256)
