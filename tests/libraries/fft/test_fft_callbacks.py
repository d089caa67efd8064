"""Functions inside cuFFT's kernels: what is linked, which elements they get, what cannot be linked, and the results."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_shim
import numpy as np
import pytest
from fft_linker import GENERIC, HOPPER, linked
from fft_reference import assert_close, random_array, reference
from msgspec.structs import replace

import atomr_native as an
from atomr_native.libraries.fft import functions as fft_functions
from atomr_native.libraries.fft.callbacks import callbacks_of
from atomr_native.libraries.fft.cuda.mapped import plan_mapped, ways
from atomr_native.libraries.fft.cuda.planner import plan_steps
from atomr_native.libraries.fft.cuda.steps import Apply, Call
from atomr_native.libraries.fft.functions import function_parts
from atomr_native.libraries.fft.fusion import dense_dtype, dense_order, elements_of, scale_of, wrong_callback
from atomr_native.plans.spec import PlanSpec
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from numba import cuda

from atomr_native.compile import linker, nvrtc
from atomr_native.compile.numba import simulator

RNG = np.random.default_rng(31)
FACTOR = "cuFFT's kernels multiply by the factor"
CALLED = "cuFFT's kernels call the function "


def weighted(value: Any, offset: Any, window: Any, gain: Any, first: Any) -> Any:
    return value * window * gain + offset if offset >= first else 0 * value


def shifted(value: Any, offset: Any, gain: Any, table: Any) -> Any:
    return value * table * gain - offset


def power(value: Any, offset: Any) -> Any:
    return value.real * value.real + value.imag * value.imag


def parts_of(request: an.FftRequest) -> tuple[PlanSpec, Any]:
    spec = request.lowered.spec()
    functions = {which: linker.pickled(f.function) for which, f in request.lowered.code.functions}
    return spec, function_parts(spec, functions)


# ------------------------------------------------------------------------------------------------ linking


@pytest.mark.parametrize(
    ("transform", "dtype", "elements"),
    [("fft", "complex64", ("float2", "float2")), ("irfft", "complex128", ("double2", "double")),
     ("rfft", "float32", ("float", "float2")), ("rfft", "bfloat16", ("float", "float2"))],
)  # fmt: skip
def test_the_linker_inlines_functions(tools: None, transform: str, dtype: str, elements: tuple[str, str]) -> None:
    """C++ that calls them as cuFFT's kernels do has no call left, and no access that may be of shared memory."""
    from atomr_native.dtypes import as_dtype

    x = np.zeros((4, 16), as_dtype(dtype))
    operands = {"window": np.zeros(16, "float32"), "table": np.zeros(1, "float32"), "gain": 1.0, "first": 2}
    request = an.FftRequest(transform=transform, x=x, axes=-1, load=weighted, store=shifted, operands=operands)
    spec, parts = parts_of(request)
    made, why = callbacks_of(spec, parts, HOPPER)
    assert not why
    functions = {w: (f"atomr_fft_{w}", e, c.data) for (w, c), e in zip(made, elements, strict=True)}
    text = linked(functions)
    assert "call" not in text
    assert not re.findall(GENERIC, text)


# ------------------------------------------------------------------------------------------------ elements


