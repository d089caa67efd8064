"""Transforms by one kernel of this library: lengths, layouts and dtypes, functions, and what machine code is made."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulate import Emulator, available
from fft_reference import assert_close, random_array, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.fft.cuda import line_steps
from atomr_native.libraries.fft.cuda.build import lines_transform
from atomr_native.libraries.fft.cuda.frames import lines_stft, plan_stft
from atomr_native.libraries.fft.cuda.half import lines_half
from atomr_native.libraries.fft.cuda.line_types import ONE_KERNEL, Lines
from atomr_native.libraries.fft.cuda.lines import geometry
from atomr_native.libraries.fft.cuda.mapped import lines_mapped
from atomr_native.libraries.fft.cuda.planner import plan_steps
from atomr_native.libraries.fft.cuda.steps import Steps
from atomr_native.plans.spec import PlanSpec

RNG = np.random.default_rng(53)
TARGET = Target("sm_90a", 132)


# ---------------------------------------------------------------------------------------------- kernels on the CPU


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Run kernels by gcc, without NVRTC."""
    if reason := available():
        pytest.skip(reason)
    monkeypatch.setattr(line_steps, "compile_cubin", lambda *_: b"")
    return Emulator(tmp_path)


def only(steps: Steps | None) -> Lines:
    assert steps is not None
    (step,) = steps.steps
    assert isinstance(step, Lines)
    return step


def lines_of(request: Any) -> tuple[Lines, PlanSpec]:
    """Return the transform of a request by one kernel, whether cuFFT would need copies or not."""
    spec = request.lowered.spec()
    if spec.op == "fft.half":
        found = lines_half(spec)
    else:
        apart = plan_steps(spec)
        found = lines_transform(spec, apart)
        if not apart.reason:
            x, out = (
                line_steps.Array(("operand", i), o.dtype, o.shape, steps_of(o)) for i, o in enumerate(spec.operands)
            )
            found = line_steps.plan_lines(spec.attributes, x, out, reason="a test")
    return only(found), spec


