"""Handles: views against NumPy, life, pickling, waiting."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from actions import Gate, bits, poison
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from layouts import NAMES, dtypes, filled, keys, shapes
from lending import in_use

import atomr_native as an
from atomr_native.dtypes import DTYPES

shared_device = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
Make = Callable[..., an.System]


def agree(ref: an.GpuRef, x: np.ndarray[Any, Any]) -> None:
    """A handle is like a NumPy array in structure and bytes."""
    assert (ref.shape, ref.dtype, ref.ndim, ref.size, ref.nbytes) == (x.shape, x.dtype, x.ndim, x.size, x.nbytes)
    if x.size:
        used = [i for i, n in enumerate(x.shape) if n > 1]
        assert [ref.strides[i] for i in used] == [x.strides[i] for i in used]
    assert bits(ref.numpy()) == bits(x)


# ---- views


@shared_device
@given(data=st.data(), shape=shapes, dtype=dtypes)
def test_indexing(device: an.Device, data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> None:
    x = filled(shape, dtype)
    key = data.draw(keys(shape, negative=False))
    ref = device.put(x)[key]
    agree(ref, np.asarray(x[key]))
    again = data.draw(keys(ref.shape, negative=False))
    agree(ref[again], np.asarray(np.asarray(x[key])[again]))


@shared_device
@given(data=st.data(), shape=shapes)
def test_negative_strides_have_the_right_structure(
    device: an.Device, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    x = filled(shape, np.dtype(np.int32))
    key = data.draw(keys(shape))
    ref, view = device.put(x)[key], x[key if ... in key else (*key, ...)]
    assert ref.shape == view.shape
    if view.size:
        base = x.__array_interface__["data"][0]
        assert ref.offset == view.__array_interface__["data"][0] - base
        _, low, high = ref.memory_span()
        ends = np.lib.array_utils.byte_bounds(view)
        assert (low + base, high + base) == ends


FLIPS: list[Any] = [
    np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1, ::-1], np.s_[::-2, 1:, ::-3], np.s_[1, ::-1], np.s_[:, ::-1, :1],
    np.s_[::-1, :0],
]  # fmt: skip


@pytest.mark.parametrize("key", FLIPS, ids=str)
def test_negative_strides_are_read_and_copied(device: an.Device, key: Any) -> None:
    x = np.arange(4 * 5 * 8, dtype=np.float32).reshape(4, 5, 8)
    ref = device.put(x)
    flipped, expected = ref[key], x[key]
    agree(flipped, expected)
    agree(device.copy(flipped), np.ascontiguousarray(expected))
    out = np.zeros(expected.shape, np.float32)
    assert device.get(flipped, out).tolist() == expected.tolist()


def test_negative_strides_with_casts_broadcasts_and_many_bytes(device: an.Device) -> None:
    x = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
    ref = device.put(x)
    agree(device.copy(ref[::-1], dtype="int16"), x[::-1].astype(np.int16, order="C"))
    target = device.zeros((3, 6, 8), "float64")
    agree(device.copy(ref[:, ::-1], target), np.broadcast_to(x[:, ::-1], (3, 6, 8)).astype(np.float64, order="C"))
    assert device.put(x[0])[::-1][::-1].numpy().tolist() == x[0].tolist()
    many = np.arange((5 << 20) // 8)
    agree(device.put(many)[::-1], many[::-1])


def test_operations_refuse_negative_strides_and_advise_the_copy(device: an.Device) -> None:
    ref = device.put(np.arange(6.0))[::-1]
    with pytest.raises(an.InvalidRequest, match=r"negative stride -8 .*device\.copy\(ref\)"):
        device.elementwise.reduce("sum", ref)
    assert device.elementwise.reduce("sum", device.copy(ref)).numpy() == 15
    assert device.elementwise.run("a + 1", a=ref).numpy().tolist() == [6, 5, 4, 3, 2, 1]
    with pytest.raises(an.InvalidRequest, match="negative stride"):
        ref.fill(0)


@shared_device
@given(data=st.data(), shape=shapes, dtype=dtypes)
def test_transpose(device: an.Device, data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> None:
    x = filled(shape, dtype)
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    ref = device.put(x)
    agree(ref.T, x.T)
    agree(ref.transpose(), x.T)
    agree(ref.transpose(*axes), x.transpose(axes) if axes else x.T)
    assert ref.T.allocation is ref.allocation


@shared_device
@given(data=st.data(), shape=shapes)
def test_reshape(device: an.Device, data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = filled(shape, np.dtype(np.int16))
    wanted: list[int] = []
    left = x.size
    for _ in range(data.draw(st.integers(0, 3))):
        divisors = [n for n in range(1, left + 1) if left % n == 0] or [0]
        wanted.append(data.draw(st.sampled_from(divisors)))
        left = left // wanted[-1] if wanted[-1] else 0
    wanted.append(left if x.size else 0)
    if x.size and data.draw(st.booleans()):
        wanted[data.draw(st.integers(0, len(wanted) - 1))] = -1
    key = data.draw(keys(shape, negative=False))
    agree(device.put(x).reshape(*wanted), x.reshape(wanted))
    agree(device.put(x).reshape(tuple(wanted)), x.reshape(wanted))
    view = np.asarray(x[key])
    assume(view.size)
    flat = view.view()
    try:
        flat.shape = (-1,)
    except AttributeError:
        with pytest.raises(an.InvalidRequest, match="cannot be viewed"):
            device.put(x)[key].reshape(-1)
    else:
        agree(device.put(x)[key].reshape(-1), flat)


@shared_device
@given(shape=shapes, source=dtypes, target=dtypes)
def test_view_as_another_dtype(device: an.Device, shape: tuple[int, ...], source: Any, target: Any) -> None:
    x = filled(shape, source)
    try:
        expected = x.view(target)
    except ValueError:
        with pytest.raises(an.InvalidRequest, match="cannot be viewed"):
            device.put(x).view(target)
    else:
        agree(device.put(x).view(target), expected)


@pytest.mark.parametrize(
    "key",
    [5, -6, (0, 0, 0), "a", 1.5, True, [0, 1], np.array([0]), np.array([True] * 5), slice(None, None, 0),
     slice("a", None), (..., ...), np.bool_(True), {}],
)  # fmt: skip
def test_wrong_index(device: an.Device, key: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="index"):
        device.empty((5, 2))[key]


@pytest.mark.parametrize("shape", [(7,), (-1, 3), (-1, -1), ("a",), (2.5,), (None,), (0,)])
def test_wrong_reshape(device: an.Device, shape: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="viewed as"):
        device.empty((5, 2)).reshape(*shape)


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (1, 0, 2), ("a", "b")])
def test_wrong_axes(device: an.Device, axes: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="axes"):
        device.empty((5, 2)).transpose(*axes)


def test_a_view_writes_its_base(device: an.Device) -> None:
    x = device.zeros((4, 4), "int32")
    x.T[1].fill(5)
    x.reshape(-1)[-1].fill(9)
    expected = np.zeros((4, 4), np.int32)
    expected[:, 1] = 5
    expected[3, 3] = 9
    assert x.numpy().tolist() == expected.tolist()


def test_a_view_keeps_the_memory(device: an.Device) -> None:
    view = device.put(np.arange(100))[90:]
    others = [device.full((100,), -1, "int64") for _ in range(100)]
    assert view.numpy().tolist() == list(range(90, 100))
    del others


def test_len_and_iteration(device: an.Device) -> None:
    ref = device.put(np.arange(6).reshape(3, 2))
    assert len(ref) == 3
    assert [row.numpy().tolist() for row in ref] == [[0, 1], [2, 3], [4, 5]]
    assert list(device.empty((0, 3))) == []
    with pytest.raises(TypeError, match="0-dimensional"):
        len(device.put(1))
    with pytest.raises(TypeError):
        list(device.put(1))


def test_a_view_cannot_leave_its_allocation(device: an.Device) -> None:
    from atomr_native.arrays.layout import layout_of

    ref = device.empty(10, "uint8")
    for offset in (1, 2**40, 2**63):
        with pytest.raises(an.InvalidRequest, match="leaves its allocation"):
            ref.view_as(layout_of((10,), np.dtype(np.uint8)), offset)


def test_repr_says_what_it_is(device: an.Device) -> None:
    ref = device.put(np.zeros((2, 3), "f4"))
    assert repr(ref) == f"<GpuRef float32[2, 3] on {device.name}>"
    assert "strides [4, 12]" in repr(ref.T)
    ref.free()
    assert "freed" in repr(ref)


def test_a_handle_is_made_by_a_device_only() -> None:
    with pytest.raises(TypeError, match=r"device\.put"):
        an.GpuRef()
    with pytest.raises(TypeError, match="ask"):
        an.Reply()


def test_attributes_cannot_be_set(device: an.Device) -> None:
    ref = device.put([1])
    with pytest.raises(AttributeError):
        ref.shape = (2,)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ref.offset = 5  # type: ignore[misc]


# ---- life


def test_free_makes_every_view_stale_at_once(device: an.Device) -> None:
    ref = device.put(np.arange(6.0).reshape(2, 3))
    view = ref.T
    ref.free()
    ref.free()
    uses: list[Callable[[], object]] = [
        ref.numpy, view.numpy, view.wait, lambda: view.fill(1), lambda: device.copy(view),
        lambda: device.blas_lt.matmul(ref, view), lambda: ref.done(), lambda: ref.clear_error(),
        lambda: an.gather(view),
    ]  # fmt: skip
    if device.name == "host":  # NumPy shows no other memory
        uses += [
            lambda: np.from_dlpack(ref),
            lambda: view.__array__(copy=False),
            lambda: ref.lend().__enter__(),
        ]
    for use in uses:
        with pytest.raises(an.GpuRefStale) as caught:
            use()
        assert caught.value.reason == "freed"
    assert not ref.valid
    assert not view.valid


def test_messages_sent_before_free_are_unaffected(device: an.Device) -> None:
    x = device.put(np.arange(1000.0))
    with Gate(device._memory):
        copies = [device.copy(x) for _ in range(10)]
        x.free()
        fresh = [device.full((1000,), -1.0, "float64") for _ in range(10)]
    for y in copies:
        assert y.numpy().tolist() == list(range(1000))
    for y in fresh:
        assert (y.numpy() == -1).all()


def test_the_last_handle_frees(device: an.Device) -> None:
    before = in_use(device)
    ref = device.empty(5000, "uint8")
    view = ref[100:]
    assert in_use(device) >= before + 5000
    del ref
    assert in_use(device) >= before + 5000
    del view
    assert in_use(device) == before


def test_a_stale_handle_never_names_new_memory(device: an.Device) -> None:
    old = device.empty(64, "uint8")
    name = pickle.dumps(old)
    slot = old.allocation.slot
    old.free()
    for _ in range(2000):  # until its slot is used again
        if device.empty(64, "uint8").allocation.slot == slot:
            break
    else:
        pytest.fail("the slot was never used again")
    keep = [device.empty(64, "uint8") for _ in range(200)]
    with pytest.raises(an.GpuRefStale, match="freed"):
        old.numpy()
    with pytest.raises(an.GpuRefStale, match="freed"):
        pickle.loads(name).numpy()
    del keep


def test_handles_hold_no_cycle(device: an.Device) -> None:
    gc.disable()
    try:
        ref = device.put([1.0])
        gone = weakref.ref(ref)
        ref.numpy()
        ref[0], ref.T, repr(ref)
        del ref
        assert gone() is None
    finally:
        gc.enable()


# ---- NumPy's protocol, which copies


@pytest.mark.parametrize("name", NAMES)
def test_numpy_takes_a_handle(device: an.Device, name: str) -> None:
    x = filled((3, 4), DTYPES[name])
    ref = device.put(x)
    for found in (np.asarray(ref), np.array(ref), np.asarray(ref.T).T):
        assert found.dtype == x.dtype
        assert bits(found) == bits(x)


# ---- pickling and copying


@pytest.mark.parametrize("name", NAMES)
def test_a_pickled_handle_is_a_name_of_the_same_view(device: an.Device, name: str) -> None:
    ref = device.put(np.arange(12).reshape(3, 4).astype("bool" if name == "bool" else "uint8"), dtype=name)
    for view in (ref, ref.T, ref[1:, ::2], ref[2, 3]):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            other = pickle.loads(pickle.dumps(view, protocol))
            assert (other.shape, other.strides, other.dtype, other.offset) == (
                view.shape, view.strides, view.dtype, view.offset,
            )  # fmt: skip
            assert bits(other.numpy()) == bits(view.numpy())


def test_a_pickled_handle_does_not_own(device: an.Device) -> None:
    ref = device.put([1.0, 2.0], durable=True)
    other = pickle.loads(pickle.dumps(ref))
    assert other.durable
    other.fill(5)
    assert ref.numpy().tolist() == [5, 5]
    with pytest.raises(an.InvalidRequest, match="does not own"):
        other.free()
    del other
    assert ref.valid
    other = pickle.loads(pickle.dumps(ref))
    del ref
    assert not other.valid
    with pytest.raises(an.GpuRefStale) as caught:
        other.numpy()
    assert caught.value.reason == "freed"


def test_a_pickled_handle_resolves_in_its_own_system_only(make_system: Make, isolation: str) -> None:
    system = make_system(isolation=isolation)
    name = pickle.dumps(system.device().put([1.0]))
    system.close()
    with pytest.raises(an.InvalidRequest, match="another System"):
        pickle.loads(name)


def test_copy_of_a_handle_shares_and_owns(device: an.Device) -> None:
    ref = device.put([1.0, 2.0, 3.0])[1:]
    for other in (copy.copy(ref), copy.deepcopy([ref])[0]):
        assert other.allocation is ref.allocation
        assert other.numpy().tolist() == [2, 3]
    del ref
    assert other.numpy().tolist() == [2, 3]


# ---- the future


def test_wait_and_done(device: an.Device) -> None:
    x = device.put([1.0, 2.0])
    with Gate(device.elementwise):
        y = device.elementwise.run("x + 1", x=x)
        assert not y.done()
        with pytest.raises(an.AskTimeout, match="0"):
            y.wait(0)
        with pytest.raises(an.AskTimeout):
            y.wait(0.001)
        assert not y[:1].done()
    assert y.wait(30) is y
    assert y.done()
    assert y.numpy().tolist() == [2, 3]
    assert device.empty(3).wait(30).done()


def test_waiting_raises_the_writers_error_itself(device: an.Device) -> None:
    bad = poison(device.lane("a"), device.empty((2, 2)), text="that is why")
    uses: list[Callable[[], object]] = [
        bad.wait, bad.numpy, bad.T.numpy, lambda: bad[0].wait(30), lambda: device.get(bad), lambda: an.gather(bad),
        lambda: np.asarray(bad), lambda: device.get(bad, np.zeros((2, 2), "f4")),
    ]  # fmt: skip
    if device.name == "host":  # NumPy shows no other memory
        uses += [lambda: np.from_dlpack(bad), lambda: bad.lend().__enter__()]
    for use in uses:
        with pytest.raises(an.LibraryError, match="that is why"):
            use()
    assert bad.valid
    assert bad.done()


def test_errors_keep_neither_frames_nor_memory(device: an.Device) -> None:
    lane = device.lane("a")
    gc.disable()
    try:

        def use(kind: str) -> an.AtomrError | None:
            big = device.empty(100_000, "uint8")
            poison(lane, big)
            try:
                if kind == "wait":
                    big.wait()
                elif kind == "numpy":
                    big.numpy()
                elif kind == "gather":
                    an.gather(big)
                else:
                    device.lane("b").noop()
                    device.copy(big).numpy()
            except an.AtomrError as error:
                return error.with_traceback(None)
            return None

        before = in_use(device)
        errors = [use(kind) for kind in ("wait", "numpy", "gather", "copy")]
        assert all(isinstance(error, an.LibraryError) for error in errors)
        assert in_use(device) == before
    finally:
        gc.enable()
