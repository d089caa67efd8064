"""Batches of matrices with one pattern, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparse_checks import dense, tolerance, values_of

import atomr_native as an

COUNT = 3


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def batch_of(
    device: an.Device, rng: np.random.Generator, format: str, dtype: str, shape: tuple[int, int] = (8, 6)
) -> tuple[Any, np.ndarray]:
    """Return a batch on the device, and its matrices as a dense array."""
    pattern = rng.random(shape) < 0.4
    single = device.sparse.matrix(dense(rng, pattern, dtype))
    single = device.sparse.convert(single, format, block=2 if format == "bsr" else None)
    values = values_of(rng, (COUNT, *single.values.shape), dtype)
    made = single.with_values(device.put(values))
    return made, np.stack([single.with_values(device.put(v)).scipy().toarray() for v in values])


@pytest.mark.parametrize(
    ("format", "trans", "dtype", "shared"),
    [("csr", False, "float64", False), ("csc", True, "complex64", True), ("coo", False, "float16", False),
     ("bsr", False, "float32", True), ("csr", True, "float64", True), ("csc", False, "float16", False),
     ("csr", False, "int8", True), ("coo", True, "complex128", False)],
)  # fmt: skip
def test_products_of_a_batch(device: an.Device, format: str, trans: bool, dtype: str, shared: bool) -> None:
    rng = np.random.default_rng(5)
    a, whole = batch_of(device, rng, format, dtype)
    assert a.batch == COUNT
    wide = whole.astype(np.complex128 if whole.dtype.kind == "c" else np.float64)
    wide = wide.swapaxes(1, 2) if trans else wide
    x = values_of(rng, ((wide.shape[2], 5) if shared else (COUNT, wide.shape[2], 5)), dtype)
    want = wide @ x.astype(wide.dtype)
    bound = tolerance(dtype) * 10
    found = device.sparse.spmm(a, device.put(x), trans=trans, alpha=2.0).numpy()
    assert found.shape == want.shape
    np.testing.assert_allclose(found.astype(want.dtype), 2 * want, atol=20 * bound, rtol=bound)
    vectors = device.put(x[..., 0].copy())
    out = device.put(np.ones(want.shape[:2], found.dtype))
    assert device.sparse.spmv(a, vectors, trans=trans, beta=3.0, out=out) is out
    np.testing.assert_allclose(out.numpy().astype(want.dtype), want[..., 0] + 3, atol=20 * bound, rtol=bound)


@pytest.mark.parametrize(("format", "shared"), [("csr", "x"), ("csc", "y"), ("coo", "")])
def test_sampled_products_of_a_batch(device: an.Device, format: str, shared: str) -> None:
    rng = np.random.default_rng(6)
    a, whole = batch_of(device, rng, format, "float64")
    x, y = rng.standard_normal((COUNT, 8, 3)), rng.standard_normal((COUNT, 3, 6))
    x, y = x[0] if shared == "x" else x, y[0] if shared == "y" else y
    found = a.with_values(device.sparse.sddmm(a, device.put(x), device.put(y), beta=2.0))
    want = np.where(whole != 0, np.broadcast_to(x @ y, whole.shape) + 2 * whole, 0)
    for i in range(COUNT):
        one = found.with_values(found.values[i]).scipy().toarray()
        np.testing.assert_allclose(one, want[i], rtol=1e-12, atol=1e-12)


def test_solves_and_factors_of_a_batch(device: an.Device) -> None:
    rng = np.random.default_rng(7)
    pattern = np.triu(rng.random((70, 70)) < 0.1, 1)
    pattern |= pattern.T
    a = pattern * rng.uniform(-1, 1, (COUNT, 70, 70)) + 20 * np.eye(70)
    a = a + a.swapaxes(1, 2)
    single = device.sparse.matrix(a[0])
    batch = single.with_values(device.put(np.stack([device.sparse.matrix(one).values.numpy() for one in a])))
    b = rng.standard_normal((COUNT, 70, 2))
    for given in (b, b[..., 0].copy()):
        found = device.sparse.solve_triangular(batch, device.put(given), lower=False).numpy()
        np.testing.assert_allclose(np.triu(a) @ found.reshape(COUNT, 70, -1), given.reshape(COUNT, 70, -1), atol=1e-11)
    for routine in ("ilu0", "ic0"):
        found = getattr(device.sparse, routine)(batch).values.numpy()
        each = [getattr(device.sparse, routine)(device.sparse.matrix(one)).values.numpy() for one in a]
        np.testing.assert_array_equal(found, np.stack(each))


def test_conversions_and_checks_of_a_batch(device: an.Device) -> None:
    rng = np.random.default_rng(8)
    a, whole = batch_of(device, rng, "csc", "float32")
    turned = device.sparse.convert(a, "csr")
    assert repr(turned) == f"<SparseMatrix csr (8, 6) float32, {a.nnz} stored, batch of 3>"
    x = device.put(np.ones(6, np.float32))
    np.testing.assert_allclose(device.sparse.spmv(turned, x).numpy(), whole.sum(2), rtol=1e-6, atol=1e-6)
    assert device.sparse.validate(a).duplicates == 0
    for refused in (
        lambda: a.scipy(), lambda: device.sparse.coalesce(a), lambda: device.sparse.to_dense(a),
        lambda: device.sparse.prune(a), lambda: device.sparse.convert(a, "bsr", block=2),
        lambda: device.sparse.matmul(turned, turned), lambda: device.sparse.solver(turned),
        lambda: device.sparse.semiring(turned, x, multiply=np.add, add=np.add, start=0.0),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match="is a batch of 3 matrices"):
            refused()


@pytest.mark.plain
def test_batches_that_cannot_be() -> None:
    given: dict[str, Any] = {
        "format": "csr", "shape": (3, 3), "values": np.ones((2, 3)), "indices": np.arange(3, dtype="i4"),
        "offsets": np.arange(4, dtype="i4"),
    }  # fmt: skip
    assert an.SparseMatrix(**given).batch == 2
    for values, words in (
        (np.ones((2, 4)), r"indices has shape \(3,\); allowed: \(4,\)"),
        (np.ones((2, 2, 3)), r"values has shape \(2, 2, 3\); allowed: one axis, or \(batch, stored elements\)"),
        (np.ones((70000, 3)), "a batch of 70000 matrices; allowed: up to 65535"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            an.SparseMatrix(**given | {"values": values})
    for x, words in (
        (np.ones((4, 3)), r"x has shape \(4, 3\); allowed: \(2, 3\), since A is a batch"),
        (np.ones((2, 3, 1)), r"x has shape \(2, 3, 1\); spmv takes a vector"),
    ):
        with pytest.raises(an.InvalidRequest, match=words):
            an.SparseProductRequest(routine="spmv", x=x, **given)
    with pytest.raises(an.InvalidRequest, match=r"out has shape \(3,\); allowed: \(2, 3\)"):
        an.SparseProductRequest(routine="spmv", x=np.ones(3), out=np.ones(3), **given)
    with pytest.raises(an.InvalidRequest, match=r"b has shape \(3,\); allowed: \(2, 3\)"):
        an.SparseSolveRequest(b=np.ones(3), **given)
