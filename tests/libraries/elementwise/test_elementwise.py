"""Elementwise programs, reductions, fill and copy against NumPy in float64, on the host and on CUDA devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import runners
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import lowered
from plan_builds import build_host
from runners import Runner

from atomr_native.builders.context import Built
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported
from atomr_native.libraries.elementwise.request import (
    ElementwiseRequest,
    ReduceRequest,
    SoftmaxCrossEntropyRequest,
)
from atomr_native.libraries.memory.spec import copy_scalars, copy_spec, fill_scalars, fill_spec
from atomr_native.plans.spec import OVERWRITE, READ, WRITE, PlanSpec

FLOATS = ("float64", "float32", "float16", "bfloat16")
STORE = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


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
    out.fill(0x5B if dtype.kind in "biu" else np.nan)
    return out


def execute(spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
    assert [a.shape for a in arrays] == [o.shape for o in spec.operands]
    RUNNER.run(spec, arrays, scalars)


def run(program: Any, out: np.ndarray | None = None, **operands: Any) -> Any:
    """Run a program over NumPy arrays; return what is written."""
    made = ElementwiseRequest(program=program, operands=operands, out=out).lowered
    arrays = {o.name: poison(o.spec.shape, DTYPES[o.spec.dtype]) if o.given is None else o.given for o in made.operands}
    execute(made.spec(), tuple(arrays.values()), tuple(scalar.value for scalar in made.scalars))
    return made.collect(arrays)


X = np.linspace(-3, 3, 101)
UNARY = {
    "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": np.vectorize(math.erf, otypes=[float]),
    "relu": lambda x: np.maximum(x, 0), "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "isnan": np.isnan,
}  # fmt: skip
BINARY = ["+", "-", "*", "/", "**", "//", "%", "<", "<=", ">", ">=", "==", "!="]


@pytest.mark.fake_only(dtype=["float32"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions(name: str, dtype: str) -> None:
    x = (abs(X) + 0.1 if name in ("log", "sqrt") else X).astype(DTYPES[dtype])
    got = run(f"{name}(x)", x=x)
    expected = UNARY[name](x.astype(np.float64))
    assert got.dtype == (bool if name == "isnan" else DTYPES[dtype])
    # Functions are within 4 units of the last place of the computation, then one rounding to the result.
    rtol = 4 * (2.0**-52 if dtype == "float64" else 2.0**-23) + STORE[dtype]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=rtol, atol=rtol * 1e-2)


@pytest.mark.fake_only(dtype=["float32", "int64"])
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "int64"])
@pytest.mark.parametrize("operator", BINARY)
def test_operators(operator: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(1, 5, (7, 11)).astype(DTYPES[dtype]) for _ in range(2))
    wide = [v.astype(np.float64) if DTYPES[dtype].kind not in "iu" else v for v in (x, y)]
    expected = eval(f"x {operator} y", {"x": wide[0], "y": wide[1]})
    got = run(f"x {operator} y", x=x, y=y)
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=STORE.get(dtype, 1e-15) * 2)
    if DTYPES[dtype].kind in "iu":
        assert got.dtype == expected.dtype


def test_numbers_adapt_to_arrays_as_in_numpy() -> None:
    x = np.arange(5, dtype=np.int32)
    assert run("x * 2", x=x).dtype == np.int32
    assert run("x * s", x=x, s=2).dtype == np.int32
    assert run("x * s", x=x, s=2.0).dtype == np.float64
    assert run("x * s", x=x.astype(np.float32), s=np.float64(2)).dtype == np.float32
    np.testing.assert_array_equal(run("x / 2 + (1 - s) * 4", x=x, s=0.5), x / 2 + 2)
    assert run("where(x > 2, 1.5, 0)", x=x.astype(np.float32), out=np.empty(5, np.float32)).tolist() == [
        0,
        0,
        0,
        1.5,
        1.5,
    ]
    with pytest.raises(InvalidRequest, match=r"300.*(uint8|0 to 255)"):
        run("x + s", x=np.arange(3, dtype=np.uint8), s=300)


def test_small_integers_are_computed_in_float32() -> None:
    x = np.array([-128, 4, 9], np.int8)
    got = run("sigmoid(x) + sqrt(abs(x + 0))", x=x)
    assert got.dtype == np.float32
    assert run("sigmoid(x)", x=x)[0] < 1e-30


def test_signed_and_unsigned_compare_exactly() -> None:
    a = np.array([-1, 0, 2**62, 2**62 + 1], np.int64)
    b = np.array([2**64 - 1, 0, 2**62, 2**62], np.uint64)
    for operator, expected in {"<": [1, 0, 0, 0], "==": [0, 1, 1, 0], ">": [0, 0, 0, 1], "!=": [1, 0, 0, 1]}.items():
        out = poison((4,), np.dtype(bool))
        run(f"a {operator} b", out, a=a, b=b)
        assert out.tolist() == [bool(x) for x in expected]


def test_adam_is_one_message() -> None:
    program = """
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        w -= lr * (m / (1 - b1 ** t)) / (sqrt(v / (1 - b2 ** t)) + eps)
    """
    rng = np.random.default_rng(2)
    w, g = (rng.standard_normal((300, 257)).astype(np.float32) for _ in range(2))
    m, v = np.zeros_like(w), np.zeros_like(w)
    rw, rm, rv = (x.astype(np.float64) for x in (w, m, v))
    for t in (1, 2, 3):
        written = run(program, w=w, g=g, m=m, v=v, lr=0.01, b1=0.9, b2=0.999, eps=1e-8, t=t)
        assert [x is y for x, y in zip(written, (m, v, w), strict=True)] == [True] * 3
        rm = 0.9 * rm + (1 - 0.9) * g.astype(np.float64)
        rv = 0.999 * rv + (1 - 0.999) * g.astype(np.float64) ** 2
        rw -= 0.01 * (rm / (1 - 0.9**t)) / (np.sqrt(rv / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(m, rm, rtol=1e-6)
    np.testing.assert_allclose(v, rv, rtol=1e-6)
    np.testing.assert_allclose(w, rw, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_momentum_reads_back_what_it_stored(dtype: str) -> None:
    rng = np.random.default_rng(3)
    m, w, g = (rng.standard_normal(1000).astype(DTYPES[dtype]) for _ in range(3))
    acc = np.float64 if dtype == "float64" else np.float32
    new_m = (acc(0.9) * m.astype(acc) + g.astype(acc)).astype(DTYPES[dtype])
    new_w = (w.astype(acc) - acc(0.1) * new_m.astype(acc)).astype(DTYPES[dtype])
    run("m = beta * m + g; w = w - lr * m", m=m, w=w, g=g, beta=0.9, lr=0.1)
    assert m.tobytes() == new_m.tobytes()
    assert w.tobytes() == new_w.tobytes()


def test_values_may_be_exchanged_and_reused() -> None:
    a, b = np.arange(5.0), np.arange(5.0) * 10
    run("t = a; a = b; b = t", a=a, b=b)
    assert (a.tolist(), b.tolist()) == ([0, 10, 20, 30, 40], [0, 1, 2, 3, 4])
    run("t = a + b; a = t * t; b = a - t", a=a, b=b)
    t = np.arange(5.0) * 11
    np.testing.assert_array_equal((a, b), (t * t, t * t - t))
    run("a = where(a > 100, b, a)", a=a, b=b)
    np.testing.assert_array_equal(a, np.where(t * t > 100, t * t - t, t * t))
    run({"a": "b + 1", "b": "a + 1"}, a=a, b=b)
    np.testing.assert_array_equal(b, a + 1)
    b[:] = [4, 3, 2, 1, 0]
    expected = np.where(b > 2, a, b)
    run("a = where(b > 2, a, b)", a=a, b=b)
    np.testing.assert_array_equal(a, expected)
    old = a.copy()
    run("t = a; a = b * 2; b = t + 1", a=a, b=b)
    np.testing.assert_array_equal((a, b), ([8, 6, 4, 2, 0], old + 1))
    run("a = 7; b = s", a=a, b=b, s=2)
    assert (a.tolist(), b.tolist()) == ([7] * 5, [2] * 5)


def test_the_same_array_under_two_names() -> None:
    w, g = np.arange(6.0), np.ones(6)
    made = ElementwiseRequest(program="w - 2 * g", operands={"w": w, "g": g}, out=w).lowered
    assert [(o.name, o.access) for o in made.spec().operands] == [("w", READ | WRITE), ("g", READ)]
    assert run("w - 2 * g", out=w, w=w, g=g) is w
    assert w.tolist() == [-2, -1, 0, 1, 2, 3]
    with pytest.raises(InvalidRequest, match="out overlaps w"):
        run("w * 2", out=w[1:], w=w[:-1])
    with pytest.raises(InvalidRequest, match="both are assigned"):
        run("a = 1; b = a + b", a=w, b=w)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(["x", "y", "z", "s", "n", "2", "0.5", "-1.25"]))
    inner = [draw(expressions(depth - 1)) for _ in range(3)]
    form = draw(st.sampled_from(["({0} + {1})", "({0} - {1})", "({0} * {1})", "minimum({0}, {1})", "maximum({0}, {1})",
                                 "where({0} < {1}, {2}, {0})", "tanh({0})", "abs({0})", "relu({0})", "-({0})",
                                 "sigmoid({0})", "({0}) ** 2", "floor({0})", "({0}) / (abs({1}) + 1)"]))  # fmt: skip
    return form.format(*inner)


def oracle(source: str, names: dict[str, Any]) -> Any:
    def call(function: Any) -> Any:
        return lambda *arguments: function(*(np.float64(a) if isinstance(a, float | int) else a for a in arguments))

    scope = {name: call(function) for name, function in UNARY.items()}
    scope |= {"minimum": call(np.minimum), "maximum": call(np.maximum), "where": np.where}
    return eval(source, scope, names)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_random_expressions_over_broadcasts_and_strides(data: st.DataObject) -> None:
    if RUNNER.engine == "fake" and data.draw(st.integers(0, 4)):
        return  # each expression is compiled
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 300, 401]), max_size=3).filter(
        lambda s: math.prod(s) < 200_000)))  # fmt: skip

    def operand() -> np.ndarray:
        kept = shape[data.draw(st.integers(0, len(shape))) :]
        kept = tuple(data.draw(st.sampled_from([e, e, 1])) for e in kept)
        kind = data.draw(st.sampled_from(["dense", "fortran", "strided"]))
        if kind == "fortran":
            return rng.standard_normal(kept[::-1]).T
        if kind == "strided" and kept:
            return rng.standard_normal((*kept[:-1], 2 * kept[-1]))[..., ::2]
        return rng.standard_normal(kept)

    source = data.draw(expressions())
    names: dict[str, Any] = {n: operand() for n in ("x", "y", "z") if n in _used(source)}
    names |= {n: v for n, v in (("s", 0.75), ("n", 3)) if n in _used(source)}
    kind = data.draw(st.sampled_from(["dense", "fortran", "strided"]))
    out = np.empty((*shape[:-1], 2 * shape[-1]))[..., ::2] if kind == "strided" and shape else np.empty(shape)
    out = np.empty(shape[::-1]).T if kind == "fortran" else out
    out.fill(np.nan)
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(oracle(source, names), shape)
    run(source, out=out, **names)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def _used(source: str) -> set[str]:
    import ast

    calls = {n.func.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)}
    return {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)} - calls


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (32768,), (32769,), (100003,), (5, 40000), (70000, 3)])
def test_block_boundaries(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(4).standard_normal(shape)
    np.testing.assert_array_equal(run("x * 2 + 1", x=x, out=poison(shape, x.dtype)), x * 2 + 1)
    y = run("x * 2 + 1", x=np.asfortranarray(x))
    np.testing.assert_array_equal(y, x * 2 + 1)


def test_results_are_converted_to_the_output() -> None:
    x = np.array([-1.5, 0.0, 2.75])
    assert run("x", x=x, out=np.empty(3, np.int32)).tolist() == [-1, 0, 2]
    assert run("x", x=x, out=np.empty(3, bool)).tolist() == [True, False, True]
    assert run("x * (1 + 0)", x=x, out=np.empty(3, np.complex64)).tolist() == x.tolist()
    with pytest.raises(InvalidRequest, match="complex128 value is assigned to 'out' of dtype float32"):
        run("x", x=x * 1j, out=np.empty(3, np.float32))


@pytest.mark.host_only  # of the host's memory
def test_memory_of_a_run_does_not_grow_with_the_operands() -> None:
    import tracemalloc

    x = np.ones(1 << 20, np.float32)
    request = ElementwiseRequest(program="tanh(x) * x + exp(x) / (x + 1)", operands={"x": x}, out=x)
    built = build_host(request.lowered.spec())
    assert callable(built.run)
    tracemalloc.start()
    built.run((x,), ())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20  # the array has 4 MiB


@pytest.mark.fake_only(dtype=["float32", "uint8"], axis=[None, -1, (0, 2)])
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "bool", "float8_e5m2"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (), (2, 0, 1)])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "argmax"])
def test_reductions(op: str, axis: Any, dtype: str) -> None:
    x = np.random.default_rng(5).integers(0, 200 if dtype == "uint8" else 2, (4, 5, 7)).astype(DTYPES[dtype])
    if op == "argmax" and isinstance(axis, tuple):
        with pytest.raises(InvalidRequest, match="one axis, or None"):
            ReduceRequest(op=op, x=x, axis=axis)
        return
    spec, fresh = lowered(ReduceRequest(op=op, x=x, axis=axis))
    out = poison(*fresh)
    execute(spec, (x, out))
    expected = getattr(np, op)(x.astype(np.float64), axis=axis)
    rtol = {"float16": 2**-10, "bfloat16": 2**-7, "float8_e5m2": 2**-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=rtol)
    if dtype == "uint8" and op == "sum":
        assert out.dtype == np.uint64


def test_sums_of_float16_do_not_stop_at_2048() -> None:
    x = np.ones((3, 5000), np.float16)
    out = np.empty(3, np.float32)
    execute(ReduceRequest(op="sum", x=x, axis=1, out=out).lowered.spec(), (x, out))
    assert out.tolist() == [5000] * 3


@pytest.mark.host_only  # a GPU has many threads, each with few of the rows
def test_many_rows_add_up() -> None:
    """One after the other, in float32, they would lose half a percent."""
    x = np.full((1 << 19, 2), 0.1, np.float32)
    for op, want in (("sum", 0.1 * 2**19), ("mean", 0.1)):
        out = np.empty(2, np.float32)
        execute(ReduceRequest(op=op, x=x, axis=0, out=out).lowered.spec(), (x, out))
        np.testing.assert_allclose(out, want, rtol=2e-6)


@pytest.mark.fake_only(dtype=["float32", "bfloat16"], rows=[7])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 7, 5000])
@pytest.mark.parametrize("label_dtype", [np.int32, np.int64])
def test_softmax_cross_entropy(dtype: str, rows: int, label_dtype: Any) -> None:
    rng = np.random.default_rng(6)
    logits = (rng.standard_normal((rows, 10)) * 20).astype(DTYPES[dtype])
    labels = rng.integers(0, 10, rows).astype(label_dtype)
    spec, *fresh = lowered(SoftmaxCrossEntropyRequest(logits=logits, labels=labels))
    grad, loss = (poison(*f) for f in fresh)
    execute(spec, (logits, labels, grad, loss))
    wide = logits.astype(np.float64)
    p = np.exp(wide - wide.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    picked = wide[np.arange(rows), labels] - wide.max(1) - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1))
    expected = (p - np.eye(10)[labels]) / rows
    np.testing.assert_allclose(loss, -picked.mean(), rtol=1e-5)
    # float16 loses the smallest gradients below its subnormals.
    atol = 2.0**-24 if dtype == "float16" else 1e-6 / rows if dtype != "float64" else 1e-15
    np.testing.assert_allclose(grad.astype(np.float64), expected, rtol=2 * STORE[dtype] + 1e-14, atol=atol)


def test_softmax_gradient_against_finite_differences() -> None:
    rng = np.random.default_rng(7)
    logits, labels = rng.standard_normal((3, 4)), np.array([3, 0, 2])

    def both(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        request = SoftmaxCrossEntropyRequest(logits=z, labels=labels)
        grad, loss = np.empty_like(z), np.empty((), np.float32)
        execute(request.lowered.spec(), (z, labels, grad, loss))
        return grad, loss

    gradient = both(logits)[0]
    for index in np.ndindex(logits.shape):
        ahead, behind = logits.copy(), logits.copy()
        ahead[index] += 1e-2
        behind[index] -= 1e-2
        slope = (float(both(ahead)[1]) - float(both(behind)[1])) / 2e-2
        assert math.isclose(slope, gradient[index], abs_tol=1e-4)  # the loss is a float32


@pytest.mark.host_only  # a kernel has no errors: it makes them NaN
@pytest.mark.parametrize("label", [-1, 4])
def test_labels_outside_the_classes_write_nothing(label: int) -> None:
    logits, labels = np.zeros((2, 4), np.float32), np.array([0, label])
    grad, loss = np.full((2, 4), 5, np.float32), np.full((), 5, np.float32)
    spec = SoftmaxCrossEntropyRequest(logits=logits, labels=labels).lowered.spec()
    with pytest.raises(InvalidRequest, match=rf"label {label} in row 1; allowed: 0 to 3"):
        execute(spec, (logits, labels, grad, loss))
    assert (grad == 5).all()
    assert loss == 5


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_fill(dtype: str) -> None:
    out = np.empty((3, 8), DTYPES[dtype])[:, ::2]
    for value in (0, 1, *(() if dtype == "bool" else (3,)), *((2 - 1.5j,) if out.dtype.kind == "c" else ())):
        spec = fill_spec(out)
        scalars = fill_scalars(out.dtype, value)
        assert len(scalars) == len(spec.scalars)
        execute(spec, (out,), scalars)
        assert (out.astype(np.complex128) == value).all()


def test_fill_covers_all_of_uint64() -> None:
    out = np.zeros(3, np.uint64)
    assert -(2**63) <= fill_scalars(out.dtype, 2**64 - 1)[0] < 2**63
    execute(fill_spec(out), (out,), fill_scalars(out.dtype, 2**64 - 1))
    assert out.tolist() == [2**64 - 1] * 3


@pytest.mark.host_only  # nothing is run
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int8", 200), ("uint8", -1), ("int32", 1.5), ("int64", math.nan), ("float32", 1j), ("bool", 2),
        ("float64", "x"), ("float64", 10**400),
    ],
)  # fmt: skip
def test_fill_refuses_what_does_not_fit(dtype: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"allowed|too large"):
        fill_scalars(DTYPES[dtype], value)


@pytest.mark.fake_only(source=["bfloat16", "int8"])
@pytest.mark.parametrize("source", list(DTYPES))
@pytest.mark.parametrize("target", list(DTYPES))
def test_copy_converts_every_dtype(source: str, target: str) -> None:
    src = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[source])
    out = poison((3, 2), DTYPES[target]).T
    if DTYPES[source].kind == "c" and DTYPES[target].kind != "c":
        with pytest.raises(InvalidRequest, match="imaginary part"):
            copy_spec(src, out)
        return
    spec = copy_spec(src, out)
    assert copy_scalars(spec) == ()
    execute(spec, (src, out))
    np.testing.assert_array_equal(out.astype(np.complex128), src.astype(np.complex128))


@pytest.mark.host_only  # about its builders
def test_copies_of_bytes_are_native_and_others_broadcast() -> None:
    x, out = np.arange(6.0).reshape(2, 3), np.empty((2, 3))
    spec = copy_spec(x, out)
    assert build_host(spec) == Built("copy")
    assert copy_scalars(spec) == (48,)
    assert [o.access for o in spec.operands] == [READ, WRITE | OVERWRITE]
    execute(copy_spec(x[0], out), (x[0], out))
    np.testing.assert_array_equal(out, np.broadcast_to(x[0], (2, 3)))
    with pytest.raises(InvalidRequest, match=r"\(2, 3\).*\(3,\)"):
        copy_spec(x, out[0])
    with pytest.raises(InvalidRequest, match="out overlaps src"):
        copy_spec(x[:, :2], x[:, 1:])


@pytest.mark.host_only  # about its builders
def test_unknown_operations_are_named() -> None:
    with pytest.raises(Unsupported, match=r"'fft.forward'.*blas_lt.matmul.*memory.fill"):
        build_host(PlanSpec("fft.forward", ()))
    assert build_host(PlanSpec("noop", ())) == Built("noop")
