"""The random kernels without a GPU: whole plans by the simulator against NumPy's bits, and machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from plan_builds import build_cuda, build_host

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.compile import cubin
from atomr_native.dtypes import DTYPES
from atomr_native.plans.spec import ShippedCode
from atomr_native.protocol.binaries import Binary

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

from shipped_kernels import linked_ptx, simulate, simulate_program

from atomr_native.compile import shipped

HOPPER = (9, 0)
FLOATS = ("float64", "float32", "float16", "bfloat16")
EDGE = {"seed": 2**63 + 5, "stream": 3, "offset": 2**64 - 40}


def memory(operand: Any) -> np.ndarray:
    """Return memory with the layout of an output, which is filled with something."""
    spec = operand.spec
    dtype = DTYPES[spec.dtype]
    span = dtype.itemsize + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    return np.ndarray(spec.shape, dtype, np.full(span, 0xA5, np.uint8), 0, spec.strides)


def compare(request: Any, blocks: int = 1) -> np.ndarray:
    """Run a plan by the simulator and by the host's builder, and compare every bit that they write."""
    made = request.lowered
    scalars, results = [scalar.value for scalar in made.scalars], []
    with np.errstate(all="ignore"):  # the simulator's scalars warn
        for simulated in (True, False):
            arrays = [memory(o) if o.name == "out" else o.given for o in made.operands]
            if simulated:
                simulate(made.code.module, made.code.parts, made.spec(), arrays, blocks, scalars)
            else:
                run: Any = build_host(made.spec()).run
                run(tuple(arrays), tuple(scalars))
            results.append(np.ascontiguousarray(arrays[-1]))
    ours, hosts = (array.reshape(-1).view("u1") for array in results)
    np.testing.assert_array_equal(ours, hosts)
    assert len(set(results[0].reshape(-1).tolist())) > 1
    return results[0]


FILLS = [
    *(("uniform", (-1.0, 3.0), dtype) for dtype in FLOATS),
    *(("normal", (1.0, 2.0), dtype) for dtype in FLOATS),
    *(("lognormal", (0.0, 0.5), dtype) for dtype in FLOATS[:2]),
    *(("exponential", (2.0,), dtype) for dtype in FLOATS[:2]),
    *(("cauchy", (0.0, 1.0), dtype) for dtype in FLOATS[:2]),
    ("bernoulli", (0.3,), "bool"), ("bernoulli", (0.3,), "float16"),
    ("geometric", (0.01,), "uint8"), ("geometric", (0.1,), "float32"),
    ("truncated_normal", (0.0, 1.0, -np.inf, 0.5), "float64"), ("truncated_normal", (0.0, 1.0, 3.0, 4.0), "float32"),
    ("gamma", (0.5, 2.0), "float64"), ("gamma", (7.0, 2.0), "bfloat16"), ("beta", (0.5, 2.0), "float32"),
    ("poisson", (3.0,), "int64"), ("poisson", (125.0,), "int8"), ("poisson", (20.0,), "float16"),
    ("binomial", (10, 0.7), "int16"), ("binomial", (1000, 0.3), "uint64"),
    ("integers", (-3, 100), "int8"), ("integers", (0, 3 * 2**30), "uint32"), ("integers", (0, 2**32), "int64"),
    ("integers", (-(2**63), 2**62), "int64"), ("integers", (0, 2**64), "uint64"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "dtype"), FILLS)
def test_every_bit_of_a_fill(name: str, parameters: tuple[float, ...], dtype: str) -> None:
    compare(an.RandomRequest(distribution=name, shape=37, dtype=dtype, parameters=parameters, **EDGE))


