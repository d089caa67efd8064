"""Fused operations on both kinds of device, against float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import fused_reference as reference
import ml_dtypes
import numpy as np
import pytest
from fused_reference import close
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr

import atomr_native as an
from atomr_native.dtypes import DTYPES

pytestmark = [pytest.mark.plain, pytest.mark.alike]

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
FLOATS = ("float32", "float16", "bfloat16", "float64")
CURVES = ("silu", "squared_relu", "gelu", "gelu_tanh")
SEVERAL = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def draws(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[dtype])


#: What lies how: views that arrays and handles take alike, all of which have rows.
VIEWS: dict[str, Any] = {"whole": lambda a: a, "slice": lambda a: a[..., 1:-1], "rows": lambda a: a[::2]}


@given(
    shape=st.sampled_from([(3,), (7, 33), (64, 2), (2, 3, 258), (0, 4)]),
    dtype=st.sampled_from(FLOATS),
    curve=st.sampled_from(CURVES),
    view=st.sampled_from(list(VIEWS)),
    kind=st.sampled_from(["plain", "two", "packed"]),
)
@SEVERAL
def test_activations(device: an.Device, shape: tuple[int, ...], dtype: str, curve: str, view: str, kind: str) -> None:
    view = "slice" if len(shape) == 1 else view

    def put(wide: tuple[int, ...], seed: int) -> tuple[np.ndarray, an.GpuRef]:
        base = draws(wide, dtype, seed)
        return VIEWS[view](base), VIEWS[view](device.put(base))

    x, x_ref = put((*shape[:-1], shape[-1] * 2 + 2) if kind == "packed" else (*shape[:-1], shape[-1] + 3), 1)
    if kind == "packed" and x.shape[-1] % 2:
        return
    up, up_ref = put((*shape[:-1], shape[-1] + 3), 2) if kind == "two" else (None, None)
    half = x.shape[-1] // 2
    gate, other = (x[..., :half], x[..., half:]) if kind == "packed" else (x, up)
    dy = draws(gate.shape, dtype, 3)
    value, slope = reference.activation(curve, gate)
    wide = 1.0 if other is None else other.astype(np.float64)
    options: dict[str, Any] = {"x": x_ref, "up": up_ref, "curve": curve, "gated": kind != "plain"}
    close(device.fused.tell(an.ActivationRequest(**options)).numpy(), value * wide, dtype, 8)
    got = device.fused.tell(an.ActivationGradientRequest(dy=device.put(dy), **options))
    d = dy.astype(np.float64)
    if kind == "packed":
        close(got.gate.numpy(), np.concatenate([d * wide * slope, d * value], -1), dtype, 8)
    elif kind == "two":
        close(got.up.numpy(), d * value, dtype, 8)
    close((got if kind == "plain" else got.gate).numpy()[..., :half if kind == "packed" else None],
          d * wide * slope, dtype, 8)  # fmt: skip


def test_methods_of_activations(device: an.Device) -> None:
    fused, x, up = device.fused, draws((4, 6), "float64"), draws((4, 6), "float64", 1)
    assert device.fused is fused
    ref, other, one = device.put(x), device.put(up), device.put(np.ones((4, 6)))
    both = device.put(np.concatenate([x, up], 1))
    for curve, made, slope in (
        ("silu", fused.silu(ref), fused.silu_backward(one, ref)),
        ("squared_relu", fused.squared_relu(ref), fused.squared_relu_backward(one, ref)),
    ):
        value, want = reference.activation(curve, x)
        close(made.numpy(), value, "float64", 8)
        close(slope.numpy(), want, "float64", 8)
    for curve, made, gradient in (
        ("silu", fused.swiglu(ref, other), fused.swiglu_backward(one, ref, other)),
        ("silu", fused.swiglu(both), fused.swiglu_backward(one, both)),
        ("gelu", fused.geglu(both), fused.geglu_backward(one, both)),
        ("gelu_tanh", fused.geglu(ref, other, approximate="tanh"),
         fused.geglu_backward(one, ref, other, approximate="tanh")),
    ):  # fmt: skip
        value, slope = reference.activation(curve, x)
        close(made.numpy(), value * up, "float64", 8)
        close(gradient.gate.numpy()[:, :6], slope * up, "float64", 8)
        close((gradient.gate.numpy()[:, 6:] if gradient.up is None else gradient.up.numpy()), value, "float64", 8)
    assert fused.silu(ref, out=ref) is ref
    close(ref.numpy(), reference.activation("silu", x)[0], "float64", 8)


@pytest.mark.parametrize("curve", CURVES)
def test_slopes_are_those_of_the_values(device: an.Device, curve: str) -> None:
    x, step = np.linspace(-6, 6, 100), 1e-5
    value = [device.fused.tell(an.ActivationRequest(x=device.put(x + s), curve=curve)).numpy() for s in (step, -step)]
    slope = device.fused.tell(
        an.ActivationGradientRequest(dy=device.put(np.ones(100)), x=device.put(x), curve=curve)
    ).numpy()
    np.testing.assert_allclose(slope, (value[0] - value[1]) / (2 * step), atol=1e-8)


def test_curves_far_out(device: an.Device) -> None:
    x = np.float32([-1e30, -200, -0.0, 200, 1e30, np.nan])
    for curve in CURVES:
        got = device.fused.tell(an.ActivationRequest(x=device.put(x), curve=curve)).numpy()
        slope = device.fused.tell(an.ActivationGradientRequest(dy=device.put(np.ones(6, "f4")), x=device.put(x),
                                                               curve=curve)).numpy()  # fmt: skip
        np.testing.assert_array_equal(got[:3], 0)
        assert got[3] == (200 if curve != "squared_relu" else 40000)
        np.testing.assert_array_equal(slope[[0, 1, 3]], [0, 0, 1 if curve != "squared_relu" else 400])
        assert np.isnan(got[5])
        assert np.isnan(slope[5])


@pytest.mark.parametrize("curve", [curve for curve in CURVES if curve != "squared_relu"])
def test_slopes_at_infinity_are_those_of_the_asymptotes(device: an.Device, curve: str) -> None:
    x = device.put(np.float32([-np.inf, np.inf]))
    request = an.ActivationGradientRequest(dy=device.put(np.ones(2, "f4")), x=x, curve=curve)
    np.testing.assert_array_equal(device.fused.tell(request).numpy(), [0, 1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("curve", CURVES)
def test_curves_of_every_number_of_16_bits(device: an.Device, curve: str, dtype: str) -> None:
    """Values are right to one rounding and a 30th of one, however small they are, and slopes where they cross zero."""
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    with np.errstate(all="ignore"):
        x = x[np.isfinite(x)]
        wide = x.astype(np.float64)
        share = {
            "silu": expit(wide), "gelu": ndtr(wide), "squared_relu": np.maximum(wide, 0),
            "gelu_tanh": expit(2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)),
        }[curve]  # fmt: skip
        want = wide * share
        got = device.fused.tell(an.ActivationRequest(x=device.put(x), curve=curve)).numpy().astype(np.float64)
    top = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    inside = abs(want) < top
    assert (got[~inside] >= top).all()
    least = 2.0**-24 if dtype == "float16" else 2.0**-119  # of factors below 2**-126, which are 0
    rounding = reference.EPS[dtype] / 2
    np.testing.assert_array_less(abs(got - want)[inside], (rounding * 1.03 * abs(want) + least)[inside])
    few = abs(x) < 20
    slope = device.fused.tell(
        an.ActivationGradientRequest(dy=device.put(np.ones_like(x[few])), x=device.put(x[few]), curve=curve)
    ).numpy()
    want = reference.activation(curve, x[few])[1]
    np.testing.assert_array_less(abs(slope - want), rounding * abs(want) + 2.0**-19 * np.maximum(abs(want), 1))


@given(
    shape=st.sampled_from([(1,), (7, 33), (5, 2), (2, 3, 258), (3, 2500), (0, 4)]),
    dtype=st.sampled_from(FLOATS),
    weights=st.sampled_from(FLOATS),
    layer=st.booleans(),
    residual=st.booleans(),
    biased=st.booleans(),
    view=st.sampled_from(list(VIEWS)),
)
@SEVERAL
def test_norms(
    device: an.Device, shape: tuple[int, ...], dtype: str, weights: str, layer: bool, residual: bool, biased: bool,
    view: str,
) -> None:  # fmt: skip
    view = "slice" if len(shape) == 1 else view
    base = draws((*shape[:-1], shape[-1] + 2), dtype, 1)
    x, ref = VIEWS[view](base), VIEWS[view](device.put(base))
    weight, bias = (draws(x.shape[-1:], weights, seed) for seed in (2, 3))
    biased, eps = biased and layer, 1e-3
    other = draws(x.shape, dtype, 4)
    got = device.fused.tell(
        an.NormRequest(
            x=ref, weight=device.put(weight), bias=device.put(bias) if biased else None, layer=layer, eps=eps,
            residual=device.put(other) if residual else None,
        )
    )  # fmt: skip
    if residual:
        total = x.astype("f8" if dtype == "float64" else "f4") + other.astype("f8" if dtype == "float64" else "f4")
        x = total.astype(DTYPES[dtype])
        np.testing.assert_array_equal(got.residual.numpy(), x)
        ref = got.residual
    out = got.out if residual else got
    far, dy = 8 + np.sqrt(x.shape[-1]), draws(x.shape, dtype, 5)
    size = reference.norm_size(x, weight, dy, eps, layer)
    close(out.numpy(), reference.norm(x, weight, bias if biased else None, eps, layer), dtype, far, size)
    made = device.fused.tell(
        an.NormGradientRequest(
            dy=device.put(dy), x=ref, weight=device.put(weight), layer=layer, biased=biased, eps=eps,
            residual=device.put(other) if residual else None,
        )
    )  # fmt: skip
    dx, dweight, dbias = reference.norm_gradients(dy, x, weight, eps, layer)
    close(made.x.numpy(), dx + other.astype(np.float64) if residual else dx, dtype, far, size)
    finer = weights if dtype == "float64" or weights != "float64" else "float32"
    close(made.weight.numpy(), dweight, finer, far, size)
    assert (made.bias is None) != biased
    if made.bias is not None:
        close(made.bias.numpy(), dbias, finer, far, size)


def test_methods_of_norms(device: an.Device) -> None:
    fused = device.fused
    x, r, w, b, dy = (draws(s, "float64", i) for i, s in enumerate([(4, 6), (4, 6), (6,), (6,), (4, 6)]))
    refs = [device.put(a) for a in (x, r, w, b, dy)]
    close(fused.rms_norm(refs[0], refs[2]).numpy(), reference.norm(x, w, None, 1e-5, False), "float64", 8)
    got = fused.layer_norm(refs[0], refs[2], refs[3], refs[1], residual_out=refs[1])
    assert got.residual is refs[1]
    close(got.out.numpy(), reference.norm(x + r, w, b, 1e-5, True), "float64", 8)
    made = fused.layer_norm_backward(refs[4], got.residual, refs[2])
    for ours, want in zip(made, reference.norm_gradients(dy, x + r, w, 1e-5, True), strict=True):
        close(ours.numpy(), want, "float64", 16)
    out = device.zeros((6,), "float64")
    made = fused.rms_norm_backward(refs[4], refs[0], refs[2], weight_out=out)
    assert made.weight is out
    close(out.numpy(), reference.norm_gradients(dy, x, w, 1e-5, False)[1], "float64", 16)


@pytest.mark.parametrize("gradient", FLOATS)
@pytest.mark.parametrize("master", [False, True])
def test_steps_of_adamw(device: an.Device, gradient: str, master: bool) -> None:
    start = draws((5, 7), "float32", 1)
    param = device.put(start, "bfloat16" if master else "float32")
    m, v = (device.zeros((5, 7), "float32") for _ in range(2))
    weights, plans = device.put(start) if master else None, 0
    want = start, np.zeros((5, 7)), np.zeros((5, 7))
    for step in range(1, 6):
        g = draws((5, 7), gradient, 10 + step)
        numbers = {"lr": 0.1 / step, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}
        assert device.fused.adamw(param, device.put(g), m, v, step=step, master=weights, **numbers) is param
        plans = len(device.fused._plans) if step == 1 else plans
        want = reference.adamw(want[0], g, *want[1:], step, **numbers)
    close((param if weights is None else weights).numpy(), want[0], "float32", 20)
    close(m.numpy(), want[1], "float32", 10)
    close(v.numpy(), want[2], "float32", 10)
    assert len(device.fused._plans) == plans  # numbers are no part of a plan
    if weights is not None:
        np.testing.assert_array_equal(param.numpy(), weights.numpy().astype(DTYPES["bfloat16"]))


def test_eps_of_adamw_bounds_the_steps_of_tiny_gradients(device: an.Device) -> None:
    start, g = np.zeros(9, np.float32), np.full(9, 1e-6, np.float32)
    param, m, v = device.put(start), device.zeros(9, "float32"), device.zeros(9, "float32")
    numbers = {"lr": 1.0, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "weight_decay": 0.0}
    device.fused.adamw(param, device.put(g), m, v, step=1, **numbers)
    np.testing.assert_allclose(param.numpy(), -1e-6 / (1e-6 + 1e-3), rtol=1e-5)  # without eps each step has length 1


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("master", [False, True])
def test_steps_of_sgd(device: an.Device, nesterov: bool, master: bool) -> None:
    start = draws((70,), "float32", 1)
    param = device.put(start, "bfloat16" if master else "float32")
    m, weights = device.zeros((70,), "float32"), device.put(start) if master else None
    want = start, np.zeros(70)
    for step in range(4):
        g = draws((70,), "bfloat16", 10 + step)
        numbers = {"lr": 0.1 / (step + 1), "momentum": 0.9, "weight_decay": 0.1}
        device.fused.sgd_momentum(param, device.put(g), m, nesterov=nesterov, master=weights, **numbers)
        want = reference.sgd(*want[:1], g, want[1], nesterov, **numbers)
    close((param if weights is None else weights).numpy(), want[0], "float32", 20)
    if weights is not None:
        np.testing.assert_array_equal(param.numpy(), weights.numpy().astype(DTYPES["bfloat16"]))
    close(m.numpy(), want[1], "float32", 10)


def test_optimizer_state_in_a_durable_group(device: an.Device) -> None:
    state = {name: device.zeros((8,), "float32", durable=True) for name in ("param", "m", "v")}
    group = device.durable_group(state)
    g = device.put(np.ones(8, np.float32))
    device.fused.adamw(grad=g, step=1, **state)
    kept = state["param"].numpy()
    group.commit().result(30)
    device.fused.adamw(grad=g, step=2, **state)
    assert not np.array_equal(state["param"].numpy(), kept)
    group.restore().result(30)
    np.testing.assert_array_equal(state["param"].numpy(), kept)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shape", [(5, 2, 10), (2, 5, 3, 64)])
def test_rope_and_back(device: an.Device, dtype: str, interleaved: bool, shape: tuple[int, ...]) -> None:
    x = draws(shape, dtype)
    for positions in (np.arange(5, dtype=np.int32), np.int64([0, 7, 7, 100_000, 3])):
        ref = device.put(positions)
        got = device.fused.rope(device.put(x), ref, 500.0, interleaved=interleaved)
        close(got.numpy(), reference.rope(x, positions, 500.0, interleaved), dtype, 4)
        device.fused.rope(got, ref, 500.0, interleaved=interleaved, inverse=True, out=got)
        close(got.numpy(), x.astype(np.float64), dtype, 4 if dtype == "float32" else 2.0**14 * 3)


def test_rope_with_positions_of_each_batch(device: an.Device) -> None:
    x, positions = draws((2, 3, 2, 8), "float32"), np.int32([[0, 1, 2], [9, 8, 7]])
    got = device.fused.rope(device.put(x), device.put(positions), interleaved=True)
    close(got.numpy(), reference.rope(x, positions, 10000.0, True), "float32", 4)


def test_dropout_keeps_what_the_words_say(device: an.Device) -> None:
    x = draws((77, 1003), "float32") + np.float32(20)  # no zeros
    ref = device.put(x)
    got = device.fused.dropout(ref, 0.25, seed=5, offset=9)
    kept = got.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_array_equal(got.numpy(), np.where(kept, x * np.float32(1 / 0.75), 0))
    ones = device.put(np.ones(x.shape, np.float32))
    np.testing.assert_array_equal(device.fused.dropout(ones, 0.25, 5, 9).numpy() != 0, kept)  # its gradient
    flat = device.fused.dropout(ref.reshape(-1)[8:], 0.25, seed=5, offset=10).numpy()
    np.testing.assert_array_equal(flat != 0, kept.reshape(-1)[8:])  # a counter further
    assert np.mean((device.fused.dropout(ref, 0.25, seed=6, offset=9).numpy() != 0) == kept) < 0.7
    np.testing.assert_array_equal(device.fused.dropout(ref, 0.0, seed=5).numpy(), x)
    assert not device.fused.dropout(ref, 1.0, seed=5).numpy().any()


@pytest.mark.parametrize(("shape", "dtype"), [((3, 45), "float32"), ((8, 1048), "bfloat16")])
def test_dropout_has_the_words_of_the_paper_to_the_last_bit(
    device: an.Device, shape: tuple[int, ...], dtype: str
) -> None:
    seed, offset = 2**62 + 12345, 2**32 - 1
    words = reference.dropout_words(math.prod(shape), seed, offset).reshape(shape)
    ones = device.put(np.ones(shape), dtype)
    for word in (int(words[1, 5]), int(words[2, 40])):
        for threshold in (word, word + 1):  # an element whose word is the threshold, and one whose word is just below
            got = device.fused.dropout(ones, threshold / 2**32, seed, offset).numpy()
            np.testing.assert_array_equal(got != 0, words >= threshold)


def test_plans_and_replies(device: an.Device) -> None:
    x = draws((3, 40), "bfloat16")
    ref, out = device.put(x), device.empty((3, 40), "bfloat16")
    plan = device.fused.plan(an.DropoutRequest(x=ref, p=0.5, seed=1))
    plan.ask(ref, out=out, seed=2, offset=3).result(60)
    np.testing.assert_array_equal(out.numpy(), device.fused.dropout(ref, 0.5, 2, 3).numpy())
    reply = device.fused.ask(an.ActivationRequest(x=ref, out=out))
    assert reply.result(60) is out
    close(out.numpy(), reference.activation("silu", x)[0], "bfloat16", 8)


def test_a_plan_of_gradients_writes_no_memory_that_it_reads(device: an.Device) -> None:
    """Those of a weight read x and dy after the gradient by x is written, where rows are long."""
    x, dy, w = (device.put(draws(shape, "float32")) for shape in ((3, 40), (3, 40), (40,)))
    plan = device.fused.plan(an.NormGradientRequest(dy=dy, x=x, weight=w))
    for out in (x, dy):
        with pytest.raises(an.InvalidRequest, match=r"'out' is written and overlaps .*; allowed: memory of its own$"):
            plan.tell(dy, x, w, out=out, weight_out=device.empty((40,)))
    norm = device.fused.plan(an.NormRequest(x=x, weight=w, residual=dy))
    norm.ask(x, dy, w, out=device.empty((3, 40)), residual_out=dy).result(60)  # row by row


def test_axes_of_one_element_have_any_stride(device: an.Device) -> None:
    """They leave an array contiguous, as for NumPy: positions of one sequence of several, for instance."""
    x, places = draws((1, 3, 2, 8), "float32"), np.arange(20, dtype=np.int64).reshape(2, 10)
    got = device.fused.rope(device.put(x), device.put(places)[1:, :3])
    close(got.numpy(), reference.rope(x, places[1:, :3], 10000.0, False), "float32", 4)
    with pytest.raises(an.InvalidRequest, match=r"positions has strides \(16,\); allowed: a contiguous array"):
        device.fused.rope(device.put(x[0]), device.put(places)[1, :6:2])


X, W = np.ones((4, 6), np.float32), np.ones(6, np.float32)
I = np.arange(4, dtype=np.int32)  # noqa: E741


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: an.ActivationRequest(x=X.astype("i4")), "x has dtype int32; allowed: float32, float16"),
        (lambda: an.ActivationRequest(x=X, curve="relu"), "'relu'; allowed: 'silu'"),
        (lambda: an.ActivationRequest(x=X[:, ::2]), "a last axis whose elements lie together"),
        (lambda: an.ActivationRequest(x=X, up=X), "gated=True"),
        (lambda: an.ActivationRequest(x=X, up=W, gated=True), r"up has dtype float32 and shape \(6,\); allowed here"),
        (lambda: an.ActivationRequest(x=X[:, :5], gated=True), r"x, the gate, has shape \(4, 5\); .* must be even"),
        (lambda: an.ActivationRequest(x=X, gated=3), "gated=3"),
        (lambda: an.ActivationRequest(x=X[:3], out=X[1:]), "out overlaps x"),
        (lambda: an.ActivationGradientRequest(dy=X, x=X, gated=True), r"dy .* allowed here: float32 of \(4, 3\)"),
        (lambda: an.ActivationGradientRequest(dy=X, x=X, up_out=X), "up_out goes with up"),
        (lambda: an.NormRequest(x=X[0, 0, ...], weight=W), "one axis at least"),
        (lambda: an.NormRequest(x=X, weight=W[:5]), r"weight .* \(5,\); allowed here: float32 of \(6,\)"),
        (lambda: an.NormRequest(x=X, weight=W, bias=W), "an RMS norm has none"),
        (lambda: an.NormRequest(x=X, weight=W, eps=-1.0), r"eps=-1.0; allowed: \[0, inf\)"),
        (lambda: an.NormRequest(x=X, weight=W, residual_out=X), "goes with residual"),
        (lambda: an.NormRequest(x=X, weight=W, layer=1), "layer=1"),
        (lambda: an.NormGradientRequest(dy=X, x=X, weight=W, biased=True), "with layer=True also True"),
        (lambda: an.NormGradientRequest(dy=X, x=X, weight=W, bias_out=W), "goes with biased=True"),
        (lambda: an.AdamWRequest(param=X, grad=X, m=X, v=X, step=1), "param overlaps grad"),
        (
            lambda: an.AdamWRequest(param=X, grad=X.copy(), m=X.copy(), v=X.copy(), step=0),
            "step=0; allowed: integers from 1",
        ),
        (lambda: an.AdamWRequest(param=X, grad=X.copy(), m=X.copy(), v=X.copy(), step=1, beta1=1.0), r"beta1=1.0"),
        (lambda: an.AdamWRequest(param=X.astype("f8"), grad=X, m=X, v=X, step=1), "bfloat16 with float32 ones"),
        (lambda: an.SgdRequest(param=X, grad=X.T, m=X), r"grad .* \(6, 4\); allowed"),
        (lambda: an.SgdRequest(param=X[:, ::2], grad=X[:, ::2].copy(), m=X[:, ::2].copy()), "contiguous arrays"),
        (lambda: an.RopeRequest(x=X, positions=I), r"\(4, 6\); allowed: \(..., tokens"),
        (lambda: an.RopeRequest(x=X.reshape(4, 1, 6), positions=I.astype("u4")), "int32 or int64 of"),
        (lambda: an.RopeRequest(x=X.reshape(4, 1, 6), positions=I, theta=0), r"theta=0; allowed: \(0, inf\)"),
        (lambda: an.DropoutRequest(x=X, p=1.5, seed=1), r"p=1.5; allowed: \[0, 1\]"),
        (lambda: an.DropoutRequest(x=X, p=0.5, seed=-1), "seed=-1; allowed: integers from 0"),
    ],
)
def test_what_cannot_work_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        wrong()


def test_bad_calls(device: an.Device) -> None:
    with pytest.raises(an.InvalidRequest, match="x is a ndarray"):
        device.fused.silu(X)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="Fused does not accept int"):
        device.fused.tell(3)  # type: ignore[arg-type]
    with pytest.raises(an.InvalidRequest, match="approximate='fast'; allowed: 'none', 'tanh'"):
        device.fused.geglu(device.put(X), approximate="fast")
