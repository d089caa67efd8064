"""Functions of the user's in plans of CUDA devices without a GPU: Numba's simulator, machine code, and the fake."""

from __future__ import annotations

import math
from typing import Any

import kernel_shim
import numpy as np
import pytest
from fft_interpreter import Memory, run_steps
from fft_reference import assert_close, random_array, reference
from msgspec.structs import replace

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.fft.cuda.functions import apply_step
from atomr_native.libraries.fft.cuda.mapped import plan_mapped
from atomr_native.libraries.fft.cuda.steps import Apply, Steps
from atomr_native.libraries.fft.functions import function_parts
from atomr_native.plans.spec import PlanSpec, ShippedCode
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from shipped_kernels import simulate_program

from atomr_native.compile import cubin, linker, shipped

HOPPER = (9, 0)
RNG = np.random.default_rng(29)


def described(request: an.FftRequest) -> tuple[PlanSpec, dict[str, shipped.Part]]:
    """Return what a device would send to its worker, without machine code, and the kernels."""
    spec = request.lowered.spec()
    functions = {which: linker.pickled(f.function) for which, f in request.lowered.code.functions}
    code = ShippedCode(tuple((which, which) for which in functions), Binary(b""))
    parts = {name: shipped.Part(name, options) for name, options in function_parts(spec, functions)}
    return replace(spec, attributes=replace(spec.attributes, shipped=code)), parts


def simulated(request: an.FftRequest) -> Steps:
    """Run the steps of a request: transforms and copies by NumPy, functions by the launches that a GPU would get."""
    spec, parts = described(request)
    steps = plan_mapped(spec)
    given = dict(request.operands)
    arrays = {o.name: request.x if o.name == "x" else given.get(o.name, request.out) for o in spec.operands}
    memory = Memory(tuple(arrays.values()), steps.nbytes)
    scalars = [scalar.value for scalar in request.lowered.scalars]

    def apply(step: Apply) -> None:
        made = apply_step(step, spec, Target("sm_90", 1))
        assert [source for kind, source in made.operands if kind == "operand"]
        views = [memory.view(step.source), memory.view(step.target)]
        views += [memory.operands[place] for _, place in made.operands[2:]]
        own = [scalars[place] for _, place in made.scalars]
        simulate_program("fft.functions", [parts[step.which]], made.run, views, own)

    last = len(spec.operands) - 1
    run_steps(steps, memory, {0: spec.attributes.aligned[0], last: spec.attributes.aligned[1]}, apply)
    return steps


def weighted(value: Any, offset: Any, window: Any, gain: Any, first: Any) -> Any:
    return value * window * gain + offset if offset >= first else 0 * value


def shifted(value: Any, offset: Any, gain: Any, table: Any) -> Any:
    return value * table * gain - offset


def power(value: Any, offset: Any) -> Any:
    return value.real * value.real + value.imag * value.imag


@pytest.mark.parametrize(
    ("transform", "dtype", "s", "out"),
    [("fft", "complex64", None, ""), ("ifft", "complex128", (7,), ""), ("fft", "float32", (3,), "strided"),
     ("rfft", "float64", None, "strided"), ("irfft", "complex64", None, "float16"), ("hfft", "complex128", None, ""),
     ("ihfft", "bfloat16", (6,), ""), ("rfft", "int16", None, ""), ("fft", "uint8", None, "")],
)  # fmt: skip
def test_plans_by_the_simulator(transform: str, dtype: str, s: tuple[int, ...] | None, out: str) -> None:
    whole = random_array(RNG, (2, 3, 10), "float32" if dtype == "bfloat16" else dtype).astype(as_dtype(dtype))
    x = whole[:, :, ::2] if out else whole[:, 1:, :5]
    window, before = random_array(RNG, (x.shape[1], 1), "float32"), x.copy()
    values = x.astype(np.clongdouble) if x.dtype.kind == "c" else x.astype(np.longdouble)
    offsets = np.arange(x.size).reshape(x.shape)
    loaded = np.where(offsets >= 2, values * window * 0.5 + offsets, 0)
    plain = an.FftRequest(transform=transform, x=x, s=s, axes=(-1,), norm="ortho")
    fresh = plain.lowered.operands[1].spec
    table = random_array(RNG, fresh.shape[-1:], "float64")
    result = np.full(fresh.shape, 7, fresh.dtype)
    if out == "strided":
        result = np.full((*fresh.shape[::-1], 2), 7, fresh.dtype)[..., 0].T
    elif out:
        result = np.full(fresh.shape, 7, out)
    operands = {"window": window, "gain": 0.5, "first": 2, "table": table}
    want = reference(transform, loaded, s, (-1,), "ortho")
    loads = an.FftRequest(
        transform=transform, x=x, s=s, axes=(-1,), norm="ortho", out=np.zeros(fresh.shape, fresh.dtype), load=weighted,
        operands={name: operands[name] for name in ("window", "gain", "first")},
    )  # fmt: skip
    steps = simulated(loads)
    assert_close(loads.out, want, 16)
    assert steps.notes[0].startswith("the function load is a kernel of its own before the transform: ")
    options: dict[str, Any] = {"load": weighted, "store": shifted, "operands": operands}
    simulated(an.FftRequest(transform=transform, x=x, s=s, axes=(-1,), norm="ortho", out=result, **options))
    want = want * table * 0.5 - np.arange(want.size).reshape(want.shape)
    size = np.abs(want).max()
    np.testing.assert_allclose(result, want, rtol=2e-3 if out == "float16" else 1e-4, atol=1e-3 * size)
    np.testing.assert_array_equal(x, before)


