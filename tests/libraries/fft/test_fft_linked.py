"""Copies inside cuFFT's kernels: conversion, padding, cuts and strides, on load and store."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fft_reference import assert_close, random_array, reference

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.compile import nvrtc
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.fft.cuda.frames import link_stft, plan_stft
from atomr_native.libraries.fft.cuda.half import wide_steps
from atomr_native.libraries.fft.cuda.line_types import ONE_KERNEL
from atomr_native.libraries.fft.cuda.linked import link, linked_symbol, plan_linked
from atomr_native.libraries.fft.cuda.steps import Call, Steps

RNG = np.random.default_rng(41)
LOADS, STORES = "cuFFT's kernels load without a copy: ", "cuFFT's kernels store without a copy: "


def only(steps: Steps) -> Call:
    (call,) = steps.steps
    assert isinstance(call, Call)
    return call


def views(x: np.ndarray) -> dict[str, Callable[[Any], Any]]:
    """Return how arrays of any kind are made of the ones that are put on a device, by names."""
    return {"": lambda a: a, "turned": lambda a: a.transpose(1, 0), "gaps": lambda a: a[:, ::2]}


#: Lengths have the prime factor 17 or a larger one, for which this library has no kernel.
#: Transform, dtype and shape of x, which view of it, points, axes, norm; words of the notes: on load, on store.
CASES: list[tuple[str, str, tuple[int, ...], str, Any, Any, str | None, str, str]] = [
    ("rfft", "int8", (2048, 136), "", None, -1, None, "x is converted from int8", ""),
    ("rfft", "bfloat16", (2048, 134), "", None, -1, "ortho", "x is converted from bfloat16", ""),
    ("fft", "float16", (2048, 68), "", None, -1, None, "x is converted from float16", ""),
    ("ihfft", "int16", (1024, 272), "", None, -1, None, "x is converted from int16", ""),
    ("fft", "complex64", (2048, 50), "", 68, -1, None, "x is padded", ""),
    ("ifft", "complex128", (2048, 50), "", 34, -1, None, "", ""),
    ("rfft", "float64", (40, 2048), "turned", 68, -1, None, "", ""),
    ("fft", "complex64", (20, 136, 60), "", None, 1, None, "cuFFT does not take", "cuFFT does not take"),
    ("ifft", "complex64", (20, 136, 60), "", None, 1, "ortho", "cuFFT does not take", "cuFFT does not take"),
    ("rfft", "float32", (20, 136, 120), "", None, 1, None, "cuFFT does not take", "cuFFT does not take"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:6])))
def test_copies_are_functions(cuda_engine: str, case: tuple[Any, ...]) -> None:
    """Three messages of a plan, and a fourth into another array."""
    transform, dtype, shape, view, n, axes, norm, load, store = case
    whole = random_array(RNG, shape, dtype if dtype.startswith(("complex", "int")) else "float32")
    whole = whole.astype(as_dtype(dtype))
    seen = views(whole)[view]
    x = seen(whole)
    wide = x.astype(np.float64) if dtype in ("float16", "bfloat16") else x
    want = reference(transform, wide, n, axes, norm)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = seen(device.put(whole))
        request = an.FftRequest(transform=transform, x=given, s=n, axes=axes, norm=norm)
        plan = device.fft.plan(request).wait(60)
        for turn in range(2):
            out = device.zeros(want.shape, str(want_dtype(transform, dtype)))
            for _ in range(3 - 2 * turn):
                plan.ask(given, out=out).result(60)
                assert_close(out.numpy(), want, math.prod(shape))
        np.testing.assert_array_equal(given.numpy(), x)
        found = " ".join(plan.notes)
        assert (LOADS + load in found) == bool(load), found
        assert (STORES + store in found) == bool(store), found
        if load:
            assert "are copied" not in found


def want_dtype(transform: str, dtype: str) -> np.dtype:
    """Return the dtype of a result that is complex."""
    return np.dtype(np.complex128 if as_dtype(dtype).itemsize > 4 and dtype in ("float64", "complex128") else "c8")


def test_middle_axes_in_place(cuda_engine: str) -> None:
    """Each transform is loaded before it is stored, and an array told later may be another."""
    x = random_array(RNG, (20, 130, 60), "complex64")
    want = reference("fft", x, axes=1)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform="fft", x=given, axes=1, out=given)).wait(60)
        assert "are copied" not in " ".join(plan.notes)
        for _ in range(3):
            placed = device.put(x)
            plan.ask(placed, out=placed).result(60)
            assert_close(placed.numpy(), want, x.size)


#: Plans of one kernel and of several, of Bluestein's algorithm, and of three axes.
LARGE: list[tuple[str, str, tuple[int, ...], Any, Any]] = [
    ("fft", "int16", (3, 1 << 20), None, -1),
    ("rfft", "int8", (5, 1000003), None, -1),
    ("fft", "complex64", (7, 65537), 70000, -1),
    ("rfft", "float16", (2048, 1000), 1001, -1),
    ("fft", "complex64", (64, 1024, 256), None, 1),
    ("ifft", "complex64", (12, 100000, 6), None, 1),
    ("rfft", "float64", (40, 1000, 60), None, 1),
    ("fft", "complex64", (12, 48, 50, 60), None, (1, 2)),
    ("fft", "int8", (128, 128, 130), None, (0, 1, 2)),
]
#: cuFFT 12.1 takes no functions in transforms of real numbers of a large prime length: these are copied.
REFUSED = [(5, 1000003)]


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=lambda case: "-".join(map(str, case)))
def test_large_plans(case: tuple[Any, ...]) -> None:
    """Three messages, against SciPy in float64."""
    import scipy.fft

    transform, dtype, shape, n, axes = case
    x = random_array(RNG, shape, dtype if dtype.startswith(("complex", "int")) else "float32").astype(as_dtype(dtype))
    wide = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)
    along = axes if isinstance(axes, tuple) else (axes,)
    want = getattr(scipy.fft, f"{transform}n")(wide, None if n is None else (n,), along)
    with an.System(watchdog=120.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform=transform, x=given, s=n, axes=axes)).wait(60)
        kinds = (LOADS, STORES, ONE_KERNEL)
        assert shape in REFUSED or any(note.startswith(kinds) for note in plan.notes), plan.notes
        for _ in range(3):
            out = device.zeros(want.shape, str(want_dtype(transform, dtype)))
            plan.ask(given, out=out).result(60)
            assert_close(out.numpy(), want, math.prod(want.shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("transform", ["fft", "rfft", "ifft"])
def test_16_bits_of_any_length(cuda_engine: str, transform: str, dtype: str) -> None:
    """By one plan of cuFFT, which reads and writes 16 bits."""
    shape = (4096, 134) if transform == "rfft" else (4096, 68, 2)
    x = random_array(RNG, shape, "float32").astype(as_dtype(dtype))
    wide = x.astype(np.float64)
    wide = wide if transform == "rfft" else wide[..., 0] + 1j * wide[..., 1]
    want = reference(transform, wide, axes=-1)
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.HalfFftRequest(transform=transform, x=given, axes=-1)).wait(60)
        out = device.zeros((*want.shape, 2), dtype)
        for _ in range(3):
            plan.ask(given, out=out).result(60)
        got = out.numpy().astype(np.float64)
        largest = np.abs(want).max()
        error = np.abs(got[..., 0] + 1j * got[..., 1] - want).max()
        assert error <= largest * (2.0**-10 if dtype == "float16" else 2.0**-7)
        notes = plan.notes
        assert notes[0].startswith("computed in float32")
        assert any(note.startswith(LOADS) for note in notes)
        assert any(note.startswith(STORES) for note in notes)
        assert not any("are copied" in note for note in notes)


def test_a_cufft_that_refuses_functions_copies(cuda_engine: str, refuse: Callable[..., Path]) -> None:
    if cuda_engine == "gpu":
        pytest.skip("the real cuFFT takes them")
    x = random_array(RNG, (2048, 136), "int8")
    refuse(cufftXtSetJITCallback=(16, 1))
    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        given = device.put(x)
        plan = device.fft.plan(an.FftRequest(transform="rfft", x=given, axes=-1)).wait(60)
        assert "are copied to the workspace: x is converted from int8 to float32" in plan.notes[0]
        assert plan.notes[-1].startswith("not inside cuFFT's kernels: cufftXtSetJITCallback with functions")
        assert_close(device.fft.rfft(given).numpy(), reference("rfft", x, axes=-1), 136)


def test_small_results_are_copied(cuda_engine: str) -> None:
    with an.System(watchdog=60.0, standby="off") as system:
        x = system.device("cuda:0").zeros((8, 140), "int8")
        plan = system.device("cuda:0").fft.plan(an.FftRequest(transform="rfft", x=x, axes=-1)).wait(60)
        assert "are copied" in plan.notes[0]


# ---------------------------------------------------------------------------------------------- what is linked


def linked_of(transform: str, x: np.ndarray, **options: Any) -> Steps:
    made = an.FftRequest(transform=transform, x=x, **options).lowered.operands[1].spec
    out = options.pop("out", None)
    out = np.empty(made.shape, made.dtype) if out is None else out
    return plan_linked(an.FftRequest(transform=transform, x=x, out=out, **options).lowered.spec())


@pytest.mark.plain
def test_what_is_linked() -> None:
    """Memory is taken where the result stands in another order; a transposition, and C2R, are copies as before."""
    converted = linked_of("rfft", np.zeros((4, 6), np.int8), axes=-1)
    assert converted.nbytes == 0
    assert only(converted).source.source == ("operand", 0)
    assert [(f.which, f.block) for f in only(converted).linked] == [("load", False)]
    middle = linked_of("fft", np.zeros((20, 4, 6), np.complex64), axes=1)
    assert middle.nbytes == 3840  # for intermediate results of plans of several kernels
    call = only(middle)
    assert [(f.which, f.block) for f in call.linked] == [("load", False), ("store", True)]
    assert (call.layout.batch, call.layout.stride, call.layout.dist) == (120, (120, 120), (1, 1))
    turned = linked_of("fft", np.zeros((6, 4, 20), np.int8).transpose(2, 1, 0), axes=-1)
    assert turned.cost[0] <= 1
    for hermitian in (False, True):  # cuFFT overwrites what it transforms
        kept = linked_of("irfft", np.zeros((4, 6), np.complex64), axes=-1, hermitian=hermitian)
        assert not only_calls(kept)[0].linked
    odd = np.zeros((4, 131 * 64), np.int8)  # which cuFFT gets wrong
    assert not only_calls(linked_of("rfft", odd, axes=-1))[0].linked
    memory = np.zeros(4 * 6 * 8 + 4, np.uint8)
    crooked = memory[4:].view(np.complex64).reshape(4, 6)
    assert linked_of("fft", crooked, axes=-1).cost == (0, 1)


def only_calls(steps: Steps) -> list[Call]:
    return [step for step in steps.steps if isinstance(step, Call)]


@pytest.mark.plain
def test_complex_rows_of_16_bits_take_one_buffer() -> None:
    """What cuFFT loads is no array, so the plan is in place, in the buffer of its results."""
    x, out = np.zeros((4, 6, 2), np.float16), np.zeros((4, 6, 2), np.float16)
    spec = an.HalfFftRequest(transform="fft", x=x, axes=-1, out=out).lowered.spec()
    steps = link(wide_steps(spec), (True, True), direct=False)
    assert steps.nbytes == 256
    call = only(steps)
    assert call.source == call.target
    assert [(f.which, f.block) for f in call.linked] == [("load", True), ("store", True)]


def test_functions_of_copies_are_inlined(tools: None) -> None:
    """Both in one kernel, without calls, and without accesses that may be of shared memory."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    from fft_linker import GENERIC, linked

    x, out = np.zeros((4, 6, 2), np.float16), np.zeros((4, 6, 2), np.float16)
    spec = an.HalfFftRequest(transform="fft", x=x, axes=-1, out=out).lowered.spec()
    call = only(link(wide_steps(spec), (True, True), direct=False))
    middle = only(linked_of("fft", np.zeros((20, 4, 6), np.complex64), axes=1))
    for each in (call, middle):
        codes = {
            f.which: (linked_symbol(f.which), "float2", nvrtc.compile_program(f.code, "sm_90", output="ltoir").code)
            for f in each.linked
        }
        text = linked(codes)
        assert "call" not in text
        assert not re.findall(GENERIC, text)


def test_frames_are_inlined(tools: None) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")
    from fft_linker import GENERIC, linked

    x, window = np.zeros((3, 5, 400), np.float32)[:, ::2], np.zeros(30, np.float16)
    request = an.StftRequest(x=x, n_fft=32, win_length=30, window=window, normalized=True)
    spec = request.lowered.spec()
    call = only(link_stft(spec, plan_stft(spec, Target("sm_90"))))
    (function,) = call.linked
    code = nvrtc.compile_program(function.code, "sm_90", output="ltoir").code
    text = linked({"load": (linked_symbol("load"), "float", code)})
    assert "call" not in text
    assert not re.findall(GENERIC, text)
