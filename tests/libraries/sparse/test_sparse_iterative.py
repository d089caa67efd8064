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


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
def test_systems_are_solved(device: an.Device, method: str) -> None:
    a = laplacian(30)
    if method == "bicgstab":
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


def test_a_breakdown_ends_with_nan(device: an.Device) -> None:
    a = device.sparse.matrix(np.array([[0.0, 1.0], [-1.0, 0.0]]))  # p A p is 0
    found = device.sparse.solver(a, preconditioner="none").tell(device.ones(2, "float64"))
    assert int(found.rounds) <= 2
    assert np.isnan(float(found.residual))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "gmres"}, "method='gmres'; allowed: 'cg', 'bicgstab'"),
        ({"preconditioner": "ilu"}, "preconditioner='ilu'; allowed: 'jacobi', 'none'"),
        ({"limit": 0}, "limit=0"),
    ],
)
def test_what_a_solver_does_not_have_is_refused(cuda_system: an.System, options: dict[str, Any], words: str) -> None:
    host = cuda_system.device("host")
    with pytest.raises(an.InvalidRequest, match=words):
        host.sparse.solver(host.sparse.matrix(np.eye(2)), **options)
    with pytest.raises(an.InvalidRequest, match="csr with as many rows"):
        host.sparse.solver(host.sparse.matrix(np.ones((2, 3))))
    solver = host.sparse.solver(host.sparse.matrix(np.eye(2)))
    with pytest.raises(an.InvalidRequest, match=r"\(3,\) and dtype float64"):
        solver.tell(host.zeros(3, "float64"))
    with pytest.raises(an.InvalidRequest, match="tolerance=-1"):
        solver.tell(host.zeros(2, "float64"), tolerance=-1)
