"""Arrays of other code as memory of the host device: what is shared, what is copied, and what is ordered."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import placements
import pytest
from actions import Gate, bits, eventually, fail, operand, poison
from crowds import together
from layouts import NAMES, filled

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.interop import imports
from atomr_native.libraries.elementwise.actor import ElementwiseActor
from atomr_native.plans.spec import READ

Make = Callable[..., an.System]
VIEWS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[1:2, 2:3], lambda x: x[:, None],
]  # fmt: skip


@pytest.fixture(scope="module", params=placements.HOSTS)
def placement(request: pytest.FixtureRequest) -> placements.Placement:
    """Return the host device in both isolations: GPUs are another test's."""
    return placements.resolve(request)


def address(ref: an.GpuRef) -> int:
    return ref.allocation.address + ref.offset


# ---- what is shared


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("view", VIEWS)
def test_an_array_is_the_memory(local: an.Device, name: str, view: Any) -> None:
    base = filled((4, 6), DTYPES[name])
    x = view(base)
    ref = local.asarray(x, copy=False)
    assert (ref.shape, ref.dtype, ref.strides) == (x.shape, x.dtype, x.strides)
    assert address(ref) == x.__array_interface__["data"][0]
    assert bits(ref.numpy()) == bits(x)
    ref.fill(1)
    assert bits(ref.wait().numpy()) == bits(np.ones_like(x)) == bits(x)
    base[...] = filled((4, 6), DTYPES[name], 3)
    assert bits(ref.numpy()) == bits(x)


def test_messages_read_and_write_it(local: an.Device) -> None:
    x, out = np.arange(12.0).reshape(3, 4), np.zeros((3, 3))
    local.blas_lt.matmul(a := local.asarray(x), a.T, out=local.asarray(out)).wait()
    np.testing.assert_array_equal(out, x @ x.T)


def test_what_is_a_handle_already(local: an.Device, system: an.System) -> None:
    for device in (local, system.device("host")):
        ref = device.put(np.arange(3.0))
        assert device.asarray(ref) is ref
        assert device.asarray(ref, copy=False) is ref
        fresh = device.asarray(ref, copy=True)
        assert fresh.allocation.slot != ref.allocation.slot
        assert fresh.numpy().tolist() == [0, 1, 2]


def test_memory_of_the_device_itself_comes_back(device: an.Device) -> None:
    """In both placements: exports of its handles, and host arrays."""
    ref = device.put(np.arange(12.0).reshape(3, 4))
    view = np.from_dlpack(ref)
    again = device.asarray(view[1:, ::2], copy=False)
    assert again.allocation.slot == ref.allocation.slot
    ref.fill(7)
    assert (again.numpy() == 7).all()
    host = device.host_array((3, 4), "int32")
    host[...] = np.arange(12).reshape(3, 4)
    shared = device.asarray(host[:, 1:], copy=False)
    shared.fill(5)
    shared.wait()
    assert host.tolist() == [[0, 5, 5, 5], [4, 5, 5, 5], [8, 5, 5, 5]]
    assert address(device.asarray(host)) == host.__array_interface__["data"][0]
    with pytest.raises(an.Unsupported, match=r"lies in memory of host|does not see"):
        device.asarray(host[::-1], copy=False)
    assert device.asarray(host[::-1]).numpy().tolist() == host[::-1].tolist()
    ref.free()
    with pytest.raises(an.Unsupported, match=r"freed|does not see"):
        device.asarray(view, copy=False)
    assert device.asarray(view).numpy().tolist() == view.tolist()


class OnlyArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.arange(3.0)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: np.arange(6.0)[::-2], "non-negative strides"),
        (lambda: np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32), "alignment"),
        (lambda: np.zeros(4, [("a", "u1"), ("b", "<u4")])["b"], "alignment"),
        (lambda: [1, 2, 3], "no memory"), (lambda: 4.5, "no memory"), (lambda: np.float32(2), "no memory"),
        (OnlyArray, "no memory"),
    ],
)  # fmt: skip
def test_what_can_only_be_copied(local: an.Device, make: Any, rule: str) -> None:
    x = make()
    with pytest.raises(an.Unsupported, match=rule):
        local.asarray(x, copy=False)
    expected = np.asarray(x)
    for copy in (None, True):
        ref = local.asarray(x, copy=copy)
        assert ref.allocation.keep is None
        np.testing.assert_array_equal(ref.numpy(), expected)


