"""Put, get, copy, fill and host arrays, against NumPy."""

from __future__ import annotations

import array
import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
from actions import Gate, bits, poison
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import NAMES, dtypes, filled, keys, shapes

import atomr_native as an
from atomr_native.dtypes import DTYPES

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (5,), (3, 0, 2), (2, 3), (4, 1, 3), (1, 1, 1, 1), (257,)]
shared_device = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert bits(found) == bits(expected)


# ---- put and get


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_shape_comes_back_bit_for_bit(device: an.Device, name: str, shape: tuple[int, ...]) -> None:
    x = filled(shape, DTYPES[name])
    ref = device.put(x)
    assert (ref.shape, ref.dtype, ref.size, ref.nbytes, ref.ndim) == (x.shape, x.dtype, x.size, x.nbytes, x.ndim)
    same(ref.numpy(), x)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_bit_patterns_are_kept_nan_and_all(device: an.Device, name: str) -> None:
    dtype = DTYPES[name]
    raw = np.arange(0, 256 * dtype.itemsize, dtype=np.uint64).astype(np.uint8)
    raw[-dtype.itemsize :] = 0xFF
    x = raw.view(dtype)
    assert bits(device.put(x).numpy()) == bits(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T,
        lambda x: x[::2, 1::2],
        lambda x: x[::-1, ::-2],
        lambda x: np.asfortranarray(x),
        lambda x: np.broadcast_to(x[0], (5, 7)),
        lambda x: x[:, None, 3:],
        lambda x: x[3, 2:3],
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1),
    ],
)
def test_put_takes_any_strides(device: an.Device, make: Any) -> None:
    x = make(np.arange(42.0).reshape(6, 7))
    ref = device.put(x)
    assert ref.is_whole
    same(ref.numpy(), np.ascontiguousarray(x))


@shared_device
@given(data=st.data(), shape=shapes, dtype=dtypes)
def test_put_of_any_view(device: an.Device, data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> None:
    x = filled(shape, dtype)
    view = x[data.draw(keys(shape))]
    same(device.put(view).numpy(), np.array(view))


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["bool", "int8", "uint64", "float32", "float64", "bfloat16"])
def test_put_converts_as_numpy_does(device: an.Device, source: str, target: str) -> None:
    x = np.array([0, 1, 1, 0, 1], bool) if source == "bool" else np.array([0, 1, 2, 3, 1.5]).astype(DTYPES[source])
    same(device.put(x, dtype=target, casting="unsafe").numpy(), x.astype(DTYPES[target]))


def test_put_narrows_without_warning(device: an.Device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = device.put(np.array([1e300, 1.7, -1.7]), dtype="float32").numpy()
        whole = device.put(np.array([1.7, -1.7]), dtype="int8", casting="unsafe").numpy()
        device.put(np.array([np.nan, 1e300]), dtype="int16", casting="unsafe").wait()
    assert found.tolist() == [np.inf, np.float32(1.7), np.float32(-1.7)]
    assert whole.tolist() == [1, -1]


@pytest.mark.parametrize(
    "value",
    [5, 2.5, True, 1 + 2j, [1, 2, 3], [[1.5, 2], [3, 4]], (1, 2), [], np.float32(3), np.int8(-3), [[True], [False]]],
)
def test_put_takes_numbers_and_nested_lists(device: an.Device, value: Any) -> None:
    same(device.put(value).numpy(), np.asarray(value))


class OnlyArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.arange(4, dtype=dtype)


class OnlyDlpack:
    def __init__(self, base: np.ndarray[Any, Any]) -> None:
        self.base = base

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.base.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.base.__dlpack_device__()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bytearray(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)),
        (array.array("d", [1, 2]), np.array([1.0, 2.0])),
        (OnlyArray(), np.arange(4)),
        (OnlyDlpack(np.arange(6.0).reshape(2, 3)[:, ::2]), np.array([[0.0, 2.0], [3.0, 5.0]])),
    ],
    ids=["bytearray", "memoryview", "array", "__array__", "__dlpack__"],
)
def test_put_takes_what_other_libraries_have(device: an.Device, value: Any, expected: Any) -> None:
    same(device.put(value).numpy(), np.array(expected))


