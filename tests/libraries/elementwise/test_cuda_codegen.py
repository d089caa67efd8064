"""CUDA builders compute what the host builders compute: programs, fills and copies, reductions.

The same bodies run on the two engines of ``codegen_engines``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from codegen_engines import (
    ARITHMETIC,
    COMPARE,
    FLOATS,
    INTEGERS,
    STORE,
    UNARY,
    Engine,
    both,
    each,
    engines,
    need_nvrtc,
    outputs,
    poison,
    program,
    random,
)
from layouts import filled
from lowered import lowered
from msgspec.structs import replace
from placements import GPU

from atomr_native.builders.cuda.target import Target
from atomr_native.dtypes import DTYPES
from atomr_native.errors import PlanQuarantined, Unsupported
from atomr_native.libraries.elementwise.request import (
    ElementwiseRequest,
    ReduceRequest,
    SoftmaxCrossEntropyRequest,
)
from atomr_native.libraries.memory.spec import copy_scalars, copy_spec, fill_scalars, fill_spec
from atomr_native.plans.spec import PlanSpec, QuarantinedAttributes


@pytest.fixture(scope="module", params=["cpu", *GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend each engine in turn."""
    with engines(request.param, tmp_path_factory) as found:
        yield found


@pytest.mark.bits
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_functions(engine: Engine, dtype: str) -> None:
    skip = ("-",) if dtype.startswith("u") else ()
    sources = each(UNARY, "{}(x)", skip)
    x = random((3, 41), dtype, 1)
    if dtype in FLOATS:
        x[0, :3] = [np.nan, 0.0, -0.0]
        if dtype != "float8_e4m3fn":
            x[1, :2] = [np.inf, -np.inf]
    program(engine, sources, **outputs(sources, x.shape, {"x": dtype}), x=x)