def test_a_worker_process_sees_no_memory_of_the_program(system: an.System) -> None:
    device = system.device("host")
    x = np.arange(4.0)
    if system.config.isolation == "thread":
        assert device.asarray(x, copy=False).allocation.keep is not None
        return
    with pytest.raises(an.Unsupported, match=r"host_array.*isolation='thread'.*copy=None"):
        device.asarray(x, copy=False)
    ref = device.asarray(x)
    x[...] = 9
    assert ref.numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("x", [np.zeros((3, 0)), np.zeros(0, "int8")])
def test_nothing_is_shared_of_no_elements(device: an.Device, x: np.ndarray) -> None:
    for copy in (None, True, False):
        ref = device.asarray(x, copy=copy)
        assert (ref.shape, ref.dtype) == (x.shape, x.dtype)
        assert ref.numpy().shape == x.shape


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.zeros(3), {"copy": "no"}), (np.zeros(3), {"copy": 1}), (np.array(["a"]), {}), (np.zeros(2, ">f4"), {}),
        (object(), {}), (np.ma.zeros(3), {}), (np.zeros(3, object), {}),
    ],
)  # fmt: skip
def test_what_is_no_array(device: an.Device, x: Any, options: Any) -> None:
    with pytest.raises(an.InvalidRequest):
        device.asarray(x, **options)
    with pytest.raises(TypeError):
        device.asarray(np.zeros(3), None)  # type: ignore[misc]


def test_torch_tensors(local: an.Device) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    ref = local.asarray(x.T, copy=False)
    assert ref.dtype.name == "bfloat16"
    assert address(ref) == x.data_ptr()
    ref.fill(3)
    ref.wait()
    assert bool((x == 3).all())
    back = torch.from_dlpack(ref)
    assert back.data_ptr() == x.data_ptr()
    with pytest.raises(an.InvalidRequest, match="gradient"):
        local.asarray(torch.zeros(3, requires_grad=True))
    gone = weakref.ref(x)
    del x, ref
    gc.collect()
    assert back.sum() == 36  # the consumer keeps the import, and that the memory
    del back
    gc.collect()
    eventually(lambda: gone() is None)


# ---- one allocation


def test_an_array_twice_is_one_allocation(local: an.Device) -> None:
    x = np.arange(24.0).reshape(4, 6)
    a, b, part = local.asarray(x), local.asarray(x.T), local.asarray(x[1:3, 2:4])
    assert a.allocation.slot == b.allocation.slot == part.allocation.slot
    assert len(local._state.imports._imports) == 1
    reader = local.lane("reader")
    with Gate(local.elementwise) as gate:
        local.elementwise.run("x * 2", x=a, out=a)
        reply = reader._plan(an.PlanSpec("noop", (operand("x", part, READ),))).ask(part)
        local.put([1]).wait()
        assert not reply.done()
        gate.open()
        reply.result(30)
    np.testing.assert_array_equal(part.numpy(), 2 * np.arange(24.0).reshape(4, 6)[1:3, 2:4])


def test_arrays_that_share_bytes_are_ordered(local: an.Device) -> None:
    base = np.zeros(30)
    left, right, middle = local.asarray(base[:12]), local.asarray(base[10:20]), local.asarray(base[5:25])
    assert len({r.allocation.slot for r in (left, right, middle)}) == 3
    far = local.asarray(base[26:])
    reader = local.lane("reader")
    with Gate(local.elementwise) as gate:
        local.elementwise.run("x + 1", x=left, out=left)
        replies = [reader._plan(an.PlanSpec("noop", (operand("x", r, READ),))).ask(r) for r in (far, middle)]
        replies[0].result(30)
        assert not replies[1].done()
        gate.open()
        replies[1].result(30)
    all_ = local.asarray(base)
    all_.fill(4)
    assert (left.numpy() == 4).all()
    assert (right.numpy() == 4).all()
    assert base.tolist() == [4] * 30