def called(request: an.FftRequest, which: str, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Call the function for each place of the dense array, in Numba's simulator; return what cuFFT gets or gives."""
    from atomr_native.libraries.fft.kernels.callbacks import body

    spec, parts = parts_of(request)
    elements = elements_of(spec, which)
    function, types = body(
        which, elements=elements, scale=scale_of(spec, which), aligned=False, **dict(dict(parts)[which])
    )
    dtype = np.dtype(dense_dtype(spec, which))
    dense = np.zeros(int(np.prod(elements.extents)), dtype)
    dense[:] = np.arange(dense.size) + 1
    given = dict(request.operands)
    names = getattr(spec.attributes, which)
    arrays = [x if which == "load" else out, *(given[n] for n in names if hasattr(given[n], "dtype"))]
    numbers = [given[n] for n in names if not hasattr(given[n], "dtype")]
    element = cuda.jit(device=True)(function)
    ends = len(types) - 1 - len(arrays) - len(numbers)
    signature = ", ".join([*(f"p{i}" for i in range(len(arrays))), *(f"v{i}" for i in range(len(numbers)))])
    loads = which == "load"
    each = [f"parts[{i}, place:]" if loads else f"parts[{i}, place]" for i in range(ends)]
    source = f"def every({signature}, parts):\n    for place in range({dense.size}):\n"
    source += f"        element({signature}, place, {', '.join(each)})\n"
    scope = {"element": element}
    exec(source, scope)
    real = np.empty((ends, dense.size), dense.real.dtype)
    if not loads:
        real[0] = dense.real
        real[1:] = dense.imag
    memory = [np.lib.stride_tricks.as_strided(a, (a.size * 8,), (a.itemsize,)) for a in arrays]
    simulator.simulated(scope["every"])[1, 1, 0, 0](  # type: ignore[index, arg-type]
        *map(simulator.simulated_array, memory), *numbers, simulator.simulated_array(real)
    )
    return real[0] + 1j * real[1] if ends == 2 else real[0]


@pytest.mark.parametrize("s", [None, 5, 9])
@pytest.mark.parametrize("order", ["C", "F"])
def test_functions_get_the_elements_of_any_layout(tools: None, order: str, s: int | None) -> None:
    """By index, whatever the strides; cut and padded; with the offset in C order, and operands that broadcast."""
    base = random_array(RNG, (4, 14), "complex128")[::2, ::2]
    x = base.copy(order="F") if order == "F" else base
    window, table = random_array(RNG, (7,), "float64"), random_array(RNG, (2, 1), "float64")
    n = s or 7
    out = np.zeros((2, n), np.complex128, order=order)
    operands = {"window": window, "gain": 2.0, "first": 3, "table": table}
    request = an.FftRequest(
        transform="ifft", x=x, s=s, axes=-1, out=out, load=weighted, store=shifted, operands=operands
    )
    spec, _ = parts_of(request)
    whole = np.zeros((2, n), np.complex128)
    offsets = np.arange(14).reshape(2, 7)
    m = min(n, 7)
    whole[:, :m] = np.where(offsets >= 3, x * window * 2 + offsets, 0)[:, :m]
    inner = dense_order(spec)
    got = called(request, "load", x, out)
    np.testing.assert_allclose(got.reshape([whole.shape[a] for a in inner]), whole.transpose(inner))
    called(request, "store", x, out)
    dense = (np.arange(2 * n) + 1.0).reshape([whole.shape[a] for a in inner]).transpose(np.argsort(inner))
    np.testing.assert_allclose(out, dense / n * table * 2 - np.arange(2 * n).reshape(2, n))


def test_complex_results_of_real_elements(tools: None) -> None:
    """A complex transform of real numbers loads complex ones: both parts, and zeros where x is padded."""
    x = random_array(RNG, (3, 5), "float64")
    request = an.FftRequest(
        transform="fft", x=x, s=8, axes=-1, norm="forward", load=lambda value, offset: value + 1j * (offset + 1)
    )
    want = np.zeros((3, 8), np.complex128)
    want[:, :5] = (x + 1j * (np.arange(15).reshape(3, 5) + 1)) / 8
    got = called(request, "load", x, np.zeros((3, 8), np.complex128))
    np.testing.assert_allclose(got.reshape(3, 8), want)


def test_arrays_that_cufft_reads_itself_take_no_workspace() -> None:
    x = np.zeros((4, 8), np.complex64)
    request = an.FftRequest(transform="fft", x=x, axes=-1, load="value * 2", store="value * 3")
    spec, _ = parts_of(request)
    steps = plan_mapped(spec, frozenset(("load", "store")))
    assert steps.nbytes == 0
    assert [step.callbacks for step in steps.steps] == [("load", "store")]
    assert steps.notes == (f"{CALLED}load", f"{CALLED}store")
    turned = an.FftRequest(transform="fft", x=x.T, axes=-1, load="value * 2", store="value * 3")
    assert plan_mapped(parts_of(turned)[0], frozenset(("load", "store"))).nbytes == 256  # for x
    kept = an.FftRequest(transform="irfft", x=x, axes=-1, hermitian=True, load="value * 2")  # cuFFT overwrites inputs
    assert plan_mapped(parts_of(kept)[0], frozenset(["load"])).nbytes == 256


# ------------------------------------------------------------------------------------------------ what cannot be


@pytest.mark.parametrize(
    ("dtype", "n", "wrong"),
    [("float32", 8192, False), ("float32", 131 * 64, True), ("float32", 131 * 62, False), ("float32", 127 * 66, False),
     ("float32", 131 * 63, False), ("float64", 131 * 32, True), ("float64", 131 * 30, False),
     ("complex64", 131 * 64, False)],
)  # fmt: skip
def test_lengths_that_cufft_gets_wrong(dtype: str, n: int, wrong: bool) -> None:
    assert bool(wrong_callback("load", dtype, (3, n))) == wrong


def test_a_function_that_cannot_be_inside_leaves_the_other_there() -> None:
    x = np.zeros((2, 131 * 64), np.float32)
    spec, _ = parts_of(an.FftRequest(transform="rfft", x=x, axes=-1, load="value * 2", store="value * 3"))
    first, second, third, last = ways(spec)
    for fused in (first, second):
        with pytest.raises(an.Unsupported, match=r"load of float32 wrongly .*here 8384 with 131"):
            plan_mapped(spec, fused)
    apply, call = plan_mapped(spec, third).steps
    assert isinstance(apply, Apply)
    assert isinstance(call, Call)
    assert call.callbacks == ("store",)
    assert last == frozenset()
    uneven = np.zeros((3, 8, 5), np.complex64)
    spec, _ = parts_of(an.FftRequest(transform="fft", x=uneven, axes=1, load="value * 2"))
    with pytest.raises(an.Unsupported, match="the batch in several calls"):
        plan_mapped(spec, frozenset(["load"]))
    odd = np.zeros((3, 5, 8), np.complex64)[:, :4].transpose(0, 2, 1)
    spec, _ = parts_of(an.FftRequest(transform="irfft", x=odd, axes=(1, 2), load="value * 2"))
    with pytest.raises(an.Unsupported, match="x is copied first"):
        plan_mapped(spec, frozenset(["load"]))


# ------------------------------------------------------------------------------------------------ results

#: The length is one for which this library has no kernel.
#: ``gain * table * value / 17`` of complex64, as the fake cuFFT has code.
STAND_IN = """
float2 atomr_fft_load(void *data, unsigned long long at, void *info, void *shared) {
  const unsigned long long *words = info;
  const float *x = (const float *)words[0], *table = (const float *)words[1];
  const double gain = ((const double *)info)[3];
  const float factor = gain * table[at % 17] / 17;
  return (float2){factor * x[2 * at], factor * x[2 * at + 1]};
}
"""


@pytest.fixture
def stand_in(cuda_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the fake driver C stands in for LTO-IR."""
    if cuda_engine == "fake":
        if reason := kernel_shim.available():
            pytest.skip(reason)
        code = Binary(kernel_shim.compile_module(STAND_IN))
        monkeypatch.setattr(fft_functions, "callbacks_of", lambda *_: ((("load", code),), ""))


def request_of(x: Any, table: Any, **options: Any) -> an.FftRequest:
    operands = {"table": table, "gain": 1.0}
    return an.FftRequest(
        transform="ifft", x=x, axes=-1, load=lambda value, offset, table, gain: value * table * gain,
        operands=operands, **options,
    )  # fmt: skip


def test_messages_bring_arrays_and_numbers(cuda_engine: str, stand_in: None) -> None:
    """Each message has its own, in a recorded program too."""
    x, table = random_array(RNG, (4, 17), "complex64"), random_array(RNG, (2, 17), "float32")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, tables, out = device.put(x), [device.put(row) for row in table], device.zeros((4, 17), "complex64")
        plan = device.fft.plan(request_of(given, tables[0], out=out))
        for gain, which in ((2.0, 0), (-0.5, 1), (3.0, 0)):
            plan.ask(given, tables[which], out=out, gain=gain).result(60)
            assert_close(out.numpy(), reference("ifft", x * table[which].astype(np.longdouble) * gain, axes=-1), 17)
        assert plan.notes == (f"{CALLED}load",)
        with device.record() as g:
            operand, window = g.operand("given", given), g.operand("window", tables[0])
            plan.tell(operand, window, out=out, gain=g.scalar("gain", 1.0))
        for gain, which in ((2.0, 0), (-0.5, 1), (3.0, 1), (0.25, 0)):
            g.plan.ask(given=given, window=tables[which], gain=gain).result(60)
            assert_close(out.numpy(), reference("ifft", x * table[which].astype(np.longdouble) * gain, axes=-1), 17)


#: The kernel before the transform, as the fake driver has machine code.
APART = (
    "KERNEL load(const float *p, float *q, const float *t, double gain, int64_t total, int64_t axes, int64_t padded,"
    " double factor, "
    + ", ".join(f"int64_t {what}{axis}" for what in "nmfabc" for axis in range(8))
    + """) {
  for (int64_t i = 0; i < total && blockIdx.x + threadIdx.x == 0; i++)
    for (int part = 0; part < 2; part++) q[2 * i + part] = factor * gain * t[i % 17] * p[2 * i + part];
}
"""
)


def test_a_cufft_that_refuses_functions(
    stand_in: None, cuda_engine: str, refuse: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same result by a kernel of its own; the note has the library's reason."""
    if cuda_engine == "gpu":
        pytest.skip("the real cuFFT takes them")
    from atomr_native.compile import shipped

    code = Binary(kernel_shim.compile_module(APART))
    monkeypatch.setattr(shipped, "machine_code", lambda *_: shipped.Code((("load", "load"),), code))
    x, table = random_array(RNG, (4, 17), "complex64"), random_array(RNG, (17,), "float32")
    want = reference("ifft", x * table.astype(np.longdouble), axes=-1)
    for call, error in (("cufftXtSetJITCallback", 14), ("cufftXtMakePlanMany", 5)):
        refuse(**{call: (error, 1)})
        with an.System(watchdog=60.0, standby="off") as system:
            device = system.device("cuda:0")
            given, placed, out = device.put(x), device.put(table), device.zeros((4, 17), "complex64")
            plan = device.fft.plan(request_of(given, placed, out=out))
            plan.ask(given, placed, out=out, gain=1.0).result(60)
            assert_close(out.numpy(), want, 17)
            assert f"not inside cuFFT's kernels: {call} with functions: CUFFT_" in plan.notes[-1]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_factor_takes_no_pass(cuda_engine: str, dtype: str) -> None:
    """Of complex transforms, in place and of strided arrays; `ihfft` is also conjugated."""
    x = random_array(RNG, (17, 240, 34), dtype)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, out = device.put(x), device.zeros(x.shape, dtype)
        for axes, norm in (((-1,), None), ((0, 2), "ortho")):
            plan = device.fft.plan(an.FftRequest(transform="ifft", x=given, axes=axes, norm=norm)).wait(60)
            assert plan.notes[-1] == FACTOR
            plan.ask(given, out=out).result(60)
            assert_close(out.numpy(), reference("ifft", x, axes=axes, norm=norm), 578)
        device.fft.ifft(given, out=given)
        assert_close(given.numpy(), reference("ifft", x, axes=-1), 34)
        real = random_array(RNG, (2048, 67), "float64")
        placed = device.put(real)
        plan = device.fft.plan(an.FftRequest(transform="ihfft", x=placed, axes=-1)).wait(60)
        assert plan.notes == ("cuFFT's kernels conjugate",)
        assert_close(device.fft.ihfft(placed).numpy(), reference("ihfft", real, axes=-1), 67)


def test_a_factor_of_few_elements_is_a_pass(cuda_engine: str) -> None:
    """A linker takes longer than such passes; so do they where cuFFT refuses."""
    with an.System(watchdog=60.0, standby="off") as system:
        x = system.device("cuda:0").zeros((3, 8), "complex64")
        plan = system.device("cuda:0").fft.plan(an.FftRequest(transform="ifft", x=x, axes=-1)).wait(60)
        assert plan.notes == ("cuFFT neither multiplies by a factor nor conjugates: a pass over 192 bytes",)


def test_a_factor_that_cufft_refuses_is_a_pass(cuda_engine: str, refuse: Callable[..., Path]) -> None:
    if cuda_engine == "gpu":
        pytest.skip("the real cuFFT takes it")
    x = random_array(RNG, (4096, 34), "complex64")
    refuse(cufftXtSetJITCallback=(16, 1))
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, out = device.put(x), device.zeros(x.shape, "complex64")
        plan = device.fft.plan(an.FftRequest(transform="ifft", x=given, axes=-1)).wait(60)
        assert "a pass over 1114112 bytes" in plan.notes[0]
        assert plan.notes[1:] == ("not inside cuFFT's kernels: cufftXtSetJITCallback with functions: "
                                  "CUFFT_NOT_SUPPORTED (16)",)  # fmt: skip
        plan.ask(given, out=out).result(60)
        assert_close(out.numpy(), reference("ifft", x, axes=-1), 34)


def test_the_function_that_scales_is_inlined(tools: None) -> None:
    from atomr_native.libraries.fft.cuda.callbacks import finish_source

    x = np.zeros((2, 8), np.complex64)
    steps = plan_steps(an.FftRequest(transform="ifft", x=x, axes=-1).lowered.spec(), fused=True)
    code = nvrtc.compile_program(finish_source(steps.steps[-1]), "sm_90", output="ltoir").code
    assert "call" not in linked({"store": ("atomr_fft_finish", "float2", code)})


# ------------------------------------------------------------------------------------------------ CUDA C++

DAMPED = an.CudaFunction(
    """__device__ float2 damped(float2 v, long long offset, float table, float rate, long long first) {
  const float k = offset < first ? 0.0f : table * rate;
  v.x = v.x * k; v.y = v.y * k;
  return v;
}""",
    "damped",
    ("table", "rate", "first"),
)
SUM = an.CudaFunction(
    """__device__ float2 added(float2 v, long long offset, float2 bias) {
  v.x = v.x + bias.x; v.y = v.y + bias.y + offset;
  return v;
}""",
    "added",
    ("bias",),
)
POWER = an.CudaFunction("__device__ float power(float2 v, long long i) { return v.x * v.x + v.y * v.y; }", "power")


@pytest.mark.parametrize("fused", [True, False])
def test_functions_in_cuda_cpp(cuda_engine: str, refuse: Callable[..., Path], fused: bool) -> None:
    """Inside cuFFT's kernels and apart: padded, strided, of narrow types, with other numbers in each message."""
    if not fused:
        if cuda_engine == "gpu":
            pytest.skip("the real cuFFT takes them")
        refuse(cufftXtSetJITCallback=(14, 100))
    x = random_array(RNG, (10, 8), "complex64")[:, ::2].T  # 4 x 10
    table, bias = random_array(RNG, (10,), "float32"), random_array(RNG, (17,), "complex64")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x.T.copy()).transpose(1, 0)
        placed, added = device.put(table), device.put(bias)
        for rate, first in ((2.0, 0), (-0.5, 13)):
            kept = np.where(np.arange(40).reshape(4, 10) < first, 0, x * table * rate)
            operands = {"table": placed, "rate": rate, "first": first, "bias": added}
            got = device.fft.transform("fft", given, 17, -1, load=DAMPED, store=SUM, operands=operands)
            want = reference("fft", kept, 17, -1) + bias + 1j * np.arange(68).reshape(4, 17)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-3)
        half = device.zeros((4, 9), "float16")
        real = random_array(RNG, (4, 17), "float32")
        placed = device.put(real)
        device.fft.transform("rfft", placed, axes=-1, store=POWER, out=half)
        np.testing.assert_allclose(half.numpy().astype(float), np.abs(np.fft.rfft(real)) ** 2, rtol=2e-3, atol=1e-2)
        plan = device.fft.plan(an.FftRequest(transform="rfft", x=placed, axes=-1, store=POWER, out=half)).wait(60)
        assert (plan.notes[0] == f"{CALLED}store") == fused


