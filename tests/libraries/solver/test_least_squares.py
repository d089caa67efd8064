"""Least squares, pseudo-inverses, ranks; generalised eigenproblems and ranges of eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_checks import check, hermitian, matrices, op, size, wide

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.parametrize(
    ("dtype", "m", "n"),
    [
        ("float32", 7, 4), ("float64", 4, 7), ("complex64", 5, 5), ("complex128", 1, 3),
        ("complex128", 7, 4), ("complex64", 4, 7), ("float64", 5, 5), ("float32", 1, 3),
    ],
)  # fmt: skip
def test_every_shape_and_rank(device: an.Device, dtype: str, m: int, n: int) -> None:
    """Moore and Penrose's four conditions, and the solution of the least norm."""
    solver, b = device.solver, matrices(np.random.default_rng(1), (m, 2), dtype)
    full = matrices(np.random.default_rng(9), (m, n), dtype)
    for a in (full, np.outer(full[:, 0], full[0]), np.zeros_like(full)):
        rank = min(m, n) if a is full else int(a.any())
        ref = device.put(a)
        assert solver.matrix_rank(ref).numpy() == rank
        p, whole = wide(solver.pinv(ref).numpy()), wide(a)
        scale = size(whole) * (1 + size(p) * size(whole)) + size(p) * (1 + size(p) * size(whole))
        for found, wanted in ((whole @ p @ whole, whole), (p @ whole @ p, p)):
            check(found - wanted, scale + 1, dtype)
        for projection in (whole @ p, p @ whole):
            check(projection - op(projection, True, True), size(p) * size(whole) + 1, dtype)
        found = solver.lstsq(ref, device.put(b))
        check(wide(found.x.numpy()) - p @ wide(b), (size(p) + 1) * size(wide(b)) * (1 + size(p) * size(whole)), dtype)
        assert found.rank.numpy() == rank
        assert found.rank.dtype == np.int64
        assert found.s.shape == (min(m, n),)


def test_batches_vectors_and_cutoffs(device: an.Device) -> None:
    rng = np.random.default_rng(2)
    solver, a, b = device.solver, rng.standard_normal((3, 1, 5, 2)), rng.standard_normal((2, 5, 4))
    found = solver.lstsq(device.put(a), device.put(b))
    assert found.x.shape == (3, 2, 2, 4)
    np.testing.assert_allclose(found.x.numpy(), np.linalg.pinv(a) @ b, rtol=1e-10, atol=1e-12)
    assert (found.rank.numpy() == np.full((3, 1), 2)).all()
    vector = solver.lstsq(device.put(a[0, 0]), device.put(b[0, :, 0])).x
    np.testing.assert_allclose(vector.numpy(), found.x.numpy()[0, 0, :, 0], rtol=1e-10)
    d = device.put(np.diag([1.0, 0.1, 1e-3]))
    assert solver.matrix_rank(d).numpy() == 3
    assert solver.matrix_rank(d, rtol=0.01).numpy() == 2
    np.testing.assert_allclose(solver.pinv(d, rtol=0.5).numpy(), np.diag([1.0, 0, 0]), atol=1e-14)
    assert solver.lstsq(d, device.put(np.ones(3)), rtol=0.01).rank.numpy() == 2


def test_empty_problems(device: an.Device) -> None:
    solver = device.solver
    assert solver.pinv(device.zeros((2, 0, 3))).numpy().shape == (2, 3, 0)
    assert (solver.matrix_rank(device.zeros((2, 0, 3))).numpy() == 0).all()
    found = solver.lstsq(device.zeros((0, 3)), device.zeros((0, 2)))
    assert (found.x.numpy() == np.zeros((3, 2))).all()
    assert found.rank.numpy() == 0
    assert solver.lstsq(device.put(np.eye(3)), device.zeros((3, 0), "float64")).x.shape == (3, 0)


@pytest.mark.parametrize(
    ("dtype", "lower"), [("float32", True), ("float64", False), ("complex64", False), ("complex128", True)]
)
def test_generalised_problems(device: an.Device, dtype: str, lower: bool) -> None:
    rng = np.random.default_rng(3)
    a = matrices(rng, (2, 5, 5), dtype)
    a = (a + op(a, True, True)).astype(dtype)
    b = hermitian(matrices(rng, (2, 5, 5), dtype))
    wa, wb = wide(a), wide(b)
    for kind, sides in ((1, (wa, wb)), (2, (wa @ wb, np.eye(5))), (3, (wb @ wa, np.eye(5)))):
        w, v = device.solver.eigh(device.put(a), device.put(b), type=kind, lower=lower)
        w, v = w.numpy(), wide(v.numpy())
        scale = size(wa) * size(wb) * size(v) * 4
        check(sides[0] @ v - sides[1] @ v * w[..., None, :], scale, dtype)
        metric = np.linalg.inv(wb) if kind == 3 else wb
        check(op(v, True, True) @ metric @ v - np.eye(5), size(wb) * size(v) ** 2, dtype)
        assert (np.diff(w) >= 0).all()
    with pytest.raises(an.NotPositiveDefinite, match=r"solver\.cholesky"):
        device.solver.eigh(device.put(a), device.put(-b)).eigenvalues.numpy()


