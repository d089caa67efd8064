"""Contractions of tensors of blocks, against dense ones in float64, on the host and on CUDA devices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.tensor.blocks import block_offsets, block_products
from atomr_native.libraries.tensor.cuda import block_call

RNG = np.random.default_rng(12)
EPS = {
    "float64": 2.0**-52, "complex128": 2.0**-52, "float32": 2.0**-23, "complex64": 2.0**-23, "float16": 2.0**-10,
    "bfloat16": 2.0**-7, "int32": 0.0,
}  # fmt: skip
#: Sections of four modes.
SECTIONS = {"i": (5, 3, 7), "j": (4, 20, 1), "k": (16, 2), "l": (6, 9)}


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def random(modes: str, dtype: str, zeros: float = 0.5, rng: np.random.Generator = RNG) -> np.ndarray:
    """Return a tensor of which some blocks are zero."""
    cut = [SECTIONS[m] for m in modes]
    x = rng.integers(-4, 5, [sum(part) for part in cut]) + 0.25 * (as_dtype(dtype).kind != "i")
    x = x * (1 + 1j) if as_dtype(dtype).kind == "c" else x
    for block in np.ndindex(*map(len, cut)):
        if rng.random() < zeros:
            x[tuple(slice(sum(p[:i]), sum(p[: i + 1])) for p, i in zip(cut, block, strict=True))] = 0
    return x.astype(as_dtype(dtype))


def put(device: an.Device, modes: str, array: np.ndarray, blocks: Any = None) -> an.BlockTensor:
    made = an.BlockTensor.of(array, [SECTIONS[m] for m in modes], blocks)
    return an.BlockTensor(device.put(made.values), made.sections, made.blocks)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(complex if x.dtype.kind == "c" else float)


def close(found: np.ndarray, want: np.ndarray, size: np.ndarray, eps: float) -> None:
    assert found.shape == want.shape
    assert np.all(np.abs(wide(found) - want) <= 60 * eps * (size + np.abs(want)))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [*(("ij,jk->ik", dtype) for dtype in EPS), ("jil,kjl->ki", "float32"), ("ij,jk->ijk", "float64"),
     ("i,j->ij", "complex64"), ("ij,ij->", "bfloat16")],
)  # fmt: skip
def test_products_of_blocks(device: an.Device, text: str, dtype: str) -> None:
    terms, output = text.split("->")
    names = terms.split(",")
    a, b = (random(term, dtype) for term in names)
    found = device.tensor.block_contract(text, *(put(device, n, x) for n, x in zip(names, (a, b), strict=True)))
    want = np.einsum(text, wide(a), wide(b))
    close(found.dense(), want, np.einsum(text, np.abs(wide(a)), np.abs(wide(b))), EPS[dtype])
    assert found.sections == tuple(SECTIONS[m] for m in output)
    assert found.shape == want.shape
    needed = an.BlockTensor.of(want, found.sections).blocks
    assert set(needed) <= set(found.blocks)


@pytest.mark.parametrize("route", ["auto", "kernel", "blas_lt", "cutensor"])
def test_routes_factors_and_conjugates(device: an.Device, route: str) -> None:
    if route == "cutensor" and device.name == "cuda:0":
        x = device.zeros((2, 2), "float32")
        try:
            device.tensor.einsum("ij,jk->ik", x, x, route=route).wait()
        except an.Unsupported as error:
            pytest.skip(str(error))
    a, b = random("ij", "complex64", 0.3), random("jk", "complex64", 0.3)
    left, right = put(device, "ij", a), put(device, "jk", b)
    structure = device.tensor.block_contract("ij,jk->ik", left, right)
    c = an.BlockTensor(device.put(RNG.standard_normal(structure.values.shape).astype("complex64")), *_parts(structure))
    product = np.einsum("ij,jk->ik", wide(a).conj(), wide(b))
    size = 9 * (np.abs(wide(a)) @ np.abs(wide(b)) + np.abs(c.dense()))
    options = {"conj": (True, False), "route": route}
    made = device.tensor.block_contract("ij,jk->ik", left, right, c=c, alpha=2 - 1j, beta=3, **options)
    want = (2 - 1j) * product + 3 * wide(c.dense())
    close(made.dense(), want, size, EPS["complex64"])
    over = device.tensor.block_contract("ij,jk->ik", left, right, c=c, out=c, alpha=2 - 1j, beta=3, **options)
    assert over.values is c.values
    close(over.dense(), want, size, EPS["complex64"])
    nothing = device.tensor.block_contract("ij,jk->ik", left, right, c=c, alpha=0, beta=2, **options)
    close(nothing.dense(), 2 * wide(c.dense()), size, EPS["complex64"])


@pytest.fixture
def gpu(cuda_system: an.System) -> an.Device:
    """A GPU, or the fake one, with cuTENSOR."""
    made = cuda_system.device("cuda:0")
    x = made.zeros((2, 2), "float32")
    try:
        made.tensor.einsum("ij,jk->ik", x, x, route="cutensor").wait()
    except an.Unsupported as error:
        pytest.skip(str(error))
    return made


@pytest.mark.parametrize(
    ("text", "dtype"),
    [*(("ij,jk->ik", dtype) for dtype in ("float32", "float64", "complex64", "complex128")),
     ("jil,kjl->ki", "float64"), ("lij,ijk->lk", "float32"), ("ij,jk->ijk", "complex64"), ("i,j->ij", "float64")],
)  # fmt: skip
def test_all_blocks_are_one_call_of_cutensor(gpu: an.Device, text: str, dtype: str) -> None:
    names = text.split("->")[0].split(",")
    arrays = [random(term, dtype, 0.3 if len(term) > 1 else 0) for term in names]
    left, right = (put(gpu, n, x) for n, x in zip(names, arrays, strict=True))
    plain = gpu.tensor.block_contract(text, left, right)
    c = an.BlockTensor(gpu.put(RNG.standard_normal(plain.values.shape).astype(dtype)), *_parts(plain))
    want, size = np.einsum(text, *map(wide, arrays)), np.einsum(text, *(np.abs(wide(x)) for x in arrays))
    given = {"subscripts": text, "a": left, "b": right, "route": "cutensor"}
    request = an.BlockContractionRequest(**given)
    plan = gpu.tensor.plan(request)
    if "all blocks at once: cuTENSOR" not in plan.notes:  # a version that is older
        pytest.skip(plan.notes[0])
    close(request.result(gpu.tensor.tell(request)).dense(), want, size, EPS[dtype])
    assert gpu.tensor.plan(an.BlockContractionRequest(**{**given, "route": "auto"})).notes == plan.notes
    alpha = 2 - 1j if dtype.startswith("complex") else -2
    request = an.BlockContractionRequest(**given, c=c, alpha=alpha, beta=3)
    assert "all blocks at once: cuTENSOR" in gpu.tensor.plan(request).notes
    added = wide(c.dense())
    for out in (None, c):
        again = an.BlockContractionRequest(**given, c=c, alpha=alpha, beta=3, out=out)
        for _ in range(1 if out else 3):
            found = again.result(gpu.tensor.tell(again)).dense()
            close(found, alpha * want + 3 * added, 9 * (size + np.abs(added)), EPS[dtype])


def test_a_factor_of_zero_stops_nan_in_blocks(gpu: an.Device) -> None:
    left, right = put(gpu, "ij", random("ij", "float64", 0.2)), put(gpu, "jk", random("jk", "float64", 0.2))
    structure = gpu.tensor.block_contract("ij,jk->ik", left, right)
    nan = an.BlockTensor(gpu.full(left.values.shape, np.nan, "float64"), *_parts(left))
    c = gpu.put(RNG.standard_normal(structure.values.shape))
    request = an.BlockContractionRequest(
        subscripts="ij,jk->ik",
        a=nan,
        b=right,
        c=an.BlockTensor(c, *_parts(structure)),
        alpha=2,
        beta=3,
        route="cutensor",
    )
    plan, out = gpu.tensor.plan(request), gpu.zeros(structure.values.shape, "float64")
    plan.tell(nan.values, right.values, c, out=out, alpha=0, beta=3)
    assert np.array_equal(out.numpy(), 3 * c.numpy())
    poisoned = gpu.full(c.shape, np.nan, "float64")
    plan.tell(left.values, right.values, poisoned, out=out, alpha=1, beta=0)
    assert np.allclose(out.numpy(), structure.values.numpy())


@pytest.mark.parametrize(
    ("options", "text"),
    [({"dtype": "bfloat16"}, "float32, float64, complex64, complex128"), ({"conj": True}, "conjugates no tensor"),
     ({"compute": "tf32"}, "no other compute type"), ({"empty": True}, "no tensor without blocks")],
)  # fmt: skip
def test_blocks_that_cutensor_does_not_take_at_once(gpu: an.Device, options: dict[str, Any], text: str) -> None:
    given = dict(options)
    dtype, empty = given.pop("dtype", "complex64" if "conj" in given else "float32"), given.pop("empty", False)
    a, b = random("ij", dtype, 0.2), random("jk", dtype, 0.2)
    left, right = put(gpu, "ij", a, [] if empty else None), put(gpu, "jk", b)
    blocks = [(0, 0), (2, 1)]
    request = an.BlockContractionRequest(
        subscripts="ij,jk->ik", a=left, b=right, blocks=blocks, route="cutensor", **given
    )
    assert text in gpu.tensor.plan(request).notes[0]
    found = request.result(gpu.tensor.tell(request)).dense()
    want = (
        np.zeros((15, 18))
        if empty
        else np.einsum("ij,jk->ik", wide(a.conj() if "conj" in given else a), wide(b.conj() if "conj" in given else b))
    )
    assert np.allclose(wide(found[:5, :16]), want[:5, :16], rtol=0.02, atol=0.5)


def test_an_older_cutensor_multiplies_blocks_one_by_one(refuse: Callable[..., Path]) -> None:
    refuse(cutensorOperationDescriptorSetAttribute=(7, 1))
    with an.System(standby="off") as system:
        device = system.device("cuda:0")
        a, b = random("ij", "float64", 0.2), random("jk", "float64", 0.2)
        request = an.BlockContractionRequest(
            subscripts="ij,jk->ik", a=put(device, "ij", a), b=put(device, "jk", b), route="cutensor"
        )
        notes = device.tensor.plan(request).notes
        assert "the same bits in each run: CUTENSOR_STATUS_NOT_SUPPORTED" in notes[0]
        assert "cuTENSOR" in notes[1]
        assert np.allclose(request.result(device.tensor.tell(request)).dense(), a @ b)


def test_structures_are_words() -> None:
    """The matrix of cuTENSOR's documentation, of rows."""
    sections, blocks = ((4, 2, 3), (2, 7)), ((0, 0), (2, 1))
    words = [*block_call.structure((5, 6), sections, blocks, block_offsets(sections, blocks), 8)]
    assert words == [2, 2, 6, 5, 2, 3, 2, 7, 4, 2, 3, 0, 0, 1, 2, 1, 2, 1, 7, 0, 64]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_sums_of_library_products(device: an.Device, dtype: str) -> None:
    """cuBLASLt adds to the result, of another type to scratch memory; blocks begin at odd places."""
    a, b = random("lij", dtype, 0.2), random("ijk", dtype, 0.2)
    left, right = put(device, "lij", a), put(device, "ijk", b)
    request = an.BlockContractionRequest(subscripts="lij,ijk->lk", a=left, b=right, route="blas_lt")
    if device.name == "cuda:0":
        assert any("cuBLASLt" in note and "copies" not in note for note in device.tensor.plan(request).notes)
    found = request.result(device.tensor.tell(request)).dense()
    want = np.einsum("lij,ijk->lk", wide(a), wide(b))
    close(found, want, np.einsum("lij,ijk->lk", np.abs(wide(a)), np.abs(wide(b))), EPS[dtype])


