"""The CUDA kernels of the fused actor without a GPU: whole plans by the simulator, and machine code."""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_builds import build_cuda, build_host

import atomr_native as an
from atomr_native.builders.cuda.target import Target
from atomr_native.compile import cubin
from atomr_native.dtypes import DTYPES
from atomr_native.libraries.fused import norms

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda.bindings is not installed")

import fused_reference as reference
from scipy.special import ndtr
from shipped_kernels import linked_ptx, simulate

from atomr_native.compile import shipped
from atomr_native.compile.numba import copies
from atomr_native.compile.numba.device.elements import NARROW
from atomr_native.compile.numba.device.philox import philox
from atomr_native.libraries.fused.kernels.activations import _normal

HOPPER = (9, 0)


def numbers(*shape: int, dtype: str = "bfloat16", seed: int = 1) -> np.ndarray:
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(DTYPES[dtype])


def shifted(*shape: int, dtype: str = "bfloat16") -> np.ndarray:
    """Return rows that begin at odd addresses, apart from each other."""
    return numbers(*shape[:-1], shape[-1] + 3, dtype=dtype)[..., 1:-2]


def by_instruction(request: Any) -> bool:
    """Whether kernels use the GPU's exponential instruction: their results are within 1.03 of a rounding."""
    curves = (an.ActivationRequest, an.ActivationGradientRequest)
    return isinstance(request, curves) and request.x.dtype.itemsize == 2 and request.curve != "squared_relu"


def check_neighbours(ours: np.ndarray, hosts: np.ndarray) -> None:
    """Compare results within 1.03 of a rounding with those of one: few differ, and are neighbours then."""
    words = [np.ascontiguousarray(array).view("i2").astype(int) for array in (ours, hosts)]
    apart = abs(np.subtract(*(np.where(word < 0, -0x8000 - word, word) for word in words)))  # -0 counts as 0
    assert apart.max(initial=0) <= 1
    assert np.count_nonzero(apart) <= 1 + 0.03 * apart.size


def compare(request: Any, ulps: int, blocks: int = 1) -> None:
    """Run a plan by the simulator and by the host's builder, and compare all that they write, in ulps of its size."""
    made = request.lowered
    scalars, results = [scalar.value for scalar in made.scalars], []
    for simulated in (True, False):
        arrays = [np.zeros(o.spec.shape, DTYPES[o.spec.dtype]) if o.given is None else o.given for o in made.operands]
        if made.op in ("fused.adamw", "fused.sgd"):
            arrays = [array.copy() for array in arrays]
        if simulated:
            simulate(made.code.module, made.code.parts, made.spec(), arrays, blocks, scalars)
        else:
            run: Any = build_host(made.spec()).run
            run(tuple(arrays), tuple(scalars))
        results.append(arrays)
    for operand, ours, hosts in zip(made.operands, *results, strict=True):
        if not ulps and operand.spec.dtype in NARROW and by_instruction(request):
            check_neighbours(ours, hosts)
        elif not ulps:
            ours, hosts = (np.ascontiguousarray(array).reshape(-1).view("u1") for array in (ours, hosts))
            np.testing.assert_array_equal(ours, hosts, err_msg=operand.name)
        elif hosts.dtype.kind != "i" and hosts.size:
            eps = 2.0**-8 if operand.spec.dtype == "bfloat16" else float(np.finfo(hosts.dtype).eps)
            far = np.max(np.abs(ours.astype(np.float64) - hosts.astype(np.float64)))
            assert far <= ulps * eps * np.max(np.abs(hosts.astype(np.float64))), operand.name


def doubtful(seed: int, offset: int, i: int, above: int = 1) -> float:
    """Return a probability for which the word of element i is just not enough, or just enough if `above` is 0.

    Its upper half does not decide.
    """
    return (int(reference.dropout_words(i + 1, seed, offset)[i]) + above) / 2**32


