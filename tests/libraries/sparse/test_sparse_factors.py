"""Incomplete factorizations, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sparse_checks import dense, tolerance

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def matrix(dtype: str, n: int = 25, hermitian: bool = False) -> np.ndarray[Any, Any]:
    """Return a matrix with a dominant diagonal and some empty places."""
    rng = np.random.default_rng(n)
    made = dense(rng, rng.random((n, n)) < 0.2, dtype)
    if hermitian:
        made = made + made.conj().T
    np.fill_diagonal(made, 4 * np.sqrt(n))
    return made


def eliminated(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return Gaussian elimination of which only the places of A are kept, element by element."""
    made, stored = a.copy(), a != 0
    for k in range(len(a)):
        for i in np.flatnonzero(stored[k + 1 :, k]) + k + 1:
            made[i, k] /= made[k, k]
            for j in np.flatnonzero(stored[i] & stored[k]):
                if j > k:
                    made[i, j] -= made[i, k] * made[k, j]
    return made


@pytest.mark.parametrize(
    ("dtype", "index_dtype"),
    [("float32", "int64"), ("float64", "int32"), ("complex64", "int32"), ("complex128", "int64")],
)
def test_factors_have_the_elements_of_a(device: an.Device, dtype: str, index_dtype: str) -> None:
    bound = tolerance(dtype) * 20
    a = matrix(dtype)
    given = device.sparse.matrix(a, index_dtype=index_dtype)
    found = device.sparse.ilu0(given)
    assert found.indices is given.indices
    np.testing.assert_allclose(found.scipy().toarray(), eliminated(a), atol=bound)
    # New values, into the same array.
    assert device.sparse.ilu0(given.with_values(device.put(2 * given.values.numpy())), out=found.values).nnz
    np.testing.assert_allclose(found.scipy().toarray(), eliminated(2 * a), atol=2 * bound)
    h = matrix(dtype, hermitian=True)
    both = device.sparse.ic0(device.sparse.matrix(h, index_dtype=index_dtype)).scipy().toarray()
    lower = np.tril(both)
    np.testing.assert_array_equal(both, lower + np.tril(both, -1).conj().T)
    np.testing.assert_allclose((lower @ lower.conj().T)[h != 0], h[h != 0], atol=bound)


def test_a_full_pattern_gives_the_whole_factorization(device: an.Device) -> None:
    a = np.random.default_rng(0).random((70, 70)) + 70 * np.eye(70)  # more elements than a group of threads has
    x = np.arange(70.0)
    found = device.sparse.ilu0(device.sparse.matrix(a))
    half = device.sparse.solve_triangular(found, device.put(a @ x), unit=True)
    np.testing.assert_allclose(device.sparse.solve_triangular(found, half, lower=False).numpy(), x, atol=1e-10)


def test_breakdowns_end_in_numbers_that_tell(device: an.Device) -> None:
    empty = device.sparse.ilu0(device.sparse.matrix(np.zeros((3, 3))))
    assert empty.nnz == 0
    no_pivot = device.sparse.ilu0(device.sparse.matrix(np.array([[0.0, 1.0], [2.0, 3.0]]))).values.numpy()
    assert np.isinf(no_pivot[1])
    indefinite = device.sparse.ic0(device.sparse.matrix(np.array([[1.0, 2.0], [2.0, 1.0]]))).values.numpy()
    assert np.isnan(indefinite[3])
    # What stands above the diagonal without a counterpart below becomes 0.
    lonely = device.sparse.ic0(device.sparse.matrix(np.array([[4.0, 2.0], [0.0, 9.0]]))).values.numpy()
    assert lonely.tolist() == [2.0, 0.0, 3.0]


@pytest.mark.parametrize("routine", ["ilu0", "ic0"])
@pytest.mark.parametrize("columns", [[0, 1, 1, 0], [0, 1, 0, 0, 1], [0, 2, 1, 1, 2]])
def test_rows_out_of_order_get_nan(device: an.Device, routine: str, columns: list[int]) -> None:
    counts = {4: [0, 2, 4, 4], 5: [0, 3 if columns[1] == 2 else 2, 5, 5]}[len(columns)]
    values = device.put(np.array([9.0, 1.0, 8.0, 1.0, 7.0][: len(columns)]))
    a = an.SparseMatrix("csr", (3, 3), values, device.put(np.array(columns, "i4")), device.put(np.array(counts, "i4")))
    assert np.isnan(getattr(device.sparse, routine)(a).values.numpy()).any()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"routine": "ilut"}, "routine='ilut'; allowed: 'ilu0', 'ic0'"),
        ({"shape": (3, 4)}, r"shape=\(3, 4\); ilu0 takes a square matrix"),
        ({"values": np.ones(3, "f2")}, "values has dtype float16; allowed: float32"),
        ({"out": np.ones(2)}, r"out has shape \(2,\); allowed: \(3,\)"),
        ({"out": np.ones(3, "f4")}, "out has dtype float32; allowed: float64"),
    ],
)
def test_factors_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "routine": "ilu0", "shape": (3, 3), "values": np.ones(3), "indices": np.arange(3, dtype="i4"),
        "offsets": np.arange(4, dtype="i4"),
    }  # fmt: skip
    with pytest.raises(an.InvalidRequest, match=words):
        an.SparseFactorRequest(**given | changed)


def test_other_formats_are_refused(cuda_system: an.System) -> None:
    host = cuda_system.device("host")
    with pytest.raises(an.InvalidRequest, match="a is coo; ic0 takes csr"):
        host.sparse.ic0(host.sparse.matrix(scipy.sparse.eye_array(3, format="coo")))