def test_cuda_cpp_is_inlined_beside_itself(tools: None) -> None:
    """The same source on load and on store, in one kernel."""
    from atomr_native.libraries.fft.cuda.sources import callback_source

    x = np.zeros((4, 16), np.complex64)
    operands = {"table": np.zeros(16, "float32"), "rate": 1.0, "first": 2}
    spec = an.FftRequest(transform="fft", x=x, axes=-1, load=DAMPED, store=DAMPED, operands=operands).lowered.spec()
    sources = tuple((which, DAMPED.name, DAMPED.source) for which in ("load", "store"))
    spec = replace(spec, attributes=replace(spec.attributes, sources=sources))
    made = {
        which: nvrtc.compile_program(callback_source(spec, which), "sm_90", output="ltoir").code
        for which in ("load", "store")
    }
    text = linked({which: (f"atomr_fft_{which}", "float2", code) for which, code in made.items()})
    assert "call" not in text
    assert not re.findall(GENERIC, text)


def test_cuda_cpp_that_compiles_only_apart(cuda_engine: str) -> None:
    """Where the text for cuFFT does not compile, the function is a kernel of its own; the note has the reason."""
    if cuda_engine == "gpu":
        pytest.skip("C++ has overloads, so it compiles there")
    source = "float2 atomr_fft_load(float2 v);\n" + DAMPED.source  # another function of the name that cuFFT calls
    damped = an.CudaFunction(source, DAMPED.name, DAMPED.operands)
    x, table = random_array(RNG, (4, 10), "complex64"), random_array(RNG, (10,), "float32")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, out = device.put(x), device.zeros((4, 10), "complex64")
        operands = {"table": device.put(table), "rate": 2.0, "first": 0}
        request = an.FftRequest(transform="fft", x=given, axes=-1, out=out, load=damped, operands=operands)
        plan = device.fft.plan(request).wait(60)
        assert plan.notes[-1].startswith("not inside cuFFT's kernels: nvrtc: ")
        assert "\n" not in plan.notes[-1]
        plan.ask(given, operands["table"], out=out, rate=2.0, first=0).result(60)
        assert_close(out.numpy(), reference("fft", x * (2.0 * table), axes=-1), 64)