X = functools.partial(numbers, 3, 20)
P = np.arange(5, dtype=np.int32)
#: Requests whose kernels do what the host does, step by step: equal bit by bit, but for the exponential instruction.
#: Rows with whole groups of eight that are loaded by 16 bytes, rows with rests, and rows at odd addresses.
EXACT: dict[str, Callable[[], Any]] = {
    **{
        f"{curve} {kind}": functools.partial(make, curve=curve)
        for curve in ("silu", "squared_relu", "gelu", "gelu_tanh")
        for kind, make in {
            "forward": lambda curve: an.ActivationRequest(x=X(dtype="float32"), curve=curve),
            "backward": lambda curve: an.ActivationGradientRequest(dy=X(seed=2), x=X(), curve=curve),
            "gated, backward, packed": lambda curve: an.ActivationGradientRequest(
                dy=numbers(3, 16), x=numbers(3, 32, seed=2), curve=curve, gated=True
            ),
        }.items()
    },
    "gated, packed, strided": lambda: an.ActivationRequest(x=shifted(3, 4, 18, dtype="float16"), gated=True),
    "gated, two": lambda: an.ActivationRequest(x=shifted(5, 9), up=numbers(5, 9), gated=True),
    "gated, backward, two": lambda: an.ActivationGradientRequest(
        dy=X(seed=2), x=X(), up=X(seed=3), curve="silu", gated=True
    ),
    "a number": lambda: an.ActivationRequest(x=np.array(0.5, np.float32)),
    "nothing": lambda: an.ActivationRequest(x=numbers(0, 4)),
    "long": lambda: an.ActivationRequest(x=numbers(5000), curve="squared_relu"),
    "gated, long": lambda: an.ActivationRequest(x=numbers(4112), up=numbers(4112, seed=2), gated=True),
    "gated, backward, long": lambda: an.ActivationGradientRequest(
        dy=numbers(4112, seed=2), x=numbers(4112), up=numbers(4112, seed=3), gated=True
    ),
    "adamw": lambda: an.AdamWRequest(
        param=X(dtype="float32"), grad=X(), m=X(dtype="float32", seed=3), v=abs(X(dtype="float32", seed=4)), step=7
    ),
    "adamw, master": lambda: an.AdamWRequest(
        param=numbers(27), grad=numbers(27, dtype="float64"), m=numbers(27, dtype="float32", seed=3),
        v=abs(numbers(27, dtype="float32", seed=4)), master=numbers(27, dtype="float32"), step=1, weight_decay=0.1,
    ),
    "sgd": lambda: an.SgdRequest(param=X(dtype="float32"), grad=X(dtype="float16"), m=X(dtype="float32", seed=3)),
    "sgd, nesterov, master": lambda: an.SgdRequest(
        param=X(), grad=X(seed=2), m=X(dtype="float32", seed=3), master=X(dtype="float32"), nesterov=True,
    ),
    "rope": lambda: an.RopeRequest(x=numbers(5, 2, 16), positions=P),
    "rope, interleaved": lambda: an.RopeRequest(x=numbers(2, 5, 3, 10, dtype="float32"), positions=P.astype("i8"),
                                                interleaved=True, inverse=True),
    "rope, many heads": lambda: an.RopeRequest(x=numbers(2, 11, 16), positions=P[3:]),
    "rope, odd": lambda: an.RopeRequest(x=shifted(5, 2, 22), positions=P, theta=500.0),
    "rope, several blocks for a row, and tokens for a block": lambda: an.RopeRequest(
        x=numbers(13, 1, 1028), positions=np.arange(13, dtype=np.int32), interleaved=True
    ),
    "rope, several blocks for a token": lambda: an.RopeRequest(x=numbers(2, 1, 36, 272), positions=P[3:4]),
    "rope, nothing": lambda: an.RopeRequest(x=numbers(5, 0, 16), positions=P),
    "dropout": lambda: an.DropoutRequest(x=X(), p=0.3, seed=2**62 + 5, offset=2**33),
    "dropout, gaps": lambda: an.DropoutRequest(x=shifted(5, 19, dtype="float32"), p=0.5, seed=3),
    "dropout, whole groups, a word in doubt": lambda: an.DropoutRequest(
        x=numbers(4096), p=doubtful(2**62 + 5, 7, 1000), seed=2**62 + 5, offset=7
    ),
    "dropout, gaps, a word in doubt": lambda: an.DropoutRequest(
        x=shifted(5, 19, dtype="float16"), p=doubtful(3, 0, 41), seed=3
    ),
    "dropout, gaps, the last word of a group in doubt": lambda: an.DropoutRequest(
        x=shifted(3, 19, dtype="float16"), p=doubtful(3, 0, 2 * 19 + 7), seed=3
    ),
    "dropout, gaps, a word at the threshold": lambda: an.DropoutRequest(
        x=shifted(3, 19, dtype="float16"), p=doubtful(3, 0, 2 * 19 + 5, above=0), seed=3
    ),
    "dropout of everything": lambda: an.DropoutRequest(x=X(dtype="float64"), p=1.0, seed=3),
}  # fmt: skip