def test_joining_waits_for_who_uses_the_bytes(local: an.Device) -> None:
    base = np.zeros(20)
    a = local.asarray(base[:10])
    with Gate(local.elementwise) as gate:
        local.elementwise.run("x + 1", x=a, out=a)
        made: list[an.GpuRef] = []
        thread = threading.Thread(target=lambda: made.append(local.asarray(base[5:15])))
        thread.start()
        inside = local.asarray(base[2:4])  # within what is known: at once
        assert inside.allocation.slot == a.allocation.slot
        assert not made
        gate.open()
        thread.join(30)
    assert made[0].numpy().tolist() == [1] * 5 + [0] * 5


def test_a_copy_has_what_messages_have_written(local: an.Device) -> None:
    x = np.zeros(10)
    ref = local.asarray(x)
    with Gate(local.elementwise) as gate:
        local.elementwise.run("x + 1", x=ref, out=ref)
        made: list[an.GpuRef] = []
        thread = threading.Thread(target=lambda: made.append(local.asarray(x, copy=True)))
        thread.start()
        thread.join(0.05)  # it waits; a copy that does not would be made by now
        gate.open()
        thread.join(30)
    assert made[0].numpy().tolist() == [1] * 10


def test_joining_gives_up_in_time(make_system: Make) -> None:
    device = make_system(isolation="thread", timeout=0.2).device("host")
    base = np.zeros(20)
    a = device.asarray(base[:10])
    with Gate(device.elementwise):
        device.elementwise.run("x + 1", x=a, out=a)
        with pytest.raises(an.AskTimeout):
            device.asarray(base[5:15])
    assert device.asarray(base[5:15]).numpy().sum() == 5


def test_a_failed_write_is_told_to_all_that_share_its_bytes(local: an.Device) -> None:
    base = np.zeros(20)
    a, whole = local.asarray(base[:10]), local.asarray(base)
    poison(local.elementwise, a, text="first")
    for ref in (a, whole, local.asarray(base[3:5])):
        with pytest.raises(an.LibraryError, match="first"):
            ref.numpy()
    with pytest.raises(an.LibraryError, match="first"):
        local.asarray(base[5:15].view(np.uint8)[1:])[:3].numpy()  # one more that only shares bytes
    a.fill(1)  # a part of them
    with pytest.raises(an.LibraryError, match="first"):
        whole.numpy()
    whole.fill(2)  # all of them
    assert a.numpy().tolist() == [2] * 10
    poison(local.elementwise, whole, text="second")
    a.clear_error()
    assert whole.numpy().tolist() == [2] * 20


def test_joining_what_was_not_written_raises_the_cause(local: an.Device) -> None:
    base = np.zeros(20)
    a = poison(local.elementwise, local.asarray(base[:10]), text="never written")
    with pytest.raises(an.LibraryError, match="never written"):
        local.asarray(base[5:15])
    a.clear_error()
    assert local.asarray(base[5:15]).numpy().tolist() == [0] * 10


def test_operands_that_share_bytes_are_refused(local: an.Device) -> None:
    base = np.zeros((4, 4))
    a, b = local.asarray(base[:3]), local.asarray(base[1:])
    with pytest.raises(an.InvalidRequest, match="overlaps"):
        local.blas_lt.matmul(a, local.put(np.eye(4)), out=b)
    with pytest.raises(an.InvalidRequest, match="overlaps"):
        local.copy(a, out=b)
    q, k = local.asarray(base[:, :2]), local.asarray(base[:, 2:])
    with pytest.raises(an.InvalidRequest, match="overlaps"):
        local.blas_lt.matmul(q[:2], q[:2], out=local.asarray(base[:, 1:3])[:2])
    base[:2, :2] = 3
    assert local.blas_lt.matmul(q[:2], q[:2], out=k[:2]).numpy().tolist() == [[18, 18], [18, 18]]  # side by side
    c, d = local.asarray(np.zeros(4)), local.asarray(np.ones(4))
    local.copy(d, out=c)
    assert c.numpy().tolist() == [1] * 4


