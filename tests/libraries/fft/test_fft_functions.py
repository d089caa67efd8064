"""Functions of the user's inside transforms, on both kinds of device."""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fft_reference import assert_close, random_array, reference

import atomr_native as an
from atomr_native.dtypes import as_dtype

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda

from atomr_native.compile import linker
from atomr_native.libraries.fft.callbacks import callbacks_of
from atomr_native.libraries.fft.cuda.line_types import ONE_KERNEL
from atomr_native.libraries.fft.functions import function_parts
from atomr_native.plans.lowering import Target

RNG = np.random.default_rng(23)
GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


#: Transforms of functions before and after, and expressions with the same in NumPy.
TRANSFORMS = [
    ("fft", "complex64"), ("ifft", "complex128"), ("fft", "float32"), ("rfft", "float64"), ("irfft", "complex64"),
    ("hfft", "complex128"), ("ihfft", "float32"), ("rfft", "int16"), ("rfft", "bfloat16"), ("fft", "bool"),
]  # fmt: skip
EXPRESSIONS: list[tuple[str, Any]] = [
    ("value * exp(1j * rate * offset)", lambda v, i, r, t: v * np.exp(1j * r * i)),
    ("conj(value) * table + real(value) - imag(value)", lambda v, i, r, t: np.conj(v) * t + v.real - v.imag),
    ("value if offset % 3 > 0 and not offset == 4 else 0",
     lambda v, i, r, t: np.where((i % 3 > 0) & (i != 4), v, 0)),
    ("abs(value) ** 2 + sqrt(value) * cos(2 * pi * rate)",
     lambda v, i, r, t: abs(v) ** 2 + np.emath.sqrt(v) * np.cos(2 * np.pi * r)),
    ("max(value.real, table.real) * hypot(rate, offset)",
     lambda v, i, r, t: np.maximum(v.real, t.real) * np.hypot(r, i)),
]  # fmt: skip


@cuda.jit(device=True)
def doubled(x: Any) -> Any:
    return 2 * x


def weighted(value: Any, offset: Any, window: Any, gain: Any, first: Any) -> Any:
    if offset < first:
        return 0 * value
    return doubled(value) * window * gain + offset


def shifted(value: Any, offset: Any, table: Any) -> Any:
    return value * table - offset


def power(value: Any, offset: Any) -> Any:
    return value.real * value.real + value.imag * value.imag


def loaded(x: np.ndarray, window: np.ndarray, gain: float, first: int) -> np.ndarray:
    """What `weighted` makes of x."""
    offsets = np.arange(x.size).reshape(x.shape)
    return np.where(offsets < first, 0, 2 * x.astype(np.clongdouble) * window * gain + offsets)


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize(("transform", "dtype"), TRANSFORMS)
def test_functions_before_and_after(device: an.Device, transform: str, dtype: str, norm: str) -> None:
    """The same as the transform of what the function makes of x; numbers change from call to call."""
    rows, m, n = 3, 7, 9
    kind = as_dtype(dtype)
    base = random_array(RNG, (rows, m), "float32" if dtype in ("int16", "bfloat16") else dtype)
    x = (base * 8 if dtype == "int16" else base).astype(kind)
    window = random_array(RNG, (m,), "float32")
    given, placed = device.put(x), device.put(window)
    for gain, first in ((1.5, 0), (-2.0, 4), (0.5, 2)):
        made = loaded(x, window, gain, first)
        made = made if np.iscomplexobj(x) else made.real
        want = reference(transform, made, n, -1, norm)
        table = np.arange(want.shape[-1], dtype=np.float64)
        operands = {"window": placed, "gain": gain, "first": first}
        got = device.fft.transform(transform, given, n, -1, norm, load=weighted, operands=operands).numpy()
        assert_close(got, want, 4 * n)
        both = device.fft.transform(
            transform, given, n, -1, norm, load=weighted, store=shifted,
            operands={**operands, "table": device.put(table)},
        ).numpy()  # fmt: skip
        np.testing.assert_allclose(
            both, want * table - np.arange(want.size).reshape(want.shape), rtol=1e-4, atol=2e-3 * np.abs(want).max()
        )
    np.testing.assert_array_equal(given.numpy(), x)