@pytest.mark.bits
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_operators(engine: Engine, dtype: str) -> None:
    sources = each([*ARITHMETIC, *COMPARE], "x {} y")
    sources |= {"lo": "minimum(x, y)", "hi": "maximum(x, y)", "chosen": "where(x < y, x, y)", "square": "x ** 2"}
    if dtype in INTEGERS:
        sources |= {f"b{k}": v for k, v in each(["&", "|", "^"], "(x {} y) + ~x").items()}
    x, y = random((3, 41), dtype, 1), random((3, 41), dtype, 2)
    if dtype in INTEGERS:
        y = abs(y)  # NumPy refuses negative powers
        info = np.iinfo(dtype)
        x[0, :4] = [info.min, info.max, info.min, info.max]
        y[0, :4] = [1, 1, info.max, info.max]
    elif dtype != "float8_e4m3fn":
        x[0, :6] = [np.nan, 1, np.inf, -np.inf, 0, -0.0]
        y[0, :6] = [1, np.nan, 3, 3, 0, -2]
    program(engine, sources, **outputs(sources, x.shape, {"x": dtype, "y": dtype}), x=x, y=y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division(engine: Engine, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array(
        sorted({info.min, info.min + 1, -7 if info.min else 3, 0, 1, 7, 8, info.max - 1, info.max}), dtype
    )
    x, y = (v.copy() for v in np.meshgrid(values, values))
    q, r = np.empty_like(x), np.empty_like(x)
    program(engine, "q = x // y; r = x % y", x=x, y=y, q=q, r=r)


@pytest.mark.bits
def test_exact_arithmetic_has_the_bits_of_numpy(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    for dtype in ("float32", "float64"):
        a, b, c = (rng.standard_normal(1001).astype(dtype) for _ in range(3))
        program(engine, "a * b + c / a - sqrt(abs(b))", a=a, b=b, c=c, rtol=0)


@pytest.mark.bits
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(engine: Engine, dtype: str) -> None:
    names = ["abs", "exp", "log", "sqrt", "tanh", "sin", "cos", "isnan", "-"]
    sources = each(names, "{}(x)") | {f"p{k}": v for k, v in each([*"+-*/", "**", "==", "!="], "x {} y").items()}
    sources |= {"chosen": "where(x == y, x, y)", "mixed": "r * x + 2", "cube": "x ** 3", "inverse": "x ** -2"}
    types = {"x": dtype, "y": dtype, "r": "float32"}
    x, y = random((65,), dtype, 1), random((65,), dtype, 2)
    y[7] = x[7]
    operands = {"x": x, "y": y, "r": random((65,), "float32", 3)}
    program(engine, sources, **outputs(sources, x.shape, types), **operands, rtol=64 * np.finfo(dtype).eps)


ANNEX_G = ["exp", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sin", "cos", "tan", "asin", "acos", "atan"]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions_compile_for_a_gpu(dtype: str) -> None:
    """As C++, which is stricter than the C that the engine of the processor compiles."""
    need_nvrtc()
    names = [*ANNEX_G, "expm1", "log", "log1p", "log2", "log10", "sqrt", "sign", "rint", "conj", "abs", "isfinite"]
    sources = each(names, "{}(x)")
    operands = {"x": np.zeros(3, dtype), **outputs(sources, (3,), {"x": dtype})}
    request = ElementwiseRequest(program=sources, operands=operands)
    built = Engine(Target("sm_90a"), lambda *_: None).build(request.lowered.spec())
    assert built.run.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions_of_infinities_and_nan(engine: Engine, dtype: str) -> None:
    """The results of C11, Annex G, as NumPy gives them; not the signs that it leaves open."""
    values = [0.0, -0.0, 1.5, -1.5, 40.0, np.inf, -np.inf, np.nan]
    x = np.array([complex(re, im) for re in values for im in values], dtype)
    for name in ANNEX_G:
        out = np.empty_like(x)
        request = ElementwiseRequest(program=f"{name}(x)", operands={"x": x}, out=out)
        engine.run(request.lowered.spec(), (x, out))
        with np.errstate(all="ignore"):
            expected = getattr(np, {"a": "arc"}.get(name[0], name[0]) + name[1:])(x)
        for part, of in ((out.real, expected.real), (out.imag, expected.imag)):
            wrong = ~np.isclose(abs(part), abs(of), rtol=1e-5, atol=0, equal_nan=True)
            open_sign = np.isnan(x) | np.isnan(out) | (of == 0) & ~np.isfinite(x)
            wrong |= ~open_sign & (np.signbit(part) != np.signbit(of))
            assert not wrong.any(), (name, x[wrong], out[wrong], expected[wrong])


def test_booleans_and_mixed_integers(engine: Engine) -> None:
    a, b = random((37,), "bool", 1), random((37,), "bool", 2)
    sources = {
        "s": "a + b", "p": "a * b", "x": "a ^ b", "n": "~a", "hi": "maximum(a, b)", "lo": "minimum(a, b)",
        "w": "where(a, b, ~b)", "q": "a // b", "m": "a % b", "e": "a ** b", "f": "a / b", "r": "relu(a)", "l": "a <= b",
    }  # fmt: skip
    program(engine, sources, **outputs(sources, a.shape, {"a": "bool", "b": "bool"}), a=a, b=b)
    x = random((40,), "uint8", 1)
    y = random((40,), "int32", 2)
    z = random((40,), "float16", 3)
    sources = {"a": "x + y", "b": "x * z", "c": "y * z", "d": "sqrt(x)", "e": "x * 2.5", "f": "where(z, x, y)"}
    types = {"x": "uint8", "y": "int32", "z": "float16"}
    program(engine, sources, **outputs(sources, x.shape, types), x=x, y=y, z=z)


def test_signed_and_unsigned_integers_compare_as_numbers(engine: Engine) -> None:
    i = np.array([-(2**63), -1, 0, 1, 2**63 - 1] * 3, np.int64)
    u = np.array([0, 1, 2**63, 2**64 - 1, 2**63 - 1] * 3, np.uint64)[::-1].copy()
    for name in COMPARE:
        for first, second in ((i, u), (u, i)):
            out = np.empty(i.shape, bool)
            request = ElementwiseRequest(program=f"a {name} b", operands={"a": first, "b": second}, out=out)
            engine.run(request.lowered.spec(), (first, second, out))
            expected = [eval(f"{int(m)} {name} {int(n)}") for m, n in zip(first, second, strict=True)]
            assert out.tolist() == expected


def test_numbers(engine: Engine) -> None:
    x = random((300,), "float32", 1)
    source = "x * (a + b / 3 - 2 ** n + n // 3 + n % 4 + (n > 2) + where(n, 0.5, b) + sqrt(n) + sigmoid(b) + relu(b))"
    program(engine, source, x=x, a=0.25, b=-1.75, n=5, rtol=1e-6)
    program(engine, "x * 1e300 * 1e300 + nan_free", x=x.astype(np.float64), nan_free=1.0)
    program(engine, "i * 3 - n", i=random((17,), "int16"), n=-4)
    program(engine, "i - 255", i=random((17,), "uint8"))
    program(engine, "x + 9007199254740993", x=random((5,), "int64"))


@pytest.mark.bits
@pytest.mark.parametrize("dtype", FLOATS[:4])
def test_statements_see_what_was_stored(engine: Engine, dtype: str) -> None:
    m, w, g = (random((1003,), dtype, i) for i in range(3))
    program(engine, "m = beta * m + g; w = w - lr * m", m=m, w=w, g=g, beta=0.9, lr=0.1, rtol=0)
    program(engine, "t = m; m = w; w = t", m=m, w=w, rtol=0)


def test_adam(engine: Engine) -> None:
    source = """
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        w -= lr * (m / (1 - b1 ** t)) / (sqrt(v / (1 - b2 ** t)) + eps)
    """
    w, g, m = (random((30, 25), "float32", i) for i in range(3))
    program(engine, source, w=w, g=g, m=m, v=abs(m), lr=0.01, b1=0.9, b2=0.999, eps=1e-8, t=3, rtol=1e-5)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "whole": lambda x: x, "transposed": lambda x: x.T, "steps": lambda x: x[::2, ::3], "shifted": lambda x: x[1:, 1:],
    "row": lambda x: x[3], "column": lambda x: x[:, 5:6], "one": lambda x: x[2:3, 2:3], "rows": lambda x: x[4:12],
    "flat": lambda x: x.reshape(-1)[1:], "spread": lambda x: np.broadcast_to(x[0], x.shape),
}  # fmt: skip


ELEMENTS = ["float32", "bfloat16", "float64", "int8", "complex128"]


@pytest.mark.parametrize(  # each layout with two types, each type with four layouts
    ("layout", "dtype"), [(layout, ELEMENTS[(i + j) % 5]) for i, layout in enumerate(LAYOUTS) for j in (0, 2)]
)
def test_layouts(engine: Engine, layout: str, dtype: str) -> None:
    x = LAYOUTS[layout](random((32, 48), dtype, 1))
    y = random(x.shape, "float32" if dtype != "complex128" else dtype, 2)
    out = poison(x.shape, y.dtype) if dtype != "float64" else LAYOUTS["transposed"](random(x.shape[::-1], dtype))
    program(engine, "x + y * 2", x=x, y=y, out=out, rtol=1e-6)
    if layout not in ("spread",):
        program(engine, "x = x + x", x=x, rtol=0)


def test_broadcasting(engine: Engine) -> None:
    x, b, c = random((4, 6, 16), "float32", 1), random((16,), "bfloat16", 2), random((6, 1), "float64", 3)
    program(engine, "x * b + c", x=x, b=b, c=c, rtol=1e-6)
    program(engine, "x + one", x=x[:, :, :1], one=random((1, 1, 16), "float32", 2))
    program(engine, "x * 2", x=np.array(3, np.float32))
    program(engine, "x * 2", x=np.empty((0, 3), np.float32))


# ---- memory


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(engine: Engine, dtype: str) -> None:
    values: list[Any] = [1, 0]
    if dtype in INTEGERS:
        values = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif dtype != "bool":
        values = [1.0625, -0.0, 3.14159, 1e9, math.inf, math.nan]
        values = [complex(v, 2) for v in values] if dtype.startswith("complex") else values
    for out in (poison((5, 7), DTYPES[dtype]), poison((9, 64), DTYPES[dtype])[1:, ::2]):
        for value in values:
            both(
                engine, fill_spec(out), (out,), fill_scalars(DTYPES[dtype], value), 0 if out.dtype.kind != "c" else 1e-9
            )


#: Types that are widened to the same one when they are read; storing begins from that.
ALIKE = (
    ("float64",), ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), ("int64",), ("uint64",),
    ("int8", "int16", "int32"), ("uint8", "uint16", "uint32"), ("bool",), ("complex64",), ("complex128",),
)  # fmt: skip


@pytest.mark.parametrize("target", DTYPES)
def test_copy_converts(engine: Engine, target: str) -> None:
    """Of types that are read alike one for each target, in turn."""
    turn = list(DTYPES).index(target)
    assert {name for names in ALIKE for name in names} == set(DTYPES)
    for names in ALIKE:
        source = names[turn % len(names)]
        if source == target:
            source = names[(turn + 1) % len(names)]
        if source == target or (source.startswith("complex") and not target.startswith("complex")):
            continue
        src = random((13, 6), source, 4)
        if target in INTEGERS and target.startswith("u"):
            src = np.abs(src).astype(src.dtype)
        out = poison((6, 13), DTYPES[target]).T
        both(engine, copy_spec(src, out), (src, out), (), 0 if DTYPES[target].kind != "c" else 1e-12)


@pytest.mark.bits
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_rounding(engine: Engine, target: str) -> None:
    """Every number of the type, every middle between two, and their neighbours."""
    bits = np.arange(2 ** (8 * DTYPES[target].itemsize)).astype(f"u{DTYPES[target].itemsize}")
    numbers = bits.view(DTYPES[target])
    out = poison(numbers.shape, np.dtype(np.float32))
    both(engine, copy_spec(numbers, out), (numbers, out), (), 0)
    with np.errstate(all="ignore"):
        doubles = numbers.astype(np.float64)
    exact = np.unique(doubles[np.isfinite(doubles)])
    middles = (exact[1:] + exact[:-1]) / 2
    beyond = np.array([exact[-1] * f for f in (1.01, 1.03, 1.04, 1.07, 1.08, 2, 1e30)])
    for dtype in ("float32", "float64"):
        with np.errstate(all="ignore"):
            around = np.concatenate([exact, middles, beyond, -beyond, [np.nan, np.inf, 1e-300, -0.0]]).astype(dtype)
            around = np.concatenate([around, np.nextafter(around, np.inf), np.nextafter(around, -np.inf)])
        out = poison(around.shape, DTYPES[target])
        both(engine, copy_spec(around, out), (around, out), (), 0)


def test_raw_copies_and_empty_ones(engine: Engine) -> None:
    x, y = filled((4, 5), DTYPES["int16"]), np.empty((4, 5), np.int16)
    spec = copy_spec(x, y)
    built = engine.build(spec)
    assert (built.run, copy_scalars(spec)) == ("copy", (40,))
    staged = replace(spec, attributes=replace(spec.attributes, staged=True))
    assert engine.build(staged).run == "transfer"
    assert engine.build(fill_spec(np.empty((0,)))).run == "noop"
    wide_copy = copy_spec(np.empty((0, 2), np.float32), np.empty((0, 2)))
    assert engine.build(wide_copy).run == "noop"


# ---- reductions

REDUCED = {
    "row": ((5, 700), (1,)), "short row": ((301, 3), (1,)), "column": ((700, 65), (0,)), "all": ((40, 50), None),
    "middle": ((3, 40, 5), (1,)), "outer": ((3, 40, 5), (0, 2)), "none": ((3, 5), ()), "long": ((20011,), None),
    "scalar": ((), None), "columns": ((3000, 2), 0),
}  # fmt: skip


@pytest.mark.parametrize("op", ["sum", "mean", "max", "argmax"])
@pytest.mark.parametrize("case", REDUCED)
def test_reduce(engine: Engine, op: str, case: str) -> None:
    shape, axis = REDUCED[case]
    if op == "argmax" and isinstance(axis, tuple):
        if len(axis) != 1:
            return
        axis = axis[0]
    dtype = ("float32", "int32")[(list(REDUCED).index(case) + op.startswith(("mean", "max"))) % 2]
    x = random(shape, dtype, 3)
    x = np.asarray(abs(x)) if op in ("sum", "mean") else x  # so that nothing is cancelled
    spec, fresh = lowered(ReduceRequest(op=op, x=x, axis=axis))
    both(engine, spec, (x, poison(*fresh)), (), None if op in ("max", "argmax") else 2e-5)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not name.startswith("complex")])
