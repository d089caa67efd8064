"""What kernels take: arrays of every dtype, rank and layout, and numbers of every type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import kernel_shim
import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

import numba_kernels as kernels

from atomr_native.compile import linker
from atomr_native.compile.numba import api, compiler
from atomr_native.libraries.kernel import spec

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
NUMBERS = (
    True, np.bool_(True), 3, -(2**63), 0.1, 2 - 1j, np.int8(-128), np.uint8(255), np.int16(-3), np.uint16(65535),
    np.int32(-(2**31)), np.uint32(2**32 - 1), np.int64(-5), np.uint64(2**64 - 1), np.float16(0.1), np.float32(0.1),
    np.float64(0.1), np.complex64(1 - 2j), np.complex128(0.1j),
)  # fmt: skip


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System() as system:
        yield system.device(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype(device: an.Device, dtype: str) -> None:
    data = np.arange(24).reshape(2, 1, 3, 4).astype(as_dtype(dtype))
    x, out = device.put(data), device.zeros((4, 3, 1, 2), dtype)
    device.kernel(kernels.copies).forall(24, 32)(x, out.T).result(60)
    np.testing.assert_array_equal(out.numpy().T, data)


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=25)
def test_views_of_every_kind(device: an.Device, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=4, max_size=4).map(tuple))
    source = np.random.default_rng(0).integers(0, 100, shape).astype(np.float32)
    axes = tuple(data.draw(st.permutations(range(4))))
    steps = tuple(slice(data.draw(st.integers(0, n - 1)), None, data.draw(st.integers(1, 2))) for n in shape)
    view, x = source[steps].transpose(axes), device.put(source)[steps].transpose(*axes)
    out = device.zeros(view.shape)
    device.kernel(kernels.copies).forall(max(view.size, 1), 32)(x, out).result(60)
    np.testing.assert_array_equal(out.numpy(), view)


def test_arrays_without_axes_and_without_elements(device: an.Device) -> None:
    x, out = device.put(np.array(3, "f4")), device.zeros((), "f4")
    device.kernel(kernels.of_one_element)[1, 1](x, out, 5).result(60)
    assert (x.numpy(), out.numpy()) == (5, 3)
    none = device.zeros((2, 0, 3, 1))
    device.kernel(kernels.copies).forall(0)(none, device.zeros((2, 0, 3, 1))).result(60)


def test_numbers_of_every_type(device: an.Device) -> None:
    """On a GPU in one kernel, of a tuple: each would take a compilation of its own."""

    def all_of(out, numbers):
        out[0], out[1], out[2], out[3], out[4], out[5] = (
            numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5],
        )  # fmt: skip
        out[6], out[7], out[8], out[9], out[10] = numbers[6], numbers[7], numbers[8], numbers[9], numbers[10]
        out[11], out[12], out[14], out[15] = numbers[11], numbers[12], numbers[14], numbers[15]
        out[16], out[17], out[18] = numbers[16], numbers[17], numbers[18]
        out[13] = 1 if numbers[13] == 2**64 - 1 else 0

    out = device.zeros(len(NUMBERS), "complex128")
    device.kernel(all_of)[1, 1](out, NUMBERS).result(60)
    expected = np.array([complex(n) for n in NUMBERS])
    expected[13] = 1
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__}")
def test_numbers_have_the_types_of_numba(number: Any) -> None:
    from numba.cuda import types
    from numba.cuda.typing import typeof

    found = api.scalar_type(spec.scalar_of("x", number).type)
    # Numba gives a small integer of Python 64 bits as well, and an IntEnum is one.
    assert found == typeof.typeof(number) or (type(number) is int and found == types.int64)


@pytest.mark.parametrize("number", [np.longdouble(1), np.datetime64(1, "s"), None, "1", [1], np.ones(1), (1, (2,))])
def test_what_is_no_number(number: Any) -> None:
    with pytest.raises(an.AtomrError, match=r"^x(\[1\])? is "):
        spec.classify("x", number)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_arithmetic_in_half_precision_is_linked(tools: None, dtype: str) -> None:
    array = api.array_type(as_dtype(dtype), 1, "C")
    number = api.scalar_type("float16" if dtype == "float16" else "float32")
    options = compiler.jit_options(kernels.half)
    assert linker.machine_code(kernels.half.py_func, (array, number, array), (9, 0), options).code


HALF = """
extern "C" __global__ void half(void *a, void *b, long n, long item, unsigned short *out, long shape, long stride,
                                unsigned short h) { out[0] = h; }
"""


def test_float16_is_rounded_once(fake_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kernel gets it: with Numba's arguments, in C, on the software driver."""
    import fake_cuda

    code = Binary(kernel_shim.compile_module(HALF))
    monkeypatch.setattr(linker, "machine_code", lambda *_, **__: linker.MachineCode("half", code))

    def half(out, h):
        out[0] = h

    rng = np.random.default_rng(0)
    codes = np.concatenate([rng.integers(0, 0x7C00, 150), [0, 1, 2, 0x3FE, 0x3FF, 0x400, 0x401, 0x7BFE, 0x7BFF]])
    low, high = codes.astype("u2").view("f2").astype(float), (codes + 1).astype("u2").view("f2").astype(float)
    high[~np.isfinite(high)] = 65536
    middle = (low + high) / 2
    numbers = np.concatenate([low, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e6), [np.inf, np.nan, 1e300]])
    numbers = np.concatenate([numbers, -numbers])
    with fake_cuda.using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        out = device.zeros(len(numbers), "float16")
        plan = device.kernel(half)[1, 1].plan(out[:1], np.float16(0))
        for i, number in enumerate(numbers):
            plan.tell(out[i : i + 1], h=number)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(out.numpy(), numbers.astype("f2"))