def why_apart(request: an.FftRequest) -> str:
    """Compile the functions for cuFFT on a GPU of capability 9.0; return why they are not inside its kernels."""
    spec, code = request.lowered.spec(), request.lowered.code
    parts = function_parts(spec, {which: linker.pickled(f.function) for which, f in code.functions})
    made, why = callbacks_of(spec, parts, (9, 0))
    assert [which for which, _ in made] == ([] if why else [which for which, _ in parts])
    return why


@pytest.mark.parametrize(("transform", "dtype"), TRANSFORMS)
def test_cufft_gets_functions_of_every_transform(tools: None, transform: str, dtype: str) -> None:
    x = np.zeros((3, 7), as_dtype(dtype))
    operands = {"window": np.zeros(7, "float32"), "gain": 1.5, "first": 0, "table": np.zeros(1)}
    request = an.FftRequest(
        transform=transform, x=x, s=9, axes=-1, load=weighted, store=shifted, operands=operands
    )  # fmt: skip
    assert why_apart(request) == ""


@pytest.mark.parametrize("text", [text for text, _ in EXPRESSIONS])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_cufft_gets_every_expression(tools: None, dtype: str, text: str) -> None:
    everything = {"rate": 0.3, "table": np.zeros(5, "complex64")}
    operands = {name: value for name, value in everything.items() if name in text}
    x = np.zeros((3, 5), dtype)
    assert why_apart(an.FftRequest(transform="fft", x=x, axes=-1, load=text, store=text, operands=operands)) == ""


