"""Quantisation to float8 and back, on both kinds of device, against ml_dtypes and float64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crash
import float8_reference as reference
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.dtypes import DTYPES

pytestmark = [pytest.mark.plain, pytest.mark.alike]

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
FORMATS = ("float8_e4m3fn", "float8_e5m2")
WIDE = ("float32", "float16", "bfloat16")
SCALINGS = ("tensor", "outer", "vec128", "blk128")


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def same_codes(got: np.ndarray, want: np.ndarray) -> None:
    """Compare codes bit by bit; NaN may have any of its codes."""
    assert got.dtype == want.dtype
    missing = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), missing)
    np.testing.assert_array_equal(got.view(np.uint8)[~missing], want.view(np.uint8)[~missing])


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, spread: float = 2.0) -> np.ndarray:
    wide = rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))
    return np.clip(wide, -60000, 60000).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("saturate", [True, False])
def test_every_rounding_boundary(device: an.Device, dtype: str, saturate: bool) -> None:
    x = reference.boundaries(dtype)
    one = device.put(np.ones((), np.float32))
    got = device.float8.quantize(device.put(x), dtype, scale=one, saturate=saturate)
    assert got.scale is one
    same_codes(got.q.numpy(), reference.cast(x, dtype, saturate))


@pytest.mark.parametrize("scale", [2.0**-126, 2.0**-127, 2.0**-129, 3 * 2.0**-140, 2.0**-149, -(2.0**-130), 0.0])
@pytest.mark.parametrize("saturate", [True, False])
def test_scales_whose_reciprocal_is_infinite(device: an.Device, scale: float, saturate: bool) -> None:
    """Zeros stay zeros, and other numbers are as exact as by any scale; a scale of 0 is the least one."""
    x = np.array([0.0, -0.0, 2.0**-149, 2.0**-140, -(2.0**-133), 2.0**-126, 1.0, -3e38, np.inf, np.nan], np.float32)
    given = device.put(np.array(scale, np.float32))
    got = device.float8.quantize(device.put(x), scale=given, saturate=saturate)
    with np.errstate(over="ignore"):
        exact = (x.astype(np.float64) / (np.float64(np.float32(scale)) or 2.0**-149)).astype(np.float32)
    same_codes(got.q.numpy(), reference.cast(exact, "float8_e4m3fn", saturate))
    assert not got.q.numpy()[:2].astype(np.float32).any()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("target", WIDE)
def test_every_code_comes_back(device: an.Device, dtype: str, target: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(DTYPES[dtype])
    for scale in (1.0, 0.3):
        got = device.float8.dequantize(device.put(codes), device.put(np.array([scale], np.float32)), target).numpy()
        want = (codes.astype(np.float32) * np.float32(scale)).astype(DTYPES[target])
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_narrow_number(device: an.Device, source: str, dtype: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[source])
    for saturate in (True, False):
        got = device.float8.quantize(device.put(x), dtype, scale=device.put(np.ones(1, np.float32)), saturate=saturate)
        same_codes(got.q.numpy(), reference.cast(x.astype(np.float32), dtype, saturate))


#: Layouts as views, which arrays and handles take alike.
VIEWS: dict[str, Any] = {
    "C": lambda a: a,
    "F": lambda a: a.T,
    "every second row": lambda a: a[::2],
    "every second column": lambda a: a[:, ::2],
    "an odd address": lambda a: a[:, 1:],
}


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(draw(st.sampled_from([0, 1, 7, 128, 130, 272])) for _ in range(2))
    return random(rng, shape, draw(st.sampled_from(WIDE)))


@given(
    base=arrays(),
    view=st.sampled_from(list(VIEWS)),
    scaling=st.sampled_from(SCALINGS),
    dtype=st.sampled_from(FORMATS),
    turned=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_layouts_and_scalings(
    device: an.Device, base: np.ndarray, view: str, scaling: str, dtype: str, turned: bool
) -> None:
    x, ref = VIEWS[view](base), VIEWS[view](device.put(base))
    turned = turned and scaling in ("tensor", "blk128")
    got = device.float8.quantize(ref, dtype, scaling=scaling, transposed=turned)
    q, scale = reference.quantize(x, dtype, scaling)
    np.testing.assert_array_equal(got.scale.numpy(), scale)
    same_codes(got.q.numpy(), q)
    if turned:
        assert got.transposed is not None
        assert got.transposed_scale is not None
        same_codes(got.transposed.numpy(), q.T)
        np.testing.assert_array_equal(got.transposed_scale.numpy(), scale.T)
    back = device.float8.dequantize(got.q, got.scale, "float32").numpy()
    np.testing.assert_array_equal(back, q.astype(np.float32) * reference.spread(scale, scaling, x.shape))


@pytest.mark.parametrize("shape", [(), (5,), (300,), (3, 4, 50), (2, 1, 257)])
def test_other_shapes(device: an.Device, shape: tuple[int, ...]) -> None:
    x = random(np.random.default_rng(0), shape, "float32")
    got = device.float8.quantize(device.put(x))
    assert got.q.shape == shape
    q, scale = reference.quantize(x, "float8_e4m3fn", "tensor")
    same_codes(got.q.numpy(), q)
    assert got.scale.numpy() == scale


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("bad", [0.0, np.inf, -np.inf, np.nan])
def test_what_has_no_scale_has_the_scale_one(device: an.Device, scaling: str, bad: float) -> None:
    x = np.full((3, 5), 2.0 if bad else 0.0, np.float32)
    x[1, 2] = bad
    got = device.float8.quantize(device.put(x), scaling=scaling)
    scales = got.scale.numpy()
    same_codes(got.q.numpy(), reference.quantize(x, "float8_e4m3fn", scaling)[0])
    assert scales.reshape(-1)[min(1, scales.size - 1)] == 1.0
    codes = got.q.numpy().astype(np.float32)
    assert np.isnan(codes[1, 2]) == np.isnan(bad)
    assert not np.isnan(codes[0]).any()


def test_tiny_and_huge_numbers_have_usable_scales(device: an.Device) -> None:
    for size in (1e-45, 1e-38, 3e38):
        got = device.float8.quantize(device.put(np.array([size, -size], np.float32)))
        scale = got.scale.numpy()
        assert np.isfinite(scale)
        assert scale >= 2.0**-126
        assert np.isfinite(got.q.numpy().astype(np.float32)).all()


@pytest.mark.parametrize("pair", [("tensor", "tensor"), ("outer", "outer"), ("vec128", "vec128"), ("vec128", "blk128"),
                                  ("blk128", "vec128")])  # fmt: skip
def test_a_matmul_takes_the_scales(device: an.Device, pair: tuple[str, str]) -> None:
    rng = np.random.default_rng(3)
    m, n, k = 144, 160, 272
    x, w = random(rng, (m, k), "float32", 1.0), random(rng, (n, k), "float32", 1.0)
    a, b = (device.float8.quantize(device.put(v), scaling=s) for v, s in zip((x, w), pair, strict=True))
    b_scale = b.scale.T if b.scale.shape else b.scale
    got = device.blas_lt.matmul(a.q, b.q, trans_b=True, a_scale=a.scale, b_scale=b_scale, out_dtype="float32").numpy()
    exact = [
        v.q.numpy().astype(np.float64) * reference.spread(v.scale.numpy(), s, v.q.shape)
        for v, s in zip((a, b), pair, strict=True)
    ]
    want = exact[0] @ exact[1].T
    size = np.abs(exact[0]) @ np.abs(exact[1]).T
    # Hopper's tensor cores align float8 products to about 13 bits of the largest before they add them.
    assert np.max(np.abs(got - want) / size) < (2.0**-10 if device.name.startswith("cuda") else 2.0**-12)
    assert np.max(np.abs(want - x.astype(np.float64) @ w.T.astype(np.float64)) / size) < 2.0**-4  # three bits


def test_the_transposed_copy_goes_into_the_backward_product(device: an.Device) -> None:
    rng = np.random.default_rng(4)
    w, dy = random(rng, (160, 272), "bfloat16", 1.0), random(rng, (32, 160), "bfloat16", 1.0)
    weights = device.float8.quantize(device.put(w), scaling="blk128", transposed=True)
    rows = device.float8.quantize(device.put(dy), scaling="vec128")
    assert weights.transposed is not None
    assert weights.transposed_scale is not None
    dx = device.blas_lt.matmul(
        rows.q, weights.transposed, trans_b=True, a_scale=rows.scale, b_scale=weights.transposed_scale.T
    ).numpy()
    want = dy.astype(np.float64) @ w.astype(np.float64)
    size = np.abs(dy.astype(np.float64)) @ np.abs(w.astype(np.float64))
    assert np.max(np.abs(dx.astype(np.float64) - want) / size) < 2.0**-4


@pytest.mark.parametrize("amax", ["max", "latest"])
def test_delayed_scaling(device: an.Device, amax: str) -> None:
    state = device.float8.delayed("float8_e5m2", length=3, margin=1, amax=amax)
    history, scale = [0.0, 0.0, 0.0], np.float32(1.0)
    for i, size in enumerate([3.0, 8.0, 1.0, np.inf, 0.0, 0.5, np.nan, 0.0, 0.0]):
        x = np.array([[size, -size / 4], [0, 1e-3 * size if np.isfinite(size) else 0]], np.float32)
        got = device.float8.quantize(device.put(x), state=state)
        assert got.scale.numpy() == scale
        same_codes(got.q.numpy(), reference.cast(x * (np.float32(1) / scale), "float8_e5m2", True))
        history[i % 3] = size
        known = [v for v in (history if amax == "max" else [size]) if np.isfinite(v) and v > 0]
        if known:
            scale = np.float32(np.float32(max(known)) / np.float32(57344) * np.float32(2))
        np.testing.assert_array_equal(state.history.numpy(), np.array(history, np.float32))
        assert state.scale.numpy() == [scale]
        assert state.position.numpy() == [(i + 1) % 3]


def test_plans_that_share_a_state(device: an.Device) -> None:
    """Arrays of many blocks and of one, with and without a transpose, one after the other and none waited for."""
    rng = np.random.default_rng(6)
    large, small = (random(rng, shape, "bfloat16", 1.0) for shape in ((1100, 700), (30, 40)))
    state = device.float8.delayed(length=5)
    history, scale, got = np.zeros(5, np.float32), np.float32(1), []
    for i in range(24):
        x = np.roll(large if i % 3 else small, i, axis=0) * DTYPES["bfloat16"].type(1 + i * 5 % 7)
        ref = device.put(x)
        got.append((x, scale, device.float8.quantize(ref, state=state, transposed=bool(i % 2))))
        history[i % 5] = np.max(np.abs(x.astype(np.float32)))
        scale = np.float32(history.max() / np.float32(448))
    for i, (x, used, made) in enumerate(got):
        assert made.scale.numpy() == used, i
        want = reference.cast(x.astype(np.float32) * (np.float32(1) / used), "float8_e4m3fn", True)
        same_codes(made.q.numpy(), want)
        if made.transposed is not None:
            same_codes(made.transposed.numpy(), want.T)
    np.testing.assert_array_equal(state.history.numpy(), history)
    assert state.scale.numpy() == [scale]
    assert state.position.numpy() == [24 % 5]


@pytest.mark.parametrize("name", ["host", GPU])
def test_a_worker_that_dies_while_it_quantises_leaves_nothing_behind(name: str) -> None:
    """What blocks of a launch have counted is not the next worker's, and the state is that of the last commit."""
    with an.System(standby="off", **crash.PATIENT) as system:
        device = system.device(name)
        state = device.float8.delayed(length=3, durable=True)
        group = device.durable_group(state.members)
        device.float8.quantize(device.put(np.full((3, 3), 7.0, np.float32)), state=state)
        group.commit().result(30)
        large = device.zeros((4096, 2048) if name != "host" else (256, 256), "bfloat16")
        plan = device.float8.plan(large, state=state)
        made = device.float8.outputs(large, state=state)
        members = {f"state_{key}": ref for key, ref in state.members.items()}
        for _ in range(200):
            plan.tell(large, out=made.q, scale_out=made.scale, **members)
        crash.restart(device)
        group.restore().result(30)
        for size in (3.0, 1.0):  # by the same plan
            got = device.float8.quantize(device.full(large.shape, size, "bfloat16"), state=state)
            assert got.scale.numpy() == np.float32(7) / np.float32(448)
        np.testing.assert_array_equal(state.history.numpy(), np.array([7, 3, 1], np.float32))
        assert state.position.numpy() == [0]


