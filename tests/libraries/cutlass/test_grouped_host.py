"""Grouped products on the host device, against float64, and requests that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an

pytestmark = pytest.mark.plain

RNG = np.random.default_rng(6)
A, B, ENDS = np.ones((5, 8), "f4"), np.ones((3, 8, 6), "f4"), np.array([1, 1, 4], "i4")


@pytest.fixture(scope="module", params=["thread", "process"])
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System(isolation=request.param, allow_crash=True) as system:
        yield system.device("host")


def reference(a: np.ndarray, b: np.ndarray, ends: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the products in float64; rows after the last group are those of `out`."""
    made = out.astype("f8")
    begin = 0
    for matrix, end in zip(b.astype("f8"), ends, strict=True):
        made[begin:end] = a[begin:end].astype("f8") @ matrix
        begin = end
    return made


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 3), st.sampled_from(["int32", "int64"]))
def test_ragged_groups(device: an.Device, sizes: list[int], after: int, dtype: str) -> None:
    ends = np.cumsum(sizes).astype(dtype)
    rows = int(ends[-1]) + after
    a, b = RNG.standard_normal((rows, 7)).astype("f4"), RNG.standard_normal((len(sizes), 7, 4)).astype("f4")
    out = np.full((rows, 4), 7, "f4")
    placed = device.put(out)
    device.cutlass.grouped_gemm(device.put(a), device.put(b), device.put(ends), out=placed)
    np.testing.assert_allclose(placed.numpy(), reference(a, b, ends, out), rtol=1e-5, atol=1e-5)


def test_an_epilogue_with_everything(device: an.Device) -> None:
    a, b, c = (RNG.standard_normal(shape).astype("f4") for shape in ((5, 8), (3, 8, 6), (5, 6)))
    row, each, column = (RNG.standard_normal(shape).astype("f4") for shape in (6, (3, 1, 6), (5, 1)))
    scale = np.array([2, 3, 4], "f4").reshape(3, 1, 1)
    ends = np.array([1, 1, 4], "i4")
    operands: dict[str, Any] = {
        "row": device.put(row), "each": device.put(each), "column": device.put(column), "scale": device.put(scale),
    }  # fmt: skip
    placed = device.put(c)
    found = device.cutlass.grouped_gemm(
        device.put(a), device.put(b), device.put(ends), c=placed, out=placed, alpha=0.5, beta=2.0, operands=operands,
        epilogue="relu(alpha * acc + each * row) * column * scale + beta * c",
    ).numpy()  # fmt: skip
    owner = np.array([0, 2, 2, 2])
    want = 0.5 * reference(a, b, ends, c)[:4] + each[owner, 0] * row
    want = np.maximum(want, 0) * column[:4] * scale[owner, 0] + 2 * c[:4]
    np.testing.assert_allclose(found[:4], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[4:], c[4:])


def test_ends_beyond_the_rows_count_as_the_last(device: an.Device) -> None:
    weights = device.put(B * np.array([1, 2, 3], "f4").reshape(3, 1, 1))
    found = device.cutlass.grouped_gemm(device.put(A), weights, device.put(np.array([-3, 2, 99], "i8")))
    np.testing.assert_array_equal(found.numpy()[:, 0], [16, 16, 24, 24, 24])


def test_int8_and_a_python_function(device: an.Device) -> None:
    pytest.importorskip("numba")
    a, b = (RNG.integers(-9, 9, shape).astype("i1") for shape in ((5, 8), (3, 8, 6)))
    given_ = device.put(a), device.put(b), device.put(np.array([2, 2, 5], "i4"))
    exact = reference(a, b, np.array([2, 2, 5]), np.zeros((5, 6)))
    np.testing.assert_array_equal(device.cutlass.grouped_gemm(*given_, epilogue="acc").numpy(), exact.astype("i4"))

    def halved(acc: float, shift: float) -> float:
        return acc * 0.5 + shift

    found = device.cutlass.grouped_gemm(*given_, epilogue=halved, operands={"shift": 1.0}, out_dtype="float32")
    np.testing.assert_allclose(found.numpy(), exact / 2 + 1)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"a": A[0]}, r"a has shape \(8,\); allowed: \(T, K\)"),
        ({"b": B[0]}, r"b has shape \(8, 6\); allowed: \(G, K, N\)"),
        ({"b": B[:0]}, r"b has shape \(0, 8, 6\); allowed: \(G, K, N\)"),
        ({"b": B[:, :4]}, r"K=8 in a \(5, 8\) is not K=4 in b"),
        ({"offsets": ENDS[:2]}, r"offsets has shape \(2,\); allowed: \(3,\)"),
        ({"offsets": ENDS.astype("f4")}, "offsets has dtype float32; allowed: int32, int64"),
        ({"a": A.astype("f8")}, "a has dtype float64 and b has dtype float32; allowed"),
        ({"compute": "int32"}, "compute='int32'; allowed for these operands: float32, tf32"),
        ({"epilogue": "acc + x", "operands": {"x": np.ones((3, 6), "f4")}}, r"x has shape \(3, 6\); allowed: \(6,\), "),
        ({"epilogue": "acc + x", "operands": {"x": np.ones((5, 6), "f4")}}, r"x has shape \(5, 6\); allowed"),
        ({"epilogue": "acc * x", "operands": {"x": np.ones((3, 1, 1))}}, "x has dtype float64; allowed: float32"),
        ({"epilogue": "acc + c", "c": A}, r"c has shape \(5, 8\); allowed: \(5, 6\), \(6,\)"),
        ({"epilogue": an.EpilogueTree.acc().stored("pre")}, "the epilogue stores pre; allowed: nothing beside out"),
        ({"out": np.ones((4, 6), "f4")}, r"out has shape \(4, 6\); allowed: \(5, 6\)"),
        ({"config": 3}, "config is a int; allowed: None, GemmConfig"),
        ({"fast_accum": 2}, "fast_accum=2"),
    ],
)
def test_requests_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        an.GroupedGemmRequest(**{"a": A, "b": B, "offsets": ENDS} | changed)


def test_the_number_of_groups_is_in_the_key(device: an.Device) -> None:
    a, b = device.put(A), device.put(B)
    keys = {
        device.cutlass.plan_grouped(a, b[:g], device.put(ENDS[:g].astype(dtype))).spec
        for g in (1, 2, 3)
        for dtype in ("i4", "i8")
    }
    assert len(keys) == 6
