"""Matmuls of every dtype, scale and option on the host device, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from matmul_reference import (
    COMBINATIONS,
    allows,
    block_scales,
    check,
    epilogue_operands,
    random,
    reference,
)
from matmul_requests import requests
from plan_builds import build_host

from atomr_native.dtypes import DTYPES
from atomr_native.errors import InvalidRequest, Unsupported
from atomr_native.libraries._scaling import COMBINATIONS as SCALINGS
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.request import MatmulRequest
from atomr_native.libraries.blas_lt.spec import resolve_matmul
from atomr_native.libraries.blas_lt.types import FLOAT8, RULES, rule_of


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return np.full(shape, 0xAB if dtype.kind in "ui" else np.nan).astype(dtype)


def run(request: MatmulRequest) -> dict[str, np.ndarray]:
    """Build and run a request over NumPy arrays; outputs that are missing are made, poisoned."""
    spec = request.lowered.spec()
    arrays = {}
    with np.errstate(invalid="ignore"):
        for operand in spec.operands:
            given_array = getattr(request, operand.name)
            missing = given_array is None or given_array is True
            arrays[operand.name] = poison(operand.shape, DTYPES[operand.dtype]) if missing else given_array
    built = build_host(spec)
    assert callable(built.run)
    built.run(tuple(arrays.values()), tuple(scalar.value for scalar in request.lowered.scalars))
    return arrays


def compare(request: MatmulRequest) -> dict[str, np.ndarray]:
    c = request.c.copy() if request.c is not None else None
    got = run(request)
    check(got, reference(request, c), resolve_matmul(request).n)
    return got


@pytest.mark.parametrize("types", COMBINATIONS, ids="-".join)
@pytest.mark.parametrize("epilogue", list(Epilogue))
def test_every_epilogue_of_every_type(types: tuple[str, str, str], epilogue: Epilogue) -> None:
    rng = np.random.default_rng([COMBINATIONS.index(types), list(Epilogue).index(epilogue)])
    m, n, k = 13, 37, 21
    for batch in ((), (2,)):
        a, b = random(rng, (*batch, m, k), types[0]), random(rng, (*batch, k, n), types[1])
        if not allows(types, epilogue):
            with pytest.raises(InvalidRequest, match="epilogue"):
                MatmulRequest(a=a, b=b, **epilogue_operands(rng, epilogue, batch, m, n, types))
            return
        extra = epilogue_operands(rng, epilogue, batch, m, n, types)
        if types[2] == "int32":
            extra |= {"beta": 1}
        elif types[0] == "int8":
            extra |= {"alpha": 0.003, "beta": -1.5}
        else:
            extra |= {"alpha": 0.5, "beta": -1.5}
        rule = rule_of(*types[:2])
        compare(MatmulRequest(a=a, b=b, c=random(rng, (*batch, m, n), rule.c(types[2])[-1]), **extra))


@given(requests())
@settings(max_examples=150, deadline=None)
def test_options_shapes_and_scales(request: MatmulRequest) -> None:
    compare(request)


def test_int8_is_exact() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((33, 4097), (4097, 29)))
    exact = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(run(MatmulRequest(a=a, b=b))["out"], exact)
    c = rng.integers(-1000, 1000, (33, 29)).astype(np.int32)
    np.testing.assert_array_equal(run(MatmulRequest(a=a, b=b, c=c, beta=1))["out"], exact + c)
    # Scaled to int8: to the nearest, ties to even, and no further than the limits.
    got = run(MatmulRequest(a=a, b=b, alpha=2.0**-12, out_dtype="int8"))["out"]
    np.testing.assert_array_equal(got, np.clip(np.rint(exact * 2.0**-12), -128, 127))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_saturates(dtype: str) -> None:
    one = np.full((1, 1), 400, DTYPES["float8_e4m3fn"])
    for sign in (1.0, -1.0):
        out = run(MatmulRequest(a=one, b=one.astype(DTYPES["float8_e5m2"]), alpha=sign, out_dtype=dtype))["out"]
        assert out.astype(float)[0, 0] == sign * (448 if "e4m3" in dtype else 57344)


def test_factors_on_the_device() -> None:
    rng = np.random.default_rng(2)
    a, b, c = (random(rng, s, "float32") for s in ((3, 4), (4, 5), (3, 5)))
    alpha, beta = np.asarray([1.5], np.float32), np.asarray(0.25, np.float32)
    request = MatmulRequest(a=a, b=b, c=c, alpha=alpha, beta=beta)
    assert request.lowered.spec().scalars == ()
    compare(request)
    compare(MatmulRequest(a=a, b=b, alpha=alpha))
    z = np.asarray(2 - 1j, np.complex64)
    compare(MatmulRequest(a=a.astype(np.complex64), b=b.astype(np.complex64), alpha=z))


def test_scales_of_blocks_are_those_of_the_blocks() -> None:
    rng = np.random.default_rng(3)
    m, n, k = 200, 300, 520
    a, b = random(rng, (m, k), "float8_e4m3fn"), random(rng, (k, n), "float8_e4m3fn")
    for of_a, of_b in SCALINGS:
        scales = {
            f"{which}_scale": block_scales(rng, which, kind, outer, k)
            for which, kind, outer in (("a", of_a, m), ("b", of_b, n))
            if kind != "none"
        }
        request = MatmulRequest(a=a, b=b, out_dtype="float32", **scales)
        assert resolve_matmul(request).scaling == (of_a, of_b)
        compare(request)


E4, E5, F32 = (np.ones((16, 16), DTYPES[d]) for d in ("float8_e4m3fn", "float8_e5m2", "float32"))
ONE = np.asarray(1.0, np.float32)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"a": E4, "b": F32}, ["must be the same", "float8_e4m3fn by float8_e5m2"]),
        ({"compute": "tf64"}, ["compute='tf64'", "tf32, bfloat16"]),
        ({"compute": 3}, ["compute=3"]),
        ({"compute": "float16_accumulate"}, ["allowed: float32, tf32"]),
        ({"fast_accum": True}, ["fast_accum=True", "float8"]),
        ({"a": E4, "b": E4, "fast_accum": 2}, ["True or False"]),
        ({"conj_a": True}, ["complex64"]),
        ({"a_scale": ONE}, ["a_scale", "put it into alpha"]),
        ({"a": E4, "b": E4, "a_scale": 1.0}, ["a_scale is a float", "GpuRef"]),
        ({"a": E4, "b": E4, "a_scale": ONE.astype(float)}, ["float64; allowed: float32"]),
        ({"a": E4, "b": E4, "a_scale": np.ones(3, "f4")}, [r"shape \(3,\)", r"vec128 \(16, 1\)"]),
        ({"a": E4, "b": E4, "a_scale": ONE, "b_scale": np.ones((1, 16), "f4")}, ["a_scale is tensor and b_scale is"]),
        ({"a": E4[None], "b": E4, "a_scale": np.ones((16, 1), "f4")}, ["with a batch"]),
        ({"c_scale": ONE}, ["beta=0"]),
        ({"d_scale": np.ones(2, "f4")}, ["one element"]),
        ({"alpha": ONE, "beta": 2.0, "c": F32}, ["alpha is an array and beta is 2.0"]),
        ({"alpha": ONE.astype(float)}, ["one element", "float32"]),
        ({"amax": "yes"}, ["amax='yes'"]),
        ({"amax": np.zeros(2, "f4")}, ["amax is float32"]),
        ({"a": E4, "b": E4, "out_dtype": "float8_e5m2"}, ["float8_e5m2", "allowed: bfloat16"]),
        ({"a": E4, "b": E4, "out_dtype": "float8_e4m3fn", "c": E4, "beta": 1.0}, ["allowed: bfloat16 or float16"]),
        ({"a": np.ones((2, 2), "i1"), "b": np.ones((2, 2), "i1"), "alpha": 2.0}, ["alpha=2.0", "allowed: 0, 1"]),
        ({"a": F32 * 1j, "b": F32 * 1j, "epilogue": "relu"}, ["complex64|complex operands"]),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        MatmulRequest(**({"a": F32, "b": F32} | options))
    for word in words:
        assert caught.match(word)


def test_e5m2_by_itself_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"float8_e4m3fn only.*device\.copy"):
        MatmulRequest(a=E5, b=E5)


def test_every_pair_has_a_default() -> None:
    for (a, b), rule in RULES.items():
        x, y = np.ones((2, 2), DTYPES[a]), np.ones((2, 2), DTYPES[b])
        shape = resolve_matmul(MatmulRequest(a=x, b=y))
        assert (shape.out.dtype, shape.mode) == (DTYPES[rule.outputs[0]], rule.modes[0])


def test_factors_of_a_message_are_checked_when_it_runs() -> None:
    a = np.ones((2, 2), np.int8)
    spec = MatmulRequest(a=a, b=a).lowered.spec()
    with pytest.raises(InvalidRequest, match=r"alpha=3.0.*allowed: 0, 1"):
        build_host(spec).run((a, a, np.empty((2, 2), np.int32)), (3.0, 0.0))


def test_the_host_device_sums_float16_in_float32() -> None:
    """As the page says: in float16 a sum of ones would end at 2048."""
    a, b, out = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16), np.empty((1, 1), np.float16)
    spec = MatmulRequest(a=a, b=b, compute="float16_accumulate").lowered.spec()
    build_host(spec).run((a, b, out), (1.0, 0.0))
    assert out.tolist() == [[4096.0]]