def _parts(x: an.BlockTensor) -> tuple[Any, Any]:
    return x.sections, x.blocks


def test_only_wanted_blocks_are_computed(device: an.Device) -> None:
    a, b = random("ij", "float64", 0), random("jk", "float64", 0)
    b[:, 16:] = 0
    left, right = put(device, "ij", a), put(device, "jk", b)
    made = device.tensor.block_contract("ij,jk->ik", left, right, blocks=[(2, 0), (0, 1)])
    assert made.blocks == ((2, 0), (0, 1))
    want = a @ b
    assert np.allclose(made.dense()[8:, :16], want[8:, :16])
    assert np.count_nonzero(made.dense()) == np.count_nonzero(want[8:, :16])  # the other block is 0, as no product is
    nan = an.BlockTensor(device.full(made.values.shape, np.nan, "float64"), *_parts(made))
    again = device.tensor.block_contract("ij,jk->ik", left, right, out=nan)
    assert np.array_equal(again.dense(), made.dense())
    none = device.tensor.block_contract("ij,jk->ik", put(device, "ij", a, []), right)
    assert (none.blocks, none.values.shape) == ((), (0,))
    assert not none.dense().any()


def test_a_plan_tells_other_values(device: an.Device) -> None:
    a, b = random("ij", "float32", 0.4), random("jk", "float32", 0.4)
    left, right = put(device, "ij", a), put(device, "jk", b)
    request = an.BlockContractionRequest(subscripts="ij,jk->ik", a=left, b=right, alpha=2)
    plan = device.tensor.plan(request)
    out = device.full(request.lowered.operands[-1].spec.shape, np.nan, "float32")
    for factor in (1, -3):
        plan.tell(device.put(factor * left.values.numpy()), right.values, out=out, alpha=5)
        close(request.result(out).dense(), factor * 5 * wide(a) @ wide(b), np.abs(a) @ np.abs(b) * 20, EPS["float32"])
    if device.name == "cuda:0":
        assert plan.notes[-1].endswith("products of two blocks")
    assert copy.copy(request).lowered.spec() == request.lowered.spec()
    renamed = an.BlockContractionRequest(subscripts="zy,yx->zx", a=left, b=right, alpha=7)
    assert renamed.lowered.spec() == request.lowered.spec()
    turned = an.BlockContractionRequest(subscripts="zy,yx->xz", a=left, b=right, alpha=7)
    assert turned.lowered.spec() != request.lowered.spec()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(["ij,jk->ik", "ijk,kjl->il", "lij,jk->kil", "ij,kl->ikjl"]))
