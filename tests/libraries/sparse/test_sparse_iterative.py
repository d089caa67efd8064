"""Iterative solvers as recorded programs, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def laplacian(n: int) -> Any:
    line = scipy.sparse.diags_array([-np.ones(n - 1), 4 * np.ones(n), -np.ones(n - 1)], offsets=[-1, 0, 1])
    return scipy.sparse.csr_array(line + scipy.sparse.diags_array(np.arange(n) / n))


@pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres"])
def test_systems_are_solved(device: an.Device, method: str) -> None:
    a = laplacian(30)
    if method != "cg":
        a = scipy.sparse.csr_array(a + scipy.sparse.diags_array(np.ones(29), offsets=1))
    b = np.random.default_rng(0).standard_normal(30)
    matrix = device.sparse.matrix(a)
    solver = device.sparse.solver(matrix, method=method, limit=60)
    x, rounds, residual = solver.tell(device.put(b), tolerance=1e-10)
    assert np.linalg.norm(a @ x.numpy() - b) <= 2e-10 * np.linalg.norm(b)
    assert 2 <= int(rounds) <= 40
    assert float(residual) <= 1e-10
    # The places of the diagonal are not kept: here they change.
    if method == "cg":
        turned = a.tocsc()[:, ::-1].tocsr()[::-1].tocsr()
        turned.sort_indices()
        device.put(turned.data, out=matrix.values)
        device.put(turned.indices, out=matrix.indices)
        device.put(turned.indptr, out=matrix.offsets)
        found = solver.tell(device.put(b[::-1].copy()), tolerance=1e-10)
        np.testing.assert_allclose(found.x.numpy(), x.numpy()[::-1], rtol=1e-8, atol=1e-10)
        a, b, x = turned, b[::-1].copy(), found.x
    # New values count at once, and a right side of zeros is solved by zeros.
    device.put(2 * a.data, out=matrix.values)
    out = device.zeros(30, "float64")
    assert solver.tell(device.put(b), tolerance=1e-10, out=out).x is out
    np.testing.assert_allclose(out.numpy(), x.numpy() / 2, rtol=1e-8, atol=1e-10)
    nothing = solver.tell(device.zeros(30, "float64"))
    assert int(nothing.rounds) == 0
    assert not nothing.x.numpy().any()


def test_a_limit_ends_a_solver(device: an.Device) -> None:
    a = laplacian(30)
    b = np.random.default_rng(1).standard_normal(30)
    solver = device.sparse.solver(device.sparse.matrix(a), preconditioner="none", limit=3)
    found = solver.tell(device.put(b), tolerance=1e-12)
    assert int(found.rounds) == 3
    assert 1e-12 < float(found.residual) < 1
    x, _ = scipy.sparse.linalg.cg(a, b, maxiter=3, rtol=0)
    np.testing.assert_allclose(found.x.numpy(), x, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "preconditioner"), [("cg", "ic0"), ("bicgstab", "ilu0"), ("gmres", "ilu0"), ("gmres", "ic0")]
)
def test_factors_save_rounds(device: an.Device, method: str, preconditioner: str) -> None:
    grid = scipy.sparse.diags_array([-np.ones(39), 4 * np.ones(40), -np.ones(39)], offsets=[-1, 0, 1])
    far = scipy.sparse.diags_array([-np.ones(33), -np.ones(33)], offsets=[-7, 7])
    a = scipy.sparse.csr_array(grid + far)
    b = np.random.default_rng(2).standard_normal(40)
    matrix = device.sparse.matrix(a)
    plain = device.sparse.solver(matrix, method=method, preconditioner="none")
    many = int(plain.tell(device.put(b), tolerance=1e-10).rounds)
    factors = getattr(device.sparse, preconditioner)(matrix)
    for options in ({}, {"factors": factors}):
        solver = device.sparse.solver(matrix, method=method, preconditioner=preconditioner, **options)
        x, rounds, _ = solver.tell(device.put(b), tolerance=1e-10)
        assert np.linalg.norm(a @ x.numpy() - b) <= 2e-10 * np.linalg.norm(b)
        assert int(rounds) < many
    # Factors of new values count in the next message, and those that were given only when they are renewed.
    device.put(2 * a.data, out=matrix.values)
    factors.values.fill(np.nan)
    assert np.isnan(float(solver.tell(device.put(b)).residual))
    getattr(device.sparse, preconditioner)(matrix, out=factors.values)
    assert int(solver.tell(device.put(b), tolerance=1e-10).rounds) == int(rounds)


def test_gmres_begins_anew(device: an.Device) -> None:
    """The residual after each cycle is the least one in its Krylov space."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((20, 20)) + 8 * np.eye(20)
    b = rng.standard_normal(20)
    solver = device.sparse.solver(device.sparse.matrix(a), method="gmres", preconditioner="none", restart=4, limit=10)
    x, rounds, residual = solver.tell(device.put(b), tolerance=0.0)
    want, left = np.zeros(20), b
    for size in (4, 4, 2):
        space = np.stack([np.linalg.matrix_power(a, k) @ left for k in range(size)], 1)
        want = want + space @ np.linalg.lstsq(a @ space, left)[0]
        left = b - a @ want
    assert int(rounds) == 10
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(float(residual), np.linalg.norm(left) / np.linalg.norm(b), rtol=1e-7)
    # A space that holds the solution ends a cycle: eigenvectors need one round.
    exact = device.sparse.solver(device.sparse.matrix(np.diag(np.arange(1.0, 21.0))), method="gmres",
                                 preconditioner="none")  # fmt: skip
    found = exact.tell(device.put(np.eye(20)[3]), tolerance=1e-12)
    assert int(found.rounds) == 1
    np.testing.assert_array_equal(found.x.numpy(), np.eye(20)[3] / 4)


