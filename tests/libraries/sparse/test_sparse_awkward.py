"""Elements out of order, duplicates and zeros that are stored: each format and routine takes them, or refuses them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import atomr_native as an

RNG = np.random.default_rng(31)
#: Lines of elements: empty, one element twice, out of order with a duplicate apart from its like, and zeros.
LINES = ([], [2, 2], [5, 0, 3, 0, 5], [1, 4], [])
SIZE = 6
FORMATS = ("csr", "csc", "coo", "bsr", "sliced_ell", "blocked_ell")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def awkward(device: an.Device, form: str, index: str) -> tuple[an.SparseMatrix, np.ndarray[Any, Any]]:
    """Return such a matrix, and the same as an array; padding that is no element has an index of -1."""
    block = 2 if form in ("bsr", "blocked_ell") else 1
    across = np.array([place for line in LINES for place in line])
    down = np.repeat(np.arange(len(LINES)), [len(line) for line in LINES])
    values = RNG.integers(1, 9, (len(across), block, block)).astype(float)
    values[-2:] = 0
    a = np.zeros((len(LINES) * block, SIZE * block))
    for value, i, j in zip(values, down, across, strict=True):
        a[block * i : block * (i + 1), block * j : block * (j + 1)] += value
    offsets = np.searchsorted(down, np.arange(len(LINES) + 1))

    def put(array: np.ndarray[Any, Any]) -> an.GpuRef:
        return device.put(array.astype(index))

    if form == "bsr":
        return an.SparseMatrix("bsr", a.shape, device.put(values), put(across), put(offsets)), a
    if form == "blocked_ell":
        most = max(map(len, LINES))
        indices, blocks = np.full((len(LINES), most), -1), np.zeros((len(LINES), block, most, block))
        for i, line in enumerate(LINES):
            indices[i, : len(line)] = line
            blocks[i, :, : len(line)] = values[down == i].transpose(1, 0, 2)
        return an.SparseMatrix("blocked_ell", a.shape, device.put(blocks), put(indices)), a
    if form == "sliced_ell":
        lengths = [max(len(line) for line in LINES[first : first + 2]) for first in range(0, len(LINES), 2)]
        indices, elements = np.full((sum(lengths), 2), -1), np.zeros((sum(lengths), 2))
        start = np.concatenate([[0], np.cumsum(lengths)])
        for i, line in enumerate(LINES):
            places = start[i // 2] + np.arange(len(line))
            indices[places, i % 2] = line
            elements[places, i % 2] = values[down == i, 0, 0]
        return an.SparseMatrix("sliced_ell", a.shape, device.put(elements), put(indices), put(2 * start)), a
    flat = device.put(values.ravel())
    if form == "coo":
        return an.SparseMatrix("coo", a.shape, flat, put(across), rows=put(down), ordered=True), a
    if form == "csc":
        a = a.T.copy()
    return an.SparseMatrix(form, a.shape, flat, put(across), put(offsets)), a


@pytest.mark.parametrize(
    ("form", "index"),
    [
        *((form, ("int32", "int64")[i % 2]) for i, form in enumerate(FORMATS)),
        ("csr", "int64"),
        ("blocked_ell", "int32"),
    ],
)
def test_products_and_facts(device: an.Device, form: str, index: str) -> None:
    matrix, a = awkward(device, form, index)
    sparse = device.sparse
    facts = sparse.validate(matrix)
    assert (facts.sorted, facts.duplicates) == (False, 3)
    for x in (RNG.integers(-3, 4, a.shape[1]).astype(float), RNG.integers(-3, 4, (a.shape[1], 3)).astype(float)):
        send = sparse.spmv if x.ndim == 1 else sparse.spmm
        np.testing.assert_array_equal(send(matrix, device.put(x)).numpy(), a @ x)
    if form in ("csr", "csc", "coo"):
        y = RNG.integers(-3, 4, a.shape[0]).astype(float)
        np.testing.assert_array_equal(sparse.spmv(matrix, device.put(y), trans=True).numpy(), a.T @ y)
        tidy = sparse.coalesce(matrix)
        assert sparse.validate(tidy) == an.PatternFacts(True, 0)
        assert tidy.nnz == matrix.nnz - 3  # zeros that are stored stay
    np.testing.assert_array_equal(sparse.to_dense(matrix).numpy(), a)


def test_a_semiring_joins_duplicates(device: an.Device) -> None:
    matrix, a = awkward(device, "csr", "int32")
    x = RNG.integers(-3, 4, a.shape[1]).astype(float)
    found = device.sparse.semiring(matrix, device.put(x), multiply=np.multiply, add=np.maximum, start=-np.inf)
    values, places = matrix.values.numpy(), matrix.indices.numpy()
    ends = matrix.offsets.numpy()
    want = [
        max([values[e] * x[places[e]] for e in range(first, end)], default=-np.inf)
        for first, end in itertools.pairwise(ends)
    ]
    assert found.numpy().tolist() == want


def test_solvers_say_what_they_need(device: an.Device) -> None:
    """A solve with a triangle adds duplicates up, in any order; a direct solver wants neither."""
    indices = device.put(np.array([0, 1, 0, 1], "i4"))
    values, offsets = device.put(np.array([2.0, 1.0, 3.0, 3.0])), device.put(np.array([0, 1, 4], "i4"))
    matrix = an.SparseMatrix("csr", (2, 2), values, indices, offsets)
    assert device.sparse.solve_triangular(matrix, device.put(np.array([2.0, 7.0]))).numpy().tolist() == [1.0, 1.0]
    with pytest.raises(an.InvalidRequest, match=r"rows that are not in order, or 1 duplicates; .*coalesce"):
        device.sparse.direct(matrix)