def test_put_takes_read_only_memory(device: an.Device) -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    same(device.put(x).numpy(), x)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("source", ["plain", "lists of the device's own"])
def test_array_may_change_once_put_has_returned(device: an.Device, contiguous: bool, source: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    with Gate(device._memory):
        ref = device.put(x if contiguous else x.T)
        x[...] = -1
    same(ref.numpy(), np.arange(12.0).reshape(3, 4) if contiguous else np.arange(12.0).reshape(3, 4).T.copy())


def test_put_into_out(device: an.Device) -> None:
    base = device.zeros((4, 6), "float32")
    assert device.put(np.ones((2, 3)), out=base[1:3, ::2]) is not None
    expected = np.zeros((4, 6), np.float32)
    expected[1:3, ::2] = 1
    same(base.numpy(), expected)
    ref = device.put([1, 2], out=(out := device.empty(2, "bfloat16")), dtype="bfloat16")
    assert ref is out


@pytest.mark.parametrize(
    ("value", "options", "hint"),
    [
        (np.zeros(3), {"out": (4,)}, r"\(4,\)"),
        (np.zeros(3), {"out": (3, 1)}, r"\(3, 1\)"),
        (np.zeros(3), {"out": (3,), "dtype": "int8"}, "int8"),
        (np.zeros(3), {"out": None, "dtype": "float128"}, "float128.*bfloat16"),
        (np.zeros(3), {"dtype": "quad"}, "quad.*bfloat16"),
        (np.zeros(3), {"dtype": object}, "allowed"),
        (np.zeros(3, complex), {"dtype": "float32"}, "complex"),
        (np.zeros(3, object), {}, "object"),
        (np.zeros(3, "S4"), {}, "dtype"),
        (np.zeros(3, "M8[s]"), {}, "dtype"),
        (np.zeros(3, ">f4"), {}, "byte order"),
        (np.zeros(3, [("a", "f4")]), {}, "dtype"),
        (np.zeros(3, np.longdouble), {}, "dtype"),
        ("text", {}, "array"),
        (None, {}, "array"),
        (object(), {}, "array"),
        ({1: 2}, {}, "array"),
        ([1, [2, 3]], {}, "numeric"),
        ([None], {}, "numeric"),
        (["a"], {}, "numeric"),
        (2**80, {}, "numeric"),
        (np.ma.masked_array([1, 2], [True, False]), {}, "mask"),
        (np.ndarray, {}, "class"),
    ],
)
def test_what_cannot_be_put(device: an.Device, value: Any, options: dict[str, Any], hint: str) -> None:
    if isinstance(options.get("out"), tuple):
        options = {**options, "out": device.empty(options["out"], "float64")}
    with pytest.raises(an.InvalidRequest, match=hint):
        device.put(value, **options)


def test_put_refuses_handles_and_wrong_targets(device: an.Device) -> None:
    ref = device.put([1.0])
    with pytest.raises(an.InvalidRequest, match="copy"):
        device.put(ref)
    with pytest.raises(an.InvalidRequest, match="ndarray"):
        device.put([1.0], out=np.zeros(1))  # type: ignore[arg-type]


def test_get_into_an_array(device: an.Device) -> None:
    ref = device.put(np.arange(6.0).reshape(2, 3))
    out = np.zeros((3, 2)).T
    assert device.get(ref, out) is out
    same(np.array(out), np.arange(6.0).reshape(2, 3))
    assert device.get(ref[1], out[0]).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    "out", [np.zeros(4), np.zeros((3, 1)), np.zeros(3, "f4"), [0.0] * 3, np.broadcast_to(np.zeros(1), 3)]
)
def test_get_into_what_does_not_fit(device: an.Device, out: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="out is"):
        device.get(device.put(np.arange(3.0)), out)


