"""Values in many digits by mpmath, awkward matrices, large batches, recorded programs, equal bits of actors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from solver_checks import check, hermitian, matrices, size

import atomr_native as an

EPS = float(np.finfo(np.float64).eps)


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def exact(values: Any) -> np.ndarray:
    return np.array([complex(value) for value in values])


def test_values_in_forty_digits(device: an.Device) -> None:
    """Each within the bound that its condition allows."""
    mp = pytest.importorskip("mpmath", reason="pip install -e '.[test]'").mp
    solver, n = device.solver, 6
    hilbert = scipy.linalg.hilbert(n)
    wilkinson = np.diag(abs(np.arange(-4.0, 5))) + np.eye(9, k=1) + np.eye(9, k=-1)
    graded = np.diag(10.0 ** -np.arange(5)) @ np.random.default_rng(0).standard_normal((5, 5))
    with mp.workdps(40):
        want = exact(mp.lu_solve(mp.matrix(hilbert), mp.matrix([1] * n))).real
        for assume in ("general", "positive_definite", "symmetric"):
            found = solver.solve(device.put(hilbert), device.put(np.ones(n)), assume=assume).numpy()
            assert abs(found - want).max() <= 4 * EPS * np.linalg.cond(hilbert) * abs(want).max()
            det = solver.det(device.put(hilbert), assume=assume).numpy()
            assert abs(det / float(mp.det(mp.matrix(hilbert))) - 1) <= 4 * EPS * np.linalg.cond(hilbert)
        for a in (wilkinson, hilbert):
            want = np.sort(exact(mp.eigsy(mp.matrix(a), eigvals_only=True)).real)
            for algorithm in ("auto", "divide", "jacobi"):
                w = solver.eigvalsh(device.put(a), algorithm=algorithm).numpy()
                assert abs(w - want).max() <= 8 * len(a) * EPS * size(a)
        want = np.sort(exact(mp.svd_r(mp.matrix(graded), compute_uv=False)).real)[::-1]
        for algorithm in ("auto", "qr", "jacobi", "polar"):
            s = solver.svdvals(device.put(graded), algorithm=algorithm).numpy()
            assert abs(s - want).max() <= 8 * 5 * EPS * size(graded)
        for name, function in (("expm", mp.expm), ("sqrtm", mp.sqrtm), ("logm", mp.logm)):
            a = hermitian(np.random.default_rng(1).standard_normal((4, 4))) / 4
            want = np.array(function(mp.matrix(a)).tolist(), complex)
            for assume in ("general", "hermitian"):
                found = getattr(solver, name)(device.put(a), assume=assume).numpy()
                check(found - want, 10 * (1 + size(a)) * size(want), "float64")


@pytest.mark.parametrize("scale", [1e-310, 1e-160, 1e160, 1e300])
def test_matrices_near_the_ends_of_the_range(device: an.Device, scale: float) -> None:
    """No square of an element overflows or is lost on the way, on a GPU by the kernels for small matrices."""
    rng, solver = np.random.default_rng(2), device.solver
    a = hermitian(rng.standard_normal((2, 5, 5)))
    ref = device.put(a * scale)
    w, v = solver.eigh(ref)
    unit = a * scale / scale  # with the bits that subnormal numbers keep
    tiny = max(EPS, 5e-324 / scale)
    assert abs(w.numpy() / scale - np.linalg.eigvalsh(unit)).max() <= 40 * tiny * size(unit).max()
    check(v.numpy().swapaxes(1, 2) @ v.numpy() - np.eye(5), 1, "float64")
    u, s, vh = solver.svd(ref)
    product = (u.numpy() * (s.numpy() / scale)[:, None]) @ vh.numpy()
    assert abs(product - unit).max() <= 40 * tiny * size(unit).max()
    factor = solver.cholesky(ref).numpy() / np.sqrt(scale)
    assert abs(factor @ factor.swapaxes(1, 2) - unit).max() <= 40 * tiny * size(unit).max()
    sign, log, _ = solver.slogdet(ref, assume="positive_definite")
    assert (sign.numpy() == 1).all()
    want = np.linalg.slogdet(unit).logabsdet + 5 * np.log(scale)
    np.testing.assert_allclose(log.numpy(), want, rtol=1e-12, atol=40 * tiny)


@pytest.mark.parametrize("n", [32, 33])
def test_the_largest_matrices_of_the_kernels_and_the_next(device: an.Device, n: int) -> None:
    """Routes change at 32 rows, and results do not."""
    rng = np.random.default_rng(n)
    a, b = matrices(rng, (2, n, n), "float64") + 8 * np.eye(n), rng.standard_normal((2, n, 2))
    found = device.solver.solve(device.put(a), device.put(b)).numpy()
    check(a @ found - b, size(a) * size(found), "float64")
    w, v = (x.numpy() for x in device.solver.eigh(device.put(a + a.swapaxes(1, 2))))
    check((a + a.swapaxes(1, 2)) @ v - v * w[:, None], size(a), "float64")


def test_one_bad_matrix_of_a_hundred_thousand(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    a = np.tile(np.array([[2.0, 1.0], [1.0, 2.0]]), (100_000, 1, 1))
    a[98_765] = [[1.0, 2.0], [2.0, 1.0]]
    reply = device.solver.ask(an.SolverRequest(routine="cholesky", a=device.put(a)))
    with pytest.raises(an.NotPositiveDefinite) as caught:
        reply.result(120)
    assert (caught.value.index, caught.value.info, caught.value.count) == ((98_765,), 2, 1)
    factor, info = device.solver.cholesky(device.put(a), check=False)
    assert np.flatnonzero(info.numpy()).tolist() == [98_765]
    assert np.flatnonzero(np.isnan(factor.numpy()).any((1, 2))).tolist() == [98_765]


def test_recorded_programs_give_the_bits_of_plain_messages(device: an.Device) -> None:
    """Captured on a GPU, or launched step by step; one message of a program may fail late."""
    rng, solver = np.random.default_rng(3), device.solver
    a, b = matrices(rng, (3, 5, 5), "float64") + 5 * np.eye(5), rng.standard_normal((3, 5, 2))
    lu, pivots, _ = solver.lu_factor(device.put(a))
    x, out = device.put(b), device.zeros((3, 5, 2), "float64")
    inverse = device.zeros((3, 5, 5), "float64")
    given = device.put(a)
    with device.record() as program:
        x = program.operand("x", x)
        solver.lu_solve(lu, pivots, x, out=out)
        solver.inv(given, out=inverse)
    for turn in range(3):
        right = device.put(b * (turn + 1))
        program.plan.ask(right).result(60)
        np.testing.assert_array_equal(out.numpy(), solver.lu_solve(lu, pivots, right).numpy())
        np.testing.assert_array_equal(inverse.numpy(), solver.inv(given).numpy())


def test_eight_actors_have_equal_bits(device: an.Device) -> None:
    rng = np.random.default_rng(4)
    a, b = matrices(rng, (2, 34, 34), "float64") + 9 * np.eye(34), rng.standard_normal((2, 34, 3))
    refs, many = (device.put(a), device.put(b)), [an.Solver(device, f"solver {i}") for i in range(8)]
    found = [
        (
            actor.solve(*refs), *actor.eigh(refs[0]), actor.inv(refs[0], assume="symmetric"), *actor.qr(refs[0]),
            actor.svdvals(refs[0]),
        )
        for actor in many
    ]  # fmt: skip
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
