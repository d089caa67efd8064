"""Transforms along several axes, the first or the last by a kernel of this library: functions, and no copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator, available
from fft_interpreter import Memory, run_steps
from fft_reference import assert_close, random_array, reference
from msgspec.structs import replace

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.fft.cuda import line_steps
from atomr_native.libraries.fft.cuda.build import lines_transform
from atomr_native.libraries.fft.cuda.line_types import ONE_KERNEL, Lines
from atomr_native.libraries.fft.cuda.mapped import lines_mapped
from atomr_native.libraries.fft.cuda.planner import plan_steps
from atomr_native.libraries.fft.cuda.steps import Call, Move, Steps
from atomr_native.plans.spec import PlanSpec

RNG = np.random.default_rng(97)
TARGET = Target("sm_90a", 132)
REAL, WHOLE = ("rfft",), ("irfft", "hfft")


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Run kernels by gcc, without NVRTC."""
    if reason := available():
        pytest.skip(reason)
    monkeypatch.setattr(line_steps, "compile_cubin", lambda *_: b"")
    return Emulator(tmp_path)


def function(which: str, real: bool) -> an.CudaFunction:
    """Return the function ``value * table * gain + offset``, or of its real part."""
    if real:
        text = f"__device__ float {which}(float v, long long i, float t, float gain) {{ return v * t * gain + i; }}"
        return an.CudaFunction(text, which, ("t", "gain"))
    text = f"""__device__ float2 {which}(float2 v, long long i, float t, float gain) {{
  v.x = v.x * t * gain + i; v.y = v.y * t * gain; return v; }}"""
    return an.CudaFunction(text, which, ("t", "gain"))


def planned(request: an.FftRequest) -> tuple[Steps | None, PlanSpec]:
    """Return the steps with kernels of lines of a request."""
    spec = request.lowered.spec()
    if request.load is None and request.store is None:
        return lines_transform(spec, plan_steps(spec)), spec
    given = (("load", request.load), ("store", request.store))
    sources = tuple((which, f.name, f.source) for which, f in given if isinstance(f, an.CudaFunction))
    spec = replace(spec, attributes=replace(spec.attributes, sources=sources))
    return lines_mapped(spec), spec


def run(emulator: Emulator, steps: Steps, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: Any = ()) -> None:
    """Run kernels by gcc, and cuFFT's calls by NumPy."""
    memory, count = Memory(arrays, steps.nbytes), len(arrays)
    for step in steps.steps:
        if isinstance(step, Lines):
            made = line_steps.lines_step(step, spec, TARGET)
            views = [memory.view(step.source), memory.view(step.target)]
            views += [arrays[place] for _, place in made.operands[2:]]
            emulator.run(made.run, tuple(views), [scalars[place] for _, place in made.scalars])
        else:
            run_steps(Steps((step,), steps.nbytes), memory, dict.fromkeys(range(count), True))


TRANSFORMS, AXES = ("fft", "ifft", "rfft", "irfft", "hfft"), ((1, 2), (2, 0), (0, 1, 2))
WHICH = (("load",), ("store",), ("load", "store"))
#: Each transform along each axes, each with each function, and each axes with each function.
FUNCTIONS = [
    (transform, axes, WHICH[(i + j) % 3]) for i, transform in enumerate(TRANSFORMS) for j, axes in enumerate(AXES)
]


def shape_of(transform: str) -> tuple[int, ...]:
    return (6, 10, 9) if transform in WHOLE else (6, 10, 16)