def test_a_state_in_a_durable_group(device: an.Device) -> None:
    state = device.float8.delayed(length=2, durable=True)
    group = device.durable_group(state.members)
    x = device.put(np.full((2, 2), 448.0, np.float32))
    device.float8.quantize(x, state=state)
    group.commit().result(30)
    device.float8.quantize(device.put(np.full((2, 2), 2.0, np.float32)), state=state)
    group.restore().result(30)
    np.testing.assert_array_equal(state.history.numpy(), [448.0, 0.0])
    assert state.position.numpy() == [1]


def test_plans_replies_and_outputs(device: an.Device) -> None:
    rng = np.random.default_rng(5)
    x = random(rng, (130, 260), "bfloat16")
    ref, float8 = device.put(x), device.float8
    assert device.float8 is float8
    for scaling in SCALINGS:
        turned = scaling in ("tensor", "blk128")
        made = float8.outputs(ref, scaling=scaling, transposed=turned)
        plan = float8.plan(ref, scaling=scaling, transposed=turned)
        given = {"out": made.q, "scale_out": made.scale}
        if turned:
            given["transposed_out"] = made.transposed
        if scaling == "blk128":
            given["transposed_scale_out"] = made.transposed_scale
        plan.ask(ref, **given).result(60)
        q, scale = reference.quantize(x, "float8_e4m3fn", scaling)
        same_codes(made.q.numpy(), q)
        np.testing.assert_array_equal(made.scale.numpy(), scale)
    reply = float8.ask(an.QuantizeRequest(x=ref, out=made.q, scale_out=made.scale, scaling="blk128"))
    assert reply.result(60) == an.QuantizeResult(made.q, made.scale)
    back = device.empty((130, 260), "bfloat16")
    float8.plan_dequantize(made.q, made.scale, "bfloat16").ask(made.q, made.scale, out=back).result(60)
    np.testing.assert_array_equal(
        back.numpy().astype(np.float32), float8.dequantize(made.q, made.scale, "bfloat16").numpy().astype(np.float32)
    )
    assert isinstance(float8.ask(an.DequantizeRequest(q=made.q, scale=made.scale, out=back.view("float16"),
                                                      dtype="float16")).result(60), an.GpuRef)  # fmt: skip