def test_reduce_dtypes(engine: Engine, dtype: str) -> None:
    """Every operation of every type; of the views one each, in turn."""
    base, turn = random((33, 40), dtype, 3), list(DTYPES).index(dtype)
    if dtype in ("int64", "uint64"):
        base[1, 4:6] = 2**60, 2**60 + 1  # which no floating-point type tells apart
    for i, op in enumerate(("max", "argmax", "sum", "mean")):
        if op == "sum" and dtype != "bool":
            base = abs(base)
        x = (base, base.T, base[1::2, 3:])[(turn + i) % 3]
        spec, fresh = lowered(ReduceRequest(op=op, x=x, axis=1))
        both(engine, spec, (x, poison(*fresh)), (), STORE.get(dtype, 1e-12) * 4 if op in ("sum", "mean") else None)
        if op == "max":
            out = poison((33, 2), np.dtype(np.int32))[:, 0]
            both(engine, ReduceRequest(op=op, x=base, axis=1, out=out).lowered.spec(), (base, out))


def test_nan_wins_and_the_first_of_equals(engine: Engine) -> None:
    x = random((4, 3000), "float32", 3)
    x[0, [1700, 40, 2900]] = np.nan
    x[1, [1700, 40, 2900]] = 99
    x[2] = -np.inf
    for op in ("max", "argmax"):
        spec, fresh = lowered(ReduceRequest(op=op, x=x, axis=1))
        both(engine, spec, (x, poison(*fresh)))
        spec, fresh = lowered(ReduceRequest(op=op, x=x.T))
        both(engine, spec, (x.T, poison(*fresh)))


