"""The steps of transforms on a GPU, interpreted by NumPy: layouts of cuFFT, copies, buffers.  Needs no device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fft_interpreter import Memory, run_steps
from fft_reference import assert_close, random_array, reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.libraries.fft.cuda.linked import plan_linked
from atomr_native.libraries.fft.cuda.planner import plan_steps
from atomr_native.libraries.fft.cuda.steps import Call, Steps
from atomr_native.plans.spec import READ, WRITE

pytestmark = [pytest.mark.plain, pytest.mark.alike]

TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def interpret(request: an.FftRequest, plan: Callable[[Any], Steps] = plan_steps) -> Steps:
    """Run the steps of a request with arrays of NumPy: out gets the result, and x stays as it is."""
    spec = request.lowered.spec()
    steps = plan(spec)
    run_steps(steps, Memory((request.x, request.out), steps.nbytes), spec.attributes.aligned)
    return steps


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], dtype: str, read: bool) -> np.ndarray:
    """Return an array of a shape in memory of any order, with gaps; one that is read also backwards and broadcast."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([0, 0, 1, 2])) for _ in shape]
    ways = [draw(st.sampled_from(["", "", "", "backwards", "broadcast"])) if read else "" for _ in shape]
    whole = np.zeros([shape[a] + gaps[a] for a in order], dtype).transpose(np.argsort(order))
    view = whole[tuple(slice(0, n) for n in shape)]
    for axis, way in enumerate(ways):
        index = [slice(None)] * len(shape)
        if way == "backwards":
            index[axis] = slice(None, None, -1)
            view = view[tuple(index)]
        elif way == "broadcast":
            index[axis] = slice(0, 1)
            strides = tuple(0 if a == axis else step for a, step in enumerate(view.strides))
            view = np.lib.stride_tricks.as_strided(view[tuple(index)], shape, strides)
    return view


@st.composite
def requests(draw: st.DrawFn) -> an.FftRequest:
    transform = draw(st.sampled_from(TRANSFORMS))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5)))
    kinds = ("float32", "float64", "int8") if transform in ("rfft", "ihfft") else ("complex64", "complex128", "float32")
    dtype = draw(st.sampled_from(kinds))
    axes = tuple(draw(st.permutations(range(len(shape)))))[: draw(st.integers(1, len(shape)))]
    s = draw(st.none() | st.tuples(*(st.integers(1, 7) for _ in axes)))
    if s is None and transform in ("irfft", "hfft") and shape[axes[-1]] == 1:
        s = (3,) * len(axes)
    norm = draw(st.sampled_from([None, "ortho", "forward", "none"]))
    x = draw(layouts(shape, dtype, True))
    values = random_array(np.random.default_rng(draw(st.integers(0, 99))), shape, dtype)
    for index in np.ndindex(shape):
        x[index] = values[index]
    plain = an.FftRequest(transform=transform, x=x, s=s, axes=axes, norm=norm)
    fresh = plain.lowered.operands[1].spec
    out = draw(layouts(fresh.shape, fresh.dtype, False))
    out[...] = np.nan
    return an.FftRequest(transform=transform, x=x, s=s, axes=axes, norm=norm, out=out)


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(requests())
def test_steps_of_any_layout(request: an.FftRequest) -> None:
    """With copies, and with functions of cuFFT's kernels in their place."""
    before = request.x.copy()
    want = reference(request.transform, before, request.s, request.axes, request.norm)
    points = math.prod(want.shape) * 2
    for plan in (plan_steps, plan_linked):
        request.out[...] = np.nan
        interpret(request, plan)
        assert_close(request.out, want, points)
        np.testing.assert_array_equal(request.x, before)


def steps_of(transform: str, shape: tuple[int, ...], dtype: str, **options: Any) -> Steps:
    rng = np.random.default_rng(1)
    x = random_array(rng, shape, dtype)
    made = an.FftRequest(transform=transform, x=x, **options).lowered.operands[1].spec
    return interpret(an.FftRequest(transform=transform, x=x, out=np.empty(made.shape, made.dtype), **options))


