"""Where infinities and NaN go: to what has a stored element for them, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an

NAN, INF = np.nan, np.inf
A = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 0.0]])


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def bad(x: Any) -> list[Any]:
    return np.argwhere(~np.isfinite(x.numpy())).tolist()


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "sliced_ell", "blocked_ell"])
def test_products(device: an.Device, format: str) -> None:
    a = np.zeros((4, 4))
    a[:3, :3] = A
    sparse = device.sparse
    options = {"sliced_ell": {"slice_size": 2}, "blocked_ell": {"block": 1}, "bsr": {"block": 1}}.get(format, {})
    given = sparse.convert(sparse.matrix(a), format, **options) if format != "csr" else sparse.matrix(a)
    x = np.ones((4, 2))
    x[2, 1], x[3, 0], x[1, 1] = INF, NAN, NAN
    assert bad(sparse.spmm(given, device.put(x))) == [[0, 1], [1, 1]]
    assert bad(sparse.spmv(given, device.put(x[:, 1].copy()))) == [[0], [1]]
    if format in ("csr", "csc", "coo"):
        assert bad(sparse.spmm(given, device.put(x), trans=True)) == [[0, 1], [1, 1]]
        out = device.full((4, 2), NAN, dtype="float64")
        assert bad(sparse.spmm(given, device.put(np.ones((4, 2))), out=out)) == []  # beta=0 reads none
        values = given.values.numpy()
        values[0] = NAN  # of the first row or column in each of these formats
        assert bad(sparse.spmv(given.with_values(device.put(values)), device.put(np.ones(4)))) == [[0]]


def test_sampled_products_and_solves(device: an.Device) -> None:
    sparse = device.sparse
    given = sparse.matrix(A)
    x, y = np.ones((3, 2)), np.ones((2, 3))
    x[1, 0], y[1, 2] = NAN, INF
    assert bad(sparse.sddmm(given, device.put(x), device.put(y))) == [
        [1],
        [2],
    ]  # (0, 2) and (1, 1), of (0, 0), (2, 0) too
    lower = np.tril(np.ones((3, 3)))
    lower[1, 0] = 0
    lower[0, 2] = NAN  # of the other triangle
    triangle = sparse.matrix(lower)
    assert bad(sparse.solve_triangular(triangle, device.put(np.array([NAN, 1.0, 1.0])))) == [[0], [2]]
    assert bad(sparse.solve_triangular(triangle, device.put(np.ones((3, 2))))) == []


def test_products_and_sums_of_sparse_matrices(device: an.Device) -> None:
    sparse = device.sparse
    a = sparse.matrix(A)
    values = a.values.numpy()
    values[1] = NAN  # (0, 2)
    other = a.with_values(device.put(values))
    made = sparse.matmul(other, a)  # row 0: columns 0 (by 0 and 2) and 2
    assert bad(made.values) == [[0]]
    assert bad(sparse.add(other, a).values) == [[1]]
    assert bad(sparse.add(a, a, alpha=INF).values) == [[0], [1], [2], [3]]
