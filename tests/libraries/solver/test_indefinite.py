"""LDL^T and LDL^H: factors, solves, inverses and determinants of matrices that need not be definite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solver_checks import DTYPES, LAYOUTS, check, lent, matrices, op, put, size, wide

import atomr_native as an
from atomr_native.builders.cuda.cubin import compile_cubin
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.libraries.solver.cuda.indefinite import source

ASSUME = ("symmetric", "hermitian")


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def problem(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, assume: str) -> np.ndarray:
    """Return matrices with values of both signs, whose blocks of D have one row and two."""
    a = matrices(rng, shape, dtype)
    a = a + op(a, True, assume == "hermitian")
    n = shape[-1]
    a[..., range(0, n, 2), range(0, n, 2)] = 0
    return np.asarray(a)


def half(a: np.ndarray, lower: bool) -> np.ndarray:
    """Return the triangle that is read, and elsewhere what must not be."""
    other = np.full_like(a, np.nan)
    return np.asarray(np.tril(a) + np.triu(other, 1) if lower else np.triu(a) + np.tril(other, -1))


def product(ldl: np.ndarray, pivots: np.ndarray, hermitian: bool) -> np.ndarray:
    """Return the matrix of factors in LAPACK's form, by its definition: rows are exchanged in the order of blocks."""
    n = len(pivots)
    lower, found = np.eye(n, dtype=ldl.dtype), np.zeros((n, n), ldl.dtype)
    at = 0
    while at < n:
        rows = 2 if pivots[at] < 0 else 1
        end, row = at + rows, abs(int(pivots[at])) - 1
        step = np.eye(n, dtype=ldl.dtype)
        step[end:, at:end] = ldl[end:, at:end]
        order = np.arange(n)
        order[[end - 1, row]] = order[[row, end - 1]]
        lower = lower @ np.eye(n)[order] @ step
        found[at, at], found[end - 1, end - 1] = ldl[at, at], ldl[end - 1, end - 1]
        if rows == 2:
            e = ldl[at + 1, at]
            found[at + 1, at], found[at, at + 1] = e, e.conj() if hermitian else e
        at = end
    return np.asarray(lower @ found @ op(lower, True, hermitian))


def routes(dtype: str, assume: str) -> list[str]:
    """The library has no Hermitian factorisation."""
    return ["kernel"] if assume == "hermitian" and dtype.startswith("complex") else ["kernel", "loop"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("assume", ASSUME)
def test_factors_solves_and_determinants(device: an.Device, assume: str, dtype: str) -> None:
    rng, solver = np.random.default_rng(0), device.solver
    hermitian = assume == "hermitian"
    a, b = problem(rng, (2, 6, 6), dtype, assume), matrices(rng, (2, 6, 3), dtype)
    for turn, route in enumerate(routes(dtype, assume) * 2):
        lower = turn < 2
        given_a = put(device, half(a, lower), LAYOUTS[turn])
        options: dict[str, Any] = {"assume": assume, "route": route}
        ldl, pivots, _ = solver.tell(an.SolverRequest(routine="ldl_factor", a=given_a, lower=lower, **options))
        found, order = wide(ldl.numpy()), pivots.numpy()
        assert (order < 0).any()
        assert (np.triu(found, 1) == 0).all()
        for i in range(2):
            check(product(found[i], order[i], hermitian) - wide(a[i]), size(wide(a[i])), dtype)
        x = solver.tell(
            an.SolverRequest(
                routine="ldl_solve", a=put(device, ldl.numpy(), LAYOUTS[turn]), pivots=pivots,
                b=put(device, b, LAYOUTS[-turn]), out=lent(device, b.shape, dtype, LAYOUTS[turn]), **options,
            )
        )  # fmt: skip
        check(wide(a) @ wide(x.numpy()) - wide(b), size(wide(a)) * size(wide(x.numpy())), dtype)
        x = solver.tell(an.SolverRequest(routine="solve", a=given_a, b=device.put(b), lower=lower, **options))
        check(wide(a) @ wide(x.numpy()) - wide(b), size(wide(a)) * size(wide(x.numpy())), dtype)
        inverse = solver.tell(an.SolverRequest(routine="inv", a=given_a, lower=lower, **options))
        check(wide(a) @ wide(inverse.numpy()) - np.eye(6), size(wide(a)) * size(wide(inverse.numpy())), dtype)
        want, eps = np.linalg.slogdet(wide(a)), float(np.finfo(dtype).eps)
        det = solver.tell(an.SolverRequest(routine="det", a=given_a, lower=lower, **options)).numpy()
        np.testing.assert_allclose(det, want.sign * np.exp(want.logabsdet), rtol=1e4 * eps)
        sign, log, _ = solver.tell(an.SolverRequest(routine="slogdet", a=given_a, lower=lower, **options))
        np.testing.assert_allclose(sign.numpy(), want.sign, atol=1e4 * eps)
        np.testing.assert_allclose(log.numpy(), want.logabsdet, atol=1e4 * eps)
        if hermitian:
            assert (np.imag(det) == 0).all()


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, ...]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype, assume = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(ASSUME))
    n, batch = draw(st.sampled_from([1, 2, 3, 5, 9, 33])), draw(st.sampled_from([(), (3,), (2, 1)]))
    a = problem(rng, (*batch, n, n), dtype, assume)
    if draw(st.booleans()):  # definite
        a = a @ op(a, True, assume == "hermitian") + 2 * n * np.eye(n, dtype=dtype)
    return a.astype(dtype), matrices(rng, (*batch, n, draw(st.sampled_from([1, 2, 9]))), dtype), assume