def test_a_real_result_of_a_complex_transform() -> None:
    x, out = random_array(RNG, (3, 8), "complex64"), np.zeros((3, 8), np.float32)
    steps = simulated(an.FftRequest(transform="ifft", x=x, axes=-1, out=out, store=power))
    np.testing.assert_allclose(out, np.abs(np.fft.ifft(x)) ** 2, rtol=1e-5)
    assert steps.notes == (
        "the function store is a kernel of its own after the transform: 192 bytes are copied from the workspace",
    )


def test_the_factor_takes_no_pass() -> None:
    x = random_array(RNG, (4,), "complex64")
    request = an.FftRequest(
        transform="ifft", x=x, out=x.copy(), load=weighted, operands={"window": x.copy(), "gain": 1.0, "first": 0}
    )
    assert len(simulated(request).steps) == 2
    assert_close(request.out, reference("ifft", x.astype(np.clongdouble) ** 2 + np.arange(4)), 4)


def test_axes_that_do_not_fold_are_refused() -> None:
    x = np.zeros((4,) * 9, np.complex64)[(slice(0, None, 2),) * 9]
    spec, _ = described(an.FftRequest(transform="fft", x=x, axes=-1, store=power))
    step = next(step for step in plan_mapped(spec).steps if isinstance(step, Apply))
    assert apply_step(step, spec, Target("sm_90"))  # of the result, whose axes do
    spec, _ = described(an.FftRequest(transform="fft", x=x, axes=-1, load=lambda value, offset: value))
    step = next(step for step in plan_mapped(spec).steps if isinstance(step, Apply))
    with pytest.raises(an.Unsupported, match="fold into 9, and kernels take 8"):
        apply_step(step, spec, Target("sm_90"))


def rotated(value: Any, offset: Any, table: Any, rate: Any, count: Any) -> Any:
    return value * table * complex(math.cos(rate * offset), math.sin(rate * offset)) / count


def test_expressions_compile_for_a_gpu(tools: None) -> None:
    """Functions of complex and of real numbers."""
    x = np.ones((2, 8), np.complex64)
    load = "value * exp(1j * offset * rate) + conj(value) * abs(value) if offset % 2 else sqrt(value)"
    store = "sin(value) + log(value) * tanh(rate) + max(value.real, floor(rate))"
    request = an.FftRequest(transform="fft", x=x, axes=-1, load=load, store=store, operands={"rate": 0.5})
    parts = tuple(described(request)[1].values())
    assert len(shipped.machine_code("fft.functions", parts, HOPPER).entries) == 2


@pytest.mark.parametrize(
    ("dtype", "table", "capability"),
    [("complex64", "bfloat16", (8, 0)), ("complex128", "complex64", HOPPER), ("float16", "bool", (10, 0))],
)
def test_compilation_needs_no_gpu(tools: None, dtype: str, table: str, capability: tuple[int, int]) -> None:
    x = np.ones((2, 8), as_dtype(dtype))
    operands = {"table": np.ones(8, as_dtype(table)), "rate": 0.5, "count": 3}
    spec, parts = described(
        an.FftRequest(transform="fft", x=x, axes=-1, load=rotated, store=rotated, operands=operands)
    )
    made = shipped.machine_code("fft.functions", tuple(parts.values()), capability)
    found = cubin.kernels(made.code.data)
    for which in ("load", "store"):
        step = next(s for s in plan_mapped(spec).steps if isinstance(s, Apply) and s.which == which)
        launch = apply_step(step, spec, Target("sm_90")).run.launches[0]
        assert found[dict(made.entries)[which]] == (8,) * len(launch.arguments)


#: ``gain * table * value`` of complex64, as the fake driver has machine code.
STAND_IN = (
    """
KERNEL load(const float *p, float *q, const float *t, double gain, int64_t total, int64_t axes, int64_t padded,
            double factor, """
    + ", ".join(f"int64_t {what}{axis}" for what in "nmfabc" for axis in range(8))
    + """) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    int64_t k = i % n7, row = i / n7 % n6;
    for (int part = 0; part < 2; part++)
      q[2 * (k * b7 + row * b6) + part] = factor * gain * t[k * c7 + row * c6] * p[2 * (k * a7 + row * a6) + part];
  }
}
"""
)


@pytest.mark.skipif(bool(kernel_shim.available()), reason=kernel_shim.available())
def test_a_plan_of_a_device(cuda_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the call to the result, with other numbers; on the fake driver C stands in for the machine code."""
    if cuda_engine == "fake":
        code = Binary(kernel_shim.compile_module(STAND_IN))
        monkeypatch.setattr(shipped, "machine_code", lambda *_: shipped.Code((("load", "load"),), code))
    x, table = random_array(RNG, (4, 12), "complex64"), random_array(RNG, (12,), "float32")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, placed = device.put(x), device.put(table)
        for gain in (2.0, -0.5):
            got = device.fft.transform(
                "ifft", given, axes=-1, load=lambda value, offset, table, gain: value * table * gain,
                operands={"table": placed, "gain": gain},
            )  # fmt: skip
            assert_close(got.numpy(), reference("ifft", x * table.astype(np.longdouble) * gain, axes=-1), 12)
