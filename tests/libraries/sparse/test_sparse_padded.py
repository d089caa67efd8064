"""Sliced ELL and Blocked-ELL against dense matrices, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sparse_checks import dense, patterns, tolerance, values_of

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def padded(device: an.Device, a: np.ndarray, form: str, index: str = "int32") -> an.SparseMatrix:
    size = {"block": 2} if form == "blocked_ell" else {"slice_size": 4}
    return device.sparse.convert(device.sparse.matrix(a), form, index_dtype=index, **size)


def doubled(pattern: np.ndarray) -> np.ndarray:
    """Return a pattern of which blocks of 2 x 2 are whole."""
    return np.repeat(np.repeat(pattern, 2, 0), 2, 1)


@pytest.mark.fake_only(device=["host"])
@pytest.mark.parametrize("form", ["sliced_ell", "blocked_ell"])
def test_conversions_there_and_back(device: an.Device, form: str) -> None:
    rng = np.random.default_rng(0)
    for i, pattern in enumerate(patterns(rng)):
        whole = doubled(pattern) if form == "blocked_ell" else pattern
        dtype = ("float32", "complex64", "float16")[i % 3]
        a = dense(rng, whole, dtype)
        made = padded(device, a, form, ("int32", "int64")[i % 2])
        assert made.index_dtype == ("int32", "int64")[i % 2]
        assert made.dtype == a.dtype
        found = made.scipy()
        assert (found.toarray() == a).all()
        assert found.nnz == whole.sum()
        assert device.sparse.validate(made) == (True, 0)
        assert (device.sparse.to_dense(made).numpy() == a).all()
        back, want = device.sparse.convert(made, "csr"), device.sparse.matrix(a, index_dtype=str(made.index_dtype))
        for name in ("values", "indices", "offsets"):
            assert (getattr(back, name).numpy() == getattr(want, name).numpy()).all()


def test_a_slice_is_as_wide_as_its_longest_row(device: an.Device) -> None:
    a = np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [6.0, 0.0, 7.0]])
    made = device.sparse.convert(device.sparse.matrix(a), "sliced_ell", slice_size=2)
    assert made.offsets.numpy().tolist() == [0, 6, 8, 12]
    assert made.indices.numpy().tolist() == [[0, 1], [1, -1], [2, -1], [-1, 2], [0, -1], [2, -1]]
    assert made.values.numpy().tolist() == [[1, 4], [2, 0], [3, 0], [0, 5], [6, 0], [7, 0]]
    blocks = device.sparse.convert(device.sparse.matrix(np.kron(np.diag([1.0, 0.0]), [[1, 2], [3, 4]])), "blocked_ell",
                                   block=2)  # fmt: skip
    assert blocks.indices.numpy().tolist() == [[0], [-1]]
    assert blocks.values.numpy().reshape(4, 2).tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
    assert blocks.nnz == 8
    assert device.sparse.convert(blocks, "csr").nnz == 4


@pytest.mark.parametrize("form", ["sliced_ell", "blocked_ell"])
@pytest.mark.parametrize(
    ("dtype", "index", "columns", "order", "beta"),
    [("int8", "int32", 0, "C", -2.0), ("float16", "int64", 3, "C", 0.0), ("bfloat16", "int32", 0, "C", 1.0),
     ("float32", "int32", 3, "F", 1.0), ("float64", "int64", 0, "C", 0.0), ("complex64", "int32", 3, "C", -2.0)],
)  # fmt: skip
def test_products(device: an.Device, form: str, dtype: str, index: str, columns: int, order: str, beta: float) -> None:
    rng = np.random.default_rng(1)
    found_patterns = list(patterns(rng))
    several = slice(None, None, 2) if dtype == "float32" else slice(4, 5) if form == "sliced_ell" else slice(8, 9)
    for pattern in found_patterns[several]:
        kind = "float32" if dtype == "int8" else dtype
        a = dense(rng, doubled(pattern) if form == "blocked_ell" else pattern, dtype)
        matrix = padded(device, a.astype(kind), form, index)
        if dtype == "int8":  # no conversion adds int8 up
            matrix = matrix.with_values(device.copy(matrix.values, dtype="int8"))
        wide = a.astype("complex128" if "complex" in dtype else "float64")
        x = values_of(rng, (wide.shape[1], columns) if columns else (wide.shape[1],), dtype)
        y = values_of(rng, (wide.shape[0], *x.shape[1:]), dtype)
        out = device.put(np.asarray(y, order=order), dtype="int32" if dtype == "int8" else dtype)
        send = device.sparse.spmm if columns else device.sparse.spmv
        conj = "complex" in dtype
        found = send(matrix, device.put(x), alpha=2.0, beta=beta, conj=conj, deterministic=True, out=out).numpy()
        wide = wide.conj() if conj else wide
        want = 2 * (wide @ x.astype(wide.dtype)) + beta * y.astype(wide.dtype)
        size = 2 * abs(wide) @ abs(x.astype(wide.dtype)) + abs(beta) * abs(y.astype(wide.dtype))
        assert (abs(found.astype(wide.dtype) - want) <= tolerance(dtype) * (size + 1e-30)).all()


@pytest.mark.parametrize("form", ["sliced_ell", "blocked_ell"])
def test_padding_is_not_multiplied_and_factors_may_be_on_the_device(device: an.Device, form: str) -> None:
    """Infinities of x reach rows with an element in their column, though padding holds zeros beside them."""
    a = np.zeros((6, 6))
    a[:2, 2:6], a[2:4, 4:] = 1.0, 2.0
    matrix = padded(device, a, form)
    x, out = device.put(np.array([np.inf, np.nan, 1.0, 1.0, 1.0, 1.0])), device.ones(6, "float64")
    alpha, beta = (device.put(np.array(f)) for f in (2.0, -1.0))
    found = device.sparse.spmv(matrix, x, alpha_at=alpha, beta_at=beta, out=out)
    assert found.numpy().tolist() == [7, 7, 7, 7, -1, -1]


def test_duplicates_and_orders_are_found(device: an.Device) -> None:
    put = device.put
    offsets, values = put(np.array([0, 4], np.int32)), put(np.arange(1.0, 5.0).reshape(2, 2))
    made = an.SparseMatrix("sliced_ell", (2, 3), values, put(np.array([[2, 1], [0, 1]], np.int32)), offsets)
    assert device.sparse.validate(made) == (False, 1)
    assert device.sparse.spmv(made, device.put(np.array([1.0, 10.0, 100.0]))).numpy().tolist() == [103, 60]
    assert device.sparse.to_dense(made).numpy().tolist() == [[3, 0, 1], [0, 6, 0]]


@pytest.mark.parametrize(
    ("offsets", "indices", "rows", "rule"),
    [([0, 4, 6], [0, -1, 1, -1, 2, 0], 4, r"offsets\[2\] is 6; allowed: 4"), ([1, 2, 4], [0, 0, 0, 0], 4, "allowed: 0"),
     ([0, 6, 4], [0, 0, 0, 0], 4, r"offsets\[2\] is 4; allowed: 6"), ([0, 1, 4], [0, 0, 0, 0], 4, "multiples of 2"),
     ([0, 2, 4], [0, -2, 0, 0], 4, r"indices\[1\] is -2; allowed: -1, padding, and 0 to 2"),
     ([0, 2, 4], [0, 0, 3, 0], 4, r"indices\[2\] is 3"), ([0, 2, 4], [0, 0, 0, 0], 3, "behind row 2")],
)  # fmt: skip
def test_bad_patterns(device: an.Device, offsets: list[int], indices: list[int], rows: int, rule: str) -> None:
    places = np.array(indices[:4], np.int32).reshape(2, 2)
    parts = device.zeros((2, 2), "float64"), device.put(places), device.put(np.array(offsets, np.int32))
    with pytest.raises(an.InvalidRequest, match=rule):
        device.sparse.validate(an.SparseMatrix("sliced_ell", (rows, 3), *parts))


def test_the_host_refuses_bad_patterns_in_messages(cuda_system: an.System) -> None:
    device = cuda_system.device("host")
    good = padded(device, np.eye(4), "sliced_ell")
    cases = (("indices", [[0, 1, 2, 4]], "indices has 4"), ("offsets", [0, 3], "offsets go from 0 to 3"))
    for name, bad, rule in cases:
        a = replace(good, **{name: device.put(np.array(bad, np.int32))})
        reply = device.sparse.spmv(a, device.ones(4, "float64"))
        with pytest.raises(an.InvalidRequest, match=rule):
            reply.numpy()


def test_refusals(device: an.Device) -> None:
    sparse, put = device.sparse, device.put
    a, b = padded(device, np.eye(4), "sliced_ell"), padded(device, np.eye(4), "blocked_ell")
    x = device.ones(4, "float64")
    for matrix in (a, b):
        for call in (
            lambda a=matrix: sparse.spmv(a, x, trans=True), lambda a=matrix: a.T, lambda a=matrix: sparse.sort(a),
            lambda a=matrix: sparse.prune(a), lambda a=matrix: sparse.coalesce(a), lambda a=matrix: a.torch(),
            lambda a=matrix: a.cupy(), lambda a=matrix: sparse.solve_triangular(a, x),
            lambda a=matrix: sparse.sddmm(a, device.ones((4, 2), "float64"), device.ones((2, 4), "float64")),
            lambda a=matrix: sparse.matmul(a, a),
            lambda a=matrix: sparse.convert(a, "csr", slice_size=2), lambda a=matrix: sparse.convert(a, "blocked_ell"),
        ):  # fmt: skip
            with pytest.raises(an.InvalidRequest, match=r"allow|takes csr"):
                call()
    indices, values = a.indices, a.values
    for form, parts, rule in (
        ("sliced_ell", (values, indices), "takes offsets"),
        ("sliced_ell", (values[0], indices, a.offsets), "values has"),
        ("sliced_ell", (values, indices[0], a.offsets), "indices has shape"),
        ("sliced_ell", (values, indices, put(np.zeros(4, np.int32))), r"offsets has shape \(4,\); allowed: \(2,\)"),
        ("sliced_ell", (values, indices, put(np.zeros(2, np.int64))), "indices has dtype int32 and offsets int64"),
        ("blocked_ell", (b.values, device.zeros((2, 1), "int8")), "indices has dtype int8; allowed: int32, int64"),
        ("blocked_ell", (b.values, b.indices, a.offsets), "neither offsets nor rows"),
        ("blocked_ell", (b.values[:1], b.indices[:1]), "shape="),
        ("blocked_ell", (values, b.indices), "values has shape"),
        ("blocked_ell", (b.values, b.indices[:1]), "indices has shape"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=rule):
            an.SparseMatrix(form, (4, 4), *parts)
    batch = sparse.matrix(np.eye(4)).with_values(device.ones((2, 4), "float64"))
    with pytest.raises(an.InvalidRequest, match="batch of 2"):
        sparse.convert(batch, "sliced_ell")