def test_the_basis_of_gmres_stays_orthogonal(device: an.Device) -> None:
    """A basis of which roundings took the angles leaves a residual of some 1e-14 here."""
    q, _ = np.linalg.qr(np.random.default_rng(4).standard_normal((40, 40)))
    a = q * np.logspace(0, 8, 40) @ q.T
    solver = device.sparse.solver(device.sparse.matrix(a), method="gmres", preconditioner="none", restart=40, limit=40)
    assert float(solver.tell(device.put(a @ np.ones(40)), tolerance=0.0).residual) < 5e-15


def test_a_breakdown_ends_with_nan(device: an.Device) -> None:
    a = device.sparse.matrix(np.array([[0.0, 1.0], [-1.0, 0.0]]))  # p A p is 0
    found = device.sparse.solver(a, preconditioner="none").tell(device.ones(2, "float64"))
    assert int(found.rounds) <= 2
    assert np.isnan(float(found.residual))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "minres"}, "method='minres'; allowed: 'cg', 'bicgstab', 'gmres'"),
        ({"preconditioner": "ilu"}, "preconditioner='ilu'; allowed: 'jacobi', 'ilu0', 'ic0', 'none'"),
        ({"restart": 5}, "restart=5 with method='cg'; allowed: method='gmres'"),
        ({"restart": 0, "method": "gmres"}, "restart=0"),
        ({"factors": 1, "preconditioner": "ic0"}, "factors is a int; allowed: a SparseMatrix"),
        ({"factors": 1}, "factors with preconditioner='jacobi'; allowed: 'ilu0', 'ic0'"),
        ({"limit": 0}, "limit=0"),
    ],
)
def test_what_a_solver_does_not_have_is_refused(cuda_system: an.System, options: dict[str, Any], words: str) -> None:
    host = cuda_system.device("host")
    with pytest.raises(an.InvalidRequest, match=words):
        host.sparse.solver(host.sparse.matrix(np.eye(2)), **options)
    other = host.sparse.matrix(np.eye(3))
    with pytest.raises(an.InvalidRequest, match=r"factors is .*\(3, 3\).*; allowed: csr \(2, 2\) float64"):
        host.sparse.solver(host.sparse.matrix(np.eye(2)), preconditioner="ilu0", factors=other)
    with pytest.raises(an.InvalidRequest, match="csr with as many rows"):
        host.sparse.solver(host.sparse.matrix(np.ones((2, 3))))
    solver = host.sparse.solver(host.sparse.matrix(np.eye(2)))
    with pytest.raises(an.InvalidRequest, match=r"\(3,\) and dtype float64"):
        solver.tell(host.zeros(3, "float64"))
    with pytest.raises(an.InvalidRequest, match="tolerance=-1"):
        solver.tell(host.zeros(2, "float64"), tolerance=-1)
