"""Matmuls in float64 with bounds of their rounding errors, and random requests of every kind, for both devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from atomr_native.dtypes import DTYPES, dtype_name
from atomr_native.libraries._scaling import BLOCK
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import is_array, resolve_matmul
from atomr_native.libraries.blas_lt.types import RULES, SATURATE, rule_of

#: Relative error of one rounding to a dtype; the least magnitude below which errors are absolute.
STORE = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3, "complex64": 2.0**-23, "complex128": 2.0**-52, "int32": 0.0, "int8": 0.0,
}  # fmt: skip
TINY = {"float16": 2.0**-25, "float8_e4m3fn": 2.0**-10, "float8_e5m2": 2.0**-17, "int8": 0.5}
#: Relative error of one operation of the accumulation, by compute mode.
UNIT = {
    "float64": 2.0**-53, "float64_pedantic": 2.0**-53, "float32": 2.0**-24, "float32_pedantic": 2.0**-24,
    "tf32": 2.0**-10, "bfloat16": 2.0**-7, "float16": 2.0**-10, "bfloat16x9": 2.0**-23, "float16_accumulate": 2.0**-11,
    "complex64": 2.0**-23, "complex64_pedantic": 2.0**-23, "complex128": 2.0**-52, "complex128_pedantic": 2.0**-52,
    "int32": 0.0,
}  # fmt: skip
#: (A, B, D) of every combination that requests take.
COMBINATIONS = [(a, b, d) for (a, b), rule in RULES.items() for d in rule.outputs]


def op(x: np.ndarray, transposed: bool, conjugated: bool = False) -> np.ndarray:
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    wide = np.swapaxes(wide, -1, -2) if transposed else wide
    return wide.conj() if conjugated else wide


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_gradient(x: np.ndarray) -> np.ndarray:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


def scaled(x: np.ndarray, which: str, scale: Any, kind: str) -> np.ndarray:
    """Return op(x) with its scales multiplied in."""
    if scale is None:
        return x
    factor = np.asarray(scale, np.float64)
    if kind == "tensor":
        return x * factor.reshape(())
    if kind in ("vec128", "blk128"):
        along = 1 if which == "a" else 0
        factor = np.repeat(factor, BLOCK, along)
        if kind == "blk128":
            factor = np.repeat(factor, BLOCK, 1 - along)
        factor = factor[: x.shape[0], : x.shape[1]]
    return x * factor


def number(value: Any) -> Any:
    return value.reshape(())[()].astype(complex if value.dtype.kind == "c" else float) if is_array(value) else value


def reference(
    request: MatmulRequest, c: np.ndarray | None = None, *, gpu: bool = False
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return (value, largest error) of each output; `c` is what C held before, if D is C.

    On a GPU, tensor cores align products before they add them: float8 to about 13 bits, others to a few bits less than
    float32 has; and the library's tanh is an approximation: to about 2**-11 where D has 16 bits or fewer, which is what
    the instruction tanh.approx.f32 has, and finer for float32.
    """
    shape = resolve_matmul(request)
    epilogue, names = Epilogue(request.epilogue), (dtype_name(request.a.dtype), dtype_name(request.b.dtype))
    a, b = op(request.a, request.trans_a, request.conj_a), op(request.b, request.trans_b, request.conj_b)
    sa, sb = scaled(a, "a", request.a_scale, shape.scaling[0]), scaled(b, "b", request.b_scale, shape.scaling[1])
    alpha, beta = number(request.alpha), number(request.beta)
    x, size = alpha * np.matmul(sa, sb), abs(alpha) * np.matmul(abs(sa), abs(sb))
    if beta != 0:
        wide = op(c if c is not None else request.c, False) * (
            1.0 if request.c_scale is None else number(request.c_scale)
        )
        x, size = x + beta * wide, size + abs(beta * wide)
    if request.bias is not None:
        bias = op(request.bias, False)
        bias = bias[..., None, :] if bias.ndim > 1 else bias
        x, size = x + bias, size + abs(bias)
    x, size = np.broadcast_to(x, shape.out.shape), np.broadcast_to(size, shape.out.shape)
    unit = UNIT[shape.mode]
    if names[0] == "int8" and shape.out.dtype != np.int32:
        unit = 2.0**-24
    error = (shape.k + 24) * unit * size
    if gpu and names[0].startswith("float"):
        error = np.maximum(8 * error, (2.0**-11 if names[0].startswith("float8") else 0.0) * size)
    tanh = (2.0**-11 if shape.out.dtype.itemsize < 4 else 2.0**-17) if gpu and shape.scale == np.float32 else 0.0
    if epilogue.activation == "gelu" and not epilogue.reads_aux:
        error = error + tanh * (abs(x) + 1)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def result(name: str, dtype: np.dtype[Any], value: np.ndarray, within: np.ndarray) -> None:
        kind = dtype_name(dtype)
        if kind in SATURATE:
            value = np.clip(value, -SATURATE[kind], SATURATE[kind])
        elif dtype.kind == "i":
            limits = np.iinfo(dtype)
            value = np.clip(value, limits.min, limits.max)
        store = STORE[kind] * (abs(value) + within) * 1.01
        found[name] = value, within + store + TINY.get(kind, 2.0**-126) + (0.5 if kind == "int32" and unit else 0.0)

    expected = x
    if epilogue.reads_aux:
        if epilogue.activation == "gelu":
            factor = gelu_gradient(request.aux.astype(np.float64))
            # The library rounds the derivative to D's dtype before it multiplies.
            rounded = STORE[dtype_name(shape.out.dtype)] if tanh else 0.0
            error = error * 1.2 + (64 * 2.0**-24 + tanh + rounded) * abs(x) * (1 + abs(factor))
        else:
            factor = np.unpackbits(request.aux, axis=-1, count=shape.n, bitorder="little").astype(np.float64)
        expected = x * factor
    elif epilogue.activation == "gelu":
        if epilogue.writes_aux and shape.aux is not None:
            result("aux", shape.aux.dtype, x, error)
        expected, error = gelu(x), error * 1.2 + 64 * 2.0**-24 * abs(x)
    elif epilogue.activation == "relu":
        if epilogue.writes_aux:
            found["aux"] = x, error
        expected = np.maximum(x, 0)
    if shape.bias_grad is not None:
        if epilogue in ("bgrada", "bgradb"):
            source, axis, terms = (a, -1, shape.k) if epilogue == "bgrada" else (b, -2, shape.k)
            value, within = source.sum(axis), 2.0**-24 * (terms + 8) * abs(source).sum(axis)
            if names[0] in ("float64", "complex128", "int8"):
                within = within * 2.0**-28
        else:
            # On a GPU what is summed may be D as it is stored, by the library as well.
            rounded = STORE[dtype_name(shape.out.dtype)] if gpu and shape.out.dtype.itemsize < 4 else 0.0
            value, within = expected.sum(-2), error.sum(-2) + 2.0**-24 * (shape.m + 8) * abs(expected).sum(-2)
            within = within + rounded * abs(expected).sum(-2)
        within = np.broadcast_to(within, shape.bias_grad.shape)
        result("bias_grad", shape.bias_grad.dtype, np.broadcast_to(value, shape.bias_grad.shape), within)
    if shape.amax is not None:
        largest, most = np.max(abs(expected), initial=0), np.max(error, initial=0)
        found["amax"] = np.asarray(largest), np.asarray(most + 2.0**-22 * largest)
    if request.d_scale is not None:
        factor = number(request.d_scale)
        expected, error = expected * factor, (error + 2.0**-23 * abs(expected)) * abs(factor)
    result("out", shape.out.dtype, expected, error)
    return found


