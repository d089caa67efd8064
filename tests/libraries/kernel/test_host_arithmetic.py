"""Kernels on the host device compute in Numba's types what Numba's own code computes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda, njit

from atomr_native.compile.numba import api, arithmetic, compiler, front_end, simulator, typed_python

# Expressions of two elements; integers are computed with for every pair of dtypes, reals with floating-point ones.
INTEGERS = (
    "a + b", "a - b", "a * b", "a // b", "a % b", "a / b", "-a", "~a", "a & b", "a | b", "a ^ b", "a << 3", "a >> 2",
    "a ** 3", "a * a * a * a * a * a * a * a", "(a + b) // 2", "a < b", "a == b", "a - b > 0", "min(a, b)", "max(a, b)",
    "abs(a)", "1.0 / a", "a / 0", "a // 0", "a % 0", "a if a > b else 2.5", "float(a)", "np.float32(a) / np.float32(3)",
    "np.uint8(a) + np.uint8(200)", "np.int8(a + b)", "np.uint32(a) - np.uint32(b)", "np.int32(a) * np.int32(b)",
    "bool(a) + 1", "not a", "a + True", "a * 0.1", "a + 2 ** 40", "math.sqrt(a)", "math.log(a)", "math.floor(a / 3)",
    "(a, b)[1] + 1", "int(a * 0.7)", "np.int64(a) + np.uint64(b)",
)  # fmt: skip
REALS = (
    "a + b", "a * b", "a / b", "b / a", "a // b", "a % b", "a - 2 * b", "-a", "a ** b", "a ** 2",
    "math.sqrt(a)", "math.log(a)", "math.exp(a * 1000)", "math.log(b - b)", "math.pow(a, b)", "math.atan2(a, b)",
    "math.floor(a)", "math.copysign(a, b)", "math.isnan(a / b)", "math.erf(a)", "math.tanh(a)",
    "abs(a)", "min(a, b)", "max(a, 0)", "a < b", "a == b", "int(a)", "np.float32(a) * np.float32(b)",
    "a if a > b else 1",
    "math.sin(a)", "math.hypot(a, b)", "math.isinf(1 / (a - a))", "np.sqrt(a)", "np.exp(a)",
    "np.float64(a) + np.float32(b)",
)  # fmt: skip


def average(a, b):
    total = 0
    total += a
    total += b
    return total / 2


def grows(a, b):
    s = 1
    for _ in range(70):
        s = s * 3 + a
    return s


def becomes_real(a, b):
    s = 0
    while s < 5:
        if a > b:
            s += 1.5
        else:
            s += 1
    return s


def leaves(a, b):
    n = 0
    for j in range(10):
        if j == 3:
            continue
        for k in range(j):
            if k * j > 12:
                break
            n += k - j
        if n < -40:
            break
    else:
        n = 100
    return n + a


def counts_down(a, b):
    n = np.uint8(3)
    for _ in range(5):
        n = np.uint8(n - 1)
    return n


def calls(a, b):
    def inner(v, w):
        return v * w + 1

    return inner(a, b) - inner(b, 2)


def exchanges(a, b):
    x, y = a, b
    x, y = y, x
    z = (x, y, 3)
    return z[0] - z[1] + len(z)


def collatz(a, b):
    n, steps = abs(int(a)) % 50 + 1, 0
    while n != 1 and steps < 200:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def hashes(a, b):
    h = np.uint64(14695981039346656037)
    for v in (int(a) & 255, int(b) & 255):
        h = (h ^ np.uint64(v)) * np.uint64(1099511628211)
    return h


def compares(a, b):
    return 0 < a <= b or a is None or (a != b and not (a > 3))


def unifies(a, b):
    s = np.float32(0.1)
    if a > b:
        s = 0.2
    return s * 3


def rounds(a, b):
    return (a * 0 + 9007199254740993) == 9007199254740992.0


STATEMENTS = (
    average, grows, becomes_real, leaves, counts_down, calls, exchanges, collatz, hashes, compares, unifies, rounds,
)  # fmt: skip
WHOLE = [-100, -7, -1, 0, 1, 2, 3, 100]
PAIRS = {
    "uint8": (np.array([0, 1, 2, 7, 100, 200, 254, 255], np.uint8),
              np.array([3, 0, 255, 2, 100, 250, 254, 1], np.uint8)),
    "int32": (np.array([*WHOLE, 2**31 - 1, -(2**31)], np.int32), np.array([3, 2, -5, 7, 0, 1, -1, 9, 5, 4], np.int32)),
    "mixed": (np.array(WHOLE, np.int64), np.array([3, 2, 5, 7, 0, 1, 9, 4], np.uint8)),
    "float32": (np.array([0, -0.0, 0.1, 1.5, -2.5, 3e15, 7], np.float32),
                np.array([0, 1, 3, -2, 0.5, 2, -3], np.float32)),
    "float64": (np.array([0, -0.0, 0.1, 1.5, -2.5, 9e15, 7]), np.array([0, 1, 3, -2, 0.5, 2, -3])),
}  # fmt: skip


def source_of(expressions: list[str], outs: list[str], *, loop: bool) -> str:
    head = "for i in range(x.size):" if loop else "i = cuda.grid(1)\n    if i < x.size:"
    body = "".join(f"\n        {out}[i] = {text}" for out, text in zip(outs, expressions, strict=True))
    return f"def kernel(x, y, {', '.join(outs)}):\n    {head}\n        a = x[i]; b = y[i]{body}\n"


def made(text: str, names: dict[str, Any]) -> Any:
    scope = {"cuda": cuda, "np": np, "math": math, **names}
    exec(text, scope)
    return scope["kernel"]


def run_on_host(kernel: Any, arrays: list[np.ndarray]) -> None:
    types = tuple(api.array_type(a.dtype, a.ndim, "C") for a in arrays)
    typed = front_end.typed(kernel, types, front_end.HOST_CAPABILITY)
    function = typed_python.written(kernel, typed)
    simulator.simulated(function)[1, arrays[0].size](*map(simulator.simulated_array, arrays))


@pytest.mark.plain
@pytest.mark.parametrize("pair", PAIRS)
def test_against_numba(pair: str) -> None:
    x, y = PAIRS[pair]
    expressions = INTEGERS if x.dtype.kind in "iu" else REALS
    texts = [*expressions, *(f"{f.__name__}(a, b)" for f in STATEMENTS if x.dtype.kind in "iu" or f is not hashes)]
    elements = tuple(api.scalar_type(a.dtype.name) for a in (x, y))
    on_gpu = {f.__name__: cuda.jit(device=True)(f) for f in STATEMENTS}
    on_processor = {f.__name__: njit(error_model="numpy")(f) for f in STATEMENTS}
    kinds = []
    for first in range(0, len(texts), 20):  # Numba has no tuples of more than 30 values
        several = made(f"def kernel(a, b):\n    return {', '.join(texts[first : first + 20])},\n", on_gpu)
        kinds += [np.dtype(str(t)) for t in front_end.typed(several, elements, front_end.HOST_CAPABILITY).result]
    names = [f"o{i}" for i in range(len(texts))]
    got, expected = ([np.zeros(x.size, kind) for kind in kinds] for _ in range(2))
    with np.errstate(all="ignore"):
        made_for_processor = made(source_of(texts, names, loop=True), on_processor)
        njit(error_model="numpy")(made_for_processor)(x, y, *expected)
    run_on_host(made(source_of(texts, names, loop=False), on_gpu), [x, y, *got])
    wrong = []
    for text, found, right in zip(texts, got, expected, strict=True):
        exact = found.dtype.kind != "f" or not any(word in text for word in ("math", "**", "np."))
        rtol = 0 if exact else 8 * np.finfo(found.dtype).eps
        if not np.allclose(found, right, rtol=rtol, atol=0, equal_nan=found.dtype.kind == "f"):
            wrong.append(f"{text}: {found.dtype} {found.tolist()}, not {right.tolist()}")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def device():
    with an.System() as system:
        yield system.device("host")


def specials(out):
    i = cuda.grid(1)
    zero = out[i]
    out[0] = math.log(zero)
    out[1] = math.sqrt(zero - 1.0)
    out[2] = math.exp(1000.0)
    out[3] = 1.0 / i
    out[4] = math.pow(zero, -1.0)
    out[5] = math.lgamma(zero)
    out[6] = math.gamma(1000.0)
    out[7] = i // i


def bits(x, wide, out):
    x[2] = cuda.brev(x[0])
    out[0] = cuda.brev(x[1])
    out[1] = cuda.brev(wide[0])
    out[2] = cuda.popc(x[1])
    out[3] = cuda.clz(x[0])
    out[4] = cuda.brev(np.uint32(1))
    out[5] = cuda.ffs(x[1])


STRUCT = np.dtype([("a", np.uint8), ("b", np.float32), ("row", np.int16, (2,))], align=True)


def fields(p, x, value):
    for r in p:
        r.a = value
        r["b"] = value / 3
    p[0].row[1] = value + 2**16
    x[0] = p[0].a + p[1].a
    x[1] = p[0].b


def stores(x, value):
    x[0] = value
    x[1] = 2.75
    x[2] += value
    x[3] = True


def test_nothing_raises(device: an.Device) -> None:
    out = device.zeros((8,), "float64")
    device.kernel(specials)[1, 1](out).result(60)
    np.testing.assert_array_equal(out.numpy(), [-np.inf, np.nan, np.inf, np.inf, np.inf, np.inf, np.inf, 0])


def test_functions_of_bits(device: an.Device) -> None:
    out = device.zeros((6,), "int64")
    x, wide = device.put(np.array([1, -2, 0], np.int32)), device.put(np.array([1], np.int64))
    device.kernel(bits)[1, 1](x, wide, out).result(60)
    assert out.numpy().tolist() == [2**31 - 1, 2**31, 31, 31, 2**31, 2]  # Numba takes 32 bits
    assert x.numpy()[2] == -(2**31)


def test_structs_take_values_of_their_fields(device: an.Device) -> None:
    raw, x = device.zeros((2, STRUCT.itemsize), "uint8"), device.zeros((2,), "float64")
    device.kernel(fields)[1, 1](an.Records(raw, STRUCT), x, 300).result(60)
    structs = raw.numpy().view(STRUCT)[:, 0]
    assert structs["a"].tolist() == [44, 44]
    assert structs["b"].tolist() == [100, 100]
    assert structs["row"].tolist() == [[0, 300], [0, 0]]
    assert x.numpy().tolist() == [88, 100]


def test_arrays_take_values_of_their_dtype(device: an.Device) -> None:
    x = device.put(np.full(4, 250, np.uint8))
    device.kernel(stores)[1, 1](x, 300).result(60)
    assert x.numpy().tolist() == [44, 2, (250 + 300) % 256, 1]


def makes_an_array(x):
    x[0] = np.zeros(3)[0]


def makes_a_list(x):
    found = [1.0, 2.0]
    found.append(x[0])
    x[0] = len(found)


def tries(x):
    try:
        x[0] = 1
    except Exception:
        x[0] = 2


def stores_a_complex_number(x):
    x[0] = 1j


def returns_a_number(x):
    return x[0]


def copies(x):
    x[0] = x.copy()[1]


@pytest.mark.parametrize(
    "kernel", [makes_an_array, makes_a_list, tries, stores_a_complex_number, returns_a_number, copies]
)
def test_the_host_refuses_what_numba_refuses_for_a_gpu(device: an.Device, kernel: Any) -> None:
    with pytest.raises(an.LibraryError, match="numba") as caught:
        device.kernel(kernel)[1, 1](device.zeros((4,)))
    assert caught.value.operation == f"compiling {kernel.__name__}"


@cuda.jit(device=True)
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def recursive(x):
    x[0] = factorial(5)


def test_other_constructs_run_without_types(device: an.Device) -> None:
    x = device.zeros((1,), "int64")
    device.kernel(recursive)[1, 1](x).result(60)
    assert x.numpy().tolist() == [120]


@pytest.mark.plain
def test_functions_that_do_not_raise() -> None:
    assert arithmetic.truncated(math.nan, 32, True) == 0
    assert arithmetic.truncated(-1e30, 64, True) == -(2**63)
    assert arithmetic.truncated(300.7, 8, False) == 44
    assert arithmetic.truncated(-3.9, 32, False) == 0
    assert arithmetic.integer_power(0, -1, 64) == 2**63
    assert arithmetic.integer_power(-1, -3, 64) == -1
    assert arithmetic.integer_power(7, -3, 64) == 0
    assert [arithmetic.left(1, 64, 64), arithmetic.right(-5, 64, 64), arithmetic.right(5, 99, 64)] == [0, -1, 0]
    assert math.isnan(arithmetic.rest(1.0, 0.0))
    assert arithmetic.narrow(2**64 - 1, np.float32) == np.float32(2.0**64)
    assert arithmetic.narrow(2**53 + 2**29 + 1, np.float32) == np.float32(np.int64(2**53 + 2**29 + 1))


def _half(x: float) -> float:
    return 0.5 * x


_ARRAYS = (api.array_type(np.dtype("int32"), 1, "C"),) * 3


def _typed() -> None:
    front_end.typed(bits, _ARRAYS, front_end.HOST_CAPABILITY)


def _kernel() -> None:
    kernel = cuda.jit(bits)
    compiler.compile_ltoir(kernel.py_func, _ARRAYS, (9, 0), compiler.jit_options(kernel))


def _device_function() -> None:
    compiler.device_function(_half, "float32(float32)", None, (9, 0))


@pytest.mark.parametrize("compile_one", [_typed, _kernel, _device_function])
def test_no_interrupt_reaches_numba(monkeypatch: pytest.MonkeyPatch, compile_one: Callable[[], None]) -> None:
    """One inside of its generators, which list what it knows, would end them for the rest of the program."""
    threads: list[int] = []
    context = type(front_end.cuda_target.typing_context)
    original = context.refresh

    def refresh(self: Any) -> None:
        threads.append(threading.get_ident())
        original(self)

    monkeypatch.setattr(context, "refresh", refresh)
    try:
        compile_one()
    except an.Unsupported as error:
        pytest.skip(str(error))
    assert threads
    assert threading.get_ident() not in threads