X = np.ones((4, 6), np.float32)
Q = np.ones((4, 6), ml_dtypes.float8_e4m3fn)
ONE = np.ones((), np.float32)


def state(**options: Any) -> an.DelayedScaling:
    made = {"history": np.zeros(3, "f4"), "position": np.zeros(1, "i4"), "scale": np.ones(1, "f4"), **options}
    return an.DelayedScaling(**made)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: an.QuantizeRequest(x=X, dtype="bfloat16"), "bfloat16; allowed: float8_e4m3fn, float8_e5m2"),
        (lambda: an.QuantizeRequest(x=X, dtype="fp8"), "dtype is 'fp8'; allowed: float8_e4m3fn, float8_e5m2$"),
        (lambda: an.QuantizeRequest(x=X.astype("f8")), "float64; allowed: float32, float16, bfloat16"),
        (lambda: an.QuantizeRequest(x=X, scaling="row"), "'row'; allowed: 'tensor', 'outer'"),
        (lambda: an.QuantizeRequest(x=X[0], scaling="outer"), r"\(6,\); with scaling='outer'"),
        (lambda: an.QuantizeRequest(x=X[0], transposed=True), r"\(6,\); with transposed=True"),
        (lambda: an.QuantizeRequest(x=X, saturate=1), "saturate=1"),
        (lambda: an.QuantizeRequest(x=X, scale=ONE, scaling="outer"), "go with scaling='tensor', got 'outer'"),
        (lambda: an.QuantizeRequest(x=X, scale=np.ones(2, "f4")), r"\(2,\); allowed: float32 of"),
        (lambda: an.QuantizeRequest(x=X, scale=ONE, scale_out=ONE.copy()), "leave scale_out out"),
        (lambda: an.QuantizeRequest(x=X, scale=ONE, state=state()), "both given"),
        (lambda: an.QuantizeRequest(x=X, state=3), "state is a int"),
        (lambda: an.QuantizeRequest(x=X, state=state(), dtype="float8_e5m2"), "the state is for 'float8_e4m3fn'"),
        (lambda: an.QuantizeRequest(x=X, transposed_out=Q), "go with transposed=True"),
        (lambda: an.QuantizeRequest(x=X, transposed=True, transposed_scale_out=ONE), "goes with scaling='blk128'"),
        (lambda: an.QuantizeRequest(x=X, out=Q.T), r"\(6, 4\); allowed: float8_e4m3fn of \(4, 6\)$"),
        (lambda: an.QuantizeRequest(x=X, scale_out=X[0, :1]), "scale_out overlaps x"),
        (lambda: an.DequantizeRequest(q=X, scale=ONE), "q is float32"),
        (lambda: an.DequantizeRequest(q=Q, scale=ONE, dtype="int8"), "'int8'; allowed: float32"),
        (lambda: an.DequantizeRequest(q=Q, scale=np.ones((1, 6), "f4")), r"\(1, 6\); allowed for codes of \(4, 6\)"),
        (lambda: an.DequantizeRequest(q=Q, scale=np.ones((), "f8")), "float64; allowed: float32"),
        (lambda: state(amax="mean"), "'mean'; allowed: 'max', 'latest'"),
        (lambda: state(margin=61), "from -60 to 60"),
        (lambda: state(history=np.zeros(6, "f4")[::2]), "contiguous"),
        (lambda: state(position=np.zeros(1, "i8")), "position has dtype int64"),
    ],
)
def test_what_cannot_work_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        wrong()


@pytest.mark.parametrize("scaling", ["outer", "vec128"])
def test_a_transposed_copy_needs_scales_that_a_matmul_takes(scaling: str) -> None:
    with pytest.raises(an.Unsupported, match=r"sums over; quantize\(x.T"):
        an.QuantizeRequest(x=X, scaling=scaling, transposed=True)


def test_a_history_of_one_amax_lies_anywhere() -> None:
    history = np.zeros(6, "f4")[::6]
    assert state(history=history).history is history


def test_bad_calls(device: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="length=0"):
        device.float8.delayed(length=0)
    with pytest.raises(an.InvalidRequest, match="x is a ndarray"):
        device.float8.quantize(X)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="Float8 does not accept int"):
        device.float8.tell(3)  # type: ignore[arg-type]


DOCS = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "float8.md").read_text(encoding="utf-8")


def test_the_guide_has_the_scalings_of_the_code() -> None:
    assert set(re.findall(r'^\| `"(\w+)"`', DOCS, re.MULTILINE)) == set(SCALINGS)