def test_functions_that_do_not_compile_for_cufft_are_apart(tools: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan has their kernels, and the compiler's reason."""
    from atomr_native.compile.numba import callbacks

    def refuse(*_: Any) -> bytes:
        raise an.LibraryError("numba", 0, "LoweringError", "compiling load", "no such cast\nwith more lines")

    monkeypatch.setattr(callbacks, "callback", refuse)
    request = an.FftRequest(transform="rfft", x=np.zeros(11), load="value + 17 * offset")
    made = request.lowered.spec(Target((9, 0), 1 << 25)).attributes
    assert made.shipped is not None
    assert made.callbacks == ()
    assert made.apart == "numba: LoweringError (0) in compiling load: no such cast"


def test_layouts(device: an.Device) -> None:
    """Offsets count elements, whatever the strides; operands broadcast, and have any strides."""
    whole = random_array(RNG, (4, 6, 10), "complex64")
    placed, window = device.put(whole), random_array(RNG, (10, 1), "float64")
    for view in (lambda a: a[::2, :, ::-1], lambda a: a.transpose(2, 0, 1), lambda a: a[:1, 1:5]):
        x, given = view(whole), view(placed)
        for s in (None, (x.shape[-1] - 1,), (x.shape[-1] + 2,)):
            want = reference("fft", loaded(x, window[: x.shape[-2]], 1.0, 3), s, (-1,))
            got = device.fft.transform(
                "fft", given, s, (-1,), load=weighted,
                operands={"window": device.put(window)[: x.shape[-2]], "gain": 1.0, "first": 3},
            )  # fmt: skip
            assert_close(got.numpy(), want, 16)


def test_arrays_that_start_anywhere(device: an.Device) -> None:
    """Complex arrays in the middle of another's element, for x, an operand and out."""
    real = random_array(RNG, (48,), "float32")
    placed, base = device.put(real), device.zeros((48,), "float32")
    x, table, out = (a[first : first + 16].view("complex64") for a, first in ((placed, 1), (placed, 21), (base, 3)))
    want = reference("fft", real[1:17].view(np.complex64) * real[21:37].view(np.complex64).astype(np.clongdouble))
    device.fft.transform("fft", x, load="value * table", store="value * 2", operands={"table": table}, out=out)
    assert_close(out.numpy(), 2 * want, 8)
    assert not base.numpy()[[0, 1, 2, 19, 20]].any()


def test_a_real_result_of_a_complex_transform(device: an.Device) -> None:
    x = random_array(RNG, (5, 12), "float32")
    want = np.abs(np.fft.rfft(x.astype(float))) ** 2
    for dtype, bound in (("float32", 1e-5), ("bfloat16", 1e-2)):
        out = device.zeros((7, 5), dtype).transpose(1, 0)
        assert device.fft.transform("rfft", device.put(x), axes=-1, store=power, out=out) is out
        np.testing.assert_allclose(out.numpy().astype(float), want, bound, bound)


@pytest.mark.parametrize(("text", "want"), EXPRESSIONS)
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_expressions(device: an.Device, dtype: str, text: str, want: Any) -> None:
    """The same names for real and complex numbers."""
    x, table = abs(random_array(RNG, (3, 5), "float64")).astype(dtype), random_array(RNG, (5,), "complex64")
    if dtype == "complex64":
        x = (x * (1 + 0.5j)).astype(dtype)
    everything = {"rate": 0.3, "table": device.put(table)}
    operands = {name: value for name, value in everything.items() if name in text}
    offsets = np.arange(15).reshape(3, 5)
    made = want(x.astype(np.clongdouble if dtype == "complex64" else float), offsets, 0.3, table)
    got = device.fft.transform("fft", device.put(x), axes=-1, load=text, operands=operands).numpy()
    assert_close(got, reference("fft", made, axes=-1), 64)
    got = device.fft.transform("fft", device.put(x), axes=-1, store=text, operands=operands).numpy()
    whole = want(reference("fft", x, axes=-1).astype(complex), offsets, 0.3, table)
    np.testing.assert_allclose(got, whole, rtol=1e-3, atol=1e-3)


def test_plans_and_numbers(device: an.Device) -> None:
    x, window = random_array(RNG, (8,), "complex128"), random_array(RNG, (8,), "complex128")
    given, placed = device.put(x), device.put(window)
    request = an.FftRequest(
        transform="fft", x=given, load=weighted, operands={"window": placed, "gain": 1.0, "first": 0}
    )
    plan, out = device.fft.plan(request), device.zeros((8,), "complex128")
    for gain, first in ((1.0, 0), (0.25, 3)):
        plan.ask(given, placed, out=out, gain=gain, first=first).result(60)
        assert_close(out.numpy(), reference("fft", loaded(x, window, gain, first)), 8)
    if device.kind == "cuda":
        (note,) = plan.notes
        assert note == "cuFFT's kernels call the function load" or note.startswith(ONE_KERNEL)
    with pytest.raises(an.InvalidRequest, match="overlap"):
        plan.tell(given, placed, out=placed)


def test_recorded(device: an.Device) -> None:
    """A recorded program has the function, and takes other operands and numbers."""
    x, window = random_array(RNG, (8,), "float32"), random_array(RNG, (8,), "float32")
    given, placed, out = device.put(x), device.put(window), device.zeros((5,), "complex64")
    with device.record() as g:
        gain = g.scalar("gain", 1.0)
        operands = {"window": g.operand("window", placed), "gain": gain, "first": 0}
        device.fft.transform("rfft", g.operand("x", given), load=weighted, operands=operands, out=g.operand("out", out))
    for factor in (1.0, -3.0):
        g.plan.ask(window=placed, x=given, out=out, gain=factor).result(60)
        assert_close(out.numpy(), reference("rfft", loaded(x, window, factor, 0).real), 8)


def test_a_function_that_does_not_compile(device: an.Device) -> None:
    """A complex number is no element of a real transform; the device goes on."""
    x = device.put(np.ones(4, np.float32))
    with pytest.raises(an.LibraryError, match="compiling"):
        device.fft.transform("rfft", x, load=lambda value, offset: value * 1j).numpy()
    assert device.fft.transform("rfft", x, load=lambda value, offset: value + offset).numpy()[0] == 10


def test_requests_can_be_compared_copied_and_pickled(device: an.Device) -> None:
    x = device.put(np.arange(4.0))
    request = an.FftRequest(transform="rfft", x=x, store=power, operands={}, out=device.zeros((3,), "float64"))
    assert hash(request) == hash(copy.copy(request))
    assert request == copy.copy(request)
    function = pickle.loads(pickle.dumps(request.store))
    assert (function.function(3 + 4j, 0), function.names) == (25, ())


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"load": 3}, "load is a int; allowed: a Python function, what cuda.jit(device=True) or numba.njit made"),
    ({"load": lambda value: value}, "has the parameters value; allowed: the element's value, its offset, and operands"),
    ({"store": lambda value, offset, w=1: value}, "parameter w of store <lambda> has a default"),
    ({"store": lambda value, *rest: value}, "the parameter *rest; allowed: positional parameters"),
    ({"load": lambda value, offset, out: value}, "parameter out of load <lambda>; allowed: names other than x and out"),
    ({"load": "value +"}, "load='value +': invalid syntax"),
    ({"load": "value; 1"}, "allowed: one expression of Python"),
    ({"load": "value.conjugate()"}, "has 'value.conjugate()'; allowed: numbers, operands, arithmetic, comparisons"),
    ({"load": "open(value)", "operands": {"open": 1.0}}, "has 'open(value)'; allowed: exp, log"),
    ({"load": "exp(value, 1)"}, "has 'exp(value, 1)'; allowed: exp, log"),
    ({"load": "value + exp"}, "has 'exp'; allowed: exp as a function"),
    ({"load": "1 if value > 0 else 2"}, "has 'value'; allowed: a real number there"),
    ({"load": "value % 2"}, "has 'value % 2'; allowed: real numbers there"),
    ({"load": "[value][0]"}, "has '[value][0]'; allowed: numbers"),
    ({"load": "1 if offset is 2 else 0"}, "has 'offset is 2'; allowed: numbers"),
    ({"load": "value + 'a'"}, "allowed: numbers"),
    ({"load": "value * w"}, "operands are none; the functions take w"),
    ({"load": power, "operands": {"w": 1.0}}, "operands are w; the functions take none"),
    ({"load": shifted}, "operands are none; the functions take table, each of which must be given"),
    ({"operands": {"w": 1.0}}, "operands w without a function; allowed: with load or store"),
    ({"load": shifted, "operands": 3}, "operands=3; allowed: a dict from names to arrays and numbers"),
    ({"load": shifted, "operands": {"table": 1j}}, "operand table=1j; allowed: arrays, real numbers"),
    ({"load": shifted, "operands": {"table": True}}, "operand table=True; allowed: arrays, real numbers"),
    ({"load": shifted, "operands": {"table": 2**63}}, "operand table=9223372036854775808; allowed: integers of 64"),
    (
        {"load": shifted, "operands": {"table": np.zeros(3)}},
        "operand table of load has shape (3,); allowed: shapes that broadcast to (3, 4), that of x",
    ),
    (
        {"store": shifted, "operands": {"table": np.zeros((2, 3, 4))}},
        "operand table of store has shape (2, 3, 4); allowed: shapes that broadcast to (3, 4), that of the result",
    ),
    ({"load": shifted, "operands": {"table": np.zeros(4, "M8[s]")}}, "allowed:"),
    (
        {"out": np.zeros((3, 4), "float64"), "store": power},
        "out is float64[3, 4]; allowed: complex64[3, 4], float32[3, 4], float16[3, 4], bfloat16[3, 4]",
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.FftRequest(**{"transform": "fft", "x": np.zeros((3, 4), "complex64"), **options})


def test_an_output_is_apart_from_every_input() -> None:
    x = np.zeros(8, np.complex64)
    with pytest.raises(an.InvalidRequest, match=r"out overlaps x.*since a function is called"):
        an.FftRequest(transform="fft", x=x, out=x, store=lambda value, offset: value)
    out = np.zeros(8, np.complex64)
    with pytest.raises(an.InvalidRequest, match="out overlaps table"):
        an.FftRequest(transform="fft", x=x, out=out, store=shifted, operands={"table": out})


def test_a_function_may_depend_on_the_offset_alone(device: an.Device) -> None:
    x = device.put(np.zeros(16, np.float32))
    got = device.fft.transform("rfft", x, load=lambda value, offset: math.cos(offset * math.pi / 4)).numpy()
    want = np.zeros(9)
    want[2] = 8
    np.testing.assert_allclose(got, want, atol=1e-5)