@pytest.mark.parametrize("use", ["get", "copy", "fill"])
@pytest.mark.parametrize("wrong", [None, 3, np.zeros(3), "x"])
def test_what_is_no_handle(device: an.Device, use: str, wrong: Any) -> None:
    with pytest.raises(an.InvalidRequest, match=r"GpuRef"):
        device._memory.fill(wrong, 0) if use == "fill" else getattr(device, use)(wrong)


def test_get_with_a_timeout_of_zero(device: an.Device) -> None:
    ref = device.put([1.0, 2.0])
    with Gate(device._memory):
        with pytest.raises(an.AskTimeout, match="0"):
            device.get(ref, timeout=0)
        with pytest.raises(an.AskTimeout):
            device.get(ref, np.zeros(2), timeout=0.001)
        with pytest.raises(an.AskTimeout):
            device.get(ref, device.host_array(2, "float64"), timeout=0.0)
    assert device.get(ref, timeout=30).tolist() == [1, 2]


def test_arrays_got_are_the_callers(device: an.Device) -> None:
    ref = device.put([1.0, 2.0])
    first = ref.numpy()
    first[...] = 9
    assert first.flags.owndata
    assert ref.numpy().tolist() == [1, 2]


# ---- making


@pytest.mark.parametrize("name", NAMES)
def test_zeros_full_and_fill(device: an.Device, name: str) -> None:
    dtype = DTYPES[name]
    same(device.zeros((2, 3), name).numpy(), np.zeros((2, 3), dtype))
    same(device.full((2, 3), 1, name).numpy(), np.ones((2, 3), dtype))
    ref = device.zeros((4, 4), name)
    assert ref[1:3, ::2].fill(1) is not None
    expected = np.zeros((4, 4), dtype)
    expected[1:3, ::2] = 1
    same(ref.numpy(), expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", -128), ("uint8", 255), ("int64", -(2**63)), ("uint64", 2**64 - 1), ("float64", 1e308),
        ("float32", float("nan")), ("float16", 70000.0), ("complex64", 1 - 2j), ("bool", True), ("int32", 3.0),
        ("bfloat16", 1.005), ("float8_e5m2", 0.3), ("float32", np.float64(2.5)), ("int16", np.int64(7)),
    ],
)  # fmt: skip
def test_fill_values(device: an.Device, name: str, value: Any) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(value).astype(DTYPES[name])
    assert bits(device.full((), value, name).numpy()) == bits(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uint8", 256), ("uint8", -1), ("int8", 1.5), ("int32", float("nan")), ("int32", float("inf")),
        ("bool", 2), ("float32", 1j), ("float32", "one"), ("float32", None), ("float64", [1]), ("uint64", 2**64),
        ("float64", 10**400), ("float32", np.zeros(3)),
    ],
)  # fmt: skip
def test_fill_values_that_do_not_fit(device: an.Device, name: str, value: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="fill value"):
        device.full((2,), value, name)


def test_empty_leaves_shape_and_dtype(device: an.Device) -> None:
    ref = device.empty((2, 3))
    assert (ref.shape, ref.dtype, ref.strides) == ((2, 3), np.float32, (12, 4))
    assert device.empty(5, np.int16).shape == (5,)
    assert device.empty([2, np.int64(2)], float).dtype == np.float64
    assert device.empty((), "bool").ndim == 0


@pytest.mark.parametrize("shape", [-1, (2, -1), 2.5, "ab", None, (1, None), (3, "4"), (1,) * 65])
def test_wrong_shapes(device: an.Device, shape: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="shape"):
        device.empty(shape)
    with pytest.raises(an.InvalidRequest, match="shape"):
        device.host_array(shape)


