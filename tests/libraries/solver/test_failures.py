"""Matrices without a result: typed errors that arrive late, info numbers, poison, and lanes that go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_checks import DTYPES, hermitian, matrices

import atomr_native as an
from atomr_native.plans.failures import _of_matrix


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def batch(n: int, count: int, dtype: str = "float64") -> np.ndarray:
    return hermitian(matrices(np.random.default_rng(n), (count, n, n), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5])
def test_indefinite_at_the_last_pivot(device: an.Device, dtype: str, n: int) -> None:
    a = batch(n, 1, dtype)[0]
    a[-1, -1] = -1
    factor = device.solver.cholesky(device.put(a))
    with pytest.raises(an.NotPositiveDefinite, match=f"leading minor of order {n} is not positive") as caught:
        factor.numpy()
    error = caught.value
    assert (error.operation, error.index, error.info, error.count) == ("solver.cholesky", (), n, 1)
    assert (error.lib, error.status, error.name) == ("solver", n, "NotPositiveDefinite")
    assert error.call is not None
    assert error.call.operation == "solver.cholesky"
    factor.clear_error()
    assert np.isnan(factor.numpy()).all()


def test_a_batch_of_one_has_its_index(device: an.Device) -> None:
    """Its info number is judged without a summary, and a message behind it has nothing of its failure."""
    solver = device.solver
    factor = solver.cholesky(device.put(np.array([[[[1.0, 2.0], [2.0, 1.0]]]])))
    with pytest.raises(an.NotPositiveDefinite) as caught:
        factor.numpy()
    assert (caught.value.index, caught.value.info, caught.value.count) == ((0, 0), 2, 1)
    factor.clear_error()
    assert np.isnan(factor.numpy()).all()
    np.testing.assert_array_equal(solver.cholesky(device.put(4 * np.eye(2))).numpy(), 2 * np.eye(2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_at_the_last_pivot(device: an.Device, dtype: str) -> None:
    a = np.triu(np.ones((4, 4))).astype(dtype)
    a[-1, -1] = 0
    ref, b = device.put(a), device.put(np.ones((4, 2), dtype))
    sends: list[Callable[[], Any]] = [
        lambda: device.solver.solve(ref, b), lambda: device.solver.inv(ref), lambda: device.solver.lu_factor(ref).lu,
        lambda: device.solver.solve_triangular(ref, b, lower=False),
        lambda: device.solver.inv_triangular(ref, lower=False),
    ]  # fmt: skip
    for send in sends:
        found = send()
        with pytest.raises(an.SingularMatrix, match="element 4 of the diagonal") as caught:
            found.numpy()
        assert caught.value.info == 4
        found.clear_error()
        assert np.isnan(found.numpy()).all()
    assert np.isfinite(device.solver.solve_triangular(ref, b, lower=False, unit=True).numpy()).all()


def test_one_bad_matrix_in_a_large_batch(device: an.Device) -> None:
    """Its place is named; other matrices have their results, and only it is NaN."""
    a = batch(3, 2000)
    a[1234, 1, 1] = -9
    reply = device.solver.ask(an.SolverRequest(routine="cholesky", a=device.put(a)))
    with pytest.raises(an.NotPositiveDefinite, match=r"at index \(1234,\) of the batch") as caught:
        reply.result(60)
    assert (caught.value.index, caught.value.info, caught.value.count) == ((1234,), 2, 1)
    factor, info = device.solver.cholesky(device.put(a), check=False)
    found, numbers = factor.numpy(), info.numpy()
    assert np.flatnonzero(numbers).tolist() == [1234]
    assert np.isnan(found[1234]).all()
    good = np.delete(found, 1234, axis=0)
    np.testing.assert_allclose(good @ good.swapaxes(1, 2), np.delete(a, 1234, axis=0), rtol=1e-12, atol=1e-12)


def test_the_first_of_several_axes_and_how_many(device: an.Device) -> None:
    a = batch(3, 6).reshape(2, 3, 3, 3)
    a[0, 2, 0] = a[1, 0, 2] = a[1, 1, 1] = 0
    with pytest.raises(an.SingularMatrix, match="3 matrices of the batch are so") as caught:
        device.solver.inv(device.put(a)).numpy()
    assert (caught.value.index, caught.value.count) == ((0, 2), 3)
    inverse, info = device.solver.inv(device.put(a), check=False)
    assert np.argwhere(info.numpy()).tolist() == [[0, 2], [1, 0], [1, 1]]
    assert np.isnan(inverse.numpy()).all((2, 3)).tolist() == [[False, False, True], [True, True, False]]
    lu, _, numbers = device.solver.lu_factor(device.put(a), check=False)
    assert np.isfinite(lu.numpy()).all()  # the factors of a singular matrix are of use
    assert (numbers.numpy() == info.numpy()).all()
    out = device.zeros((2, 3), "int32")
    device.solver.det(device.put(a), assume="positive_definite", check=False, info=out)
    assert (out.numpy() != 0).sum() == 3


def test_later_messages_are_not_handed_rubbish(device: an.Device) -> None:
    singular, fine = device.zeros((3, 3), "float64"), device.put(np.eye(3))
    inverse = device.solver.inv(singular)
    product = device.blas_lt.matmul(inverse, fine)
    reply = device.solver.ask(an.SolverRequest(routine="det", a=inverse))
    with pytest.raises(an.DependencyFailed) as caught:
        reply.result(30)
    assert isinstance(caught.value.cause, an.SingularMatrix)
    with pytest.raises(an.SingularMatrix, match=r"solver\.inv"):  # the first cause
        product.numpy()
    np.testing.assert_array_equal(device.solver.inv(fine).numpy(), np.eye(3))
    factor = device.solver.cholesky(singular)
    with pytest.raises(an.NotPositiveDefinite):
        factor.wait()
    device.solver.cholesky(fine, out=factor)
    np.testing.assert_array_equal(factor.numpy(), np.eye(3))
    assert device.stats()["restarts"] == 0


def test_many_messages_in_flight_keep_their_outcomes(device: an.Device) -> None:
    """More than a lane has places for info numbers, and for host memory of the library."""
    good, bad = device.put(np.eye(4)), device.put(-np.eye(4))
    replies = [
        device.solver.ask(an.SolverRequest(routine="cholesky", a=bad if i % 3 == 1 else good)) for i in range(200)
    ]  # fmt: skip
    for i, reply in enumerate(replies):
        if i % 3 == 1:
            with pytest.raises(an.NotPositiveDefinite):
                reply.result(60)
        else:
            assert (reply.result(60).numpy() == np.eye(4)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_do_not_pass_silently(device: an.Device, value: float) -> None:
    a = batch(4, 1)[0]
    a[2, 1] = a[1, 2] = value
    for assume in ("general", "positive_definite"):
        found = device.solver.solve(device.put(a), device.put(np.ones(4)), assume=assume)
        try:
            x = found.numpy()
        except an.FactorizationError:
            continue
        assert not np.isfinite(x).all() or np.isinf(value)


def test_nan_is_noted_where_it_is_read(device: an.Device) -> None:
    """Also where a library's search for pivots passes over it; other matrices of the batch keep their results."""
    a = batch(4, 3)
    a[1, 2, 1] = a[1, 1, 2] = np.nan
    ref, b = device.put(a), device.put(np.ones((4, 1)))
    sends: list[Callable[..., Any]] = [
        lambda **o: device.solver.cholesky(ref, **o), lambda **o: device.solver.lu_factor(ref, **o)[0::2],
        lambda **o: device.solver.solve(ref, b, **o), lambda **o: device.solver.inv(ref, **o),
        lambda **o: device.solver.inv(ref, assume="positive_definite", **o),
        lambda **o: device.solver.det(ref, assume="positive_definite", **o),
    ]  # fmt: skip
    for i, send in enumerate(sends):
        found = send(check=False)[0].numpy().reshape(3, -1)
        assert np.isnan(found[1]).any() if i < 2 else np.isnan(found[1]).all()
        assert np.isfinite(found[::2]).all()
    assert np.isnan(device.solver.det(ref).numpy()).tolist() == [False, True, False]
    sign, log, _ = device.solver.slogdet(ref)
    assert np.isnan(sign.numpy()[1])
    assert np.isnan(log.numpy()[1])
    a[1] = np.tril(a[1]) + np.triu(np.full((4, 4), np.nan), 1)  # in the triangle that is not read
    a[1, 2, 1] = 0
    assert np.isfinite(device.solver.cholesky(device.put(a)).numpy()).all()


def test_subnormal_pivots(device: an.Device) -> None:
    """The host divides by them; cuSOLVER multiplies by their reciprocals, which may be infinite."""
    tiny = np.diag([4e-320, 1.0])
    found = device.solver.solve(device.put(tiny), device.put(np.array([4e-320, 1.0])))
    try:
        x = found.numpy()
    except an.SingularMatrix:
        assert device.kind == "cuda"
        return
    np.testing.assert_allclose(x, 1, rtol=1e-3)


def test_malformed_words_of_a_worker_are_no_error_of_a_matrix() -> None:
    good = an.SingularMatrix("solver.inv", (3, 4), 2, 5)
    again = _of_matrix(2, "SingularMatrix", good.words)
    assert vars(again) == vars(good)
    assert vars(_of_matrix(1, "SingularMatrix", "solver.det\n\n1"))["index"] == ()
    for text in ("", "solver.inv\n1", "solver.inv\n1\nx", "solver.inv\n,\n1", "solver.inv\n-1\n1"):
        assert _of_matrix(1, "SingularMatrix", text) is None
    assert _of_matrix(1, "Other", good.words) is None
