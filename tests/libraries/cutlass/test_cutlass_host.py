"""Products with epilogue trees on the host device, against float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an

pytestmark = [pytest.mark.plain, pytest.mark.alike]

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module", params=["thread", "process"])
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System(isolation=request.param, allow_crash=True) as system:
        yield system.device("host")


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype in ("int8", "int32"):
        return RNG.integers(-100, 100, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


#: Functions of the language, in float64.
WANTED: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "exp": np.exp,
    "erf": np.vectorize(math.erf),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "abs": np.abs,
    "-": np.negative,
}


@pytest.mark.parametrize("function", WANTED)
def test_functions(device: an.Device, function: str) -> None:
    a, b = values(6, 5), values(5, 7)
    found = device.cutlass.gemm(device.put(a), device.put(b), epilogue=f"{function}(acc)").numpy()
    np.testing.assert_allclose(found, WANTED[function](a.astype("f8") @ b), rtol=2e-5, atol=2e-5)


def test_functions_of_several_numbers(device: an.Device) -> None:
    a, b, row = values(6, 5), values(5, 7), values(7)
    x = a.astype("f8") @ b
    for text, want in {
        "clamp(acc, -0.5, 1)": np.clip(x, -0.5, 1),
        "maximum(acc, row) - minimum(acc, 2 * row)": np.maximum(x, row) - np.minimum(x, 2 * row),
        "fma(acc, row, 3) / 2": (x * row + 3) / 2,
        "sqrt(abs(acc)) * -row": np.sqrt(np.abs(x)) * -row,
        "1 - acc": 1 - x,
        "leaky_relu(acc, 0.125)": np.where(x < 0, x / 8, x),
        "log(abs(acc) + 1) + rsqrt(acc * acc + 1)": np.log(np.abs(x) + 1) + 1 / np.sqrt(x * x + 1),
    }.items():
        found = device.cutlass.gemm(
            device.put(a), device.put(b), epilogue=text, operands={"row": device.put(row)} if "row" in text else None
        )
        np.testing.assert_allclose(found.numpy(), want, rtol=2e-5, atol=2e-5)


PAIRS = [
    ("float64", "float64", None), ("float32", "float32", None), ("float32", "float32", "tf32"),
    ("float16", "float16", None), ("bfloat16", "float32", None), ("int8", "int32", None), ("int8", "int8", None),
    ("int8", "float32", None), ("float8_e4m3fn", "bfloat16", None), ("float8_e5m2", "float32", None),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "out", "compute"), PAIRS)
def test_types(device: an.Device, dtype: str, out: str, compute: str | None) -> None:
    a, b = (
        device.put(values(*shape, dtype="int8" if dtype == "int8" else "float32"), dtype=dtype)
        for shape in ((9, 33), (33, 5))
    )
    found = device.cutlass.gemm(a, b, alpha=0.5, out_dtype=out, compute=compute)
    assert found.dtype == an.dtypes.as_dtype(out)
    want = 0.5 * (a.numpy().astype("f8") @ b.numpy().astype("f8"))
    if out.startswith("int"):
        info = np.iinfo(out)
        np.testing.assert_array_equal(found.numpy(), np.clip(np.rint(want), info.min, info.max).astype(out))
        return
    bits = {"float64": 40, "float32": 16, "float16": 9, "bfloat16": 6}[out]
    assert np.abs(found.numpy().astype("f8") - want).max() <= 2.0**-bits * np.abs(want).max()


def test_the_accumulator_of_int8_is_exact(device: an.Device) -> None:
    a, b = np.full((2, 3000), 127, np.int8), np.full((3000, 2), 127, np.int8)
    a[0, 0] = 126  # a sum that float32 does not hold
    found = device.cutlass.gemm(device.put(a), device.put(b), epilogue="acc").numpy()
    np.testing.assert_array_equal(found, a.astype("i8") @ b.astype("i8"))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    m, n, k = (draw(st.integers(1, 9)) for _ in range(3))
    batch = draw(st.sampled_from([(), (2,), (2, 3), (1,)]))
    return {
        "m": m, "n": n, "k": k, "batch": batch, "order": draw(st.sampled_from(["C", "F"])),
        "a_batch": draw(st.sampled_from([batch, ()])),
        "kind": draw(st.sampled_from(["row", "column", "matrix", "scalar"])), "spread": draw(st.booleans()),
        "out": draw(st.sampled_from(["C", "F", None])), "beta": draw(st.sampled_from([0.0, 1.0, -1.5])),
    }  # fmt: skip


def ordered(device: an.Device, array: np.ndarray, order: str) -> an.GpuRef:
    """Return matrices whose rows (C) or columns (F) are contiguous."""
    if order == "C":
        return device.put(array)
    return device.put(np.ascontiguousarray(array.swapaxes(-1, -2))).mT


@given(p=problems())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shapes_and_layouts(device: an.Device, p: dict[str, Any]) -> None:
    m, n, k, batch = p["m"], p["n"], p["k"], p["batch"]
    a, b, c = values(*p["a_batch"], m, k), values(*batch, k, n), values(*batch, m, n)
    own = {"row": (n,), "column": (m, 1), "matrix": (m, n), "scalar": ()}[p["kind"]]
    more = values(*(((*batch, *((1,) * (2 - len(own))), *own)) if p["spread"] else own))
    out = None if p["out"] is None else ordered(device, np.full((*batch, m, n), np.nan, "f4"), p["out"])
    found = device.cutlass.gemm(
        ordered(device, a, p["order"]), device.put(b), c=device.put(c), out=out, alpha=0.5, beta=p["beta"],
        epilogue="y = alpha * acc + beta * c; out = y * more + y", operands={"more": device.put(np.asarray(more))},
    )  # fmt: skip
    y = 0.5 * (a.astype("f8") @ b) + p["beta"] * c
    np.testing.assert_allclose(found.numpy(), y * more + y, rtol=1e-4, atol=1e-4)
    if out is not None:
        assert found is out


def test_intermediate_results_are_stored(device: an.Device) -> None:
    a, b, bias = values(4, 5), values(5, 3), values(3)
    given = device.put(np.full((4, 3), np.nan, "f4"))
    out, pre, gate = device.cutlass.gemm(
        device.put(a), device.put(b), operands={"bias": device.put(bias)}, outputs={"gate": given, "pre": "bfloat16"},
        epilogue="pre = acc + bias; gate = sigmoid(pre); out = pre * gate",
    )  # fmt: skip
    assert (gate is given, str(pre.dtype)) == (True, "bfloat16")
    x = a.astype("f8") @ b + bias
    np.testing.assert_allclose(pre.numpy().astype("f8"), x, rtol=2**-8)
    np.testing.assert_allclose(gate.numpy(), 1 / (1 + np.exp(-x)), rtol=1e-5)
    np.testing.assert_allclose(out.numpy(), x / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)  # of the unrounded value


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("wide", ["float16", "bfloat16"])
def test_operands_that_are_converted(device: an.Device, dtype: str, wide: str) -> None:
    a, bias = device.put(values(2, 5, 12), dtype=wide), values(7)
    b = device.put(values(12, 7, dtype="int8" if dtype == "int8" else "float32"), dtype=dtype)
    scale = device.put(np.exp2(RNG.integers(-8, 0, (3, 7))).astype("f4"), dtype=wide)  # exact factors
    x, w = a.numpy().astype("f8"), b.numpy().astype("f8")
    for factors in (None, scale):
        wanted = x @ (w if factors is None else w * np.repeat(factors.numpy().astype("f8"), 4, axis=0)) + bias
        found = device.cutlass.gemm(
            a, b, b_scale=factors, epilogue="acc + bias", operands={"bias": device.put(bias)}, out_dtype="float32"
        )
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert str(device.cutlass.gemm(a, b).dtype) == wide
    layer = device.cutlass.bind("converted", a, b, b_scale=scale)
    assert set(layer.operands) == {"b", "b_scale"}
    layer.refit(b_scale=device.zeros(scale.shape, wide))
    assert not layer.tell(a).numpy().astype("f8").any()


def test_values_are_reduced(device: an.Device) -> None:
    a, b, bias = values(2, 40, 50), values(50, 30), values(30)
    given = device.put(np.full((2, 30), np.nan, "f4"))
    out, rows, most, columns_ = device.cutlass.gemm(
        device.put(a), device.put(b), operands={"bias": device.put(bias)}, out_dtype="float32",
        outputs={"columns": "float32", "rows": given, "most": "float32"},
        epilogue="pre = acc + bias; rows = sum(pre, 0); most = max(pre); columns = sum(acc, 1); out = relu(pre) - acc",
    )  # fmt: skip
    x = a.astype("f8") @ b
    assert rows is given
    np.testing.assert_allclose(rows.numpy(), (x + bias).sum(1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(most.numpy(), (x + bias).max((1, 2)).reshape(2, 1), rtol=1e-5)
    np.testing.assert_allclose(columns_.numpy(), x.sum(2), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(out.numpy(), np.maximum(x + bias, 0) - x, rtol=1e-4, atol=1e-4)
    tree = an.EpilogueTree.acc().reduced("max", "most", 1)
    out, most = device.cutlass.gemm(device.put(a[0]), device.put(b), epilogue=tree, outputs={"most": "float32"})
    np.testing.assert_allclose(most.numpy(), x[0].max(1), rtol=1e-5)
    same = an.EpilogueTree.parse("acc")
    assert same != tree


def test_factors_of_the_message_and_of_the_device(device: an.Device) -> None:
    a, b, c = values(4, 5), values(5, 3), values(4, 3)
    x, given = a.astype("f8") @ b, (device.put(a), device.put(b))
    for alpha in (2.0, -3.5):  # one structure
        found = device.cutlass.gemm(*given, c=device.put(c), alpha=alpha, beta=0.5)
        np.testing.assert_allclose(found.numpy(), alpha * x + 0.5 * c, rtol=1e-5, atol=1e-5)
    scale = device.put(np.array([4.0], "f4"))
    found = device.cutlass.gemm(*given, alpha=scale)
    np.testing.assert_allclose(found.numpy(), 4 * x, rtol=1e-5, atol=1e-5)
    out = device.put(c)
    assert device.cutlass.gemm(*given, c=out, out=out, beta=2.0) is out
    np.testing.assert_allclose(out.numpy(), x + 2 * c, rtol=1e-5, atol=1e-5)
    poison = device.put(np.full((4, 3), np.nan, "f4"))
    assert not np.isnan(device.cutlass.gemm(*given, c=poison, out=poison, beta=0.0).numpy()).any()
    for shift in (1.0, 2.0):
        found = device.cutlass.gemm(*given, epilogue="acc - shift", operands={"shift": shift})
        np.testing.assert_allclose(found.numpy(), x - shift, rtol=1e-5, atol=1e-5)


def test_nan_passes_through_functions(device: an.Device) -> None:
    a, b = np.array([[np.nan], [1.0]], "f4"), np.ones((1, 1), "f4")
    for text in (
        "relu(acc)",
        "maximum(acc, 0)",
        "clamp(acc, 0, 1)",
        "gelu(acc)",
        "softplus(acc)",
        "leaky_relu(acc, 0.5)",
    ):
        found = device.cutlass.gemm(device.put(a), device.put(b), epilogue=text).numpy()
        assert np.isnan(found).tolist() == [[True], [False]]


def test_nothing_is_a_product_of_nothing(device: an.Device) -> None:
    assert device.cutlass.gemm(device.zeros((0, 3)), device.zeros((3, 4))).shape == (0, 4)


def test_plans(device: an.Device) -> None:
    a, b, bias = device.put(values(4, 5)), device.put(values(5, 3)), device.put(values(3))
    plan = device.cutlass.plan(a, b, epilogue="alpha * acc + bias", alpha=2.0, operands={"bias": bias})
    out = device.zeros((4, 3), "float32")
    plan.ask(a, b, bias, out=out).result(60)
    np.testing.assert_allclose(out.numpy(), 2 * (a.numpy() @ b.numpy()) + bias.numpy(), rtol=1e-5)
    plan.ask(a, b, bias, out=out, alpha=-1.0).result(60)
    np.testing.assert_allclose(out.numpy(), -(a.numpy() @ b.numpy()) + bias.numpy(), rtol=1e-5)


def test_plans_take_part_in_recorded_programs(device: an.Device) -> None:
    a, b, out = device.put(values(4, 5)), device.put(values(5, 3)), device.zeros((4, 3), "float32")
    with device.record() as recording:
        device.cutlass.gemm(
            recording.operand("a", a),
            b,
            out=out,
            epilogue="relu(acc) - shift",
            operands={"shift": recording.scalar("shift", 1.0)},
        )
    for shift in (0.5, 2.0):
        other = device.put(values(4, 5))
        recording.plan.ask(a=other, shift=shift).result(60)
        np.testing.assert_allclose(out.numpy(), np.maximum(other.numpy() @ b.numpy(), 0) - shift, rtol=1e-5, atol=1e-5)


def test_weights_are_refitted(device: an.Device) -> None:
    x, w, bias = values(4, 5), values(5, 3), values(3)
    layer = device.cutlass.bind(
        "up", device.put(x), device.put(w), epilogue="relu(alpha * acc + bias)", operands={"bias": device.put(bias)}
    )
    plan = layer.plan
    first = layer.tell(device.put(x))
    device.cutlass.refit("up", b=device.put(2 * w), bias=device.put(-bias))
    second = layer.tell(device.put(x), alpha=3.0)
    np.testing.assert_allclose(first.numpy(), np.maximum(x @ w + bias, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second.numpy(), np.maximum(6 * (x @ w) - bias, 0), rtol=1e-5, atol=1e-5)
    assert device.cutlass.bound("up") is layer
    assert layer.plan is plan
    assert set(layer.operands) == {"b", "bias"}
    out = device.zeros((4, 3), "float32")
    layer.ask(device.put(x), out=out).result(60)
    np.testing.assert_allclose(out.numpy(), np.maximum(2 * (x @ w) - bias, 0), rtol=1e-5, atol=1e-5)


def test_refits_that_cannot_be(device: an.Device) -> None:
    a, b = device.put(values(4, 5)), device.put(values(5, 3))
    layer = device.cutlass.bind("down", a, b)
    with pytest.raises(an.InvalidRequest, match=r"no product is bound as 'sideways'; bound: .*down"):
        device.cutlass.refit("sideways", b=b)
    with pytest.raises(an.InvalidRequest, match="unknown option 'bias' of what is bound; allowed: b"):
        layer.refit(bias=b)
    with pytest.raises(an.InvalidRequest, match=r"b has shape, dtype and strides \(\(3, 5\)"):
        layer.refit(b=device.put(values(3, 5)))
    with pytest.raises(an.InvalidRequest, match="out is given to bind"):
        device.cutlass.bind("x", a, b, out=device.zeros((4, 3), "float32"))
    with pytest.raises(an.InvalidRequest, match="name is 7"):
        device.cutlass.bind(7, a, b)  # type: ignore[arg-type]
    assert layer.operands["b"] is b


def test_the_least_recently_used_name_is_forgotten(device: an.Device) -> None:
    a, b = device.put(values(2, 2)), device.put(np.eye(2, dtype="f4"))
    layers = [device.cutlass.bind(f"layer {i}", a, b) for i in range(64)]
    device.cutlass.bound("layer 0")
    device.cutlass.bind("layer 64", a, b)
    assert device.cutlass.bound("layer 0") is layers[0]
    with pytest.raises(an.InvalidRequest, match="no product is bound as 'layer 1'"):
        device.cutlass.bound("layer 1")
    np.testing.assert_array_equal(layers[1].tell(a).numpy(), a.numpy())
