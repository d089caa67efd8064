"""Matmuls with epilogues of one's own, on both kinds of device, against float64."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.blas_lt import epilogues

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda

GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
#: Of D: what one rounding may cost, and sums of some dozen products before it.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
TYPES = (
    ("float64", "float64"), ("float32", "float32"), ("float16", "float16"), ("float16", "float32"),
    ("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("int8", "float32"), ("int8", "bfloat16"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: Any) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-3, 4, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def close(got: an.GpuRef, want: np.ndarray, dtype: str) -> None:
    assert got.shape == want.shape
    assert got.dtype == DTYPES[dtype]
    np.testing.assert_allclose(got.numpy().astype(float), want, TOLERANCE[dtype], 10 * TOLERANCE[dtype])


@cuda.jit(device=True)
def half_of(x: Any) -> Any:
    return x / 2


@cuda.jit(device=True)
def mixed(acc: Any, bias: Any, full: Any, per_row: Any, gate: Any) -> Any:
    y = (acc + bias) * per_row
    return half_of(y) * gate + full, y


MIXED = an.CustomEpilogue(
    mixed,
    {"bias": "row", "per_row": "column", "gate": "scalar", "full": "matrix"},
    aux=True,
    bias_grad=True,
)


def test_shapes_dtypes_and_broadcasts(device: an.Device) -> None:
    examples = 40 if device.name == "host" else 10  # compiling for a GPU takes a second or more each time

    @given(data=st.data())
    @settings(max_examples=examples)
    def check(data: st.DataObject) -> None:
        check_one(device, data)

    check()


def check_one(device: an.Device, data: st.DataObject) -> None:
    a_type, out_type = data.draw(st.sampled_from(TYPES))
    batch = data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    m, n, k = data.draw(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 5, 8, 16, 40]), st.integers(0, 12)))
    trans_a, trans_b, one_b = (data.draw(st.booleans()) for _ in range(3))
    alpha, beta = data.draw(st.sampled_from([1.0, -0.5])), data.draw(st.sampled_from([0.0, 2.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    a = random(rng, (*batch, k, m) if trans_a else (*batch, m, k), a_type)
    b = random(rng, (*(() if one_b else batch), *((n, k) if trans_b else (k, n))), a_type)
    side = ("float64",) if a_type == "float64" else ("float32", "bfloat16", "float16")
    own = {"bias": (n,), "full": (m, n), "per_row": (m,)}
    operands = {
        name: random(rng, (*(batch if data.draw(st.booleans()) else ()), *shape), data.draw(st.sampled_from(side)))
        for name, shape in own.items()
    }
    operands["gate"] = random(rng, data.draw(st.sampled_from([(), (1,)])), side[0])
    c = random(rng, (*batch, m, n), out_type) if beta else None

    x = alpha * (
        (a.swapaxes(-1, -2) if trans_a else a).astype(float) @ (b.swapaxes(-1, -2) if trans_b else b).astype(float)
    )
    if c is not None:
        x = x + beta * c.astype(float)
    wide = {name: value.astype(float) for name, value in operands.items()}
    y = (x + wide["bias"][..., None, :]) * wide["per_row"][..., :, None]
    want = y / 2 * wide["gate"].reshape(()) + wide["full"]

    in_place = beta != 0.0 and data.draw(st.booleans())
    out = device.put(c) if in_place else device.put(np.zeros((*batch, m, 2 * n), DTYPES[out_type]))[..., ::2]
    got = device.blas_lt.matmul(
        device.put(a), device.put(b), trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta,
        c=out if in_place else None if c is None else device.put(c), out=out if data.draw(st.booleans()) or in_place
        else None, out_dtype=out_type, epilogue=MIXED, operands={n: device.put(v) for n, v in operands.items()},
    )  # fmt: skip
    assert isinstance(got, an.MatmulResult)
    close(got.out, want, out_type)
    close(got.aux, y, out_type)
    sums = "float64" if a_type == "float64" else "float32"
    close(got.bias_grad, got.out.numpy().astype(float).sum(-2), sums)


def test_the_gradient_of_a_network(device: an.Device) -> None:
    """Two layers with a shipped activation, forward and backward, against derivatives by hand in float64."""
    rng = np.random.default_rng(0)
    x, w1, b1, w2, dy = (random(rng, shape, "float32") for shape in ((48, 16), (16, 40), (40,), (40, 8), (48, 8)))
    z = x.astype(float) @ w1 + b1
    s = 1 / (1 + np.exp(-z))
    for forward, backward, act, slope in (
        (epilogues.silu_forward, epilogues.silu_backward, z * s, s * (1 + z * (1 - s))),
        (epilogues.squared_relu_forward, epilogues.squared_relu_backward, np.maximum(z, 0) ** 2, 2 * np.maximum(z, 0)),
    ):
        lt, on = device.blas_lt, {n: device.put(v) for n, v in {"x": x, "w1": w1, "b1": b1, "w2": w2, "dy": dy}.items()}
        hidden = lt.matmul(on["x"], on["w1"], epilogue=forward, operands={"bias": on["b1"]})
        back = lt.matmul(on["dy"], on["w2"], trans_b=True, epilogue=backward, operands={"x": hidden.aux})
        close(hidden.out, act, "float32")
        close(hidden.aux, z, "float32")
        dz = (dy.astype(float) @ w2.T) * slope
        close(back.out, dz, "float32")
        np.testing.assert_allclose(back.bias_grad.numpy(), dz.sum(0), 1e-4, 1e-3)
        np.testing.assert_allclose(lt.matmul(on["x"], back.out, trans_a=True).numpy(), x.T @ dz, 1e-4, 1e-3)


def test_shipped_epilogues(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a, b, bias, more = (random(rng, shape, "bfloat16") for shape in ((8, 16), (16, 24), (24,), (8, 24)))
    x = a.astype(float) @ b.astype(float)
    put = device.put
    close(device.blas_lt.matmul(put(a), put(b), epilogue=epilogues.silu), x / (1 + np.exp(-x)), "bfloat16")
    close(device.blas_lt.matmul(put(a), put(b), epilogue=epilogues.squared_relu), np.maximum(x, 0) ** 2, "bfloat16")
    got = device.blas_lt.matmul(
        put(a), put(b), epilogue=epilogues.bias_residual, operands={"bias": put(bias), "residual": put(more)}
    )
    close(got, x + bias.astype(float) + more.astype(float), "bfloat16")
    y = device.blas_lt.matmul(put(a), put(b), epilogue="relu_bias", bias=put(bias))
    got = device.blas_lt.matmul(put(a), put(b), epilogue=epilogues.relu_gradient, operands={"y": y})
    close(got, x * (y.numpy() > 0), "bfloat16")


def test_shipped_epilogues_hide_no_nan(device: an.Device) -> None:
    values = [[math.nan], [math.inf], [-math.inf], [-2]]
    x, one = device.put(np.float32(values)), device.put(np.ones((1, 1), np.float32))
    forward, backward = epilogues.squared_relu_forward, epilogues.squared_relu_backward
    want = [[math.nan], [math.inf], [0], [0]]
    np.testing.assert_array_equal(device.blas_lt.matmul(x, one, epilogue=epilogues.squared_relu).numpy(), want)
    got = device.blas_lt.matmul(x, one, epilogue=forward, operands={"bias": device.zeros((1,), "float32")})
    np.testing.assert_array_equal(got.out.numpy(), want)
    ones = device.put(np.ones((4, 1), np.float32))
    got = device.blas_lt.matmul(ones, one, epilogue=backward, operands={"x": x})
    np.testing.assert_array_equal(got.out.numpy(), want)
    assert math.isnan(got.bias_grad.numpy()[0])
    got = device.blas_lt.matmul(x, one, epilogue=epilogues.relu_gradient, operands={"y": ones})
    np.testing.assert_array_equal(got.numpy(), values)


def test_float8_with_scales(device: an.Device) -> None:
    rng = np.random.default_rng(3)
    a, b = random(rng, (16, 32), "float8_e4m3fn"), random(rng, (16, 32), "float8_e4m3fn")
    scales = {"a_scale": np.float32([0.5]), "b_scale": np.float32([0.25])}
    x = a.astype(float) @ b.astype(float).T / 8
    got = device.blas_lt.matmul(
        device.put(a), device.put(b), trans_b=True, epilogue=epilogues.silu, out_dtype="bfloat16",
        **{name: device.put(scale) for name, scale in scales.items()},
    )  # fmt: skip
    close(got, x / (1 + np.exp(-x)), "bfloat16")


def test_the_accumulator_is_not_rounded(device: an.Device) -> None:
    """float16 products beyond its range come back through the epilogue, at once and when called again."""
    a, b = np.full((8, 64), 60, np.float16), np.full((64, 8), 60, np.float16)
    epilogue = an.CustomEpilogue(lambda acc: acc - np.float32(230000))
    for _ in range(2):
        got = device.blas_lt.matmul(device.put(a), device.put(b), epilogue=epilogue)
        np.testing.assert_array_equal(got.numpy(), 400)


def test_numbers_that_are_none_are_those_of_numpy(device: an.Device) -> None:
    a, b = device.put(np.array([[-1.0], [0.0], [1.0]])), device.put(np.ones((1, 1)))
    got = device.blas_lt.matmul(a, b, epilogue=an.CustomEpilogue(lambda acc: 1 / acc + math.sqrt(acc)))
    np.testing.assert_array_equal(got.numpy(), [[math.nan], [math.inf], [2.0]])


def test_plans_replies_and_pickled_requests(device: an.Device) -> None:
    rng = np.random.default_rng(2)
    a, b, bias = random(rng, (5, 6), "float32"), random(rng, (6, 8), "float32"), random(rng, (8,), "float32")
    offset = np.float32(3)
    epilogue = an.CustomEpilogue(lambda acc, bias: max(acc, bias) + offset, {"bias": "row"})
    want = np.maximum(a.astype(float) @ b, bias) + 3
    x, w, v = device.put(a), device.put(b), device.put(bias)
    plan = device.blas_lt.plan(x, w, epilogue=epilogue, operands={"bias": v})
    out = device.empty((5, 8), "float32")
    plan.tell(x, w, v, out=out)
    close(out, want, "float32")
    plan.tell(x, w, v, out=out, alpha=0.0)
    close(out, np.maximum(0, bias) + 3 + np.zeros((5, 1)), "float32")
    if device.name != "host":
        assert plan.notes[0].startswith("the epilogue is a second kernel, after the product; between them")
    request = an.MatmulRequest(a=x, b=w, epilogue=epilogue, operands={"bias": v})
    close(device.blas_lt.ask(request).result(), want, "float32")
    again = pickle.loads(pickle.dumps(an.MatmulRequest(a=a, b=b, epilogue=epilogue, operands={"bias": bias})))
    request = an.MatmulRequest(a=x, b=w, epilogue=again.epilogue, operands={"bias": device.put(again.operands["bias"])})
    close(device.blas_lt.tell(request), want, "float32")


A, B = np.ones((4, 6), np.float32), np.ones((6, 8), np.float32)
ROW = an.CustomEpilogue(lambda acc, bias: acc + bias, {"bias": "row"})
BIAS = np.ones(8, np.float32)


def request(**options: Any) -> an.MatmulRequest:
    return an.MatmulRequest(**({"a": A, "b": B, "epilogue": ROW, "operands": {"bias": BIAS}} | options))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: an.CustomEpilogue(3), "function is a int; allowed: a Python function"),
        (lambda: an.CustomEpilogue(lambda: 3), "no parameter; the first is the accumulator"),
        (lambda: an.CustomEpilogue(lambda acc, *rest: acc), r"parameter \*rest; allowed: positional"),
        (lambda: an.CustomEpilogue(lambda acc, x=1: acc), "parameter x of <lambda> has a default"),
        (lambda: an.CustomEpilogue(lambda acc, x: acc), "operands are none, but <lambda> takes the accumulator and x"),
        (lambda: an.CustomEpilogue(lambda acc, x: acc, {"x": "rows"}), "'rows'; allowed: matrix, row, column, scalar"),
        (lambda: an.CustomEpilogue(lambda acc, x: acc, 3), "operands=3 must be a dict"),
        (lambda: an.CustomEpilogue(lambda acc, x: acc, {1: "row", "x": "row"}), "operands are 1, x, but <lambda>"),
        (lambda: an.CustomEpilogue(lambda acc, x: acc, {"x": []}), r"broadcast as \[\]; allowed: matrix"),
        (lambda: request(operands={1: BIAS, "bias": BIAS}), "operands has 1, bias; the epilogue takes bias"),
        (lambda: request(epilogue="relu", operands={1: BIAS}), "operands 1 with epilogue 'relu'"),
        (lambda: an.CustomEpilogue(lambda acc, out: acc, {"out": "row"}), "operand out has a name that a matmul uses"),
        (lambda: an.CustomEpilogue(lambda acc: acc, aux=1), "aux=1 must be True or False"),
        (lambda: request(operands=None), "operands has nothing; the epilogue takes bias"),
        (lambda: request(operands=[BIAS]), "operands is a list; it must be a dict"),
        (lambda: request(epilogue="relu"), "operands bias with epilogue 'relu'; allowed: with a CustomEpilogue"),
        (lambda: request(operands={"bias": BIAS[:4]}), r"bias has shape \(4,\); allowed for 'row': \(8,\)"),
        (lambda: request(operands={"bias": BIAS.astype("f8")}), "bias has dtype float64; allowed: float32, bfloat16"),
        (lambda: request(bias=BIAS), "bias is given with a custom epilogue; allowed: an operand of the epilogue"),
        (lambda: request(d_scale=np.ones(1, "f4")), "d_scale is given with a custom epilogue"),
        (lambda: request(aux=np.ones((4, 8), "f4")), "aux is given, but the epilogue was made without aux=True"),
        (lambda: request(out=np.empty((2, 4, 8), "f4")[0], operands={"bias": None}), "bias is a NoneType"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        wrong()


def test_what_is_not_there_is_unsupported() -> None:
    with pytest.raises(an.Unsupported, match=r"D of dtype int32; allowed: D of float64"):
        request(a=A.astype("i1"), b=B.astype("i1"))
    with pytest.raises(an.Unsupported, match=r"D of dtype complex64"):
        request(a=A.astype("c8"), b=B.astype("c8"))
    with pytest.raises(an.Unsupported, match="amax with a custom epilogue"):
        request(amax=True)
    with pytest.raises(an.Unsupported, match="float16_accumulate"):
        request(a=A.astype("f2"), b=B.astype("f2"), compute="float16_accumulate")


def test_outputs_need_memory_of_their_own(device: an.Device) -> None:
    x, w, full = device.put(A), device.put(B), device.put(np.ones((4, 8), np.float32))
    epilogue = an.CustomEpilogue(lambda acc, full: acc + full, {"full": "matrix"})
    device.blas_lt.matmul(x, w, epilogue=epilogue, operands={"full": full}, out=device.empty((4, 8), "float32"))
    with pytest.raises(an.InvalidRequest, match="out overlaps full"):
        device.blas_lt.matmul(x, w, epilogue=epilogue, operands={"full": full}, out=full)
    with pytest.raises(an.InvalidRequest, match="full is a ndarray; a message takes GpuRefs"):
        device.blas_lt.matmul(x, w, epilogue=epilogue, operands={"full": np.ones((4, 8), np.float32)})
    with pytest.raises(an.InvalidRequest, match="CustomEpilogue for all members of a group"):
        device.blas_lt.grouped([x], [w], epilogue=epilogues.silu)


def test_factors_on_the_device(device: an.Device) -> None:
    x, w, half = device.put(A), device.put(B), device.put(np.full(1, 0.5, np.float32))
    epilogue = an.CustomEpilogue(lambda acc: acc * acc)
    np.testing.assert_array_equal(device.blas_lt.matmul(x, w, alpha=half, epilogue=epilogue).numpy(), 9)


@pytest.mark.parametrize(
    ("epilogue", "text"),
    [
        (an.CustomEpilogue(lambda acc: acc + no_such_thing), "no_such_thing"),  # noqa: F821
        (an.CustomEpilogue(lambda acc: (acc, acc)), "compiling"),
        (an.CustomEpilogue(lambda acc: acc, aux=True), "compiling"),
        (an.CustomEpilogue(lambda acc: (acc, acc, acc), aux=True), "compiling"),
    ],
    ids=["name", "one too many", "one too few", "two are not three"],
)
def test_a_function_that_does_not_compile_says_so(device: an.Device, epilogue: an.CustomEpilogue, text: str) -> None:
    with pytest.raises(an.LibraryError, match=text):
        device.blas_lt.plan(device.put(A), device.put(B), epilogue=epilogue).notes  # noqa: B018


WITHOUT = """
import sys
for name in ("numba", "numba_cuda"):
    sys.modules[name] = None
import numpy as np
import atomr_native as an
with an.System(standby="off", isolation="thread") as system:
    device = system.device("host")
    x = device.put(np.ones((4, 4), np.float32))
    device.blas_lt.matmul(x, x, epilogue="relu").numpy()
    try:
        device.blas_lt.matmul(x, x, epilogue=an.epilogues.silu)
    except an.Unsupported as error:
        print(error)
"""


def test_without_numba_it_is_unsupported() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "need numba-cuda, which cannot be imported" in done.stdout
    assert "pip install '.[kernels]'" in done.stdout
