"""Operators, functions of NumPy and values of handles: on the device, and nothing copied to the host unasked."""

from __future__ import annotations

import gc
import operator
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import atomr_native as an

FLOATS = np.array([1.0, 2.5, -3.0, 4.0])
INTEGERS = np.array([1, 2, 7, 4], np.int32)

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
BITS: list[Callable[[Any, Any], Any]] = [
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
]  # fmt: skip
IN_PLACE: list[Callable[[Any, Any], Any]] = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [operator.neg, operator.pos, abs, np.sin, np.exp, np.floor, np.isnan, np.square]


@pytest.fixture
def copies(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Count the copies to the host: what the one way to it, `Transfers.get`, was asked for."""
    found: list[Any] = []
    transfers = type(device._memory.transfers)
    own = transfers.get

    def get(self: Any, ref: Any, *options: Any) -> Any:
        found.append(ref)
        return own(self, ref, *options)

    monkeypatch.setattr(transfers, "get", get)
    return found


def same(made: an.GpuRef, expected: Any) -> None:
    """Compare with NumPy's result, and its dtype."""
    assert isinstance(made, an.GpuRef)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)


def test_arithmetic_and_comparisons_are_numpys(device: an.Device) -> None:
    """Between arrays, and with weak numbers on both sides: values and dtypes."""
    x, i = device.put(FLOATS), device.put(INTEGERS)
    for use in ARITHMETIC:
        same(use(x, device.put(np.float64(2))), use(FLOATS, np.float64(2)))
        same(use(i, 3), use(INTEGERS, 3))
        same(use(3, i), use(3, INTEGERS))
    for use in BITS:
        same(use(i, 3), use(INTEGERS, 3))
        same(use(i, i), use(INTEGERS, INTEGERS))
    for one in UNARY:
        with np.errstate(all="ignore"):
            same(one(x), np.asarray(one(FLOATS)))
    same(~i, ~INTEGERS)
    same(x[::-1] * 2, FLOATS[::-1] * 2)
    for mine, theirs in zip(divmod(i, 2), divmod(INTEGERS, 2), strict=True):
        same(mine, theirs)


@pytest.mark.host_only
def test_numbers_are_weak(device: an.Device) -> None:
    """The array decides about the dtype; a number of another kind about the kind."""
    cases: list[tuple[Any, Any]] = [
        (np.arange(3, dtype=np.uint8), 2), (np.arange(3, dtype=np.int8), 2.0), (np.ones(3, np.float32), 2.5),
        (np.ones(3, np.float32), 1j), (np.ones(3, np.complex64), 2), (np.ones(3, bool), True), (np.ones(3, bool), 2),
        (np.arange(3, dtype=np.uint64), 2**63), (np.ones(3, np.float16), 2), (np.ones(3, np.int64), 1j),
    ]  # fmt: skip
    for host, number in cases:
        ref = device.put(host)
        same(ref + number, host + number)
        same(number * ref, number * host)
        same(ref == number, host == number)
        if host.dtype.kind != "b":
            same(number - ref, number - host)
    bits = device.put(np.array([True, False]))
    same(bits & True, np.array([True, False]))
    same(True ^ bits, np.array([False, True]))
    small = device.put(np.arange(3, dtype=np.uint8))
    same(small < 300, np.array([True] * 3))
    same(small == 2**70, np.array([False] * 3))
    assert (device.put(np.ones(3, np.float32)) * np.float64(2)).dtype == np.float32  # as device.elementwise.run


@pytest.mark.host_only
def test_what_does_not_fit_is_refused_at_once(device: an.Device) -> None:
    small = device.put(np.arange(3, dtype=np.uint8))
    for use in (lambda: small + 300, lambda: 300 - small, lambda: small + -1, lambda: small.__iadd__(300)):
        with pytest.raises(an.InvalidRequest, match=r"fit uint8.*0 to 255"):
            use()
    with pytest.raises(an.InvalidRequest, match="negative power"):
        small**-1
    with pytest.raises(an.InvalidRequest, match="x = x / y"):
        small /= 2
    with pytest.raises(an.InvalidRequest, match="broadcast"):
        device.zeros(3) + device.zeros(4)
    with pytest.raises(an.InvalidRequest, match=r"x \*\* y|defined"):
        device.put(np.ones(3)) << 1


