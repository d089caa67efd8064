"""Polar decompositions, functions of matrices, and solves that are refined."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from solver_checks import check, hermitian, matrices, op, size, wide

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_polar_decompositions(device: an.Device, dtype: str) -> None:
    for shape in ((4, 4), (5, 4), (4, 5)):
        a = matrices(np.random.default_rng(0), (2, *shape), dtype)
        for side in ("right", "left"):
            u, p, info = device.solver.polar(device.put(a), side=side, check=False)
            u, p = wide(u.numpy()), wide(p.numpy())
            assert u.shape == a.shape
            check((u @ p if side == "right" else p @ u) - wide(a), size(wide(a)), dtype)
            check(p - op(p, True, True), size(p), dtype)
            thin = op(u, True, True) @ u if shape[0] >= shape[1] else u @ op(u, True, True)
            check(thin - np.eye(min(shape)), 1, dtype)
            assert (np.linalg.eigvalsh(p) > -1e-5 * size(p)[:, None]).all()
            assert info.numpy().tolist() == [0, 0]
    assert device.solver.polar(device.zeros((2, 0, 3))).p.shape == (2, 3, 3)
    with pytest.raises(an.InvalidRequest, match="side='up'"):
        device.solver.polar(device.put(np.eye(2)), side="up")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_exponentials(device: an.Device, dtype: str) -> None:
    a = matrices(np.random.default_rng(1), (3, 4, 4), dtype)
    a[1] *= 8  # which is squared
    a[2] = 0
    found, want = device.solver.expm(device.put(a)).numpy(), np.stack([scipy.linalg.expm(wide(x)) for x in a])
    assert found.dtype == dtype
    check(wide(found) - want, 100 * (1 + size(wide(a))) * size(want), dtype)
    a = a + op(a, True, True)
    found = device.solver.expm(device.put(np.triu(a)), assume="hermitian", lower=False).numpy()
    want = np.stack([scipy.linalg.expm(wide(x)) for x in a])
    check(wide(found) - want, 10 * (1 + size(wide(a))) * size(want), dtype)
    a[0, 1, 1] = np.nan
    assert np.isnan(device.solver.expm(device.put(a)).numpy()[0]).any()


@pytest.mark.parametrize("name", ["logm", "sqrtm"])
def test_logarithms_and_roots(device: an.Device, name: str) -> None:
    send, function = getattr(device.solver, name), getattr(scipy.linalg, name)
    for dtype in ("float64", "complex64"):
        a = hermitian(matrices(np.random.default_rng(2), (2, 4, 4), dtype))
        want = np.stack([function(wide(x)) for x in a])
        found = send(device.put(a), assume="hermitian").numpy()
        assert found.dtype == dtype
        check(wide(found) - want, 10 * size(want), dtype)
        found = send(device.put(a)).numpy()
        assert found.dtype == np.result_type(dtype, np.complex64)
        check(found - want, 10 * size(want), dtype)
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    np.testing.assert_allclose(send(device.put(turn)).numpy(), function(turn), atol=1e-14)
    assert np.isnan(send(device.put(-np.eye(2)), assume="hermitian").numpy()).any()
    assert np.isnan(send(device.put(np.full((2, 2), np.nan))).numpy()).all()
    assert send(device.zeros((0, 0))).shape == (0, 0)
    for a, options, words in (
        (np.ones((2, 3)), {}, "square"), (turn, {"assume": "diagonal"}, "assume='diagonal'"),
        (turn, {"lower": False}, "lower=False with assume='general'"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=words):
            send(device.put(a), **options)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_solve_is_refined(device: an.Device, dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = matrices(rng, (2, 20, 20), dtype), matrices(rng, (2, 20, 3), dtype)
    x, iterations, fell_back = device.solver.solve_refined(device.put(a), device.put(b))
    check(a @ x.numpy() - b, size(a) * size(x.numpy()), dtype)
    assert 1 <= iterations < 10
    assert not fell_back
    vector = device.solver.solve_refined(device.put(a[0]), device.put(b[0, :, 0])).x
    np.testing.assert_allclose(vector.numpy(), x.numpy()[0, :, 0], rtol=1e-10)
    worse = device.solver.solve_refined(device.put(a), device.put(b), iterations=0)
    assert worse.fell_back
    assert worse.iterations == 0
    check(a @ worse.x.numpy() - b, size(a) * size(worse.x.numpy()), dtype)


def test_solves_that_half_the_precision_cannot(device: an.Device) -> None:
    """A range that float32 lacks, and a condition beyond it, need the factor of the full precision."""
    hilbert = scipy.linalg.hilbert(9)
    for a in (1e100 * (np.eye(3) + 1), hilbert):
        b = np.ones((len(a), 1))
        found = device.solver.solve_refined(device.put(a), device.put(b), iterations=5)
        assert found.fell_back
        assert found.iterations == 5
        check(a @ found.x.numpy() - b, size(a) * size(found.x.numpy()) + size(b), "float64")
    with pytest.raises(an.SingularMatrix):
        device.solver.solve_refined(device.put(np.zeros((3, 3))), device.put(np.ones(3))).x.numpy()
    empty = device.solver.solve_refined(device.zeros((0, 0), "float64"), device.zeros((0, 2), "float64"))
    assert empty.x.shape == (0, 2)
    for a, options, words in (
        (np.eye(3, dtype="f4"), {}, "float32; solve_refined takes float64, complex128"),
        (np.eye(3), {"iterations": -1}, "iterations"), (np.ones((2, 3)), {}, "square"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=words):
            device.solver.solve_refined(device.put(a), device.put(np.ones(len(a), a.dtype)), **options)