@pytest.mark.parametrize("wrong", [(2.0, 3), (2, 3.0), (np.float64(2), 3), (2 + 0j, 3)])
def test_a_shape_that_equals_a_good_one(device: an.Device, wrong: Any) -> None:
    for _ in range(2):
        assert device.empty((2, 3)).shape == (2, 3)
        with pytest.raises(an.InvalidRequest, match="nor a sequence of integers"):
            device.empty(wrong)
    for good in ((2, 3), (np.int64(2), 3), [2, 3], (True + 1, 3)):
        assert device.empty(good).shape == (2, 3)


@pytest.mark.parametrize("shape", [2**47, (2**40, 2**40), (2**63,), (10**30, 10**30)])
def test_sizes_beyond_any_address_space(device: an.Device, shape: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="bytes"):
        device.empty(shape, "uint8")


@pytest.mark.parametrize("nbytes", [2**40, 2**46])
def test_sizes_beyond_the_memory(device: an.Device, nbytes: int) -> None:
    with pytest.raises(an.OutOfMemory) as caught:
        device.empty(nbytes, "uint8")
    assert caught.value.requested == nbytes
    assert caught.value.limit == device.stats()["memory"]["limit"]
    assert 0 < caught.value.largest <= caught.value.free < nbytes
    assert device.put([1]).numpy() == [1]


@pytest.mark.parametrize("nbytes", [1 << 42, 1 << 46])
def test_host_arrays_beyond_the_memory(device: an.Device, nbytes: int) -> None:
    kept = device.host_array(5, "uint8")
    with pytest.raises(an.OutOfMemory, match=f"the host has no room for {nbytes} bytes") as caught:
        device.host_array(nbytes, "uint8")
    assert caught.value.requested == nbytes
    assert 0 < caught.value.largest <= caught.value.free < nbytes
    kept[...] = 3
    assert device.put(kept).numpy().tolist() == [3] * 5


def test_a_size_of_zero_times_something_huge(device: an.Device) -> None:
    ref = device.empty((0, 2**40), "float64")
    assert ref.size == 0
    assert ref.numpy().shape == (0, 2**40)


# ---- copy


@shared_device
@given(data=st.data(), shape=shapes, source=dtypes, target=dtypes)
def test_copy_of_any_view_into_any_dtype(
    device: an.Device, data: st.DataObject, shape: tuple[int, ...], source: Any, target: Any
) -> None:
    x = filled(shape, source)
    key = data.draw(keys(shape, negative=False))
    if source.kind == "c" and target.kind != "c":
        return
    with np.errstate(all="ignore"):
        expected = np.array(x[key]).astype(target)
    same(device.copy(device.put(x)[key], dtype=target).numpy(), expected)


@shared_device
@given(data=st.data(), shape=shapes, dtype=dtypes)
def test_copy_into_any_view(device: an.Device, data: st.DataObject, shape: tuple[int, ...], dtype: Any) -> None:
    expected = filled(shape, dtype)
    key = data.draw(keys(shape, negative=False))
    base = device.put(expected)
    source = filled(expected[key].shape, dtype, seed=1)
    expected[key] = source
    out = base[key]
    assert device.copy(device.put(source), out) is out
    same(base.numpy(), expected)


def test_copy_broadcasts(device: an.Device) -> None:
    out = device.zeros((2, 3), "int64")
    device.copy(device.put(np.array([[1], [2]])), out)
    assert out.numpy().tolist() == [[1, 1, 1], [2, 2, 2]]


def test_copies_that_cannot_be(device: an.Device) -> None:
    x = device.zeros((4, 4), "float32")
    for source, out, options, hint in [
        (x, device.zeros((3, 4)), {}, r"\(3, 4\)"),
        (x, x, {}, "overlaps"),
        (x[:3], x[1:], {}, "overlaps"),
        (x, x.T, {}, "overlaps"),
        (device.zeros(3, "complex64"), device.zeros(3), {}, "imaginary"),
        (x, device.zeros((4, 4)), {"dtype": "int8"}, "int8"),
        (x, np.zeros((4, 4)), {}, "GpuRef"),
        (x, None, {"dtype": "quad"}, "quad"),
    ]:
        with pytest.raises(an.InvalidRequest, match=hint):
            device.copy(source, out, **options)


