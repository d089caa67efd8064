"""Matmul: every epilogue, dtype and layout against float64 references, on the host and on CUDA devices."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import runners
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_reference import STORE, gelu, gelu_gradient
from runners import Runner

from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import resolve_matmul
from atomr_native.plans.spec import OVERWRITE, READ, WRITE

DTYPE_NAMES = ("float64", "float32", "float16", "bfloat16")
#: Relative error of one operation of the accumulation.
ACCUMULATE = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-24, "bfloat16": 2.0**-24}


#: What a fused library may err more, relative to the largest element: its GELU is not that of the C library.
FUSED = {"float64": 4e-13, "float32": 1.2e-5, "float16": 8e-3, "bfloat16": 6e-2}

#: What runs plans; see `engine`.
RUNNER: Runner = runners.HostRunner()


@pytest.fixture(scope="module", autouse=True, params=runners.ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests by the builders of the host, then on CUDA devices."""
    global RUNNER
    for RUNNER in runners.make(request):
        yield RUNNER.engine


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    out = np.empty(shape, dtype)
    out.fill(0xAB if dtype.kind == "u" else np.nan)
    return out


def op(x: np.ndarray, transposed: bool) -> np.ndarray:
    return np.swapaxes(x, -1, -2) if transposed else x


def run(request: MatmulRequest) -> dict[str, np.ndarray]:
    """Build and run a request over NumPy arrays; outputs that are missing are made, poisoned."""
    spec = request.lowered.spec()
    arrays: dict[str, np.ndarray] = {}
    for operand in spec.operands:
        given_array = getattr(request, operand.name)
        arrays[operand.name] = poison(operand.shape, DTYPES[operand.dtype]) if given_array is None else given_array
    RUNNER.run(spec, tuple(arrays.values()), (float(request.alpha), float(request.beta)))
    return arrays