def test_cuda_cpp_that_does_not_compile(cuda_engine: str) -> None:
    """The error has the compiler's log; the device goes on."""
    wrong = an.CudaFunction("__device__ float2 broken(float2 v, long long i) { return w; }", "broken")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        x = device.put(np.ones(4, np.complex64))
        with pytest.raises(an.LibraryError, match="nvrtc"):
            device.fft.transform("fft", x, load=wrong).numpy()
        assert device.fft.fft(x).numpy()[0] == 4


def test_the_host_device_has_no_cuda_cpp() -> None:
    with an.System(standby="off") as system:
        x = system.device("host").put(np.ones(4, np.complex64))
        with pytest.raises(
            an.Unsupported, match=r"store is the function power in CUDA C\+\+, which runs on GPUs"
        ) as caught:
            system.device("host").fft.transform("fft", x, store=POWER)
        assert caught.value.rule == "fft.cuda_function"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((3, "f"), "source=3; allowed: CUDA C"), (("", "2f"), "'2f' in name='2f'"), (("", "f", "w"), "operands='w'"),
     (("", "f", ("a", "a")), "operand a of f; allowed: different names"), (("", "f", ("x",)), "operand x of f")],
)  # fmt: skip
def test_refused_cuda_cpp(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(text)):
        an.CudaFunction(*arguments)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("transform", "shape", "double"),
    [("fft", (3, 8), False), ("ifft", (2, 1000), True), ("rfft", (5, 4096), False), ("irfft", (2, 1 << 17), False),
     ("ihfft", (2, 997), True), ("rfft", (3, 131 * 64), False), ("irfft", (3, 131 * 64), True),
     ("fft", (16, 12, 20), True), ("rfft", (16, 12, 20), False), ("irfft", (16, 12, 20), True)],
)  # fmt: skip
def test_a_gpu_computes_what_the_host_does(transform: str, shape: tuple[int, ...], double: bool) -> None:
    """Functions inside and apart, all kinds of plans of cuFFT, twice."""
    dtype = "float64" if double else "float32"
    dtype = {"float32": "complex64", "float64": "complex128"}[dtype] if transform in ("fft", "ifft", "irfft") else dtype
    x = random_array(RNG, shape, dtype)
    window = random_array(RNG, shape[-1:], "float32")
    axes = tuple(range(1, len(shape)))
    with an.System(watchdog=60.0, standby="off") as system:
        made = []
        for name in ("cuda:0", "host"):
            device = system.device(name)
            given, placed = device.put(x), device.put(window)
            for turn in range(2):
                table = device.full((1,), 2.0, "float64")
                operands = {"window": placed, "gain": 0.5 + turn, "first": 3, "table": table}
                got = device.fft.transform(transform, given, axes=axes, load=weighted, store=shifted, operands=operands)
                made.append(got.numpy())
                np.testing.assert_array_equal(given.numpy(), x)
    scale = np.abs(made[2]).max()
    for got, want in zip(made[:2], made[2:], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=(1e-9 if double else 1e-4) * scale)