@pytest.mark.plain
@pytest.mark.parametrize(("transform", "axes", "which"), FUNCTIONS, ids=lambda x: x if isinstance(x, str) else str(x))
def test_functions(emulator: Emulator, transform: str, axes: tuple[int, ...], which: tuple[str, ...]) -> None:
    """Each function is called by a kernel of lines; cuFFT transforms the axes between, and calls none."""
    if transform not in ("fft", "ifft") and axes[-1] != 2:
        axes = axes[::-1]
    shape = shape_of(transform)
    x = random_array(RNG, shape, "float32" if transform in REAL else "complex64")
    before, table = x.copy(), random_array(RNG, (10, 1), "float32")
    fresh = an.FftRequest(transform=transform, x=x, axes=axes).lowered.operands[1].spec
    out = np.zeros(fresh.shape, fresh.dtype)
    functions = {"load": function("load", transform in REAL), "store": function("store", transform in WHOLE)}
    request = an.FftRequest(
        transform=transform, x=x, axes=axes, norm="ortho", out=out, operands={"t": table, "gain": 0.5},
        **{name: functions[name] for name in which},
    )  # fmt: skip
    steps, spec = planned(request)
    assert steps is not None
    assert not any(isinstance(step, Move) or getattr(step, "callbacks", ()) for step in steps.steps)
    called = [note for note in steps.notes if "function" in note]
    assert called == [f"{ONE_KERNEL}: it calls the function {name}" for name in which]
    arrays = {"x": x, "t": table, "out": out}
    run(emulator, steps, spec, tuple(arrays[o.name] for o in spec.operands), [0.5])
    np.testing.assert_array_equal(x, before)
    wide = x.astype(np.complex128) if x.dtype.kind == "c" else x.astype(np.float64)
    want = wide * table * 0.5 + np.arange(x.size).reshape(shape) if "load" in which else wide
    want = reference(transform, want, axes=axes, norm="ortho")
    want = want * table * 0.5 + np.arange(want.size).reshape(want.shape) if "store" in which else want
    assert np.linalg.norm(out - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.plain
def test_functions_that_pad_and_narrow(emulator: Emulator) -> None:
    """The function on load reads zeros beyond x; the one on store writes real numbers of 16 bits."""
    x, out = random_array(RNG, (6, 5, 10), "float32")[:, ::2], np.zeros((8, 4, 9), np.float16)
    power = an.CudaFunction("__device__ float power(float2 v, long long i) { return v.x * v.x + v.y * v.y; }", "power")
    half = an.CudaFunction("__device__ float half_of(float v, long long i) { return 0.5f * v; }", "half_of")
    request = an.FftRequest(transform="rfft", x=x, s=(8, 4, 16), axes=(0, 1, 2), out=out, load=half, store=power)
    steps, spec = planned(request)
    assert steps is not None
    run(emulator, steps, spec, (x, out))
    want = np.abs(np.fft.rfftn(0.5 * x.astype(np.float64), (8, 4, 16), axes=(0, 1, 2))) ** 2
    np.testing.assert_allclose(out.astype(float), want, rtol=2e-3, atol=1e-2)


@pytest.mark.plain
@pytest.mark.parametrize(("hermitian", "norm"), [(True, None), (False, "ortho")])
@pytest.mark.parametrize(
    ("transform", "dtype", "axes", "s"),
    [("irfft", "complex64", (0, 2), None), ("irfft", "complex128", (0, 1, 2), (6, 10, 13)),
     ("hfft", "complex64", (1, 2), None), ("irfft", "float32", (0, 2), None), ("irfft", "complex64", (0, 1), (9, 18))],
)  # fmt: skip
def test_the_halved_axis_last(
    emulator: Emulator, transform: str, dtype: str, axes: tuple[int, ...], s: Any, norm: str | None, hermitian: bool
) -> None:
    """x is transformed along the others to the workspace, and not copied; the last kernel ignores what is not real."""
    x = random_array(RNG, (6, 10, 9), dtype)
    before = x.copy()
    options: dict[str, Any] = {
        "transform": transform,
        "x": x,
        "s": s,
        "axes": axes,
        "norm": norm,
        "hermitian": hermitian,
    }
    fresh = an.FftRequest(**options).lowered.operands[1].spec
    out = np.zeros(fresh.shape, fresh.dtype)
    steps, spec = planned(an.FftRequest(**options, out=out))
    assert steps is not None
    assert not any(isinstance(step, Move) for step in steps.steps)
    assert isinstance(steps.steps[-1], Lines)
    run(emulator, steps, spec, (x, out))
    np.testing.assert_array_equal(x, before)
    assert_close(out, reference(transform, x, s, axes, norm), out.size)


# ---------------------------------------------------------------------------------------------- on devices


@pytest.mark.parametrize(
    ("transform", "dtype", "shape", "s", "axes"),
    [("irfft", "complex64", (512, 301), None, (0, 1)), ("irfft", "complex128", (20, 60, 126), None, (0, 1, 2)),
     ("hfft", "complex64", (40, 130, 60), (40, 110), (0, 2)), ("irfft", "complex64", (600, 257), (600, 500), (0, 1))],
)  # fmt: skip
def test_plans(
    cuda_engine: str, transform: str, dtype: str, shape: tuple[int, ...], s: Any, axes: tuple[int, ...]
) -> None:
    """Three messages of a plan, without a copy of x."""
    x = random_array(RNG, shape, dtype)
    want = reference(transform, x, s, axes)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform=transform, x=given, s=s, axes=axes)).wait(60)
        assert {note.partition(":")[0] for note in plan.notes} == {ONE_KERNEL}
        out = device.zeros(want.shape, "float32" if dtype == "complex64" else "float64")
        for _ in range(3):
            plan.ask(given, out=out).result(60)
            assert_close(out.numpy(), want, x.size)
        np.testing.assert_array_equal(given.numpy(), x)