LAYOUTS: dict[str, Callable[[], Any]] = {
    "arrays and gaps": lambda: an.RandomRequest(
        distribution="normal", out=np.zeros((4, 6, 6), "float32")[:, ::2],
        parameters=(np.arange(4.0).reshape(4, 1, 1), np.ones(6, "float32")), seed=5, offset=np.array([7], np.uint64),
    ),
    "rejection with arrays": lambda: an.RandomRequest(
        distribution="binomial", shape=(3, 7), parameters=(np.array([[4.0], [400.0], [0.0]]), 0.25), seed=5,
    ),
    "integers with gaps": lambda: an.RandomRequest(
        distribution="integers", out=np.zeros((9, 4), "int16")[:, ::3], parameters=(2, 700), seed=5,
        offset=np.array(2**63 + 1, np.uint64),
    ),
    "a position after the last": lambda: an.RandomRequest(
        distribution="normal", shape=9, dtype="float64", parameters=(0.0, 1.0), seed=5,
        offset=np.array(2**64 - 4, np.uint64),
    ),
    "bounds of arrays": lambda: an.RandomRequest(
        distribution="integers", dtype="uint64", parameters=(np.array([[0], [7]]), np.array([2**40, 8, 3 * 2**30])),
        seed=5, offset=2**64 - 7,
    ),
    "a bound of an array": lambda: an.RandomRequest(
        distribution="integers", out=np.zeros((9, 4), "int16")[:, ::3], parameters=(np.arange(2, dtype="int32"), 2**15),
        seed=5, offset=np.array(2**63 + 1, np.uint64),
    ),
    **{
        f"cuRAND's {name}, {dtype}": lambda name=name, dtype=dtype, p=p: an.RandomRequest(
            distribution=name, shape=9, dtype=dtype, parameters=p, seed=5, offset=2**64 - 10, engine="curand_philox"
        )
        for name, p in (("uniform", (0.0, 1.0)), ("lognormal", (0.5, 2.0)))
        for dtype in ("float32", "float64")
    },
    "cuRAND's integers": lambda: an.RandomRequest(
        distribution="integers", shape=9, parameters=(0, 2**32), seed=5, offset=262140, engine="curand_philox"
    ),
    "few": lambda: an.PermutationRequest(n=50, dtype="uint8", **EDGE | {"offset": 3}),
    "many": lambda: an.PermutationRequest(n=1100, dtype="int16", seed=3, offset=np.array(9)),
    "few rows": lambda: an.ShuffleRequest(x=np.arange(60.0).astype("c16").reshape(20, 3), seed=3),
    "many rows": lambda: an.ShuffleRequest(x=np.arange(1100).astype("int16"), seed=3),
    "choices": lambda: an.ChoiceRequest(weights=np.arange(600.0)[::2] % 7, shape=(5, 7), dtype="int16", **EDGE),
    "choices, once": lambda: an.ChoiceRequest(
        weights=np.arange(90, dtype="float32") % 7, shape=50, seed=3, offset=np.array(9), replace=False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_bit_of_other_layouts(name: str) -> None:
    compare(LAYOUTS[name]())


def test_grids_that_go_round() -> None:
    """More elements than the threads of one multiprocessor's blocks have at once."""
    compare(an.RandomRequest(distribution="uniform", shape=16 * 256 * 4 + 9, parameters=(0.0, 1.0), seed=5, offset=2))


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_bad_parameters_are_reported(bad: float) -> None:
    """In the word by which the lane fails the message; it is cleared before."""
    for deviations in (np.array([1.0, 2.0, 3.0]), np.array([1.0, bad, 3.0])):
        request = an.RandomRequest(distribution="normal", shape=3, parameters=(0.0, deviations), seed=1)
        made: Any = request.lowered
        names = tuple((part.name, part.name) for part in made.code.parts)
        spec = replace(made.spec(), attributes=replace(made.attributes, shipped=ShippedCode(names, Binary(b""))))
        program: Any = build_cuda(spec, Target("sm_90", 1)).run
        assert program.info == ("workspace", 0)
        spaces: list[np.ndarray] = []
        arrays = [deviations, memory(made.operands[-1])]
        with np.errstate(all="ignore"):
            simulate_program(
                made.code.module, made.code.parts, program, arrays, [s.value for s in made.scalars], spaces.append
            )
        assert bool(spaces[0][:4].view(np.int32)[0]) == (deviations[1] == bad or np.isnan(deviations[1]))


#: Between them they have every function of both computation types, but those of binomial and Poisson numbers.
COMPILED = [("lognormal", (0.0, 1.0), "float32"), ("beta", (1.0, 2.0), "float64")]


@pytest.mark.parametrize(("name", "parameters", "dtype"), COMPILED)
def test_nothing_is_contracted(tools: None, name: str, parameters: tuple[Any, ...], dtype: str) -> None:
    """Each product is an instruction of its own that says how it is rounded, and no library's function is called."""
    made: Any = an.RandomRequest(distribution=name, shape=3, dtype=dtype, parameters=parameters, seed=1).lowered.code
    ptx = linked_ptx(made.module, made.parts, HOPPER)
    found = Counter(re.findall(r"\b((?:fma|mad|mul|div|sqrt|rcp|ex2|lg2|sin|cos|rsqrt)\.[a-z0-9.]*f(?:32|64))\b", ptx))
    quotients, roots = (found.pop(f"{how}.approx.ftz.f32", 0) for how in ("rcp", "rsqrt"))
    assert (quotients > 0) == (roots > 0) == (dtype == "float32")
    assert found.pop("fma.rn.f32", 0) == 4 * quotients + 2 * roots  # of quotients and roots, and no others
    assert set(found) <= {f"{how}.rn.{kind}" for how in ("mul", "div", "sqrt") for kind in ("f32", "f64")}
    assert len(found) == (1 if dtype == "float32" else 3)
    assert ptx.count("ftz") == quotients + roots
    assert "call" not in ptx
    assert ".local .align" not in ptx


@pytest.mark.parametrize(
    "name",
    [
        "rejection with arrays",
        "bounds of arrays",
        "cuRAND's lognormal, float64",
        "many rows",
        "few rows",
        "choices",
        "choices, once",
    ],
)
def test_compilation_needs_no_gpu(tools: None, name: str) -> None:
    made: Any = LAYOUTS[name]().lowered.code
    code = shipped.machine_code(made.module, made.parts, HOPPER)
    found = cubin.kernels(code.code.data)
    for part, (_, entry) in zip(made.parts, code.entries, strict=True):
        assert found[entry] == (8,) * len(shipped.made(made.module, part)[1])


#: The float32 of sqrt(1/2), from which on the mantissas of logarithms are, and their number.
HALF_ROOT, MANTISSAS = 0x3F3504F3, 1 << 23


@pytest.mark.gpu
def test_quotients_and_roots_are_rounded_once() -> None:
    """Of every mantissa that a logarithm has, and of each number from 1 to 4, whose roots have all mantissas."""
    from numba import cuda

    from atomr_native.compile.numba.device.intrinsics import float_of
    from atomr_native.compile.numba.device.rounded import near_quotient, near_root

    @cuda.jit
    def quotients(out: Any, first: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            x = float_of(np.uint32(first + i)) - np.float32(1)
            out[i] = near_quotient(x, np.float32(2) + x)

    @cuda.jit
    def roots(out: Any, first: Any, scale: Any) -> None:
        i = cuda.grid(1)
        if i < out.size:
            out[i] = near_root(np.float32(float_of(np.uint32(first + i)) * np.float32(scale)))

    with an.System(watchdog=60.0, standby="off") as system:
        device = system.device("cuda:0")
        out = device.zeros(MANTISSAS, "float32")
        device.kernel(quotients).forall(MANTISSAS)(out, HALF_ROOT).result(60)
        x = np.arange(HALF_ROOT, HALF_ROOT + MANTISSAS, dtype=np.uint32).view(np.float32) - np.float32(1)
        np.testing.assert_array_equal(out.numpy().view(np.uint32), (x / (np.float32(2) + x)).view(np.uint32))
        one = int(np.float32(1).view(np.uint32))
        for first, scale in ((one, 1.0), (one + MANTISSAS, 1.0), (one, 2.0**-26), (one, 0.0), (one, -0.0)):
            device.kernel(roots).forall(MANTISSAS)(out, first, scale).result(60)
            x = np.arange(first, first + MANTISSAS, dtype=np.uint32).view(np.float32) * np.float32(scale)
            np.testing.assert_array_equal(out.numpy().view(np.uint32), np.sqrt(x).view(np.uint32))