def check(request: MatmulRequest, c: np.ndarray | None = None) -> None:
    """Run a request and compare every element of every output with float64."""
    a, b = (op(getattr(request, n).astype(np.float64), t) for n, t in (("a", request.trans_a), ("b", request.trans_b)))
    epilogue = Epilogue(request.epilogue)
    name = next(n for n, d in DTYPES.items() if d == request.a.dtype)
    shape = resolve_matmul(request)
    c = c if c is not None else request.c
    x = request.alpha * np.matmul(a, b)
    size = abs(request.alpha) * np.matmul(abs(a), abs(b))  # what rounding errors scale with
    if request.beta:
        x = x + request.beta * c.astype(np.float64)
        size = size + abs(request.beta * c.astype(np.float64))
    if request.bias is not None:
        bias = request.bias.astype(np.float64)
        bias = bias[..., None, :] if bias.ndim > 1 else bias
        x, size = x + bias, size + abs(bias)
    got = run(request)
    # Sums of K products err by at most about K roundings; epilogues add some more.
    error = (shape.k + 16) * ACCUMULATE[name] * size
    store = STORE[next(n for n, d in DTYPES.items() if d == shape.out.dtype)]
    tiny = 2.0**-24 if shape.out.dtype == np.float16 else 2.0**-126  # subnormals round absolutely
    expected = x
    if epilogue.reads_aux:
        if epilogue.activation == "gelu":
            factor = gelu_gradient(request.aux.astype(np.float64))
        else:
            factor = np.unpackbits(request.aux, axis=-1, count=shape.n, bitorder="little").astype(np.float64)
        expected, error, size = x * factor, error * 1.2, abs(x * factor) + size * 2.0**-20 * (name != "float64")
        error = error + 32 * ACCUMULATE[name] * abs(x) * (1 + abs(factor))
    elif epilogue.activation == "gelu":
        expected, error = gelu(x), error * 1.2 + 32 * ACCUMULATE[name] * abs(x)
    elif epilogue.activation == "relu":
        expected = np.maximum(x, 0)
    if RUNNER.engine == "gpu" and expected.size:
        error = error + FUSED[name] * abs(expected).max()
    bound = error + store * abs(expected) * 1.01 + tiny
    out = got["out"].astype(np.float64)
    assert out.shape == expected.shape
    assert np.all(abs(out - expected) <= bound), np.max(abs(out - expected) - bound)
    if epilogue.writes_aux and epilogue.activation == "gelu":
        assert np.all(abs(got["aux"].astype(np.float64) - x) <= error + store * abs(x) * 1.01 + tiny)
    elif epilogue.writes_aux:
        bits = np.unpackbits(got["aux"], axis=-1, bitorder="little")
        assert not bits[..., shape.n :].any()
        certain = abs(x) > error
        np.testing.assert_array_equal(bits[..., : shape.n][certain], (x > 0)[certain])
    if epilogue.writes_bias_grad:
        grad = got["bias_grad"].astype(np.float64)
        if epilogue is Epilogue.BGRADA:
            reference, scale, terms = a.sum(-1), abs(a).sum(-1), shape.k
        elif epilogue is Epilogue.BGRADB:
            reference, scale, terms = b.sum(-2), abs(b).sum(-2), shape.k
        else:
            reference, scale, terms = expected.sum(-2), abs(expected).sum(-2), shape.m
            scale = scale + error.sum(-2) / ACCUMULATE[name] / (terms + 4)
        limit = (terms + 4) * ACCUMULATE[name] * scale + store * abs(reference) * 1.01 + tiny
        if RUNNER.engine == "gpu" and reference.size:
            limit = limit + FUSED[name] * abs(reference).max()
        assert np.all(abs(grad - reference) <= limit)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def operands(rng: np.random.Generator, epilogue: Epilogue, batch: tuple[int, ...], m: int, n: int, dtype: str) -> dict:
    extra: dict[str, Any] = {"epilogue": epilogue}
    if epilogue.uses_bias:
        extra["bias"] = random(rng, (n,), dtype)
    if epilogue.reads_aux and epilogue.activation == "gelu":
        extra["aux"] = random(rng, (*batch, m, n), dtype)
    elif epilogue.reads_aux:
        extra["aux"] = rng.integers(0, 256, (*batch, m, -(-n // 128) * 16), np.uint8)
    return extra


#: Every epilogue with each type, and with each kind of batch.
EVERY = [
    (epilogue, dtype, ((), (3,), (2, 3))[(i + j) % 3])
    for i, epilogue in enumerate(Epilogue)
    for j, dtype in enumerate(DTYPE_NAMES)
]


@pytest.mark.parametrize(("epilogue", "dtype", "batch"), EVERY)
def test_every_epilogue(epilogue: Epilogue, dtype: str, batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng([list(Epilogue).index(epilogue), len(batch)])
    m, n, k = 13, 131, 37  # primes: no block or byte boundary anywhere
    request = MatmulRequest(
        a=random(rng, (*batch, m, k), dtype),
        b=random(rng, (*batch, k, n), dtype),
        c=random(rng, (*batch, m, n), dtype),
        alpha=0.7,
        beta=-1.3,
        **operands(rng, epilogue, batch, m, n, dtype),
    )
    check(request)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[MatmulRequest, np.ndarray | None]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(DTYPE_NAMES))
    epilogue = draw(st.sampled_from(list(Epilogue)))
    batch = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
    extents = st.one_of(st.integers(0, 5), st.sampled_from([31, 64, 127, 129]))
    m, n, k = draw(extents), draw(extents), draw(extents)

    def array(shape: tuple[int, ...]) -> np.ndarray:
        """Dense, transposed, or a strided view."""
        kind = draw(st.sampled_from(["dense", "fortran", "strided", "padded"]))
        if kind == "fortran" and len(shape) > 1:
            return op(random(rng, (*shape[:-2], shape[-1], shape[-2]), dtype), True)
        if kind == "strided" and shape:
            return random(rng, (*shape[:-1], shape[-1] * 2), dtype)[..., ::2]
        if kind == "padded" and len(shape) > 1:
            return random(rng, (*shape[:-1], shape[-1] + 3), dtype)[..., 1 : shape[-1] + 1]
        return random(rng, shape, dtype)

    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    a_batch = tuple(draw(st.sampled_from([e, 1])) for e in batch)
    a_batch = a_batch[draw(st.integers(0, len(a_batch))) :]
    b_batch = batch
    if draw(st.booleans()):
        a_batch, b_batch = b_batch, a_batch
    request: dict[str, Any] = {
        "a": array((*a_batch, k, m) if trans_a else (*a_batch, m, k)),
        "b": array((*b_batch, n, k) if trans_b else (*b_batch, k, n)),
        "trans_a": trans_a,
        "trans_b": trans_b,
        "alpha": draw(st.sampled_from([1.0, -0.5, 0.0])),
        **operands(rng, epilogue, batch, m, n, dtype),
    }
    if epilogue.uses_bias and draw(st.booleans()):
        request["bias"] = array((*batch, n))
    out = draw(st.sampled_from(["none", "given", "c", "apart"]))
    start = None
    if out != "none":
        request["out"] = array((*batch, m, n))
        request["out"][...] = np.nan
    if out == "c":
        request["out"][...] = random(rng, (*batch, m, n), dtype)
        start = request["out"].copy()
        request |= {"c": request["out"], "beta": 0.25}
    elif out == "apart":
        request |= {"c": array((*batch, m, n)), "beta": -2.0}
    return MatmulRequest(**request), start


@given(layouts())
@settings(max_examples=90, deadline=None)
def test_layouts_batches_and_transposes(case: tuple[MatmulRequest, np.ndarray | None]) -> None:
    with contextlib.suppress(pytest.skip.Exception):  # one layout that cuBLASLt does not have is not all
        check(*case)


@pytest.mark.fake_only(dtype=["float32"])
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("epilogue", ["default", "gelu_aux_bias", "dgelu_bgrad", "relu_aux_bias", "drelu_bgrad"])
def test_sizes_of_many_blocks(dtype: str, epilogue: str) -> None:
    rng = np.random.default_rng(5)
    m, n, k = 1031, 521, 61
    extra = operands(rng, Epilogue(epilogue), (), m, n, dtype)
    check(MatmulRequest(a=random(rng, (m, k), dtype), b=random(rng, (k, n), dtype), **extra))


@pytest.mark.fake_only(m=[263, 5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("batch", "m", "n"), [((3,), 263, 1031), ((2, 3), 3, 70000), ((70, 3), 5, 67)])
def test_batches_of_many_blocks(dtype: str, batch: tuple[int, ...], m: int, n: int) -> None:
    rng = np.random.default_rng(12)
    for b_batch in (batch, batch[1:], (*batch[:-1], 1)):
        extra = operands(rng, Epilogue.GELU_AUX_BIAS, batch, m, n, dtype)
        a, b = random(rng, (*batch, m, 3), dtype), random(rng, (*b_batch, 3, n), dtype)
        check(MatmulRequest(a=a, b=b, **extra))


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("name", ["a", "c", "out", "aux", "none"])
def test_batches_fold_into_rows_only_where_they_can(dtype: str, name: str) -> None:
    rng = np.random.default_rng(13)
    arrays = {n: random(rng, (3, 5, 4), dtype) for n in ("a", "c", "out", "aux")}
    if name != "none":
        arrays[name] = np.swapaxes(random(rng, (5, 3, 4), dtype), 0, 1)
    for out in ("out", "aux"):
        arrays[out][...] = np.nan
    check(MatmulRequest(b=random(rng, (1, 4, 4), dtype), beta=0.5, epilogue="gelu_aux", **arrays))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_output_of_narrow_operands(dtype: str) -> None:
    rng = np.random.default_rng(6)
    request = MatmulRequest(a=random(rng, (9, 301), dtype), b=random(rng, (301, 7), dtype), out_dtype="float32")
    check(request)
    assert run(request)["out"].dtype == np.float32


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_no_products_leave_beta_c(dtype: str) -> None:
    rng = np.random.default_rng(7)
    a, b = np.empty((4, 0), DTYPES[dtype]), np.empty((0, 5), DTYPES[dtype])
    np.testing.assert_array_equal(run(MatmulRequest(a=a, b=b))["out"].astype(np.float64), np.zeros((4, 5)))
    check(MatmulRequest(a=a, b=b, c=random(rng, (4, 5), dtype), beta=3.0))


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 3), (4, 0, 3), (0, 0, 0), (4, 5, 0)])
@pytest.mark.parametrize("epilogue", list(Epilogue))
def test_empty_outputs_still_get_their_sums(m: int, n: int, k: int, epilogue: Epilogue) -> None:
    rng = np.random.default_rng(8)
    extra = operands(rng, epilogue, (), m, n, "float32")
    check(MatmulRequest(a=random(rng, (m, k), "float32"), b=random(rng, (k, n), "float32"), **extra))


def test_c_is_not_read_when_beta_is_zero_at_the_message() -> None:
    rng = np.random.default_rng(9)
    a, b = random(rng, (3, 4), "float32"), random(rng, (4, 5), "float32")
    for in_place in (False, True):
        out = np.full((3, 5), np.nan, np.float32)
        c = out if in_place else np.full((3, 5), np.nan, np.float32)
        spec = MatmulRequest(a=a, b=b, c=c, out=out, beta=1.0).lowered.spec()
        arrays = (a, b, out) if in_place else (a, b, c, out)
        RUNNER.run(spec, arrays, (1.0, 0.0))
        np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_beta_without_c_is_refused_by_the_run() -> None:
    a = np.ones((2, 2), np.float32)
    spec = MatmulRequest(a=a, b=a).lowered.spec()
    with pytest.raises(InvalidRequest, match=r"beta=2.*allowed: 0"):
        RUNNER.run(spec, (a, a, np.empty((2, 2), np.float32)), (1.0, 2.0))


def test_accumulation_is_float32_for_narrow_types() -> None:
    # In float16 the sum would stop at 2048; in float32 it is exact.
    a, b = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert run(MatmulRequest(a=a, b=b))["out"][0, 0] == 4096


@pytest.mark.host_only  # a fused library makes what it likes of infinities
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_extreme_values_of_gelu(dtype: str) -> None:
    with np.errstate(over="ignore"):  # 1e30 is infinite in float16
        values = np.array([-np.inf, -1e30, -20, -0.0, 0, 20, 1e30, np.inf, np.nan]).astype(DTYPES[dtype])
    one = np.ones((1, 1), DTYPES[dtype])
    zero = np.zeros((1, values.size), DTYPES[dtype])
    forward = run(MatmulRequest(a=one, b=zero, bias=values, epilogue="gelu_bias"))["out"][0].astype(np.float64)
    wide = values.astype(np.float64)
    np.testing.assert_array_equal(forward, np.where(wide < 0, 0, wide))
    ones = np.ones((1, values.size), DTYPES[dtype])
    gradient = run(MatmulRequest(a=one, b=ones, aux=values[None], epilogue="dgelu"))["out"][0].astype(np.float64)
    np.testing.assert_array_equal(gradient[[0, 1, 2, 5, 6, 7, 8]], [0, 0, 0, 1, 1, 1, np.nan])
    np.testing.assert_array_equal(gradient[[3, 4]], [0.5, 0.5])


@pytest.mark.host_only  # a GPU has many threads, each with few of the rows
def test_bias_gradients_of_many_rows_add_up() -> None:
    """One after the other, in float32, they would lose half a percent."""
    tall, wide = np.full((1 << 19, 2), 0.1, np.float32), np.ones((1, 1 << 19), np.float32)
    got = run(MatmulRequest(a=wide, b=tall, epilogue="bgradb"))["bias_grad"]
    np.testing.assert_allclose(got, 0.1 * 2**19, rtol=2e-6)
    far = np.full((1 << 19, 2), 20, np.float32)  # where the slope of GELU is 1
    got = run(MatmulRequest(a=tall[:, :1], b=wide[:, :2], aux=far, epilogue="dgelu_bgrad"))["bias_grad"]
    np.testing.assert_allclose(got, 0.1 * 2**19, rtol=2e-6)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_gradients_against_finite_differences(activation: str) -> None:
    """Forward with aux, backward through it, as a training step does, in float64."""
    rng = np.random.default_rng(10)
    x, w = random(rng, (6, 5), "float64"), random(rng, (5, 7), "float64")
    bias, weights = random(rng, (7,), "float64"), random(rng, (7, 3), "float64")
    target = random(rng, (6, 3), "float64")

    def loss(w: np.ndarray, bias: np.ndarray) -> float:
        hidden = run(MatmulRequest(a=x, b=w, bias=bias, epilogue=f"{activation}_bias"))["out"]
        return float(np.sum((hidden @ weights) * target))

    forward = run(MatmulRequest(a=x, b=w, bias=bias, epilogue=f"{activation}_aux_bias"))
    back = run(MatmulRequest(a=target, b=weights, trans_b=True, aux=forward["aux"], epilogue=f"d{activation}_bgrad"))
    grad_w = run(MatmulRequest(a=x, b=back["out"], trans_a=True, epilogue="bgradb"))
    np.testing.assert_allclose(grad_w["bias_grad"], back["bias_grad"], rtol=1e-13, atol=1e-13)
    step = 1e-6
    for parameter, gradient in ((w, grad_w["out"]), (bias, back["bias_grad"])):
        for index in np.ndindex(parameter.shape):
            ahead, behind = parameter.copy(), parameter.copy()
            ahead[index] += step
            behind[index] -= step
            pair = [(p, bias) if parameter is w else (w, p) for p in (ahead, behind)]
            slope = (loss(*pair[0]) - loss(*pair[1])) / (2 * step)
            assert math.isclose(slope, gradient[index], rel_tol=1e-6, abs_tol=1e-7)


def test_repeated_runs_are_identical() -> None:
    rng = np.random.default_rng(11)
    request = MatmulRequest(
        a=random(rng, (300, 200), "bfloat16"),
        b=random(rng, (200, 100), "bfloat16"),
        bias=random(rng, (100,), "bfloat16"),
        epilogue="gelu_aux_bias",
    )
    first, second = run(request), run(request)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.host_only  # nothing is run
def test_access_and_order_of_operands() -> None:
    a, d = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    c, bias, aux = np.ones((2, 2), np.float32), np.ones(2, np.float32), np.ones((2, 2), np.float32)

    def flags(**options: Any) -> list[tuple[str, int]]:
        return [(o.name, o.access) for o in MatmulRequest(a=a, b=a, **options).lowered.spec().operands]

    full = WRITE | OVERWRITE
    assert flags() == [("a", READ), ("b", READ), ("out", full)]
    assert flags(c=c) == [("a", READ), ("b", READ), ("out", full)]
    assert flags(c=c, beta=1.0, bias=bias, epilogue="gelu_aux_bias") == [
        ("a", READ), ("b", READ), ("c", READ), ("bias", READ), ("out", full), ("aux", full),
    ]  # fmt: skip
    assert flags(c=d, out=d, beta=1.0) == [("a", READ), ("b", READ), ("out", READ | WRITE)]
    assert flags(aux=aux, epilogue="dgelu_bgrad") == [
        ("a", READ), ("b", READ), ("aux", READ), ("out", full), ("bias_grad", full),
    ]  # fmt: skip