@given(problem=problems())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_solves(device: an.Device, problem: tuple[Any, ...]) -> None:
    a, b, assume = problem
    dtype = str(a.dtype)
    found = device.solver.solve(device.put(a), device.put(b), assume=assume, check=False)
    x, info = wide(found[0].numpy()), found[1].numpy()
    good = info == 0  # n = 1 has a zero on the diagonal
    assert np.isnan(x[~good]).all()
    if good.all():
        check(wide(a) @ x - wide(b), size(wide(a)) * size(x) + size(wide(b)), dtype)


def test_solves_have_equal_bits_each_time(device: an.Device) -> None:
    """By each route, with other messages in between: what a workspace held before does not matter."""
    rng = np.random.default_rng(7)
    a, b = problem(rng, (3, 12, 12), "float64", "symmetric"), rng.standard_normal((3, 12, 2))
    refs = device.put(a), device.put(b)
    for route in ("kernel", "loop"):
        request = an.SolverRequest(routine="solve", a=refs[0], b=refs[1], assume="symmetric", route=route)
        first = device.solver.tell(request).numpy()
        check(a @ first - b, size(a) * size(first), "float64")
        for _ in range(10):
            device.solver.inv(refs[0])
            np.testing.assert_array_equal(device.solver.tell(request).numpy(), first)


def test_singular_matrices_are_errors(device: an.Device) -> None:
    solver = device.solver
    a = np.stack([np.eye(3), np.diag([1.0, 0, 2]), np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1.0]])])
    for assume in ASSUME:
        ref = device.put(a)
        for send in (
            lambda a=assume, r=ref: solver.ldl_factor(r, assume=a).ldl, lambda a=assume, r=ref: solver.inv(r, assume=a),
            lambda a=assume, r=ref: solver.solve(r, device.put(np.ones(3)), assume=a),
        ):  # fmt: skip
            with pytest.raises(an.SingularMatrix, match=r"at index \(1,\)") as caught:
                send().numpy()
            assert (caught.value.index, caught.value.info, caught.value.count) == ((1,), 2, 1)
        inverse, info = solver.inv(ref, assume=assume, check=False)
        assert info.numpy().tolist() == [0, 2, 0]
        assert np.isnan(inverse.numpy()[1]).all()
        np.testing.assert_allclose(inverse.numpy()[2], a[2], atol=1e-15)
        assert solver.det(ref, assume=assume).numpy().tolist() == [1, 0, -1]
        ldl, _, numbers = solver.ldl_factor(ref, assume=assume, check=False)
        assert np.isfinite(ldl.numpy()).all()
        assert numbers.numpy().tolist() == [0, 2, 0]
    b = a.copy()
    b[0, 1, 0] = np.nan
    x, info = solver.inv(device.put(b), assume="symmetric", check=False)
    assert np.isnan(x.numpy()[0]).all()
    assert np.isfinite(x.numpy()[2]).all()


@pytest.mark.parametrize(("n", "zero", "route"), [(1, 0, None), (3, 2, "loop"), (3, 1, "loop"), (40, 39, None)])
def test_one_singular_matrix(device: an.Device, n: int, zero: int, route: str | None) -> None:
    """Also where the library finds nothing wrong with it."""
    a = np.diag(np.arange(1.0, n + 1))
    a[zero, zero] = 0
    for dtype in ("float32", "float64"):
        request = an.SolverRequest(
            routine="solve", a=device.put(a.astype(dtype)), b=device.put(np.ones((n, 1), dtype)), assume="symmetric",
            route=route,
        )  # fmt: skip
        with pytest.raises(an.SingularMatrix) as caught:
            device.solver.tell(request).numpy()
        assert caught.value.info == zero + 1