@pytest.mark.bits
@pytest.mark.parametrize("name", EXACT)
def test_plans_by_the_simulator_have_the_bits_of_the_host(name: str) -> None:
    compare(EXACT[name](), 0)


W = functools.partial(numbers, 272, seed=9)
#: Requests with sums over many elements, which the host adds in float64: a few roundings of float32 apart.
SUMS: dict[str, Callable[[], Any]] = {
    "rms": lambda: an.NormRequest(x=numbers(2, 272), weight=W(dtype="float32"), residual=numbers(2, 272, seed=2)),
    "rms, odd": lambda: an.NormRequest(x=shifted(2, 13, dtype="float16"), weight=numbers(13, dtype="float64")),
    "layer": lambda: an.NormRequest(x=numbers(2, 272, dtype="float32"), weight=W(), bias=W(), layer=True),
    "layer, residual": lambda: an.NormRequest(
        x=numbers(2, 13), weight=numbers(13), residual=numbers(2, 13, seed=2), layer=True
    ),
    "layer, several rows of a block": lambda: an.NormRequest(
        x=numbers(19, 560, dtype="float32"), weight=numbers(560, dtype="float32"), layer=True
    ),
    "layer, float64": lambda: an.NormRequest(x=shifted(2, 13, dtype="float64"), weight=numbers(13), layer=True),
    "rms, backward": lambda: an.NormGradientRequest(
        dy=numbers(9, 13), x=numbers(9, 13, seed=2), weight=numbers(13), residual=numbers(9, 13, seed=3)
    ),
    "rms, backward, several rows of a block": lambda: an.NormGradientRequest(
        dy=numbers(27, 560), x=numbers(27, 560, seed=2), weight=numbers(560, dtype="float32")
    ),
    "rms, backward, residual": lambda: an.NormGradientRequest(
        dy=numbers(2, 272), x=numbers(2, 272, seed=2), weight=W(), residual=numbers(2, 272, seed=3)
    ),
    "layer, backward": lambda: an.NormGradientRequest(
        dy=numbers(2, 272, dtype="float32"), x=numbers(2, 272, dtype="float32", seed=2), weight=W(dtype="float32"),
        layer=True, biased=True,
    ),
}  # fmt: skip


@pytest.mark.bits
@pytest.mark.parametrize("name", SUMS)
def test_sums_by_the_simulator_are_those_of_the_host(name: str) -> None:
    compare(SUMS[name](), 4, blocks=1)


def test_variances_of_rows_that_are_far_from_zero() -> None:
    """The bound is some roundings of the mean; those of its square would be 300 times as much."""
    x = numbers(2, 560, dtype="float32") + np.float32(600)
    compare(an.NormRequest(x=x, weight=np.ones(560, np.float32), layer=True), 600)


def test_the_norm_of_rows_of_equal_numbers_whose_squares_are_infinite() -> None:
    compare(an.NormRequest(x=np.full((2, 560), 1e20, np.float32), weight=numbers(560, dtype="float32"), layer=True), 0)