def check(got: dict[str, np.ndarray], want: dict[str, tuple[np.ndarray, np.ndarray]], n: int) -> None:
    """Compare every element of every output."""
    for name, (value, within) in want.items():
        array = got[name]
        if array.dtype == np.uint8:
            bits = np.unpackbits(array, axis=-1, bitorder="little")
            assert not bits[..., n:].any(), "bits after N"
            sure = abs(value) > within
            np.testing.assert_array_equal(bits[..., :n][sure], (value > 0)[sure])
            continue
        wide = array.astype(complex if array.dtype.kind == "c" else float)
        assert wide.shape == value.shape, (name, wide.shape, value.shape)
        excess = abs(wide - value) - within
        assert np.all(excess <= 0), (name, float(np.max(excess)), float(np.max(abs(value))))


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return values of ordinary size."""
    if dtype in ("int8", "int32"):
        return rng.integers(-100, 100, shape).astype(dtype)
    if dtype.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def block_scales(rng: np.random.Generator, which: str, kind: str, outer: int, k: int) -> np.ndarray:
    """Return scales of a kind, in the layout that cuBLASLt takes."""
    blocks = -(-k // BLOCK)
    if kind == "tensor":
        return np.asarray(rng.uniform(0.25, 2), np.float32).reshape(())
    if kind == "outer":
        made = rng.uniform(0.25, 2, (outer, 1)).astype(np.float32)
    elif kind == "vec128":
        made = rng.uniform(0.25, 2, (blocks, outer)).astype(np.float32).T
    else:
        padded = -(-blocks // 4) * 4
        made = rng.uniform(0.25, 2, (-(-outer // BLOCK), padded)).astype(np.float32)[:, :blocks]
    return made if which == "a" else made.T


def epilogue_operands(
    rng: np.random.Generator, epilogue: Epilogue, batch: tuple[int, ...], m: int, n: int, types: tuple[str, str, str]
) -> dict[str, Any]:
    """Return what an epilogue reads."""
    rule, a, out = rule_of(*types[:2]), types[0], types[2]
    extra: dict[str, Any] = {"epilogue": epilogue, "out_dtype": out}
    if epilogue.uses_bias:
        extra["bias"] = random(rng, (n,), rule.side(a, out)[0])
    if epilogue.reads_aux and epilogue.activation == "gelu":
        extra["aux"] = random(rng, (*batch, m, n), rule.gelu_aux(a, out))
    elif epilogue.reads_aux:
        extra["aux"] = rng.integers(0, 256, (*batch, m, -(-n // 128) * 16), np.uint8)
        bits = np.unpackbits(extra["aux"], axis=-1, bitorder="little")
        bits[..., n:] = 0
        extra["aux"] = np.packbits(bits, axis=-1, bitorder="little")
    return extra


def allows(types: tuple[str, str, str], epilogue: Epilogue) -> bool:
    """Whether requests take an epilogue with these types."""
    if types[0].startswith("complex"):
        return not epilogue.activation
    return not (types[2] == "int32" and epilogue.activation == "gelu")
