"""The solver against bounds in float64, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solver_checks import DTYPES, LAYOUTS, check, hermitian, lent, library_route, matrices, op, put, size, wide

import atomr_native as an
from atomr_native.libraries.solver.spec import ROUTINES

#: Those of indefinite matrices have tests of their own, test_indefinite.py.
OTHERS = [routine for routine in ROUTINES if not routine.startswith("ldl")]


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def well_conditioned(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    n = shape[-1]
    return (matrices(rng, shape, dtype) / 8 + 2 * np.eye(n)).astype(dtype)


def solved(a: np.ndarray, x: np.ndarray, b: np.ndarray, dtype: str) -> None:
    """Check ``a @ x = b``, as columns."""
    a, x, b = wide(a), wide(x), wide(b)
    check(a @ x - b, size(a) * size(x) + size(b), dtype)


def unpacked(lu: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """Return the product of the factors of one matrix, with its rows put back."""
    m, n = lu.shape
    product = np.tril(lu, -1)[:, : min(m, n)] + np.eye(m, min(m, n))
    product = product @ np.triu(lu)[: min(m, n)]
    for i in range(len(pivots) - 1, -1, -1):
        product[[i, pivots[i]]] = product[[pivots[i], i]]
    return product


def verify(
    device: an.Device,
    routine: str,
    a: np.ndarray,
    b: Any,
    options: dict[str, Any],
    layouts: Any,
    route: str | None = None,
) -> None:
    """Send a routine and hold its result against its definition; a and b are NumPy's."""
    dtype = str(a.dtype)
    solver, (of_a, of_b, of_out) = device.solver, layouts
    batch, n = a.shape[:-2], a.shape[-1]
    refs = {"a": put(device, a, of_a)}
    factor = a
    if routine == "cholesky_solve":
        factor = np.linalg.cholesky(a)
        factor = factor if options["lower"] else factor.conj().swapaxes(-1, -2)
        refs["a"] = put(device, factor, of_a)
    elif routine == "lu_solve":
        made = solver.lu_factor(refs["a"])
        refs |= {"a": put(device, made.lu.numpy(), of_a), "pivots": made.pivots}
    if "b" in ROUTINES[routine].reads:
        refs["b"] = put(device, b, of_b)
    if of_out is not None and routine not in ("det", "slogdet"):
        shape = a.shape if b is None or "b" not in refs else (*batch, n, *b.shape[-1:]) if b.ndim > 1 else a.shape[:-1]
        refs["out"] = lent(device, shape, dtype, of_out)
    route = route or library_route(routine, a)
    found = solver.tell(an.SolverRequest(routine=routine, route=route, **refs, **options))
    if routine == "lu_factor":
        lu, pivots = wide(found.lu.numpy()), found.pivots.numpy()
        for index in np.ndindex(*batch):
            check(unpacked(lu[index], pivots[index]) - wide(a[index]), size(wide(a[index])), dtype)
        return
    if routine in ("det", "slogdet"):
        want = np.linalg.slogdet(wide(a))
        if routine == "det":
            found = found.numpy()
            with np.errstate(over="ignore"):  # of many rows in single precision
                exact = (want.sign * np.exp(want.logabsdet)).astype(dtype)
            assert np.allclose(found, exact, rtol=2e3 * np.finfo(dtype).eps * (n + 1))
            return
        assert np.allclose(found.sign.numpy(), want.sign, rtol=0, atol=2e3 * np.finfo(dtype).eps * (n + 1))
        assert np.allclose(found.logabsdet.numpy(), want.logabsdet, rtol=0, atol=2e3 * np.finfo(dtype).eps * (n + 1))
        return
    x = found.numpy()
    if routine == "cholesky":
        half = np.tril(x) if options["lower"] else np.triu(x)
        assert (half == x).all()  # the other triangle is zeros
        product = wide(x) @ op(wide(x), True, True)
        product = product if options["lower"] else op(wide(x), True, True) @ wide(x)
        check(product - wide(a), size(wide(a)), dtype)
        return
    if routine in ("solve_triangular", "inv_triangular"):
        a = np.tril(a) if options["lower"] else np.triu(a)
        if options["unit"]:
            a = a - a * np.eye(n, dtype=dtype) + np.eye(n, dtype=dtype)
    if routine in ("solve", "inv") and options["assume"] == "positive_definite":
        half = np.tril(a, -1) if options["lower"] else np.triu(a, 1)
        a = half + op(half, True, True) + a * np.eye(n)
    a = op(a, options.get("trans", False), options.get("conj", False))
    if b is None or "b" not in refs:
        solved(a, x, np.broadcast_to(np.eye(n), a.shape), dtype)
    elif b.ndim == 1:
        solved(a, x[..., None], b[:, None], dtype)
    else:
        solved(a, x, b, dtype)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, ...]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    routine, dtype = draw(st.sampled_from(OTHERS)), draw(st.sampled_from(DTYPES))
    n, k = draw(st.sampled_from([1, 2, 3, 7, 17, 33])), draw(st.sampled_from([1, 2, 5]))
    batch = draw(st.sampled_from([(), (), (3,), (2, 2), (1,)]))
    options: dict[str, Any] = {
        flag: draw(st.booleans()) for flag in ROUTINES[routine].flags if flag not in ("assume",)
    }  # fmt: skip
    positive = routine in ("cholesky", "cholesky_solve")
    if "assume" in ROUTINES[routine].flags:
        positive = draw(st.booleans())
        options["assume"] = "positive_definite" if positive else "general"
        options["lower"] = options["lower"] or not positive
    rows = draw(st.sampled_from([n, n + 3, max(1, n - 2)])) if routine == "lu_factor" else n
    a = matrices(rng, (*batch, rows, n), dtype)
    if positive:
        a = hermitian(a)
    elif routine != "lu_factor":
        a = (a / 8 + 2 * np.eye(n)).astype(dtype)
    b = matrices(rng, draw(st.sampled_from([(n,), (*batch, n, k), (n, k)])), dtype)
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(2)]
    return routine, a, b, options, (*layouts, draw(st.sampled_from([None, None, *LAYOUTS])))


