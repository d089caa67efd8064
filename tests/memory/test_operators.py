"""Operators and functions of NumPy on handles: refused with advice that works, and no copy to the host unasked."""

from __future__ import annotations

import gc
import operator
import pickle
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import atomr_native as an

HOST = np.array([1.0, 2.0, 3.0, 4.0])

BINARY: list[Callable[[Any, Any], object]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.matmul, operator.lshift, operator.rshift, divmod, operator.eq,
    operator.ne, operator.lt, operator.le, operator.gt, operator.ge, np.add, np.maximum, np.matmul, np.dot,
    np.array_equal,
]  # fmt: skip
IN_PLACE: list[Callable[[Any, Any], object]] = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul,
]  # fmt: skip
UNARY: list[Callable[[Any], object]] = [
    operator.neg, operator.pos, operator.invert, abs, np.sin, np.exp, np.absolute, np.isnan, np.arctan, np.mean, np.sum,
    np.sort, lambda x: sum([x, x]), lambda x: np.concatenate([x, x]), lambda x: np.allclose(HOST, x),
    lambda x: np.size(x, 0),
    lambda x: x.__array_ufunc__(np.add, "reduce", x),  # NumPy 2.4 itself keeps what np.add.reduce(x) was refused for
]  # fmt: skip


@pytest.fixture
def x(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> an.GpuRef:
    """Lend an array that must not be copied to the host."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("copied to the host unasked")

    ref = device.put(HOST)
    monkeypatch.setattr(type(device), "get", refuse)
    return ref


@pytest.mark.host_only
@pytest.mark.parametrize("use", BINARY)
def test_binary(device: an.Device, x: an.GpuRef, use: Callable[[Any, Any], object]) -> None:
    for other in (2, 2.0, np.float32(2), np.int64(2), HOST, device.empty(4, "float64"), x[:], None, "a"):
        for left, right in ((x, other), (other, x)):
            if left is other and other.__class__ is str and use is operator.mod:  # formatting
                continue
            with pytest.raises(an.NoArrayOperator, match="GpuRef") as caught:
                use(left, right)
            assert ".numpy()" in str(caught.value)


@pytest.mark.host_only
@pytest.mark.parametrize("use", IN_PLACE)
def test_in_place(device: an.Device, x: an.GpuRef, use: Callable[[Any, Any], object]) -> None:
    for left, right in ((x, 2), (x, x), (HOST.copy(), x)):
        with pytest.raises(an.NoArrayOperator, match="GpuRef"):
            use(left, right)


@pytest.mark.host_only
@pytest.mark.parametrize("use", UNARY)
def test_unary(x: an.GpuRef, use: Callable[[Any], object]) -> None:
    with pytest.raises(an.NoArrayOperator, match="GpuRef") as caught:
        use(x)
    assert ".numpy()" in str(caught.value)


@pytest.mark.host_only
def test_the_advice_works(device: an.Device) -> None:
    """What errors advise for the device runs there, and computes what was asked for."""
    integers = np.array([1, 2, 3, 4])
    seen = set()
    for host in (HOST, integers):
        ref = device.put(host)
        for use in (*BINARY, *UNARY):
            if use.__name__ == "<lambda>":
                continue
            given = (host, host) if use in BINARY else (host,)
            refs = (ref, device.copy(ref)) if use in BINARY else (ref,)
            with pytest.raises(an.NoArrayOperator) as caught:
                use(*refs)
            found = re.search(r"elementwise\.run\(('[^']+'), (.*?)\)[;,]", str(caught.value))
            if found is None:
                continue
            program = found[1].strip("'")
            assert [name for name in "ab" if f"{name}=..." in found[2]] == list("ab"[: len(given)])
            if ("&" in program or "|" in program or "^" in program or "~" in program) and host.dtype.kind == "f":
                continue
            seen.add(program)
            computed = device.elementwise.run(program, **dict(zip("ab", refs, strict=False))).numpy()
            np.testing.assert_allclose(computed, use(*given), rtol=1e-6)
    assert {"a + b", "a == b", "-a", "~a", "sin(a)", "abs(a)", "a ** b", "a & b", "maximum(a, b)"} <= seen


def test_the_error_is_a_type_error_and_travels(device: an.Device) -> None:
    with pytest.raises(TypeError, match=r"a \* b") as caught:
        device.zeros(3) * 2  # type: ignore[operator]
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is an.NoArrayOperator
    assert isinstance(error, an.Unsupported)
    assert str(error) == str(caught.value)
    assert error.rule == "arrays.operators"


@pytest.mark.host_only
def test_containers_find_a_handle(device: an.Device) -> None:
    x, y = device.zeros(3), device.zeros(3)
    same = x
    assert x == same
    assert (x != same) is False
    assert {x: 1, y: 2}[y] == 2
    assert x in {x, y}
    assert x in [x, y]
    assert [x, y].index(x) == 0
    assert (x, 1) == (x, 1)
    assert hash(x) != hash(x[:])
    weak: weakref.WeakKeyDictionary[an.GpuRef, int] = weakref.WeakKeyDictionary({x: 1, y: 2})
    weak[x] = 3
    assert (weak[x], weak[y], len(weak)) == (3, 2, 2)
    some = weakref.WeakSet([x])
    assert x in some
    assert y not in some
    del x, same
    gc.collect()
    assert len(weak) == 1
    assert not some
    with pytest.raises(an.NoArrayOperator):
        [y].index(device.zeros(3))


@pytest.mark.host_only
def test_structure_and_explicit_copies_are_served(device: an.Device) -> None:
    x = device.put(HOST.reshape(2, 2))
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 2), 2, 4)
    assert np.asarray(x).tolist() == HOST.reshape(2, 2).tolist()
    assert np.array(x, dtype="float32").tolist() == HOST.reshape(2, 2).tolist()
