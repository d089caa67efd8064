"""CUDA builders: sources compile, and compute what the host builders compute.

The same bodies run on two engines: ``cpu``, where gcc compiles the kernels' source, and ``gpu``, the machine code on a
device.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda_emulate
import cuda_run
import numpy as np
import pytest
from layouts import filled

from atomr_native import _nvrtc, disk_cache
from atomr_native._elementwise_spec import (
    ElementwiseRequest,
    ReduceRequest,
    SoftmaxCrossEntropyRequest,
    elementwise_spec,
    number,
    reduce_spec,
    softmax_cross_entropy_spec,
)
from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, LibraryError, Unsupported
from atomr_native.expressions import FUNCTIONS as ALL
from atomr_native.memory_ops import copy_scalars, copy_spec, fill_scalars, fill_spec
from atomr_native.plan_spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec
from atomr_native.worker import cuda, host
from atomr_native.worker.cuda import KernelProgram, Target, codegen, groups, nvrtc
from atomr_native.worker.groups import recover

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
#: A few units of the last place of the type that is computed in, then one rounding to what is stored.
STORE = {
    "float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2, "complex64": 2.0**-19, "complex128": 2.0**-48,
}  # fmt: skip


class Engine:
    """Builds plans for CUDA and runs them somewhere."""

    def __init__(self, target: Target, run: Callable[..., None], *, compiled: bool = True) -> None:
        self.target = target
        self._run = run
        self._compiled = compiled

    def build(self, spec: PlanSpec | dict[str, Any]) -> Any:
        plain = spec.to_json() if isinstance(spec, PlanSpec) else spec
        with pytest.MonkeyPatch.context() as patch:
            if not self._compiled:
                patch.setattr(codegen, "compile_cubin", lambda *_: b"")
            return cuda.build(json.loads(json.dumps(plain)), self.target)

    def run(self, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = ()) -> None:
        built = self.build(spec)
        if built.kind == "native":
            assert built.run == "noop"
            return
        program = built.run
        assert isinstance(program, KernelProgram)
        assert built.workspace == program.workspace
        for array, align in zip(arrays, program.alignments, strict=True):
            assert array.ctypes.data % align == 0
        self._run(program, arrays, scalars)


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def engine(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Lend each engine in turn."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "gpu":
            found = cuda_run.device()
            if isinstance(found, str):
                pytest.skip(found)
            need_nvrtc()
            patch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path_factory.mktemp("cache")))
            yield Engine(found.target, found.run)
            return
        if reason := cuda_emulate.available():
            pytest.skip(reason)
        emulator = cuda_emulate.Emulator(tmp_path_factory.mktemp("kernels"))
        yield Engine(Target("sm_90a", 2), emulator.run, compiled=False)


def need_nvrtc() -> None:
    try:
        nvrtc.version()
    except Unsupported as error:
        pytest.skip(str(error))


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Random numbers: small ones for integers too, so that no operation overflows what NumPy defines."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype in INTEGERS:
        return np.asarray(rng.integers(0 if dtype.startswith("u") else -9, 10, shape)).astype(DTYPES[dtype])
    values = np.asarray(rng.standard_normal(shape) * 2)
    if dtype.startswith("complex"):
        values = values + 1j * np.asarray(rng.standard_normal(shape))
    return np.asarray(values).astype(DTYPES[dtype])


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return np.full((*shape, dtype.itemsize), 0x5B, np.uint8).view(dtype)[..., 0].copy()


def duplicate(array: np.ndarray) -> np.ndarray:
    """Copy an array with the bytes between its elements, and its alignment."""
    first, end = np.lib.array_utils.byte_bounds(array)
    count = end - first if array.size else 0
    memory = np.empty(count + 512, np.uint8)
    start = (first - memory.ctypes.data) % 256
    memory[start : start + count] = cuda_run.memory(first, first + count)
    return np.ndarray(array.shape, array.dtype, memory.data, start + array.ctypes.data - first, array.strides)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def compare(got: np.ndarray, expected: np.ndarray, rtol: float | None = None) -> None:
    """Compare within a tolerance; by their bits, but for those of NaN, where it is 0."""
    assert got.dtype == expected.dtype
    if got.dtype.kind in "biu" and not rtol:
        np.testing.assert_array_equal(got, expected)
        return
    if rtol == 0:
        real = {"complex64": np.float32, "complex128": np.float64}.get(got.dtype.name, got.dtype)
        mine, theirs = (np.atleast_1d(a.copy()).view(real) for a in (got, expected))
        with np.errstate(all="ignore"):
            nan = (mine != mine) & (theirs != theirs)
        bits = f"u{mine.dtype.itemsize}"
        assert ((mine.view(bits) == theirs.view(bits)) | nan).all(), (got, expected)
        return
    rtol = STORE.get(got.dtype.name, 1e-6) if rtol is None else rtol
    np.testing.assert_allclose(wide(got), wide(expected), rtol=rtol, atol=rtol * 1e-2, equal_nan=True)


def both(
    engine: Engine, spec: PlanSpec, arrays: tuple[np.ndarray, ...], scalars: tuple[Any, ...] = (), rtol: Any = None
) -> None:
    """Run a plan on copies, on the host and on the engine, and compare all operands."""
    expected, got = ([duplicate(a) for a in arrays] for _ in range(2))
    built = host.build(json.loads(json.dumps(spec.to_json())))
    assert callable(built.run)
    built.run(tuple(expected), scalars)
    engine.run(spec, tuple(got), scalars)
    for operand, mine, theirs in zip(spec.operands, got, expected, strict=True):
        compare(mine, theirs, rtol if operand.access & WRITE else 0)


def program(engine: Engine, source: Any, out: np.ndarray | None = None, rtol: Any = None, **operands: Any) -> None:
    made = elementwise_spec(ElementwiseRequest(program=source, operands=operands, out=out))
    arrays = {n: v for n, v in operands.items() if isinstance(v, np.ndarray)}
    if out is not None:
        arrays["out"] = out
    if made.fresh is not None:
        arrays["out"] = poison(*made.fresh)
    both(
        engine, made.spec, tuple(arrays[n] for n in made.names), tuple(number(operands[n]) for n in made.scalars), rtol
    )


# ---- elementwise programs

UNARY = [*(name for name, arguments in ALL.items() if arguments == 1), "-"]
ARITHMETIC = ["+", "-", "*", "/", "**", "//", "%"]
COMPARE = ["<", "<=", ">", ">=", "==", "!="]


def each(names: list[str], source: str, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """One program with an output for each operation."""
    return {f"o{i}": source.format(name) for i, name in enumerate(names) if name not in skip}


def outputs(sources: dict[str, str], shape: tuple[int, ...], types: dict[str, str]) -> dict[str, np.ndarray]:
    """Outputs of the dtypes that their expressions have."""
    made = {}
    for name, source in sources.items():
        arrays = {n: np.zeros(shape, DTYPES[t]) for n, t in types.items() if re.search(rf"\b{n}\b", source)}
        fresh = elementwise_spec(ElementwiseRequest(program=source, operands=arrays)).fresh
        assert fresh is not None
        made[name] = poison(*fresh)
    return made


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


def test_exact_arithmetic_has_the_bits_of_numpy(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    for dtype in ("float32", "float64"):
        a, b, c = (rng.standard_normal(1001).astype(dtype) for _ in range(3))
        program(engine, "a * b + c / a - sqrt(abs(b))", a=a, b=b, c=c, rtol=0)


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
            made = elementwise_spec(
                ElementwiseRequest(program=f"a {name} b", operands={"a": first, "b": second}, out=out)
            )
            engine.run(made.spec, (first, second, out))
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
    made = elementwise_spec(ElementwiseRequest(program="i + 300", operands={"i": random((3,), "uint8")}))
    with pytest.raises(InvalidRequest, match="300 does not fit uint8"):
        engine.build(made.spec)


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
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


@pytest.mark.parametrize("target", DTYPES)
def test_copy_converts(engine: Engine, target: str) -> None:
    for source in DTYPES:
        if source == target or (source.startswith("complex") and not target.startswith("complex")):
            continue
        src = random((13, 6), source, 4)
        if target in INTEGERS and target.startswith("u"):
            src = np.abs(src).astype(src.dtype)
        out = poison((6, 13), DTYPES[target]).T
        both(engine, copy_spec(src, out), (src, out), (), 0 if DTYPES[target].kind != "c" else 1e-12)


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
    assert (built.kind, built.run, copy_scalars(spec)) == ("native", "copy", (40,))
    assert engine.build(fill_spec(np.empty((0,)))).run == "noop"
    wide_copy = copy_spec(np.empty((0, 2), np.float32), np.empty((0, 2)))
    assert engine.build(wide_copy).kind == "native"


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
    for dtype in ("float32", "int32"):
        x = random(shape, dtype, 3)
        x = np.asarray(abs(x)) if op in ("sum", "mean") else x  # so that nothing is cancelled
        spec, fresh = reduce_spec(ReduceRequest(op=op, x=x, axis=axis))
        both(engine, spec, (x, poison(*fresh)), (), None if op in ("max", "argmax") else 2e-5)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not name.startswith("complex")])
def test_reduce_dtypes(engine: Engine, dtype: str) -> None:
    base = random((33, 40), dtype, 3)
    for op in ("max", "argmax", "sum", "mean"):
        if op == "sum" and dtype != "bool":
            base = abs(base)
        for x in (base, base.T, base[1::2, 3:]):
            spec, fresh = reduce_spec(ReduceRequest(op=op, x=x, axis=1))
            both(engine, spec, (x, poison(*fresh)), (), STORE.get(dtype, 1e-12) * 4 if op in ("sum", "mean") else None)
        if op == "max":
            out = poison((33, 2), np.dtype(np.int32))[:, 0]
            both(engine, reduce_spec(ReduceRequest(op=op, x=base, axis=1, out=out))[0], (base, out))


def test_nan_wins_and_the_first_of_equals(engine: Engine) -> None:
    x = random((4, 3000), "float32", 3)
    x[0, [1700, 40, 2900]] = np.nan
    x[1, [1700, 40, 2900]] = 99
    x[2] = -np.inf
    for op in ("max", "argmax"):
        spec, fresh = reduce_spec(ReduceRequest(op=op, x=x, axis=1))
        both(engine, spec, (x, poison(*fresh)))
        spec, fresh = reduce_spec(ReduceRequest(op=op, x=x.T))
        both(engine, spec, (x.T, poison(*fresh)))


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("classes", [1, 10, 100, 1500])
def test_softmax_cross_entropy(engine: Engine, dtype: str, classes: int) -> None:
    n = 37 if classes < 1000 else 3
    logits = random((n, classes + 1), dtype, 1)[:, 1:]
    labels = np.random.default_rng(2).integers(0, classes, n).astype(np.int32 if classes == 10 else np.int64)
    spec, grad, loss = softmax_cross_entropy_spec(SoftmaxCrossEntropyRequest(logits=logits, labels=labels))
    arrays = (logits, labels, poison(*grad), poison(*loss))
    rtol = {"float64": 1e-7, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    both(engine, spec, arrays, (), rtol)
    labels[1] = classes
    engine.run(spec, arrays)
    assert np.isnan(arrays[3])
    assert np.isnan(arrays[2][1].astype(float)).all()
    assert np.isfinite(arrays[2][0].astype(float)).all()


# ---- durable groups


class Memory:
    """Device memory for recovery, as bytes."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.zeros(nbytes, np.uint8)

    def read(self, place: tuple[int, int], nbytes: int) -> bytes:
        assert place[0] == 7
        return self.bytes[place[1] : place[1] + nbytes].tobytes()

    def write(self, place: tuple[int, int], data: bytes) -> None:
        self.bytes[place[1] : place[1] + len(data)] = np.frombuffer(data, np.uint8)

    def copy(self, source: tuple[int, int], target: tuple[int, int], nbytes: int) -> None:
        self.bytes[target[1] : target[1] + nbytes] = self.bytes[source[1] : source[1] + nbytes]

    def checksum(self, total: int, place: tuple[int, int], nbytes: int, offset: int) -> int:
        return groups.signed(total + groups.checksum(self.read(place, nbytes), offset))