@pytest.mark.parametrize("name", ["rms, backward", "layer, backward"])
def test_gradients_of_rows_that_are_too_long_to_keep(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_HELD", 8)
    assert [part.name for part in SUMS[name]().lowered.code.parts] == [
        "norm_backward",
        "weight_partial",
        "weight_finish",
    ]
    compare(SUMS[name](), 4)


@pytest.mark.bits
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_normal_distribution_of_every_number_of_16_bits(dtype: str) -> None:
    """Of GEGLU's kernel: its polynomial is right to a 30th of a rounding, however small the result."""
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    x = x[abs(x.astype(np.float32)) < 13]
    with np.errstate(all="ignore"):
        _, got = np.vectorize(copies.as_python(_normal(dtype)))(x.astype(np.float32))
    np.testing.assert_allclose(got, ndtr(x.astype(np.float64)), rtol=6e-6)


def test_known_answers_of_philox() -> None:
    """Of the known-answer vectors of Random123: philox4x32, 10 rounds."""
    ours = copies.as_python(philox)
    ones = 0xFFFFFFFF
    for counter, key, want in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):  # fmt: skip
        assert ours(*counter, *key) == want
        assert tuple(reference.philox(list(counter), list(key))) == want
        from atomr_native._support.philox import philox as hosts

        words = hosts(tuple(np.array([word], np.uint64) for word in counter), key)  # type: ignore[arg-type]
        assert tuple(int(word[0]) for word in words) == want


#: What is compiled, for which capability.
COMPILED = [
    ("gelu_tanh gated, backward, packed", (8, 0)), ("rms", HOPPER), ("layer, backward", (10, 0)), ("rope", HOPPER),
    ("sgd, nesterov, master", HOPPER),
]  # fmt: skip


@pytest.mark.parametrize(("name", "capability"), COMPILED)
def test_compilation_needs_no_gpu(tools: None, name: str, capability: tuple[int, int]) -> None:
    made: Any = (EXACT | SUMS)[name]().lowered.code
    code = shipped.machine_code(made.module, made.parts, capability)
    found = cubin.kernels(code.code.data)
    for part, (_, entry) in zip(made.parts, code.entries, strict=True):
        types = shipped.made(made.module, part)[1]
        assert found[entry] == tuple(4 if t in ("float32", "int32") else 8 for t in types)
        assert not cubin.why_no_overlap(code.code.data, entry) or capability < HOPPER


#: Lists of one parameter, by the name of the single step.
LISTS: dict[str, Callable[[], Any]] = {
    "adamw": lambda: an.AdamWListRequest(
        param=[X(dtype="float32")], grad=[X()], m=[X(dtype="float32")], v=[X(dtype="float32")], step=1
    ),
    "sgd, nesterov, master": lambda: an.SgdListRequest(
        param=[X()], grad=[X()], m=[X(dtype="float32")], master=[X(dtype="float32")], nesterov=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_lists_contract_products_and_sums_as_single_steps(tools: None, name: str) -> None:
    """By machine code: the same numbers of float32 products, sums, and products with sums."""
    made: Any = EXACT[name]().lowered.code
    theirs = shipped.machine_code(made.module, made.parts, HOPPER).code.data
    ours: Any = build_cuda(LISTS[name]().lowered.spec(), Target("sm_90a")).run
    assert float_instructions(ours.cubin) == float_instructions(theirs)


def float_instructions(code: bytes) -> tuple[int, ...]:
    """Return how many FMUL, FADD and FFMA there are, by the lowest nine bits of instructions of 16 bytes."""
    headers, (size, count) = struct.unpack_from("<Q", code, 0x28)[0], struct.unpack_from("<HH", code, 0x3A)
    counts: Counter[int] = Counter()
    for i in range(count):
        _, kind, flags, _, start, length = struct.unpack_from("<IIQQQQ", code, headers + i * size)
        if kind == 1 and flags & 4:  # PROGBITS, executable
            counts.update(word & 0x1FF for (word,) in struct.iter_unpack("<H14x", code[start : start + length]))
    return tuple(counts[opcode] for opcode in (0x20, 0x21, 0x23))


@pytest.mark.parametrize("name", ["gated, two", "adamw", "dropout"])
def test_groups_are_loaded_by_16_bytes_and_stay_in_registers(tools: None, name: str) -> None:
    made: Any = EXACT[name]().lowered.code
    ptx = linked_ptx(made.module, made.parts, HOPPER)
    assert "ld.v4" in ptx or "ld.global.v4" in ptx
    assert "st.v4" in ptx or "st.global.v4" in ptx
    assert ".local .align" not in ptx
