"""The extension `linalg` of the namespace, against NumPy's; array-api-tests has shapes and dtypes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an

RNG = np.random.default_rng(9)
SQUARE = RNG.standard_normal((2, 3, 3))
WIDE = RNG.standard_normal((2, 3, 4)) + 1j * RNG.standard_normal((2, 3, 4))
POSITIVE = SQUARE @ SQUARE.swapaxes(1, 2) + np.eye(3)


@pytest.fixture
def la(device: an.Device) -> Any:
    return device.empty(0).__array_namespace__().linalg


def same(found: an.GpuRef, wanted: Any) -> None:
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-11)


def test_functions_of_matrices(device: an.Device, la: Any) -> None:
    x, p = device.put(SQUARE), device.put(POSITIVE)
    for name in ("det", "inv", "pinv", "svdvals", "matrix_rank", "diagonal", "trace"):
        same(getattr(la, name)(x), getattr(np.linalg, name)(SQUARE))
    for name in ("eigvalsh", "cholesky"):
        same(getattr(la, name)(p), getattr(np.linalg, name)(POSITIVE))
    same(la.cholesky(p, upper=True), np.linalg.cholesky(POSITIVE, upper=True))
    same(la.solve(x, device.put(POSITIVE)), np.linalg.solve(SQUARE, POSITIVE))
    same(la.solve(x, device.put(np.ones(3, np.float32))), np.linalg.solve(SQUARE, np.ones((3, 1)))[..., 0])
    sign, log = la.slogdet(x)
    same(sign, np.linalg.slogdet(SQUARE).sign)
    same(log, np.linalg.slogdet(SQUARE).logabsdet)
    for n in (-3, -1, 0, 1, 2, 5):
        same(la.matrix_power(x, n), np.linalg.matrix_power(SQUARE, n))
    same(la.inv(x[:, ::-1]), np.linalg.inv(SQUARE[:, ::-1]))
    same(la.trace(x, offset=1), np.trace(SQUARE, 1, 1, 2))
    same(la.matrix_rank(device.put(np.diag([1.0, 0.1])), rtol=device.put(np.array(0.5, np.float32))), 1)
    same(la.pinv(x, rtol=device.put(np.array([2.0, 0.0]))), [np.zeros((3, 3)), np.linalg.pinv(SQUARE[1])])


def test_decompositions(device: an.Device, la: Any) -> None:
    x = device.put(WIDE)
    q, r = la.qr(x, mode="complete")
    same(device.blas_lt.matmul(q, r), WIDE)
    assert la.svd(x).Vh.shape == (2, 4, 4)
    u, s, vh = (part.numpy() for part in la.svd(x, full_matrices=False))
    np.testing.assert_allclose((u * s[:, None]) @ vh, WIDE, atol=1e-12)
    w, v = (part.numpy() for part in la.eigh(device.put(POSITIVE)))
    np.testing.assert_allclose(v * w[:, None] @ v.swapaxes(1, 2), POSITIVE, atol=1e-12)


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(device: an.Device, la: Any, order: Any) -> None:
    for x in (SQUARE, WIDE):
        same(la.matrix_norm(device.put(x), ord=order), np.linalg.matrix_norm(x, ord=order))
    kept = la.matrix_norm(device.put(WIDE), ord=order, keepdims=True)
    same(kept, np.linalg.matrix_norm(WIDE, ord=order, keepdims=True))
    same(la.matrix_norm(device.zeros((2, 0, 3), "float64"), ord=order), [0, 0])


@pytest.mark.parametrize("order", [2, 1, 0, 3, 0.5, -1, np.inf, -np.inf])
def test_norms_of_vectors(device: an.Device, la: Any, order: Any) -> None:
    x = device.put(WIDE)
    for options in ({}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, {"keepdims": True}, {"axis": ()}):
        if options != {"axis": ()}:
            wanted = np.linalg.vector_norm(WIDE, ord=order, **options)
        else:  # each element is a vector
            wanted = np.ones(WIDE.shape) if order == 0 else abs(WIDE)
        same(la.vector_norm(x, ord=order, **options), wanted)


def test_products(device: an.Device, la: Any) -> None:
    a, b = RNG.standard_normal((2, 3, 1)), RNG.integers(-9, 9, (3, 5))
    same(la.cross(device.put(a), device.put(b), axis=-2), np.cross(a, b, axis=-2))
    i = device.put(np.array([1, 2, 3], np.int16))
    assert la.cross(i, i[::-1]).numpy().tolist() == [-4, 8, -4]
    same(la.outer(i, i), np.outer([1, 2, 3], [1, 2, 3]))
    assert la.matmul is device.empty(0).__array_namespace__().matmul


def test_refusals(device: an.Device, la: Any) -> None:
    x, wide = device.put(SQUARE), device.put(WIDE)
    for send, words in (
        (lambda: la.inv(wide), r"inv of an array of shape \(2, 3, 4\); allowed: square"),
        (lambda: la.det(x[0, 0]), r"\(3,\); allowed: 2 axes"),
        (lambda: la.qr(device.put(np.eye(2, dtype="int32"))), "qr of int32; allowed: float32"),
        (lambda: la.qr(x, mode="r"), "mode='r'; allowed: 'reduced', 'complete'"),
        (lambda: la.matrix_norm(x, ord=3), "ord=3; allowed: 'fro'"),
        (lambda: la.vector_norm(x, ord="fro"), "ord='fro'; allowed: numbers"),
        (lambda: la.vector_norm(device.put(np.arange(3))), "vector_norm of int64"),
        (lambda: la.matrix_power(x, 0.5), "n=0.5; allowed: integers"),
        (lambda: la.cross(wide, wide), r"cross with axis=-1 .*; allowed: 3 elements"),
        (lambda: la.diagonal(x, offset=1.0), "offset=1.0; allowed: integers"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=words):
            send()
    with pytest.raises(an.SingularMatrix):
        la.inv(device.zeros((2, 2), "float64")).numpy()