SIZES = (5, 1024, 4097, 16, 0, 23)


class Group:
    """A group in a piece of memory."""

    def __init__(self, engine: Engine, checked: bool) -> None:
        self.engine, self.checked = engine, checked
        self.offsets = [sum(-(-n // 256) * 256 for n in SIZES[:i]) for i in range(len(SIZES))]
        total = self.offsets[-1] + 256
        self.memory = Memory(2 * total + 512)
        aligned = -self.memory.bytes.ctypes.data % 256
        self.memory.bytes = self.memory.bytes[aligned : aligned + 2 * total + 256]
        self.shadow, self.header = total, 2 * total
        self.described = {
            "number": 1, "header": [7, self.header], "shadow": [7, total, total], "dirty": True, "checksum": checked,
            "members": [[7, o, n, o] for o, n in zip(self.offsets, SIZES, strict=True)],
        }  # fmt: skip
        data = self.memory.bytes
        self.members = [data[o : o + n] for o, n in zip(self.offsets, SIZES, strict=True)]
        self.words = data[self.header : self.header + 64].view(np.int64)
        self.operands = (*self.members, data[total : 2 * total], self.words)

    def spec(self, op: str) -> PlanSpec:
        names = [f"member_{i}" for i in range(len(SIZES))] + ["shadow", "header"]
        operands = tuple(
            OperandSpec(n, a.dtype.name, a.shape, a.strides, READ) for n, a in zip(names, self.operands, strict=True)
        )
        scalars = ("int64", "int64") if op == "group.commit" else ()
        attributes = (("offsets", tuple(self.offsets)), ("checksum", self.checked), ("number", 1))
        return PlanSpec(op, operands, scalars, attributes)

    def run(self, op: str, *scalars: int) -> None:
        self.engine.run(self.spec(op), self.operands, scalars)

    def fill(self, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        for member in self.members:
            member[...] = rng.integers(0, 256, member.size)
        return self.state()

    def state(self) -> bytes:
        return b"".join(member.tobytes() for member in self.members)

    def recover(self) -> dict[str, Any]:
        (found,) = recover(self.memory, [self.described])
        json.dumps(found)
        assert not found.pop("strayed")  # all writes here are as if they had been sent
        return dict(found)


@pytest.mark.parametrize("checked", [False, True])
def test_groups(engine: Engine, checked: bool) -> None:
    group = Group(engine, checked)
    group.fill(0)
    before = group.state()
    group.run("group.restore")  # nothing is committed yet
    assert group.state() == before
    assert group.recover() == {"sequence": 0, "tag": 0, "damaged": False}
    committed = group.fill(1)
    group.run("group.commit", 3, -5)
    assert list(group.words[:4]) == [3, 3, -5, -5]
    total = sum(groups.checksum(m.tobytes(), o) for m, o in zip(group.members, group.offsets, strict=True))
    assert int(group.words[4]) % 2**64 == (total % 2**64 if checked else 0)
    group.fill(2)
    group.run("group.restore")
    assert group.state() == committed
    group.fill(3)
    assert group.recover() == {"sequence": 3, "tag": -5, "damaged": False}
    assert group.state() == committed
    # A commit that was begun is made again from the members.
    later = group.fill(4)
    group.words[0], group.words[2] = 4, 9
    group.memory.bytes[group.shadow : group.shadow + 300] = 1
    assert group.recover() == {"sequence": 4, "tag": 9, "damaged": False}
    group.fill(5)
    assert group.recover()["sequence"] == 4
    assert group.state() == later
    # Damage: mended from members that are whole, else told.
    for at in (0, group.offsets[2] + 4096):
        group.memory.bytes[group.shadow + at] ^= 1
        assert not group.recover()["damaged"]
        assert (group.state() == later) is checked
        group.memory.bytes[group.shadow + at] ^= 0 if checked else 1
    group.memory.bytes[group.shadow + 700] ^= 1
    group.fill(6)
    assert group.recover()["damaged"] is checked


def test_groups_refuse_what_kernels_cannot_copy(engine: Engine) -> None:
    spec = Group(engine, False).spec("group.commit").to_json()
    with pytest.raises(InvalidRequest, match="multiples of 16"):
        engine.build({**spec, "offsets": [8, *spec["offsets"][1:]]})
    spec["operands"][1]["strides"] = [2]
    with pytest.raises(InvalidRequest, match="C-contiguous"):
        engine.build(spec)


def test_other_plans(engine: Engine) -> None:
    assert engine.build({"op": "noop", "operands": [], "scalars": []}).run == "noop"
    refused = engine.build({"op": "quarantined", "quarantined": "memory.fill", "operands": [], "scalars": []})
    assert refused.kind == "refusal"
    assert refused.workspace == 0
    assert "this plan of memory.fill" in refused.run
    with pytest.raises(Unsupported, match=r"unknown operation 'x' on a CUDA device; known: noop, elementwise\.program"):
        engine.build({"op": "x"})


# ---- NVRTC


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lend an empty cache."""
    need_nvrtc()
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


KERNEL = 'extern "C" __global__ void k(float *x) { x[0] = expf(x[1]); }\n'


def _specs() -> Iterator[PlanSpec]:
    x = {name: random((32, 48), name) for name in DTYPES}
    sources = each(UNARY, "{}(x)") | {f"t{k}": v for k, v in each([*ARITHMETIC, *COMPARE], "x {} y").items()}
    for dtype in ("float64", "bfloat16", "int8"):
        made = outputs(sources, (32, 48), {"x": dtype, "y": dtype})
        yield elementwise_spec(
            ElementwiseRequest(program=sources, operands={**made, "x": x[dtype], "y": x[dtype].copy()})
        ).spec
    yield elementwise_spec(
        ElementwiseRequest(program="x ** y + tanh(x)", operands={"x": x["complex64"], "y": x["complex128"]})
    ).spec
    yield elementwise_spec(
        ElementwiseRequest(program="x + y", operands={"x": x["float8_e4m3fn"].T, "y": x["float16"].T})
    ).spec
    big = np.broadcast_to(np.float32(0), (70000, 70000))
    yield PlanSpec(
        "memory.fill", (OperandSpec("out", "float32", big.shape, (280000, 4), WRITE | OVERWRITE),), ("float64",)
    )
    for source, target in (("bfloat16", "float8_e5m2"), ("float64", "float16"), ("float32", "float8_e4m3fn")):
        yield copy_spec(x[source], x[target].T.copy().T)
    for op in ("sum", "argmax"):
        yield reduce_spec(ReduceRequest(op=op, x=x["bfloat16"], axis=1))[0]
        yield reduce_spec(ReduceRequest(op=op, x=np.broadcast_to(x["int32"].ravel(), (4000, 1536))))[0]
    labels = np.zeros(32, np.int64)
    yield softmax_cross_entropy_spec(SoftmaxCrossEntropyRequest(logits=x["float16"], labels=labels))[0]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_sources_compile(cache: Path, arch: str) -> None:
    for spec in _specs():
        built = cuda.build(json.loads(json.dumps(spec.to_json())), Target(arch, 132))
        assert isinstance(built.run, KernelProgram)
        assert built.run.cubin.startswith(b"\x7fELF")
        for launch in built.run.launches:
            assert launch.function.encode() in built.run.cubin
    engine = Engine(Target(arch), lambda *_: None)
    for op in ("group.commit", "group.restore"):
        assert engine.build(Group(engine, True).spec(op)).run.cubin.startswith(b"\x7fELF")


def test_the_cache_is_used_and_checked(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = nvrtc.compile_cubin(KERNEL, "sm_90a")
    (entry,) = cache.rglob("*.cubin")
    assert [path for path in cache.rglob("*") if path.is_file()] == [entry]
    real = _nvrtc._compile
    monkeypatch.setattr(_nvrtc, "_compile", None)
    assert nvrtc.compile_cubin(KERNEL, "sm_90a") == first
    monkeypatch.setattr(_nvrtc, "_compile", real)
    good = entry.read_bytes()
    for damaged in (good[:-1], good[:100] + bytes([good[100] ^ 1]) + good[101:], b"", good[:40]):
        entry.write_bytes(damaged)
        with caplog.at_level(logging.WARNING, "atomr_native.worker"):
            assert nvrtc.compile_cubin(KERNEL, "sm_90a") == first
        assert "is corrupt" in caplog.text
        caplog.clear()
        assert entry.read_bytes() == good
    nvrtc.compile_cubin(KERNEL, "sm_80")
    nvrtc.compile_cubin(KERNEL, "sm_90a", ("--fmad=true",))
    assert len(list(cache.rglob("*.cubin"))) == 3


def test_a_cache_that_cannot_be_written_is_no_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("no folder")
    with caplog.at_level(logging.WARNING, "atomr_native.worker"):
        assert nvrtc.compile_cubin(KERNEL, "sm_90a").startswith(b"\x7fELF")
    assert "cannot be cached" in caplog.text


def test_one_compilation_for_many_threads(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, go = [], threading.Event()

    def slow(*arguments: Any) -> bytes:
        calls.append(arguments)
        assert go.wait(10)
        return bytes([2, *[0] * 7]) + b"{}code"

    monkeypatch.setattr(_nvrtc, "_compile", slow)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(nvrtc.compile_cubin("x", "sm_90"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert found == [b"code"] * 4
    assert len(calls) == 1


def test_compile_errors(cache: Path) -> None:
    with pytest.raises(LibraryError, match=r'atomr\.cu\(2\): error: identifier "expg" is undefined') as caught:
        nvrtc.compile_cubin(KERNEL.replace("{", "{\n").replace("expf", "expg"), "sm_90a")
    assert (caught.value.lib, caught.value.name) == ("nvrtc", "NVRTC_ERROR_COMPILATION")
    with pytest.raises(LibraryError, match="invalid value for --gpu-architecture"):
        nvrtc.compile_cubin(KERNEL, "sm_7")
    assert not list(cache.rglob("*.cubin"))
    assert not disk_cache._flights


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ATOMR_NATIVE_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert disk_cache.cache_directory() == tmp_path / ".cache" / "atomr_native"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert disk_cache.cache_directory() == Path("/x/atomr_native")
    monkeypatch.setenv("ATOMR_NATIVE_CACHE", "/y")
    assert disk_cache.cache_directory() == Path("/y")


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(_nvrtc.importlib, "import_module", missing)
    with pytest.raises(Unsupported, match=r"cuda\.bindings.*pip install atomr-native\[cu13\]"):
        cuda.build(fill_spec(np.empty(3)).to_json(), Target("sm_90a"))