def test_updates_write_the_array(device: an.Device) -> None:
    """In-place operators keep the memory, also through views, and copy an operand that overlaps."""
    for use in IN_PLACE:
        host = FLOATS.copy()
        ref = whole = device.put(host)
        ref = use(ref, 2.0)
        host = use(host, 2.0)
        assert ref is whole
        same(ref, host)
    host = np.arange(6.0)
    ref = device.put(host)
    copied = device._core.lane_stats(device._memory.lane)["sent"]
    ref[1:3] += 10  # which is an assignment, too, of the view to itself
    assert device._core.lane_stats(device._memory.lane)["sent"] == copied
    host[1:3] += 10
    ref[1:] += ref[:-1]
    host[1:] += host[:-1]
    ref += ref
    host += host
    same(ref, host)


def test_assignment(device: an.Device) -> None:
    host = np.zeros((4, 5), np.float32)
    ref = device.put(host)

    def both(write: Callable[[Any, Callable[[Any], Any]], None]) -> None:
        write(ref, lambda array: device.put(array))
        write(host, lambda array: array)
        same(ref, host)

    def number(x: Any, _: Any) -> None:
        x[1:3, ::2] = 2

    def whole(x: Any, _: Any) -> None:
        x[...] = 3.5

    def array(x: Any, given: Any) -> None:
        x[2] = given(np.arange(5))

    def overlapping(x: Any, _: Any) -> None:
        x[1:] = x[:-1]

    def masked(x: Any, _: Any) -> None:
        x[x > 3] = -1

    def row(x: Any, given: Any) -> None:
        x[:, 1] = given(np.ones((1, 4)))

    for write in (number, array, overlapping, masked, row, whole):
        both(write)
    with pytest.raises(an.NoArrayOperator, match=r"device\.put"):
        ref[0] = np.ones(5)
    with pytest.raises(an.InvalidRequest, match=r"broadcast|fit"):
        ref[0] = device.zeros(4)
    with pytest.raises(an.InvalidRequest, match="mask of shape"):
        ref[device.zeros(3, "bool")] = 1
    same(ref[ref > 1], host[host > 1])


def test_products(device: an.Device) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    x, y = device.put(a), device.put(b)
    same(x @ y, a @ b)
    same(x @ y[:, 1], a @ b[:, 1])
    same(x[0] @ y, a[0] @ b)
    same(x[0] @ y[:, 0], np.asarray(a[0] @ b[:, 0]))
    same(x[:, :0] @ y[:0], a[:, :0] @ b[:0])
    with pytest.raises(an.InvalidRequest, match="allowed: the last extent"):
        x @ x
    i = device.put(INTEGERS.reshape(2, 2))
    same(i @ i, INTEGERS.reshape(2, 2) @ INTEGERS.reshape(2, 2))
    with pytest.raises(an.Unsupported, match="products of integers"):
        device.empty((300, 300), "int32") @ device.empty((300, 300), "int32")