def test_ranges_of_eigenvalues(device: an.Device) -> None:
    a = device.put(np.diag([3.0, -1.0, 2.0, 5.0]))
    w, v = device.solver.eigh(a, subset_by_index=(1, 2))
    assert w.numpy().tolist() == [2, 3]
    assert (abs(v.numpy()) == np.eye(4)[:, [2, 0]]).all()
    w, v = device.solver.eigh(a, subset_by_value=(-1.0, 3.0))  # above the first, up to the second
    assert w.numpy().tolist() == [2, 3]
    w, v = device.solver.eigh(a, a @ a, subset_by_value=(6.0, np.inf))
    assert w.shape == (0,)
    assert v.shape == (4, 0)


@pytest.mark.parametrize(
    ("send", "words"),
    [
        (lambda s, x: s.eigh(x, type=2), "type=2; allowed: 1, and 2 and 3 with b"),
        (lambda s, x: s.eigh(x, x, type=4), "type=4; allowed: 1, 2, 3"),
        (lambda s, x: s.eigh(x, x[:2, :2]), r"b has shape \(2, 2\)"),
        (lambda s, x: s.eigh(x, x, w=x[0], check=False), "outputs of a plain call"),
        (lambda s, x: s.eigh(x, subset_by_index=(1, 3)), r"\(1, 3\); allowed: 0 <= first <= last < 3"),
        (lambda s, x: s.eigh(x, subset_by_index=1), "subset_by_index=1; allowed: a pair"),
        (lambda s, x: s.eigh(x, subset_by_value=(2, 1)), "the first below the second"),
        (lambda s, x: s.eigh(x, subset_by_value=(0, 1), subset_by_index=(0, 0)), "allowed: one of them"),
        (lambda s, x: s.eigh(x[None], subset_by_value=(0, 1)), "allowed: one matrix"),
        (lambda s, x: s.pinv(x, rtol=-1), "rtol=-1; allowed: a number of 0 or more"),
        (lambda s, x: s.pinv(x[0]), r"\(3,\); it must be a matrix"),
        (lambda s, x: s.matrix_rank(x.astype("int32")), "int32; allowed: float32"),
        (lambda s, x: s.lstsq(x, x[:2]), r"b has shape \(2, 3\); allowed: \(3,\) or \(..., 3, any\)"),
        (lambda s, x: s.lstsq(x, x.astype("float32")), "float32; allowed: float64"),
    ],
)
def test_refusals(cuda_system: an.System, send: Callable[..., Any], words: str) -> None:
    device = cuda_system.device("host")
    with pytest.raises(an.InvalidRequest, match=words):
        send(device.solver, device.put(np.eye(3)))


def test_info_of_several_messages(device: an.Device) -> None:
    """With ``check=False`` nothing fails: the numbers of all matrices are the last result."""
    rng = np.random.default_rng(8)
    solver, a, b = device.solver, rng.standard_normal((3, 4, 2)), rng.standard_normal((4, 3))
    ref = device.put(a)
    x, rank, s, info = solver.lstsq(ref, device.put(b), check=False)
    np.testing.assert_allclose(x.numpy(), np.linalg.pinv(a) @ b, rtol=1e-10, atol=1e-12)
    assert (rank.numpy() == 2).all()
    assert s.shape == (3, 2)
    for found, shape in ((solver.pinv(ref, check=False), (3, 2, 4)), (solver.matrix_rank(ref, check=False), (3,))):
        assert found[0].shape == shape
        assert found[1].numpy().tolist() == info.numpy().tolist() == [0, 0, 0]
    assert solver.pinv(device.zeros((2, 0, 3)), check=False)[1].numpy().tolist() == [0, 0]
    assert solver.lstsq(device.zeros((2, 0, 3)), device.zeros((0, 1)), check=False)[3].numpy().tolist() == [0, 0]
    whole, metric = hermitian(rng.standard_normal((3, 4, 4))), hermitian(rng.standard_normal((3, 4, 4)))
    metric[1, 2, 2] = -1
    for kind in (1, 2, 3):
        w, v, info = solver.eigh(device.put(whole), device.put(metric), type=kind, check=False, subset_by_index=(1, 2))
        assert info.numpy().tolist() == [0, 7, 0]
        assert info.dtype == np.int32
        assert (w.shape, v.shape) == ((3, 2), (3, 4, 2))
        assert np.isnan(w.numpy()[1]).all()
        assert np.isfinite(w.numpy()[[0, 2]]).all()
    w, v, info = solver.eigh(device.put(whole[0]), check=False, subset_by_value=(-1.0, 1e9))
    assert w.shape == (4,)
    assert int(info) == 0
    with pytest.raises(an.InvalidRequest, match="check=2"):
        solver.pinv(ref, check=2)