# ---- order and durability


def test_operations_are_in_the_order_of_sending(device: an.Device) -> None:
    x = device.zeros((64,), "int64")
    for i in range(50):
        y = device.copy(x)
        x.fill(i + 1)
        device.copy(x, y[:]) if i % 2 else None
        z = device.copy(y)
    assert z.numpy().tolist() == [50] * 64


def test_durable_memory_is_durable(device: an.Device) -> None:
    assert device.put([1], durable=True).durable
    assert device.zeros(3, durable=True).durable
    assert device.copy(device.put([1]), durable=True).durable
    assert not device.put([1]).durable


# ---- host arrays


def test_host_array_is_zeroed_and_plain(device: an.Device) -> None:
    for name in NAMES:
        h = device.host_array((3, 2), name)
        assert h.flags.c_contiguous
        assert h.flags.writeable
        same(h, np.zeros((3, 2), DTYPES[name]))
    assert device.host_array(()).shape == ()
    assert device.host_array(0).size == 0


@pytest.mark.parametrize(
    "key", [..., slice(1, 3), (slice(None), 1), (slice(None, None, 2), slice(None, None, -1)), (2, 2)]
)
def test_put_from_and_get_into_views_of_a_host_array(device: an.Device, key: Any) -> None:
    h = device.host_array((4, 3), "float64")
    h[...] = np.arange(12).reshape(4, 3)
    same(device.put(h[key]).numpy(), np.array(h[key]))
    back = device.host_array((4, 3), "float64")
    view = back[key]
    if isinstance(view, np.ndarray):
        assert device.get(device.put(h[key]), view) is view
        same(np.array(back[key]), np.array(h[key]))
    same(device.put(h.T, dtype="float32").numpy(), h.T.astype("f4"))


def test_put_from_a_host_array_is_done_when_it_returns(device: an.Device) -> None:
    h = device.host_array(100, "int32")
    refs = []
    for i in range(20):
        h[...] = i
        refs.append(device.put(h))
    assert [int(ref.numpy()[7]) for ref in refs] == list(range(20))


def test_host_arrays_outlive_their_names(device: an.Device) -> None:
    view = device.host_array((8, 8), "int32")[2:4, 1:]
    view[...] = 7
    others = [device.host_array((8, 8), "int32") for _ in range(50)]
    del others
    assert (device.put(view).numpy() == 7).all()


def test_failed_get_into_a_host_array_leaves_it_the_users(device: an.Device) -> None:
    h = device.host_array(4, "float32")
    bad = poison(device.lane("a"), device.empty(4))
    with pytest.raises(an.LibraryError, match="boom"):
        device.get(bad, h)
    h[...] = 3
    assert device.put(h).numpy().tolist() == [3] * 4
    good = device.get(device.put(np.ones(4, "f4")), h)
    assert good.tolist() == [1] * 4


def test_wrong_stride_of_a_host_array_is_copied(device: an.Device) -> None:
    raw = device.host_array(40, "uint8")
    raw[...] = np.arange(40)
    odd = np.ndarray((4,), np.int16, raw, 0, (9,))
    assert device.put(odd).numpy().tolist() == odd.tolist()


# ---- the memory itself


def test_freed_arrays_do_not_add_up(device: an.Device) -> None:
    def in_use() -> int:
        return sum(pool["in_use"] for pool in device.stats()["memory"]["pools"].values())

    device.put(np.zeros(10)).wait()
    before = in_use()
    for _ in range(300):
        ref = device.put(np.zeros(1000))
        device.copy(ref)[::2].fill(1)
    with contextlib.suppress(an.AskTimeout):
        ref.wait(30)
    del ref
    device.get(device.put([1]))
    assert in_use() <= before