def test_nothing_is_copied_to_the_host_unasked(device: an.Device, copies: list[Any]) -> None:
    """Operators, functions, reductions and assignments: no copy; values: one element each."""
    x, i = device.put(FLOATS), device.put(INTEGERS)
    for use in (*ARITHMETIC, np.add, np.hypot, np.maximum):
        use(x, 2)
        use(x, x)
    for one in (*UNARY, np.sum, np.sort, np.argsort, np.cumsum, np.mean, np.max, np.argmax, np.any, np.flip):
        one(x)
    np.concatenate([x, x])
    np.where(x > 0, x, 0.0)
    np.reshape(x, (2, 2))
    x[1:3] = 0
    x[x > 1] = 0
    x.clip(0, 1).astype("int8").take(i - i)
    refused: list[Callable[[], Any]] = [
        lambda: np.median(x), lambda: np.linalg.norm(x), lambda: np.allclose(FLOATS, x),
        lambda: x.__array_ufunc__(np.add, "reduce", x),  # NumPy 2.4 itself keeps what np.add.reduce(x) was refused for
        lambda: FLOATS + x, lambda: x + FLOATS, lambda: x == [1, 2], lambda: x == "a", lambda: np.add(x, FLOATS),
        lambda: np.sin(x, out=FLOATS), lambda: np.spacing(x), lambda: np.concatenate([x, FLOATS]), lambda: x * None,
        lambda: np.sum(x, where=[True]), lambda: x @ FLOATS,
    ]  # fmt: skip
    for use in refused:
        with pytest.raises(an.NoArrayOperator, match="GpuRef") as caught:
            use()
        assert "numpy()" in str(caught.value)
    host = FLOATS.copy()
    with pytest.raises(an.NoArrayOperator):
        host += x
    assert copies == []
    assert (x.sum().item(), float(x[0]), int(i[1]), [10, 20, 30][i[0]], complex(x[0])) == (1.0, 1.0, 2, 20, 1 + 0j)
    assert len(copies) == 5
    assert all(ref.size == 1 for ref in copies)
    del copies[:]
    xp = x.__array_namespace__()
    for use in (xp.nonzero, xp.unique_all, lambda x: x[x > 0], lambda x: xp.repeat(x, x - x, axis=0).size):
        use(i)
    assert len(copies) == 5  # a size each, and whether a number of repeats is negative
    assert all(ref.size == 1 for ref in copies)


@pytest.mark.host_only
def test_values_are_of_one_element(device: an.Device) -> None:
    x = device.put(FLOATS)
    for use in (bool, int, float, complex, lambda ref: ref.item()):
        with pytest.raises(an.InvalidRequest, match="4 elements"):
            use(x)
    with pytest.raises(TypeError, match="integer array"):
        operator.index(x[0])
    assert bool(device.put(np.array([[2]])))
    with pytest.raises(an.InvalidRequest, match="shape"):
        device.zeros((x.astype("int32")[0], 2))


@pytest.mark.host_only
def test_errors_are_type_errors_and_travel(device: an.Device) -> None:
    with pytest.raises(TypeError, match=r"device\.put") as caught:
        device.zeros(3) * np.ones(3)
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is an.NoArrayOperator
    assert isinstance(error, an.Unsupported)
    assert str(error) == str(caught.value)


@pytest.mark.host_only
def test_handles_are_hashed_by_identity(device: an.Device) -> None:
    x, y = device.zeros(3), device.zeros(3)
    assert {x: 1, y: 2}[y] == 2
    assert x in {x, y}
    assert [x, y].index(x) == 0
    assert hash(x) != hash(x[:])
    with pytest.raises(an.InvalidRequest, match="3 elements"):
        [y].index(x)
    weak = weakref.ref(x)
    del x
    gc.collect()
    assert weak() is None


@pytest.mark.host_only
def test_structure_and_explicit_copies_are_served(device: an.Device) -> None:
    x = device.put(FLOATS.reshape(2, 2))
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 2), 2, 4)
    assert np.asarray(x).tolist() == FLOATS.reshape(2, 2).tolist()
    assert np.array(x, dtype="float32").tolist() == FLOATS.reshape(2, 2).tolist()


@pytest.mark.host_only
def test_operators_are_immediate_calls(device: an.Device) -> None:
    """A warm operator makes no request: it is found in the call cache, by its structure."""
    x, y = device.put(FLOATS), device.put(FLOATS)
    known = []
    for number in (2.0, 3.0, 7.5):
        x + y, x * number, number - y, -x, x**2
        x += y
        known.append(len(device.elementwise._calls))
    assert known[0] == known[1] == known[2]