@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_functions_in_plans(cuda_engine: str, transform: str) -> None:
    """With other numbers in each message."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    shape = (40, 24, 33) if transform in WHOLE else (40, 24, 64)
    x = random_array(RNG, shape, "float32" if transform in REAL else "complex64")
    table = random_array(RNG, (24, 1), "float32")
    load, store = function("load", transform in REAL), function("store", transform in WHOLE)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given, placed = device.put(x), device.put(table)
        request = an.FftRequest(
            transform=transform, x=given, axes=(0, 2), load=load, store=store, operands={"t": placed, "gain": 1.0}
        )
        plan = device.fft.plan(request).wait(60)
        assert [note for note in plan.notes if ONE_KERNEL in note] == [
            f"{ONE_KERNEL}: it calls the function {name}" for name in ("load", "store")
        ]
        for gain in (1.0, -0.25):
            loaded = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) * table * gain
            want = reference(transform, loaded + np.arange(x.size).reshape(shape), axes=(0, 2))
            want = want * table * gain + np.arange(want.size).reshape(want.shape)
            got = device.fft.transform(
                transform, given, axes=(0, 2), load=load, store=store, operands={"t": placed, "gain": gain}
            )
            assert np.linalg.norm(got.numpy() - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.plain
def test_halves_are_not_written_across_memory() -> None:
    """A result whose halved axis is not innermost comes from one in the workspace where it is."""
    x, out = np.zeros((40, 64)), np.zeros((33, 40), np.complex128).T
    spec = an.FftRequest(transform="rfft", x=x, axes=(0, 1), out=out).lowered.spec()
    first, second = plan_steps(spec).steps
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert (first.target.source, first.target.strides) == (("workspace", 0), (33, 1))
    assert (second.source, second.target.strides) == (first.target, (1, 40))


def windowed(value: Any, _: Any, window: Any, gain: Any) -> Any:
    return value * window * gain


def power(value: Any, offset: Any) -> Any:
    return value.real * value.real + value.imag * value.imag + offset


def test_each_kernel_is_linked_to_its_own_function(tools: None) -> None:
    """Of functions in Python, which come as LTO-IR."""
    from atomr_native.compile import cubin, linker
    from atomr_native.libraries.fft.callbacks import callbacks_of
    from atomr_native.libraries.fft.functions import function_parts

    x, out = np.zeros((16, 64), np.float32), np.zeros((16, 33), np.float32)
    request = an.FftRequest(
        transform="rfft", x=x, axes=(0, 1), out=out, load=windowed, store=power,
        operands={"window": np.zeros(64, np.float32), "gain": 0.5},
    )  # fmt: skip
    spec, shipped = request.lowered.spec(), request.lowered.code
    functions = {which: linker.pickled(f.function) for which, f in shipped.functions}
    made, why = callbacks_of(spec, function_parts(spec, functions), (9, 0))
    assert not why
    spec = replace(spec, attributes=replace(spec.attributes, callbacks=made))
    steps = lines_mapped(spec)
    assert steps is not None
    first, last = steps.steps
    assert isinstance(first, Lines)
    assert isinstance(last, Lines)
    assert [which for which, _ in first.linked] == ["load"]
    assert [which for which, _ in last.linked] == ["store"]
    for step in (first, last):
        (sizes,) = cubin.kernels(line_steps.lines_step(step, spec, TARGET).run.cubin).values()
        assert sizes == (8,) * 6  # source and target, x, window and out, the gain