def test_determinants_do_not_overflow_on_the_way(device: an.Device) -> None:
    a = np.array([[0, 1e200, 0, 0], [1e200, 0, 0, 0], [0, 0, 0, 1e-180], [0, 0, 1e-180, 0]])
    for dtype in ("float64", "complex128"):
        ref = device.put(a.astype(dtype))
        for assume in ASSUME:
            assert np.isclose(device.solver.det(ref, assume=assume).numpy(), 1e40)
            sign, log, _ = device.solver.slogdet(ref[:2, :2], assume=assume)
            assert sign.numpy() == -1
            assert np.isclose(log.numpy(), 400 * np.log(10))


def test_empty_matrices(device: an.Device) -> None:
    solver = device.solver
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        empty = device.zeros(shape, "complex64")
        ldl, pivots, _ = solver.ldl_factor(empty)
        assert (ldl.numpy().shape, pivots.numpy().shape) == (shape, shape[:-1])
        assert solver.inv(empty, assume="hermitian").numpy().shape == shape
        assert (solver.det(empty, assume="symmetric").numpy() == 1).all()


def test_pivots_that_are_none_touch_no_other_memory(device: an.Device) -> None:
    eye, b = device.put(np.eye(4)), device.put(np.ones((4, 1)))
    for numbers in ([100000, -5, 0, 4], [-1, 2, 3, -4], [-2, -2, -3, 4], [1, 2, 3, -9]):
        for route in ("kernel", "loop"):
            request = an.SolverRequest(
                routine="ldl_solve", a=eye, pivots=device.put(np.array(numbers, np.int32)), b=b, assume="symmetric",
                route=route,
            )  # fmt: skip
            x = device.solver.tell(request).numpy()
            if numbers[0] > 0:  # else a block of two rows whose second element is 0
                assert (x == 1).all()


def test_factors_are_those_of_lapack(device: an.Device) -> None:
    """Pivots are those of its lower triangle."""
    a = problem(np.random.default_rng(4), (6, 6), "float64", "symmetric")
    _, pivots, _ = device.solver.ldl_factor(device.put(a))
    order = scipy.linalg.lapack.dsytrf(a, lower=1)[1]
    assert pivots.numpy().tolist() == order.tolist()


def test_routes_by_type(cuda_system: an.System) -> None:
    solver = cuda_system.device("cuda:0").solver
    for dtype, assume, words in (
        ("complex64", "hermitian", "1 matrices in one kernel"),
        ("float64", "hermitian", None),
        ("complex64", "symmetric", None),
    ):
        a = cuda_system.device("cuda:0").put(np.eye(40, dtype=dtype))  # more rows than those of small matrices
        notes = solver.plan(an.SolverRequest(routine="inv", a=a, assume=assume)).wait(60).notes
        assert [note for note in notes if "one kernel" in note] == (
            [f"{words}, a block of threads each"] if words else []
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"routine": "ldl_factor", "a": np.eye(3)}, "assume='general'; allowed: 'symmetric', 'hermitian'"),
        ({"routine": "ldl_factor", "a": np.ones((2, 3)), "assume": "symmetric"}, "square"),
        (
            {"routine": "inv", "a": np.eye(3, dtype="c8"), "assume": "hermitian", "route": "loop"},
            "cuSOLVER 12.0 factors",
        ),
        ({"routine": "inv", "a": np.ones((2, 600, 600)), "assume": "hermitian", "route": "kernel"}, "at most 512"),
        ({"routine": "inv", "a": np.ones((2, 3, 3)), "assume": "symmetric", "route": "batched"}, "has no such route"),
        ({"routine": "det", "a": np.eye(3), "assume": "symmetric", "check": False}, "allowed: check=True"),
        ({"routine": "ldl_solve", "a": np.eye(3), "b": np.ones(3), "assume": "symmetric"}, "needs pivots"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=words):
        _ = an.SolverRequest(**options).lowered


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_kernels_compile(compiler_cache: Any, dtype: str) -> None:
    assert compile_cubin(prelude((dtype,), ()) + source(dtype), "sm_90a")