def test_many_imports(local: an.Device) -> None:
    base = np.zeros((5000, 4))
    refs = [local.asarray(row) for row in base]  # more than there are segments
    for i, ref in enumerate(refs):
        ref.fill(i)
    an.gather(*refs[-1:])
    np.testing.assert_array_equal(base[:, 0], np.arange(5000))
    assert len(local._state.imports._imports) == 5000
    refs.clear()
    del ref
    gc.collect()
    eventually(lambda: not local._state.imports._imports)


def test_threads_that_import_the_same(local: an.Device) -> None:
    base = np.zeros(64)
    actors = [ElementwiseActor(local, f"importer {i}") for i in range(4)]

    def work(number: int) -> None:
        rng = random.Random(number)
        for _ in range(60):
            start = rng.randrange(60)
            ref = local.asarray(base[start : rng.randrange(start + 1, 64)])
            actors[number].run("x + 1", x=ref, out=ref)
            if rng.random() < 0.2:
                ref.wait()

    expected = np.zeros(64)
    for i in range(4):
        rng = random.Random(i)
        for _ in range(60):
            start = rng.randrange(60)
            expected[start : rng.randrange(start + 1, 64)] += 1
            rng.random()
    together(work, range(4))
    np.testing.assert_array_equal(local.asarray(base).numpy(), expected)


def test_windows_against_numpy(local: an.Device) -> None:
    """Random messages to random windows of one buffer, by several actors: as if one after the other."""
    actors = [ElementwiseActor(local, f"window {i}") for i in range(4)]
    for seed in range(12):
        rng = random.Random(seed)
        base = np.arange(40, dtype=np.int64)
        twin = base.copy()
        kept: list[an.GpuRef] = []
        for step in range(60):
            start = rng.randrange(39)
            end = rng.randrange(start + 1, 41)
            every = rng.choice([1, 1, 2])
            ref = local.asarray(base[start:end:every])
            part = twin[start:end:every]
            how = rng.random()
            if how < 0.5:
                rng.choice(actors).run("x * 3 + k", out=ref, x=ref, k=step)
                part[...] = part * 3 + step
            elif how < 0.7:
                ref.fill(step)
                part[...] = step
            else:
                other = rng.randrange(40)
                source = local.asarray(base[other : other + 1])
                if not start <= other < end:
                    rng.choice(actors).run("x * 5 + y", out=ref, x=ref, y=source)
                    part[...] = part * 5 + twin[other]
            if rng.random() < 0.4:
                kept.append(ref)
            if rng.random() < 0.2:
                kept.clear()
        np.testing.assert_array_equal(local.asarray(base).numpy(), twin)
        assert base.tolist() == twin.tolist()


def test_a_failure_that_nobody_waits_for(local: an.Device, threads: an.System) -> None:
    x = np.zeros(4)
    gone = weakref.ref(x)
    fail(local.elementwise, local.asarray(x))
    del x
    gc.collect()
    eventually(lambda: gone() is None)
    eventually(lambda: threads.dead_letters.total > 0)


def test_ranges() -> None:
    class Item:
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

    rng = random.Random(4)
    ranges: imports.Ranges[Any] = imports.Ranges()
    items: list[Item] = []
    for _ in range(600):
        if items and rng.random() < 0.4:
            ranges.remove(items.pop(rng.randrange(len(items))))
        else:
            start = rng.randrange(200)
            items.append(Item(start, start + rng.choice([1, 2, 50])))
            ranges.add(items[-1])
        start, n = rng.randrange(250), rng.randrange(1, 40)
        expected = [i for i in items if i.start < start + n and start < i.end]
        assert sorted(map(id, ranges.overlapping(start, start + n))) == sorted(map(id, expected))
    assert len(ranges) == len(items)