def test_pairs_of_blocks_are_those_that_meet(seed: int, text: str) -> None:
    rng = np.random.default_rng(seed)
    terms, output = text.split("->")
    names = terms.split(",")
    numbers = {m: i for i, m in enumerate(dict.fromkeys(terms.replace(",", "")))}
    patterns = [rng.random([len(SECTIONS[m]) for m in term]) < 0.5 for term in names]
    blocks = [tuple(map(tuple, np.argwhere(one).tolist())) for one in patterns]
    found = block_products([[numbers[m] for m in t] for t in names], [numbers[m] for m in output], blocks)
    counts = np.einsum(text, *(one.astype(int) for one in patterns))
    assert {block: len(pairs) for block, pairs in found.items()} == {
        tuple(block): counts[tuple(block)] for block in np.argwhere(counts).tolist()
    }


A = an.BlockTensor.of(np.eye(4), [(2, 2), (1, 3)])
B = an.BlockTensor.of(np.eye(4), [(1, 3), (4,)])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"b": A}, r"mode 'j' has sections \(1, 3\) in operand 0 and \(2, 2\) in operand 1"),
        ({"a": np.eye(4)}, "a is a ndarray; allowed: a BlockTensor"),
        ({"subscripts": "ij,jk->i"}, "mode 'k' is in operand 1 alone"),
        ({"subscripts": "ii,ik->ik"}, "mode 'i' is in operand 0 twice"),
        ({"subscripts": "ij,jk->ix"}, "mode 'x' of the output"),
        ({"blocks": [(0, 1)]}, r"blocks=\(\(0, 1\),\); allowed: different coordinates below \[2, 1\]"),
        ({"blocks": [(0, 0), (0, 0)]}, "allowed: different coordinates"),
        ({"beta": 1}, "beta=1 without c"),
        ({"alpha": np.ones(1)}, "alpha is an array; allowed: a number"),
        ({"c": A, "beta": 1}, "c has other sections or blocks than the result"),
        ({"out": A}, r"out has sections \(\(2, 2\), \(1, 3\)\); allowed: \(\(2, 2\), \(4,\)\)"),
        ({"route": "fast"}, "route='fast'; allowed: 'auto'"),
        ({"compute": "tf32"}, "compute='tf32' with operands of float64"),
        ({"compute": "8xint8", "route": "kernel"}, "route='kernel' with compute='8xint8'"),
    ],
)
def test_refusals(given: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.BlockContractionRequest(**{"subscripts": "ij,jk->ik", "a": A, "b": B, **given})


@pytest.mark.parametrize(
    ("sections", "blocks", "count", "text"),
    [
        ([(2, 2)], [(2,)], 2, r"block \(2,\); allowed: coordinates below \[2\]"),
        ([(2, 2)], [(0, 0)], 2, r"block \(0, 0\); allowed"),
        ([(2, 2)], [(0,), (0,)], 4, r"block \(0,\) is there twice"),
        ([(2, 2)], [(0,)], 3, r"values has shape \[3\]; allowed: \[2\]"),
        ([(2, -2)], [(0,)], 2, r"sections of mode 0 are \(2, -2\)"),
        ([2], [(0,)], 2, r"sections=\[2\]; allowed: a sequence of sequences"),
    ],
)
def test_malformed_tensors(sections: Any, blocks: Any, count: int, text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        an.BlockTensor(np.ones(count), sections, blocks)


def test_sections_add_up() -> None:
    with pytest.raises(an.InvalidRequest, match=r"sections of \[3, 4\] elements; allowed: \[4, 4\]"):
        an.BlockTensor.of(np.eye(4), [(1, 2), (4,)])


def test_too_many_products_are_refused() -> None:
    many = an.BlockTensor.of(np.ones((65, 65)), [(1,) * 65] * 2)
    with pytest.raises(an.Unsupported, match="products of two blocks; at most 4096") as refused:
        an.BlockContractionRequest(subscripts="ij,jk->ik", a=many, b=many)
    assert refused.value.rule == "tensor.block_products"
