"""Products and sums of two sparse matrices against SciPy, on the host and on CUDA devices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sparse_checks import dense, patterns, tolerance

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def hold(found: an.SparseMatrix, want: np.ndarray, size: np.ndarray, dtype: str) -> None:
    made = found.scipy()
    assert made.has_sorted_indices
    assert (abs(made.toarray() - want) <= tolerance(dtype) * size).all()


@pytest.mark.fake_only(device=["host"])
@pytest.mark.parametrize("dtype", ["float64", "complex64", "float16"])
def test_patterns_are_those_of_scipy(device: an.Device, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for pattern in patterns(rng):
        a = dense(rng, pattern, dtype)
        b = dense(rng, rng.random((a.shape[1], 11)) < 0.3, dtype)
        wide = np.complex128 if "complex" in dtype else np.float64
        a_, b_ = (device.sparse.matrix(x) for x in (a, b))
        found = device.sparse.matmul(a_, b_, alpha=2.0)
        a, b = a.astype(wide), b.astype(wide)
        want = scipy.sparse.csr_array(abs(a)) @ scipy.sparse.csr_array(abs(b))  # nothing cancels
        want.sort_indices()
        assert (found.offsets.numpy() == want.indptr).all()
        assert (found.indices.numpy() == want.indices).all()
        hold(found, 2 * a @ b, 4 * abs(a) @ abs(b), dtype)
        other = dense(rng, rng.random(a.shape) < 0.3, dtype)
        found = device.sparse.add(a_, device.sparse.matrix(other), alpha=2.0, beta=-1.0)
        want = scipy.sparse.csr_array(abs(a)) + scipy.sparse.csr_array(abs(other).astype(wide))
        assert (found.offsets.numpy() == want.indptr).all()
        assert (found.indices.numpy() == want.indices).all()
        hold(found, 2 * a - other.astype(wide), 4 * abs(a) + 2 * abs(other), dtype)


def test_new_values_of_a_pattern(device: an.Device) -> None:
    """Messages with other values do not wait, and give equal bits."""
    rng = np.random.default_rng(1)
    a, b = (dense(rng, rng.random((9, 9)) < 0.3, "float64") for _ in range(2))
    a_, b_ = (device.sparse.matrix(x) for x in (a, b))
    for pattern, want in (
        (device.sparse.matmul_pattern(a_, b_), 9 * a @ b),
        (device.sparse.add_pattern(a_, b_), 9 * (a + b)),
    ):
        out = device.zeros(pattern.nnz, "float64")
        made = pattern.tell(device.put(9 * a_.values.numpy()), b_.values, beta=9.0, out=out)
        assert made.values is out
        np.testing.assert_allclose(made.scipy().toarray(), want, atol=1e-12)
        first = out.numpy()
        pattern.tell(device.put(9 * a_.values.numpy()), b_.values, beta=9.0, out=out)
        assert (out.numpy() == first).all()
        with pytest.raises(an.InvalidRequest, match="as the pattern was made for"):
            pattern.tell(a_.values, device.zeros(3, "float64"))


def test_what_does_not_fit_is_refused(device: an.Device) -> None:
    a = device.sparse.matrix(np.ones((2, 3)))
    for other, words in (
        (device.sparse.matrix(np.ones((3, 2)), format="csc"), "b is csc; a product takes csr"),
        (device.sparse.matrix(np.ones((2, 3))), r"\(2, 3\) and \(2, 3\); allowed: b of \(3, any\)"),
        (device.sparse.matrix(np.ones((3, 2), np.float32)), "float64 and float32"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            device.sparse.matmul(a, other)
    with pytest.raises(an.InvalidRequest, match="equal shapes"):
        device.sparse.add(a, device.sparse.matrix(np.ones((3, 3))))