@given(problem=problems())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_routines(device: an.Device, problem: tuple[Any, ...]) -> None:
    verify(device, *problem)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("routine", OTHERS)
def test_every_routine_of_every_type_and_layout(device: an.Device, routine: str, dtype: str) -> None:
    """All op and triangles of batches, read and written in each order."""
    rng = np.random.default_rng(0)
    a = well_conditioned(rng, (2, 5, 5), dtype)
    if routine.startswith("cholesky"):
        a = hermitian(a)
    flags = [flag for flag in ROUTINES[routine].flags if flag not in ("assume", "unit")]
    if "assume" in ROUTINES[routine].flags:
        flags = []
    for number in range(2 ** len(flags)):
        options = {flag: bool(number >> i & 1) for i, flag in enumerate(flags)}
        options |= {"unit": False} if "unit" in ROUTINES[routine].flags else {}
        options |= {"assume": "general"} if "assume" in ROUTINES[routine].flags else {}
        for layouts in (("rows", "columns", None), ("columns", "rows", "rows"), ("apart", "apart", "columns")):
            verify(device, routine, a, matrices(rng, (2, 5, 3), dtype), options, layouts)


def test_batches_that_broadcast(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    a, b = well_conditioned(rng, (3, 1, 4, 4), "float64"), rng.standard_normal((2, 4, 2))
    x = device.solver.solve(device.put(a), device.put(b))
    assert x.shape == (3, 2, 4, 2)
    solved(np.broadcast_to(a, (3, 2, 4, 4)), x.numpy(), np.broadcast_to(b, x.shape), "float64")
    factors = device.solver.lu_factor(device.put(a))
    solved(np.broadcast_to(a, (3, 2, 4, 4)), device.solver.lu_solve(*factors[:2], device.put(b)).numpy(), b, "float64")
    lower = np.tril(a)
    x = device.solver.solve_triangular(device.put(a), device.put(b))
    solved(np.broadcast_to(lower, (3, 2, 4, 4)), x.numpy(), b, "float64")
    spd = hermitian(a)
    factor = device.solver.cholesky(device.put(spd))
    x = device.solver.cholesky_solve(factor, device.put(b))
    solved(np.broadcast_to(spd, (3, 2, 4, 4)), x.numpy(), b, "float64")


@pytest.mark.parametrize("routine", OTHERS)
def test_each_route_of_the_libraries(device: an.Device, routine: str) -> None:
    """A batch one by one and in one call, and one matrix in a call for batches."""
    rng = np.random.default_rng(7)
    flags = {flag: False for flag in ROUTINES[routine].flags if flag != "assume"}
    for assume in ("general", "positive_definite") if "assume" in ROUTINES[routine].flags else ("",):
        options = flags | ({"assume": assume} if assume else {})
        options |= {"lower": True} if assume == "general" and "lower" in flags else {}
        for batch in ((3,), ()):
            a = well_conditioned(rng, (*batch, 6, 6), "float64")
            if assume == "positive_definite" or routine.startswith("cholesky"):
                a = hermitian(a)
            for route in ("loop", "batched"):
                for layouts in (("rows", "columns", None), ("columns", "rows", "rows")):
                    verify(device, routine, a, rng.standard_normal((*batch, 6, 2)), options, layouts, route)


def test_matrices_of_a_batch_go_together_or_one_by_one(cuda_system: an.System) -> None:
    cuda = cuda_system.device("cuda:0")
    rng = np.random.default_rng(2)
    for n, route, words in (
        (33, "batched", "2 matrices in one call of getrfBatched"), (260, "loop", "2 calls of getrf"),
        (260, "batched", "2 matrices in one call of getrfBatched"),
    ):  # fmt: skip
        a, b = well_conditioned(rng, (2, n, n), "float64"), rng.standard_normal((2, n, 2))
        refs = cuda.put(a), cuda.put(b)
        request = an.SolverRequest(routine="solve", a=refs[0], b=refs[1], route=route)
        assert words in cuda.solver.plan(request).notes[0]
        solved(a, cuda.solver.tell(request).numpy(), b, "float64")
        spd = hermitian(a)
        factor = cuda.solver.cholesky(cuda.put(spd))
        solved(spd, cuda.solver.cholesky_solve(factor, refs[1]).numpy(), b, "float64")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_cholesky_factors_are_of_either_triangle_in_every_layout(device: an.Device, dtype: str) -> None:
    rng = np.random.default_rng(6)
    a = hermitian(well_conditioned(rng, (3, 45, 45), dtype))
    a[1, 40, 40] = -1
    for lower in (True, False):
        half = np.tril(a) if lower else np.triu(a)
        unread = half + (np.triu(np.full_like(a, 9), 1) if lower else np.tril(np.full_like(a, 9), -1))
        for of_a, of_out in itertools.product(("rows", "columns"), ("rows", "columns", "apart")):
            out = lent(device, (3, 45, 45), dtype, of_out)
            request = an.SolverRequest(
                routine="cholesky", a=put(device, unread, of_a), out=out, lower=lower, route="loop", check=False
            )
            factor, info = (found.numpy() for found in device.solver.tell(request))
            assert info.tolist() == [0, 41, 0]
            assert np.isnan(factor[1]).all()
            for i in (0, 2):
                other = np.triu(factor[i], 1) if lower else np.tril(factor[i], -1)
                assert not other.any(), (lower, of_a, of_out)
                low = wide(factor[i]) if lower else wide(factor[i]).conj().T
                check(low @ low.conj().T - wide(a[i]), size(a[i]), dtype)


def test_hilbert_matrices_have_small_backward_errors(device: an.Device) -> None:
    for n in (4, 8, 11):
        h, b = scipy.linalg.hilbert(n), np.ones((n, 2))
        solved(h, device.solver.solve(device.put(h), device.put(b)).numpy(), b, "float64")
        x = device.solver.solve(device.put(h), device.put(b), assume="positive_definite")
        solved(h, x.numpy(), b, "float64")
        factor = device.solver.cholesky(device.put(h)).numpy()
        check(factor @ factor.T - h, size(h), "float64")


def test_determinants_do_not_overflow_on_the_way(device: an.Device) -> None:
    for dtype in ("float64", "complex128"):
        a = np.diag(np.array([1e200, 1e200, 1e-200, 1e-190, -2.0])).astype(dtype)
        assert np.isclose(device.solver.det(device.put(a)).numpy(), -2e10)
        sign, log, _ = device.solver.slogdet(device.put(a[:2, :2]))
        assert sign.numpy() == 1
        assert np.isclose(log.numpy(), 400 * np.log(10))
        assert np.isinf(device.solver.det(device.put(a[:2, :2])).numpy())
        assert device.solver.det(device.put(a[2:4, 2:4])).numpy() == 0
    rng = np.random.default_rng(3)
    spd = hermitian(rng.standard_normal((3, 5, 5)))
    sign, log, _ = device.solver.slogdet(device.put(spd), assume="positive_definite")
    assert (sign.numpy() == 1).all()
    np.testing.assert_allclose(log.numpy(), np.linalg.slogdet(spd).logabsdet, rtol=1e-12)
    np.testing.assert_allclose(
        device.solver.det(device.put(spd), assume="positive_definite").numpy(), np.linalg.det(spd), rtol=1e-12
    )


def test_determinants_of_singular_matrices_are_zero(device: an.Device) -> None:
    a = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert (device.solver.det(device.put(a)).numpy() == [0, -1]).all()
    sign, log, _ = device.solver.slogdet(device.put(a))
    assert (sign.numpy() == [0, -1]).all()
    assert log.numpy().tolist() == [-np.inf, 0]


def test_empty_matrices_and_batches(device: an.Device) -> None:
    solver, empty = device.solver, device.zeros((3, 0, 0), "float64")
    assert solver.cholesky(empty).numpy().shape == (3, 0, 0)
    assert solver.inv(empty).numpy().shape == (3, 0, 0)
    assert (solver.det(empty).numpy() == 1).all()
    sign, log, _ = solver.slogdet(empty, assume="positive_definite")
    assert (sign.numpy() == 1).all()
    assert (log.numpy() == 0).all()
    x, info = solver.solve(empty, device.zeros((3, 0, 2), "float64"), check=False)
    assert x.shape == (3, 0, 2)
    assert (info.numpy() == 0).all()
    lu, pivots, _ = solver.lu_factor(device.zeros((2, 0, 3), "float32"))
    assert lu.numpy().shape == (2, 0, 3)
    assert pivots.numpy().shape == (2, 0)
    none = device.zeros((0, 3, 3), "complex64")
    assert solver.inv(none).numpy().shape == (0, 3, 3)
    assert solver.det(none).numpy().shape == (0,)
    assert solver.solve(device.put(np.eye(3)), device.zeros((3, 0), "float64")).numpy().shape == (3, 0)
    one = device.put(np.array([[4.0]]))
    assert solver.cholesky(one).numpy() == 2
    assert solver.inv(one).numpy() == 0.25


def test_factors_are_those_of_scipy(device: an.Device) -> None:
    """Rows, exchanges and their numbers: SciPy takes ours."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((6, 6)), rng.standard_normal((6, 2))
    lu, pivots, _ = device.solver.lu_factor(device.put(a))
    solved(a, scipy.linalg.lu_solve((lu.numpy(), pivots.numpy()), b), b, "float64")
    theirs, order = scipy.linalg.lu_factor(a)
    x = device.solver.lu_solve(device.put(theirs), device.put(order.astype(np.int32)), device.put(b))
    solved(a, x.numpy(), b, "float64")


def test_outputs_plans_and_replies(device: an.Device) -> None:
    rng = np.random.default_rng(5)
    a, b = well_conditioned(rng, (4, 4), "float64"), rng.standard_normal((4, 2))
    refs, out = (device.put(a), device.put(b)), device.zeros((4, 2), "float64")
    solver = device.solver
    assert solver is device.solver
    assert solver.solve(*refs, out=out) is out
    solved(a, out.numpy(), b, "float64")
    reply = solver.ask(an.SolverRequest(routine="inv", a=refs[0], check=False))
    inverse, info = reply.result(30)
    solved(a, inverse.numpy(), np.eye(4), "float64")
    assert info.numpy() == 0
    request = an.SolverRequest(routine="solve_triangular", a=refs[0], b=refs[1], lower=False, out=out)
    scratch = solver.scratch(request)
    assert list(scratch) == ["work"]
    for _ in range(2):
        solver.plan(request).ask(*refs, out=out, **scratch).result(30)
    solved(np.triu(a), out.numpy(), b, "float64")


def test_pivots_that_are_no_rows_touch_no_other_memory(device: an.Device) -> None:
    pivots = device.put(np.array([100000, -5, 2], np.int32))
    b = device.put(np.ones((3, 1)))
    assert (device.solver.lu_solve(device.put(np.eye(3)), pivots, b).numpy() == 1).all()