def steps_of(operand: Any) -> tuple[int, ...]:
    return tuple(step // as_dtype(operand.dtype).itemsize for step in operand.strides)


def run(emulator: Emulator, found: Lines, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: Any = ()) -> None:
    step = line_steps.lines_step(found, spec, TARGET)
    assert [kind for kind, _ in step.operands] == ["operand"] * len(step.operands)
    emulator.run(step.run, tuple(arrays[place] for _, place in step.operands), scalars)


#: Each kind of transform, of lengths with all butterflies, by one pass and by several.
LENGTHS = [2, 7, 8, 13, 33, 40, 64, 96, 100, 143, 1000, 4096]


@pytest.mark.plain
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(emulator: Emulator, n: int) -> None:
    """Of complex and real numbers, forward and backward; the input is kept."""
    dtype = "complex128" if n <= 100 else "complex64"
    for transform in ("fft", "rfft", "irfft", "ifft", "hfft", "ihfft")[: 6 if n < 300 else 3]:
        if transform not in ("fft", "ifft") and n == 2:
            continue
        real = "float64" if dtype == "complex128" else "float32"
        given = {"fft": n, "ifft": n, "rfft": n, "ihfft": n}.get(transform, n // 2 + 1)
        x = random_array(RNG, (3, given), real if transform in ("rfft", "ihfft") else dtype)
        before, s = x.copy(), n if transform in ("irfft", "hfft") else None
        want = reference(transform, x, s, -1)
        out = np.zeros(want.shape, real if transform in ("irfft", "hfft") else dtype)
        found, spec = lines_of(an.FftRequest(transform=transform, x=x, s=s, axes=-1, out=out))
        run(emulator, found, spec, (x, out))
        assert_close(out, want, n)
        np.testing.assert_array_equal(x, before)


@st.composite
def requests(draw: st.DrawFn) -> an.FftRequest:
    """A transform along one of up to three axes, of arrays of any strides, cut or padded."""
    transform = draw(st.sampled_from(["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]))
    kinds = ("float32", "int8", "float16", "float64") if transform in ("rfft", "ihfft") else ("complex64", "int16")
    dtype = draw(st.sampled_from(kinds))
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = draw(st.integers(3, 24))
    whole = draw(st.permutations(range(len(shape))))
    gap = draw(st.sampled_from([1, 2]))
    x = random_array(RNG, tuple(gap * shape[a] for a in whole), dtype if dtype != "float16" else "float32")
    x = x.astype(as_dtype(dtype)).transpose(np.argsort(whole))
    x = x[tuple(slice(None, None, draw(st.sampled_from([gap, -gap]))) for _ in shape)]
    n = draw(st.sampled_from([4, 6, 9, 12, 15, 20, 26]))
    norm = draw(st.sampled_from([None, "ortho", "none"]))
    fresh = an.FftRequest(transform=transform, x=x, s=n, axes=axis, norm=norm).lowered.operands[1].spec
    order = draw(st.permutations(range(len(shape))))
    out = np.zeros([fresh.shape[a] for a in order], fresh.dtype).transpose(np.argsort(order))
    return an.FftRequest(transform=transform, x=x, s=n, axes=axis, norm=norm, out=out)


@pytest.mark.plain
@settings(max_examples=25)
@given(request=requests())
def test_layouts(request: an.FftRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where lines lie along memory at both ends, or across it at both."""
    if reason := available():
        pytest.skip(reason)
    spec = request.lowered.spec()
    apart = plan_steps(spec)
    found = lines_transform(spec, apart)
    if found is None:
        return
    step = only(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_steps, "compile_cubin", lambda *_: b"")
        run(Emulator(tmp_path_factory.mktemp("lines")), step, spec, (request.x, request.out))
    x = request.x.astype(np.float64) if request.x.dtype.kind in "fiu" else request.x
    want = reference(request.transform, x, request.s, request.axes, request.norm)
    assert_close(request.out, want, max(2, math.prod(want.shape)))


@pytest.mark.plain
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_rows_at_odd_places(emulator: Emulator, dtype: str) -> None:
    """Neighbours are read and written together only where each pair starts at a multiple of its size."""
    x = random_array(RNG, (3, 33), dtype)[:, 1:31]
    out = np.zeros((3, 16), np.complex64)
    found, spec = lines_of(an.FftRequest(transform="rfft", x=x, axes=-1, out=out))
    run(emulator, found, spec, (x, out))
    assert_close(out, reference("rfft", x, axes=-1), 30)
    back = np.zeros((3, 33), np.float32)[:, 1:31]
    found, spec = lines_of(an.FftRequest(transform="irfft", x=out, axes=-1, norm="forward", out=back))
    run(emulator, found, spec, (out, back))
    assert_close(back, x.astype(np.float64) * 30, 30)


@pytest.mark.plain
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("transform", ["fft", "rfft", "irfft"])
def test_16_bits(emulator: Emulator, transform: str, dtype: str, axis: int) -> None:
    """Pairs of 16 bits, whose lines lie along memory, or across it."""
    n = 30
    shape = [6, 6]
    shape[axis] = n // 2 + 1 if transform == "irfft" else n
    values = RNG.standard_normal((*shape, 2)).astype(as_dtype(dtype))
    x = np.ascontiguousarray(values[..., 0]) if transform == "rfft" else values
    wide = values.astype(np.float64)
    wide = wide[..., 0] if transform == "rfft" else wide[..., 0] + 1j * wide[..., 1]
    want = reference(transform, wide, n, axis)
    out = np.zeros(want.shape if transform == "irfft" else (*want.shape, 2), as_dtype(dtype))
    request = an.HalfFftRequest(transform=transform, x=x, s=n, axes=axis, out=out)
    found, spec = lines_of(request)
    run(emulator, found, spec, (x, out))
    made = out.astype(np.float64)
    made = made if transform == "irfft" else made[..., 0] + 1j * made[..., 1]
    eps = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert np.linalg.norm(made - want) <= eps * np.linalg.norm(want)


@pytest.mark.plain
def test_what_takes_one_kernel() -> None:
    """What is one call of cuFFT stays that; so do lengths with a large prime factor."""

    def found(transform: str, x: np.ndarray, **options: Any) -> Lines | None:
        fresh = an.FftRequest(transform=transform, x=x, **options).lowered.operands[1].spec
        out = np.zeros(fresh.shape, fresh.dtype)
        spec = an.FftRequest(transform=transform, x=x, out=out, **options).lowered.spec()
        steps = lines_transform(spec, plan_steps(spec))
        return None if steps is None else only(steps)

    rows = np.zeros((8, 64), np.complex64)
    assert found("fft", rows, axes=-1) is None
    assert found("ifft", np.zeros((8, 34), np.complex64), axes=-1) is None
    assert found("ifft", np.zeros((2, 1 << 14), np.complex64), axes=-1) is None
    turned = np.zeros((64, 8), np.int8).T  # read across memory, and written along it
    assert found("fft", turned, axes=-1) is None
    scaled, narrow, middle = (
        found("ifft", rows, axes=-1),
        found("rfft", rows.real.astype(np.int8), axes=-1),
        found("fft", np.zeros((20, 16, 12), np.complex64), axes=1),
    )
    assert scaled is not None
    assert scaled.note == f"{ONE_KERNEL}: cuFFT neither multiplies by a factor nor conjugates"
    assert narrow is not None
    assert not narrow.geometry.across
    assert middle is not None
    assert middle.geometry.across
    assert middle.extents == (20, 12)


@pytest.mark.plain
def test_geometries_fit() -> None:
    """Every length that is taken fits into a block, and its butterflies cover it."""
    for real, size in (("float32", 8), ("float64", 16)):
        for n in (*range(2, 100), *range(2912, 3025, 7), 1000, 2000, 2048, 4000, 4096):
            for across in (False, True):
                how = geometry(n, 1000, real, across)
                if how is None:
                    continue
                assert math.prod(how.passes) == n
                assert how.lines * how.pitch * size <= 48 << 10
                assert how.threads * how.lines <= 1024
                assert how.held <= 16
                assert all(how.turns(radix) * how.threads * radix >= n for radix in how.passes)
    taken = [n for n in (1000, 1024, 2000, 2187, 4096) if geometry(n, 1000, "float32", False)]
    assert taken == [1000, 1024, 2000, 2187, 4096]
    assert geometry(17, 1000, "float32", False) is None


# ---------------------------------------------------------------------------------------------- functions

WINDOWED = an.CudaFunction(
    """__device__ float windowed(float v, long long offset, float table, float gain) {
  return v * table * gain + (offset == 3 ? 1.0f : 0.0f);
}""",
    "windowed",
    ("table", "gain"),
)
POWER = an.CudaFunction(
    "__device__ float power(float2 v, long long i, float floor) { return v.x * v.x + v.y * v.y + floor; }", "power",
    ("floor",),
)  # fmt: skip


def mapped(request: an.FftRequest) -> tuple[Lines, PlanSpec]:
    spec = request.lowered.spec()
    sources = tuple(
        (which, function.name, function.source)
        for which, function in (("load", request.load), ("store", request.store))
        if isinstance(function, an.CudaFunction)
    )
    spec = replace(spec, attributes=replace(spec.attributes, sources=sources))
    found = lines_mapped(spec)
    return only(found), spec


@pytest.mark.plain
@pytest.mark.parametrize("n", [16, 15])
def test_functions_get_operands_and_numbers(emulator: Emulator, n: int) -> None:
    x, table = random_array(RNG, (5, n), "float32"), random_array(RNG, (n,), "float32")
    out = np.zeros((5, n // 2 + 1), np.float32)
    operands = {"table": table, "gain": 0.5, "floor": 2.0}
    request = an.FftRequest(
        transform="rfft", x=x, axes=-1, out=out, load=WINDOWED, store=POWER, operands=operands, norm="ortho"
    )
    found, spec = mapped(request)
    assert found.note == f"{ONE_KERNEL}: it calls the functions load and store"
    arrays = {"x": x, "table": table, "out": out}
    scalars = [float(operands[name]) for name in spec.attributes.scalar_names]
    run(emulator, found, spec, tuple(arrays[o.name] for o in spec.operands), scalars)
    loaded = x.astype(np.float64) * table * 0.5
    loaded[0, 3] += 1
    want = np.abs(np.fft.rfft(loaded, norm="ortho")) ** 2 + 2
    np.testing.assert_allclose(out, want, rtol=1e-4)


@pytest.mark.plain
def test_functions_on_one_side(emulator: Emulator) -> None:
    """The other side is read as any array; `irfft` too, whose x is kept."""
    x = random_array(RNG, (3, 9), "complex64")
    before, out = x.copy(), np.zeros((3, 16), np.float16)
    halved = an.CudaFunction(
        "__device__ float2 halved(float2 v, long long i) { v.x *= 0.5f; v.y *= 0.5f; return v; }", "halved"
    )
    found, spec = mapped(an.FftRequest(transform="irfft", x=x, axes=-1, out=out, load=halved))
    run(emulator, found, spec, (x, out))
    np.testing.assert_allclose(out.astype(float), np.fft.irfft(x * 0.5), rtol=2e-3, atol=1e-3)
    np.testing.assert_array_equal(x, before)
    z, result = random_array(RNG, (12, 4), "complex64"), np.zeros((12, 4), np.complex64)
    negative = an.CudaFunction(
        "__device__ float2 negative(float2 v, long long i) { v.x = -v.x; v.y = i - v.y; return v; }", "negative"
    )
    found, spec = mapped(an.FftRequest(transform="ifft", x=z, axes=0, out=result, store=negative))
    assert found.geometry.across
    run(emulator, found, spec, (z, result))
    want = np.fft.ifft(z, axis=0)
    want = -want.real + 1j * (np.arange(48).reshape(12, 4) - want.imag)
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


@pytest.mark.plain
@pytest.mark.parametrize(("center", "pad_mode"), [(True, "reflect"), (True, "constant"), (False, "constant")])
def test_frames(emulator: Emulator, center: bool, pad_mode: str) -> None:
    x, window = random_array(RNG, (2, 100), "float32"), np.hanning(20).astype(np.float32)
    request = an.StftRequest(
        x=x, n_fft=24, hop_length=7, win_length=20, window=window, center=center, pad_mode=pad_mode
    )
    fresh = request.lowered.operands[-1].spec
    frames = np.zeros((2, fresh.shape[2], fresh.shape[1]), np.complex64)
    out = frames.transpose(0, 2, 1)
    spec = an.StftRequest(
        x=x, n_fft=24, hop_length=7, win_length=20, window=window, center=center, pad_mode=pad_mode, out=out
    ).lowered.spec()
    found = only(lines_stft(spec, plan_stft(spec, TARGET)))
    run(emulator, found, spec, (x, window, out))
    whole = np.pad(x, ((0, 0), (12, 12)), mode=pad_mode) if center else x
    weights = np.zeros(24)
    weights[2:22] = window
    cut = np.lib.stride_tricks.sliding_window_view(whole.astype(np.float64), 24, -1)[:, ::7]
    assert_close(frames, np.fft.rfft(cut * weights), 24)


# ---------------------------------------------------------------------------------------------- on devices


#: Transform, dtype and shape of x, points, axis, norm: what cuFFT alone does not do, with results of a mebibyte.
CASES: list[tuple[str, str, tuple[int, ...], Any, int, str | None]] = [
    ("rfft", "int8", (2048, 140), None, -1, None),
    ("fft", "float16", (2048, 66), None, -1, None),
    ("fft", "complex64", (2048, 50), 66, -1, None),
    ("irfft", "complex64", (2048, 66), None, -1, None),
    ("hfft", "complex128", (1024, 66), 130, -1, "ortho"),
    ("ifft", "complex64", (40, 130, 60), None, 1, "ortho"),
    ("rfft", "float32", (40, 130, 120), None, 1, None),
    ("ifft", "complex128", (1024, 128), None, -1, None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:5])))
def test_plans(cuda_engine: str, case: tuple[Any, ...]) -> None:
    """Three messages of a plan; nothing is copied, and x is kept."""
    transform, dtype, shape, n, axis, norm = case
    x = random_array(RNG, shape, dtype if dtype.startswith(("complex", "int")) else "float32").astype(as_dtype(dtype))
    want = reference(transform, x.astype(np.float64) if dtype == "float16" else x, n, axis, norm)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform=transform, x=given, s=n, axes=axis, norm=norm)).wait(60)
        assert len(plan.notes) == 1
        assert plan.notes[0].startswith(ONE_KERNEL)
        single = dtype != "complex128"
        kinds = {"f": ("float64", "float32"), "c": ("complex128", "complex64")}
        out = device.zeros(want.shape, kinds[want.dtype.kind][single])
        for _ in range(3):
            plan.ask(given, out=out).result(60)
            assert_close(out.numpy(), want, x.size)
        np.testing.assert_array_equal(given.numpy(), x)


@pytest.mark.parametrize(
    ("transform", "dtype", "shape", "axes"),
    [("rfft", "int8", (500, 600), (0, 1)), ("fft", "int16", (12, 60, 250), (1, 0, 2)),
     ("ifft", "complex128", (600, 250), (1, 0))],
)  # fmt: skip
def test_rows_of_several_axes(
    cuda_engine: str, transform: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    """The first axis by one kernel, which multiplies and converts, and the others by cuFFT, or a kernel each."""
    x = random_array(RNG, shape, dtype)
    want = reference(transform, x, axes=axes, norm="ortho")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform=transform, x=given, axes=axes, norm="ortho")).wait(60)
        assert {note.partition(":")[0] for note in plan.notes} == {ONE_KERNEL}
        out = device.zeros(want.shape, "complex128" if dtype == "complex128" else "complex64")
        for _ in range(3):
            plan.ask(given, out=out).result(60)
            assert_close(out.numpy(), want, x.size)
        if transform == "ifft":
            plan = device.fft.plan(an.FftRequest(transform=transform, x=given, axes=axes, norm="ortho", out=given))
            plan.ask(given, out=given).result(60)
            assert_close(given.numpy(), want, x.size)


def test_in_place(cuda_engine: str) -> None:
    x = random_array(RNG, (32, 64, 66), "complex64")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        for axis in (1, 2):
            placed = device.put(x)
            assert device.fft.ifft(placed, axis=axis, out=placed) is placed
            assert_close(placed.numpy(), reference("ifft", x, axes=axis), x.size)


def test_other_addresses_are_refused(cuda_engine: str) -> None:
    """A plan for elements at multiples of eight bytes does not run at others; a call makes another plan."""
    memory = random_array(RNG, (2048 * 66 * 2 + 1,), "float32")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        whole = device.put(memory)
        x, other = (whole[i : i + 2048 * 132].reshape(2048, 132) for i in (0, 1))
        plan = device.fft.plan(an.FftRequest(transform="rfft", x=x, axes=-1, norm="forward")).wait(60)
        assert plan.notes[0].startswith(ONE_KERNEL)
        out = device.zeros((2048, 67), "complex64")
        with pytest.raises(an.Unsupported, match="no multiple of 8 bytes") as caught:
            plan.ask(other, out=out).result(60)
        assert caught.value.rule == "kernel.alignment"
        got = device.fft.rfft(other, norm="forward").numpy()
        assert_close(got, reference("rfft", memory[1:].reshape(2048, 132), axes=-1, norm="forward"), 132)


def test_a_compiler_that_refuses(cuda_engine: str) -> None:
    """Functions whose text does not compile with the kernel are refused with its log, or compile apart."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    wrong = an.CudaFunction("__device__ float wrong(float v, long long i) { return v +; }", "wrong")
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        x = device.zeros((4, 16), "float32")
        with pytest.raises(an.LibraryError, match="wrong"):
            device.fft.transform("rfft", x, axes=-1, load=wrong).numpy()


# ---------------------------------------------------------------------------------------------- machine code


def window(value: Any, offset: Any, table: Any, gain: Any) -> Any:
    return value * table * gain


def power(value: Any, offset: Any) -> Any:
    return value.real * value.real + value.imag * value.imag


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numba_functions_are_inlined(tools: None, dtype: str) -> None:
    """The kernel has no call, and no stack; arguments of the launch are read where functions use them."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    from shipped_kernels import ptx_of

    from atomr_native.compile import linker, nvrtc
    from atomr_native.libraries.fft.callbacks import callbacks_of
    from atomr_native.libraries.fft.functions import function_parts

    x, out = np.zeros((512, 1024), dtype), np.zeros((512, 513), dtype)
    operands = {"table": np.zeros(1024, "float32"), "gain": 0.5}
    request = an.FftRequest(transform="rfft", x=x, axes=-1, out=out, load=window, store=power, operands=operands)
    spec = request.lowered.spec()
    functions = {which: linker.pickled(f.function) for which, f in request.lowered.code.functions}
    made, why = callbacks_of(spec, function_parts(spec, functions), (9, 0))
    assert not why
    spec = replace(spec, attributes=replace(spec.attributes, callbacks=made))
    found = only(lines_mapped(spec))
    assert [which for which, _ in found.linked] == ["load", "store"]
    before, text = line_steps.line_source(found, spec)
    kernel = nvrtc.compile_program(before + text, "sm_90", output="ltoir").code
    ptx = ptx_of([kernel, *(code for _, code in found.linked)], (9, 0))
    assert "call" not in ptx
    assert ".local" not in ptx
    assert not re.findall(r"\b(?:ld|st)\.(?:v\d\.)?[fsub]\d+", ptx)
    step = line_steps.lines_step(found, spec, TARGET)
    assert len(step.run.cubin) > 1000


def test_kernels_use_no_stack(tools: None) -> None:
    from atomr_native.compile import nvrtc

    for transform, shape, axis in (("ifft", (512, 1024), -1), ("ifft", (4, 256, 64), 1), ("irfft", (512, 501), -1)):
        x = np.zeros(shape, np.complex64)
        fresh = an.FftRequest(transform=transform, x=x, axes=axis).lowered.operands[1].spec
        out = np.zeros(fresh.shape, fresh.dtype)
        found, spec = lines_of(an.FftRequest(transform=transform, x=x, axes=axis, out=out))
        before, text = line_steps.line_source(found, spec)
        code = nvrtc.compile_program(before + text, "sm_90a", options=line_steps._OPTIONS).code
        assert b"lines" in code
