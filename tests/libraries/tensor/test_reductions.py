"""Reductions, permutations and elementwise operations against NumPy, on the host and on CUDA devices."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import as_dtype
from atomr_native.libraries.tensor.operators import UNARY, unary_function

RNG = np.random.default_rng(5)
EPS = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 1e-5, "complex128": 1e-13}


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    found = as_dtype(dtype)
    if found.kind in "iub":
        return RNG.integers(0, 3, shape).astype(found)
    x = RNG.uniform(-1.5, 1.5, shape)
    return (x + 1j * RNG.standard_normal(shape) if found.kind == "c" else x).astype(found)


REDUCED: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "any": np.any, "all": np.all,
    "norm1": lambda x, axis: np.abs(x).sum(axis), "norm2": lambda x, axis: np.sqrt((x * x).sum(axis)),
    "norm_max": lambda x, axis: np.abs(x).max(axis),
}  # fmt: skip


def wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "iub" else x.astype(complex if x.dtype.kind == "c" else float)


@pytest.mark.parametrize("op", REDUCED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_reductions(device: an.Device, op: str, dtype: str) -> None:
    x = random((5, 4, 6), dtype)
    ref = device.put(x)
    if dtype == "complex64" and op in ("max", "min", "norm1", "norm2", "norm_max"):
        with pytest.raises(an.InvalidRequest, match=f"op='{op}' of complex64"):
            device.tensor.reduce(op, "ijk->i", ref)
        return
    ways: tuple[tuple[str, tuple[int, ...]], ...] = (("ijk->ki", (1,)), ("ijk->", (0, 1, 2)))
    if dtype != "float32":  # these are of one way each
        ways = (ways[list(REDUCED).index(op) % 2],)
    for subscripts, axes in ways:
        found = device.tensor.reduce(op, subscripts, ref).numpy()
        want = REDUCED[op](wide(x), axis=axes)
        want = want.T if subscripts == "ijk->ki" else want
        assert found.shape == want.shape
        assert np.allclose(wide(found), want, rtol=4 * EPS.get(dtype, 1e-13), atol=8 * EPS.get(dtype, 1e-13))
        if op in ("sum", "max", "norm2") and dtype != "bool":  # backwards, and finished by a kernel
            scaled = device.tensor.reduce(op, subscripts, ref[:, ::-1], alpha=3).numpy()
            assert np.allclose(wide(scaled), 3 * want, rtol=8 * EPS.get(dtype, 1e-13), atol=30 * EPS.get(dtype, 1e-13))


def test_large_reductions_are_split(device: an.Device) -> None:
    x = random((3, 70001), "float32")
    ref = device.put(x)[:, ::-1]
    assert np.allclose(device.tensor.reduce("norm2", "ij->i", ref).numpy(), np.sqrt((wide(x) ** 2).sum(1)), rtol=1e-5)
    first = device.tensor.reduce("sum", "ij->i", ref, alpha=2).numpy()
    assert first.tobytes() == device.tensor.reduce("sum", "ij->i", ref, alpha=2).numpy().tobytes()
    assert np.allclose(first, 2 * wide(x).sum(1), atol=1e-2)
    assert device.tensor.reduce("max", "ij->", ref, alpha=1.0, out_dtype="float64").item() == x.max()


def test_nan_of_extrema(device: an.Device) -> None:
    x = np.array([[1, np.nan, 3], [4, 5, 6]], "float32")
    for alpha in (1, 2):
        found = device.tensor.reduce("min", "ij->i", device.put(x), alpha=alpha).numpy()
        assert np.isnan(found[0])
        assert found[1] == 4 * alpha


def test_reductions_of_nothing(device: an.Device) -> None:
    x = device.zeros((3, 0), "float32")
    assert device.tensor.reduce("sum", "ij->i", x).numpy().tolist() == [0, 0, 0]
    assert device.tensor.reduce("prod", "ij->i", x, alpha=2).numpy().tolist() == [2, 2, 2]
    assert device.tensor.reduce("all", "ij->i", x).numpy().all()
    with pytest.raises(an.InvalidRequest, match="op='max' over modes of 0 elements"):
        device.tensor.reduce("max", "ij->i", x)
    assert device.tensor.reduce("max", "ij->j", x).shape == (0,)


def test_reductions_add(device: an.Device) -> None:
    x, c = random((4, 6), "float32"), random((4,), "float32")
    found = device.tensor.reduce("mean", "ij->i", device.put(x), c=device.put(c), alpha=2, beta=-1).numpy()
    assert np.allclose(found, 2 * x.mean(1) - c, atol=1e-5)
    trace = device.tensor.reduce("sum", "ii", device.put(x[:, :4]), alpha=1.5).numpy()
    assert np.allclose(trace, 1.5 * np.trace(x[:, :4]), atol=1e-5)
    nan = device.full((4, 6), np.nan, "float32")
    assert np.allclose(device.tensor.reduce("sum", "ij->i", nan, c=device.put(c), alpha=0, beta=2).numpy(), 2 * c)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "bool", "complex128", "float8_e5m2"])
def test_permutations(device: an.Device, dtype: str) -> None:
    x = random((3, 4, 5, 2), dtype)
    ref = device.put(x)
    assert np.array_equal(device.tensor.permute("abcd->dbca", ref).numpy(), x.transpose(3, 1, 2, 0))
    assert np.array_equal(device.tensor.permute("...a->a...", ref[:, ::-2]).numpy(), np.moveaxis(x[:, ::-2], -1, 0))
    wanted = np.pad(x.transpose(3, 1, 2, 0), ((1, 0), (0, 2), (0, 0), (3, 1)))
    padded = device.tensor.permute("abcd->dbca", ref, padding=((1, 0), (0, 2), (0, 0), (3, 1)))
    assert np.array_equal(padded.numpy(), wanted.astype(x.dtype))
    assert np.array_equal(device.tensor.permute("abcd->abcd", ref, padding=1).numpy(), np.pad(x, 1).astype(x.dtype))


def test_permutations_scale_and_convert(device: an.Device) -> None:
    x = random((5, 7), "float16")
    found = device.tensor.permute("ij->ji", device.put(x), alpha=0.5, unary="neg", out_dtype="float64").numpy()
    assert np.array_equal(found, -0.5 * x.T.astype(float))
    nan = device.full((2, 2), np.nan)
    assert (device.tensor.permute("ij->ij", nan, alpha=0).numpy() == 0).all()


def test_unary_operators(device: an.Device) -> None:
    """Three at a time, each in a range in which its terms are about as large as the others."""
    names = [*UNARY, *list(UNARY)[: -len(UNARY) % 3]]
    for start in range(0, len(names), 3):
        operators = tuple(names[start : start + 3])
        operands, want, size = [], np.zeros((5, 3)), np.zeros((5, 3))
        for operator in operators:
            x = random((3, 5), "float32")
            x = np.abs(x) + 1 if operator in ("sqrt", "log", "acosh") else x / 2 if operator[0] == "a" else x
            operands.append(device.put(x))
            with np.errstate(all="ignore"):
                term = unary_function(operator)(x.T.astype(float))
            want, size = want + term, size + np.abs(term)
        found = device.tensor.trinary("ij,ij,ij->ji", *operands, ab="add", abc="add", unary=operators).numpy()
        assert np.all(np.abs(found - want) <= 2e-6 * size + 1e-6), operators


def test_operators_of_other_values(device: an.Device) -> None:
    z, i = random((3, 5), "complex64"), RNG.integers(-5, 5, (3, 5)).astype("int16")
    assert np.array_equal(device.tensor.permute("ij->ji", device.put(z), unary="conj").numpy(), z.conj().T)
    for operator, want in (("abs", np.abs(i)), ("neg", -i), ("relu", np.maximum(i, 0))):
        assert np.array_equal(device.tensor.permute("ij->ij", device.put(i), unary=operator).numpy(), want)


def test_binary_and_trinary(device: an.Device) -> None:
    a, b, c = random((4, 5), "float32"), random((5,), "float32"), random((1, 4), "float64")
    refs = [device.put(x) for x in (a, b, c)]
    for operator, function in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        found = device.tensor.binary("ij,j->ji", *refs[:2], ab=operator, alpha=2, beta=-1).numpy()
        assert np.allclose(found, function(2 * a, -b).T, atol=1e-6)
    found = device.tensor.trinary(
        "ij,j,xi->jxi", *refs, ab="mul", abc="max", unary=("tanh", "relu"), unary_ab="swish", gamma=2
    ).numpy()
    product = np.tanh(a.astype(float)) * np.maximum(b, 0)
    assert found.dtype == np.float64
    assert np.allclose(found, np.maximum(product / (1 + np.exp(-product)), 2 * c.T).T[:, None], atol=1e-6)
    nan = device.full((4, 5), np.nan, "float32")
    assert np.allclose(device.tensor.binary("ij,j->ij", nan, refs[1], alpha=0).numpy(), np.broadcast_to(b, (4, 5)))
    z = device.put(random((4, 5), "complex64"))
    found = device.tensor.binary("ij,j->ij", z, refs[1], unary=("conj",), alpha=1j, beta=2 - 1j).numpy()
    assert np.allclose(found, 1j * z.numpy().conj() + (2 - 1j) * b, atol=1e-6)
    nan16 = np.array([np.nan, 1], ml_dtypes.bfloat16)
    assert np.isnan(device.tensor.binary("i,->i", device.put(nan16), device.put(np.float32(2)), ab="max").numpy()[0])


def test_plans_take_other_factors(device: an.Device) -> None:
    a = random((4, 5), "float32")
    ref, out = device.put(a), device.zeros((5, 4), "float32")
    plan = device.tensor.plan(an.TensorElementwiseRequest(subscripts="ij->ji", operands=(ref,), alpha=2))
    plan.tell(ref, out=out, alpha=-3)
    assert np.allclose(out.numpy(), -3 * a.T)
    plan.tell(device.full((4, 5), np.nan, "float32"), out=out, alpha=0)
    assert (out.numpy() == 0).all()


@pytest.mark.parametrize(
    ("shape", "order", "dtype"),
    [((70, 66), "ba", "bfloat16"), ((70, 66), "ba", "int16"), ((3, 70, 66), "acb", "bfloat16"),
     ((3, 70, 66), "acb", "float16"), ((4, 6, 10, 8, 12), "ecadb", "bfloat16"),
     ((4, 6, 10, 8, 12), "ecadb", "int16")],
)  # fmt: skip
def test_pairs_of_16_bits_are_turned(device: an.Device, shape: tuple[int, ...], order: str, dtype: str) -> None:
    """Where addresses and strides are those of pairs, and where they are not."""
    x = (10 * random(shape, "float32")).astype(as_dtype(dtype))
    names = "abcde"[: len(shape)]
    axes = [names.index(m) for m in order]
    text, ref = f"{names}->{order}", device.put(x)
    assert np.array_equal(device.tensor.permute(text, ref).numpy(), x.transpose(axes))
    for cut in (np.s_[..., 2:], np.s_[..., 1:], np.s_[..., :-1], np.s_[::-1], np.s_[1:]):
        assert np.array_equal(device.tensor.permute(text, ref[cut]).numpy(), x[cut].transpose(axes))
    whole = device.zeros([n + 1 for n in np.array(shape)[axes]], dtype)
    for start in (0, 1):
        part = whole[..., start : start + shape[axes[-1]]]
        part = part[tuple(slice(0, shape[axis]) for axis in axes)]
        device.tensor.permute(text, ref, out=part)
        assert np.array_equal(part.numpy(), x.transpose(axes))
    if dtype != "int16":
        found = device.tensor.permute(text, ref, alpha=-3, out_dtype="bfloat16").numpy()
        assert np.array_equal(found, (-3 * x.astype("float32")).astype(as_dtype("bfloat16")).transpose(axes))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128"])
def test_tensors_are_turned_by_tiles(device: an.Device, dtype: str) -> None:
    """Tiles that are cut at both ends, outer axes forwards and backwards, further operands, and what was there."""
    x, row = random((3, 70, 2, 35), dtype), random((70,), dtype)
    ref, other = device.put(x), device.put(row)
    assert np.array_equal(device.tensor.permute("abcd->cdab", ref).numpy(), x.transpose(2, 3, 0, 1))
    assert np.array_equal(device.tensor.permute("abcd->adcb", ref).numpy(), x.transpose(0, 3, 2, 1))
    back = device.tensor.permute("abcd->cdab", ref[::-1, ::-1]).numpy()
    assert np.array_equal(back, x[::-1, ::-1].transpose(2, 3, 0, 1))
    outer = device.tensor.permute("abcd->adcb", ref[::-1]).numpy()  # backwards along an axis outside of tiles
    assert np.array_equal(outer, x[::-1].transpose(0, 3, 2, 1))
    found = device.tensor.binary("abcd,b->adcb", ref, other, ab="add", alpha=2).numpy()
    want = (2 * wide(x) + wide(row)[:, None, None]).transpose(0, 3, 2, 1)
    assert np.allclose(wide(found), want, rtol=EPS[dtype], atol=EPS[dtype])
    small = random((3, 4, 5, 6, 7, 2), dtype)  # tiles whose sides are several axes, not all neighbours
    given = device.put(small)
    orders = ("fedcba", "ecadbf", "dcfeab", "cbafed")
    for i, view in enumerate((np.s_[...], np.s_[:, ::-1, 1:, :, ::2], np.s_[..., ::-1], np.s_[..., 0])):
        turned = small[view]
        for order in orders if dtype == "float32" else (orders[i], orders[i - 2]):
            axes = ["abcdef".index(m) for m in order if m in "abcdef"[: turned.ndim]]
            subscripts = f"{'abcdef'[: turned.ndim]}->{''.join('abcdef'[i] for i in axes)}"
            assert np.array_equal(device.tensor.permute(subscripts, given[view]).numpy(), turned.transpose(axes))
    c = random((3, 35, 2, 70), dtype)
    added = device.tensor.contract("abcd->adcb", ref, c=(given := device.put(c)), out=given, alpha=2, beta=-1).numpy()
    assert np.allclose(wide(added), 2 * wide(x).transpose(0, 3, 2, 1) - wide(c), rtol=EPS[dtype], atol=4 * EPS[dtype])