@pytest.mark.bits
@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("classes", [1, 10, 100, 1500])
def test_softmax_cross_entropy(engine: Engine, dtype: str, classes: int) -> None:
    n = 37 if classes < 1000 else 3
    logits = random((n, classes + 1), dtype, 1)[:, 1:]
    labels = np.random.default_rng(2).integers(0, classes, n).astype(np.int32 if classes == 10 else np.int64)
    spec, grad, loss = lowered(SoftmaxCrossEntropyRequest(logits=logits, labels=labels))
    arrays = (logits, labels, poison(*grad), poison(*loss))
    rtol = {"float64": 1e-7, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    both(engine, spec, arrays, (), rtol)
    labels[1] = classes
    engine.run(spec, arrays)
    assert np.isnan(arrays[3])
    assert np.isnan(arrays[2][1].astype(float)).all()
    assert np.isfinite(arrays[2][0].astype(float)).all()


def test_other_plans(engine: Engine) -> None:
    assert engine.build(PlanSpec("noop", ())).run == "noop"
    refused = engine.build(PlanSpec("quarantined", (), (), QuarantinedAttributes("it has killed two workers")))
    assert refused.workspace == 0
    with pytest.raises(PlanQuarantined, match="it has killed two workers"):
        refused.run()
    with pytest.raises(Unsupported, match=r"'x' on a cuda device; known: .*elementwise\.program.*noop"):
        engine.build(PlanSpec("x", ()))