@pytest.mark.parametrize(
    ("transform", "shape", "options", "moves", "calls"),
    [
        ("fft", (4, 6), {"axes": -1}, 0, 1),
        ("fft", (4, 6), {"axes": 0}, 0, 1),
        ("fft", (2, 4, 6), {"axes": 1}, 0, 1),
        ("fft", (20, 4, 6), {"axes": 1}, 2, 1),
        ("fft", (2, 3, 4, 5), {}, 0, 2),
        ("fft", (2, 3, 4), {"axes": (2, 0, 1)}, 0, 1),
        ("fft", (9, 8), {"axes": -1, "s": 5}, 0, 1),
        ("fft", (9, 8), {"axes": -1, "s": 12}, 1, 1),
        ("ifft", (4, 6), {"axes": -1}, 1, 1),
        ("ifft", (4, 6), {"axes": -1, "norm": "none"}, 0, 1),
        ("irfft", (4, 6), {"axes": -1}, 1, 1),
        ("irfft", (4, 6), {"axes": (0, 1), "norm": "ortho"}, 1, 1),
        ("irfft", (4, 6), {"axes": -1, "overwrite": True}, 1, 1),
        ("irfft", (4, 6), {"axes": -1, "norm": "none", "overwrite": True, "hermitian": True}, 0, 1),
        ("hfft", (4, 6), {"axes": -1, "overwrite": True, "hermitian": True}, 1, 1),
    ],
)
def test_copies_are_made_only_where_they_must_be(
    transform: str, shape: tuple[int, ...], options: dict[str, Any], moves: int, calls: int
) -> None:
    """Also a scaled inverse of complex numbers has one pass more; a real one scales what is copied anyway."""
    steps = steps_of(transform, shape, "complex64", **options)
    assert steps.cost == (moves, calls)
    assert len(steps.notes) >= moves


def test_real_transforms_of_several_axes_need_no_copy() -> None:
    for axes in [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (-1,), (0,)]:
        assert steps_of("rfft", (4, 6, 3), "float32", axes=axes).cost[0] == 0, axes


def test_notes_name_bytes_and_reason() -> None:
    found = steps_of("fft", (3, 5), "float32", axes=-1).notes
    assert found == ("120 bytes are copied to out: x is converted from float32 to complex64",)
    found = steps_of("irfft", (3, 5), "complex64", axes=-1).notes
    assert found[0].startswith("120 bytes are copied to the workspace: cuFFT overwrites the input")
    found = steps_of("ifft", (3, 5), "complex64", axes=-1).notes
    assert found == ("cuFFT neither multiplies by a factor nor conjugates: a pass over 120 bytes",)
    found = steps_of("fft", (4, 6, 3), "complex64", axes=1).notes
    assert found == ("4 calls of cuFFT, since the batch is uneven",)


@pytest.mark.parametrize("options", [{}, {"overwrite": True, "hermitian": True}])
def test_results_are_rounded_by_a_copy_that_says_so(options: dict[str, bool]) -> None:
    x, out = random_array(np.random.default_rng(1), (3, 5), "complex64"), np.empty((3, 8), np.float16)
    found = interpret(an.FftRequest(transform="irfft", x=x, axes=-1, out=out, norm="none", **options)).notes
    assert found[-1] == "48 bytes are copied to out: the result is rounded to float16"
    assert len(found) == 2 - len(options) // 2


def test_calls_of_a_loop_start_aligned() -> None:
    """Real rows of 3 elements: the second one does not start at a multiple of a complex number."""
    x = np.zeros((2, 3, 5), np.float32)[:, :, :3].transpose(0, 2, 1)
    x = random_array(np.random.default_rng(2), (2, 7, 3), "float32")
    out = np.zeros((2, 4, 3), np.complex64)
    request = an.FftRequest(transform="rfft", x=x, axes=1, out=out)
    steps = interpret(request)
    for step in steps.steps:
        if isinstance(step, Call):
            assert all(a % 8 == b % 8 == 0 for _, a, b in step.layout.loops)
    assert_close(out, reference("rfft", x, axes=1), 7)


def test_an_input_that_may_be_destroyed_is_one_that_is_written() -> None:
    """So messages that read it come before, and a failed message spoils it."""
    x = np.zeros((3, 5), np.complex64)
    kept, given_up = (
        an.FftRequest(transform="irfft", x=x, overwrite=overwrite).lowered.operands[0].spec.access
        for overwrite in (False, True)
    )
    assert (kept, given_up) == (READ, READ | WRITE)


@pytest.mark.parametrize("axes", [(0, 1), (1,), (0,)])
def test_windows_that_overlap(axes: tuple[int, ...]) -> None:
    """Rows that share elements: one step apart, as frames of a signal."""
    signal = random_array(np.random.default_rng(4), (12,), "complex64")
    x = np.lib.stride_tricks.as_strided(signal, (5, 4), (16, 8))
    out = np.empty((5, 4), np.complex64)
    steps = interpret(an.FftRequest(transform="fft", x=x, axes=axes, out=out))
    assert_close(out, reference("fft", x, axes=axes), 20)
    assert steps.cost == ((0, 1) if len(axes) == 1 else steps.cost)  # as one plan
