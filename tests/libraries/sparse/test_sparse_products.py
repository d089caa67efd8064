"""Products and solves with sparse matrices against float64, on the host and on CUDA devices, the fake one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import using
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from sparse_checks import DTYPES, dense, patterns, tolerance, values_of

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def op(a: np.ndarray, trans: bool, conj: bool) -> np.ndarray:
    a = a.T if trans else a
    return a.conj() if conj else a


def hold(found: an.GpuRef, want: np.ndarray, size: np.ndarray, dtype: str) -> None:
    """Hold a result against its bound: some roundings of the sum of magnitudes."""
    error = abs(found.numpy().astype(want.dtype) - want)
    assert (error <= tolerance(dtype) * (size + 1e-30)).all()


def blocks_of(
    device: an.Device, rng: np.random.Generator, pattern: np.ndarray, dtype: str, index: str
) -> tuple[an.SparseMatrix, np.ndarray]:
    """Return a matrix of 2 x 2 blocks, and the same as an array."""
    rows, columns = np.nonzero(pattern)
    blocks = values_of(rng, (len(rows), 2, 2), dtype)
    offsets = np.searchsorted(rows, np.arange(len(pattern) + 1))
    a = np.zeros((2 * pattern.shape[0], 2 * pattern.shape[1]), blocks.dtype)
    for block, i, j in zip(blocks, rows, columns, strict=True):
        a[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = block
    parts = (device.put(blocks), device.put(columns, dtype=index), device.put(offsets, dtype=index))
    return an.SparseMatrix("bsr", a.shape, *parts), a


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, ...]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pattern = draw(st.sampled_from(list(patterns(rng))))
    form, dtype = draw(st.sampled_from(["csr", "csc", "coo", "bsr"])), draw(st.sampled_from(DTYPES))
    return (
        rng, pattern, form, dtype, draw(st.sampled_from(["int32", "int64"])), draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from([0, 1, 3])), draw(st.sampled_from([0.0, 1.0, -2.0])), draw(st.sampled_from(["C", "F"])),
    )  # fmt: skip


@given(problem=problems())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_products(device: an.Device, problem: tuple[Any, ...]) -> None:
    rng, pattern, form, dtype, index, trans, conj, columns, beta, order = problem
    note(f"{form} {dtype} {index}, {pattern.shape}, {trans=} {conj=} {columns=} {beta=} {order=}")
    a = dense(rng, pattern, dtype)
    if form == "bsr":
        matrix, a = blocks_of(device, rng, pattern, dtype, index)
    else:
        matrix = device.sparse.matrix(a, format=form, index_dtype=index)
    wide = op(a.astype("complex128" if "complex" in dtype else "float64"), trans, conj)
    x = values_of(rng, (wide.shape[1], columns) if columns else (wide.shape[1],), dtype)
    y = values_of(rng, (wide.shape[0], *x.shape[1:]), dtype)
    out = device.put(np.asarray(y, order=order), dtype="int32" if dtype == "int8" else dtype)
    alpha = 2.0 if "complex" not in dtype else 2.0 - 1.0j
    send = device.sparse.spmm if columns else device.sparse.spmv
    refused = form == "bsr" and trans
    if refused and device.name.startswith("cuda") and 0 not in (*a.shape, *x.shape, matrix.nnz):
        with pytest.raises(an.Unsupported, match="convert A to csr") as caught:
            send(matrix, device.put(x), trans=trans, conj=conj)
        assert caught.value.rule == "sparse.layout"
        return
    found = send(matrix, device.put(x), alpha=alpha, beta=beta, trans=trans, conj=conj, out=out)
    assert found is out
    want = alpha * (wide @ x.astype(wide.dtype)) + beta * y.astype(wide.dtype)
    size = abs(alpha) * (abs(wide) @ abs(x.astype(wide.dtype))) + abs(beta) * abs(y.astype(wide.dtype))
    hold(found, want, size, dtype)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "complex64"])
def test_arrays_with_gaps(device: an.Device, form: str, trans: bool, dtype: str) -> None:
    """X and out may lie with gaps along both axes; nothing is written between the elements of out."""
    rng = np.random.default_rng(7)
    a = dense(rng, rng.random((5, 9)) < 0.4, dtype)
    wide = op(a.astype("complex128"), trans, False)
    x, y = (values_of(rng, (2 * n + 1, 7), dtype) for n in wide.shape[::-1])
    whole = device.put(y)
    out = whole[1::2, 1::2]
    sparse = device.sparse
    sparse.spmm(sparse.matrix(a, format=form), device.put(x)[1::2, 1::2], beta=-1.0, trans=trans, out=out)
    sums, old = wide @ x[1::2, 1::2], y[1::2, 1::2].astype("complex128")
    hold(out, sums - old, abs(wide) @ abs(x[1::2, 1::2]) + abs(old), dtype)
    found, y[1::2, 1::2] = whole.numpy(), 0
    found[1::2, 1::2] = 0
    assert (found == y).all()


def test_more_elements_than_places(device: an.Device) -> None:
    """The library refuses them: kernels add up duplicates."""
    rows, columns, values = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 0, 0], np.int32), np.arange(1.0, 6.0)
    parts = device.put(values), device.put(columns)
    offsets = device.put(np.array([0, 3, 5], np.int32))
    x = device.put(np.array([1.0, 10.0]))
    coo = an.SparseMatrix("coo", (2, 2), *parts, rows=device.put(rows.astype(np.int32)), ordered=True)
    for matrix in (an.SparseMatrix("csr", (2, 2), *parts, offsets), coo):
        assert device.sparse.spmv(matrix, x).numpy().tolist() == [51, 9]
        assert device.sparse.spmv(matrix, x, trans=True).numpy().tolist() == [91, 5]


def test_conjugates_without_a_transpose(device: an.Device) -> None:
    rng = np.random.default_rng(6)
    a = dense(rng, rng.random((5, 7)) < 0.4, "complex64")
    for form in ("csr", "csc", "coo"):
        for x in (values_of(rng, (7,), "complex64"), values_of(rng, (7, 2), "complex64")):
            matrix = device.sparse.matrix(a, format=form)
            send = device.sparse.spmv if x.ndim == 1 else device.sparse.spmm
            hold(send(matrix, device.put(x), conj=True), a.conj() @ x, abs(a) @ abs(x), "complex64")


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_factors_on_the_device(device: an.Device, form: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    a = dense(rng, rng.random((5, 7)) < 0.4, dtype)
    x, y = values_of(rng, (7,), dtype), values_of(rng, (5,), dtype)
    alpha, beta = (device.put(np.array(f, dtype)) for f in (2, -1))
    for trans in (False, True):
        matrix = device.sparse.matrix(a.T.copy() if trans else a, format=form)
        found = device.sparse.spmv(matrix, device.put(x), alpha_at=alpha, beta_at=beta, trans=trans, out=device.put(y))
        hold(found, 2 * (a @ x) - y, 2 * abs(a) @ abs(x) + abs(y), dtype)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
@pytest.mark.parametrize("beta", [0.0, -1.0])
@pytest.mark.fake_only(dtype=["float16", "complex64"])
def test_sampled_products(device: an.Device, form: str, dtype: str, beta: float) -> None:
    rng = np.random.default_rng(2)
    a = dense(rng, rng.random((6, 9)) < 0.3, dtype)
    matrix = device.sparse.matrix(a, format=form)
    x, y = values_of(rng, (6, 4), dtype), values_of(rng, (4, 9), dtype)
    for turned in (False, True):
        refs = [device.put(np.asarray(z, order="F" if turned else "C")) for z in (x, y)]
        found = device.sparse.sddmm(matrix, *refs, alpha=2.0, beta=beta)
        wide = np.complex128 if "complex" in dtype else np.float64
        want = 2 * (x.astype(wide) @ y.astype(wide)) + beta * a.astype(wide)
        places = matrix.scipy().tocoo()
        rows, columns = places.coords
        size = 2 * abs(x.astype(wide)) @ abs(y.astype(wide)) + abs(a.astype(wide))
        hold(found, want[rows, columns], size[rows, columns], dtype)
        assert (matrix.values.numpy() == a[rows, columns]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.fake_only(dtype=["complex128"])
def test_triangles(device: an.Device, form: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    n = 40
    full = dense(rng, rng.random((n, n)) < 0.2, dtype)
    np.fill_diagonal(full, 4)
    trans = form == "csc"
    matrix = device.sparse.matrix(full, format=form)
    for lower, unit, conj in ((True, False, False), (False, False, True), (True, True, True)):
        half = np.tril(full, -1) if lower else np.triu(full, 1)
        half = half / 8 + (np.eye(n) if unit else 4 * np.eye(n))
        a = device.sparse.matrix(full / 8 + (4 - 0.5) * np.eye(n), format=form, dtype=dtype)
        for b in (values_of(rng, (n,), dtype), values_of(rng, (n, 37), dtype)):
            x = device.sparse.solve_triangular(
                a, device.put(np.asfortranarray(b)), lower=lower, unit=unit, trans=trans, conj=conj, alpha=2.0
            ).numpy()
            wide = op(half, trans, conj).astype("complex128")
            size = abs(wide) @ abs(x) + 2 * abs(b)
            assert (abs(wide @ x - 2 * b) <= tolerance(dtype) * size).all()
    assert matrix.nnz == (full != 0).sum()


def test_what_is_not_stored_is_not_multiplied(device: an.Device) -> None:
    """NaN and infinities of x reach the rows with an element in their column, and no others; beta=0 reads no NaN."""
    a = device.sparse.matrix(np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    x = device.put(np.array([np.nan, 3.0, np.inf]))
    out = device.full((3,), np.nan, dtype="float64")
    found = device.sparse.spmv(a, x, out=out).numpy()
    assert np.isnan(found[0])
    assert found[1:].tolist() == [6.0, 0.0]
    explicit = a.with_values(device.zeros((2,), "float64"))  # what is stored counts, even a zero
    assert np.isnan(device.sparse.spmv(explicit, x).numpy()[0])


def test_zeros_on_a_diagonal_give_infinities(device: an.Device) -> None:
    a = device.sparse.matrix(np.array([[1.0, 0.0], [1.0, 0.0]]))
    found = device.sparse.solve_triangular(a, device.put(np.array([1.0, 3.0]))).numpy()
    assert found[0] == 1
    assert np.isinf(found[1])


def test_new_indices_need_no_new_plan(device: an.Device) -> None:
    """Nothing is kept of a pattern: index arrays that are written give the products and solves of the new pattern."""
    sparse = device.sparse
    a = sparse.matrix(np.array([[2.0, 0.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 2.0]]))
    b = device.put(np.array([2.0, 4.0, 6.0]))
    assert sparse.solve_triangular(a, b).numpy().tolist() == [1, 1.5, 3]
    assert sparse.spmv(a, b).numpy().tolist() == [4, 10, 12]
    device.put(np.array([0, 1, 0, 2], np.int32), out=a.indices)
    device.put(np.array([0, 1, 2, 4], np.int32), out=a.offsets)
    want = np.array([[2.0, 0, 0], [0, 1, 0], [2, 0, 2]])
    assert sparse.spmv(a, b).numpy().tolist() == (want @ [2, 4, 6]).tolist()
    assert sparse.solve_triangular(a, b).numpy().tolist() == [1, 4, 2]


def test_equal_bits_where_they_are_asked_for(device: an.Device) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal((200, 200)) * (rng.random((200, 200)) < 0.3)
    x = rng.standard_normal(200)
    for form in ("csr", "coo"):
        matrix = device.sparse.matrix(a, format=form)
        for ref in (device.put(x), device.put(np.stack((x, x), 1))):
            send = device.sparse.spmv if ref.ndim == 1 else device.sparse.spmm
            first = send(matrix, ref, deterministic=True).numpy()
            assert all((send(matrix, ref, deterministic=True).numpy() == first).all() for _ in range(3))
    if device.name.startswith("cuda"):
        with pytest.raises(an.Unsupported, match="store A as csc") as caught:
            device.sparse.spmv(device.sparse.matrix(a), device.put(x), trans=True, deterministic=True)
        assert caught.value.rule == "sparse.deterministic"


def test_eight_actors_give_equal_bits(device: an.Device) -> None:
    """Eight lanes at once, whose messages nothing orders."""
    rng = np.random.default_rng(5)
    n = 96
    a = np.where(rng.random((n, n)) < 0.2, rng.standard_normal((n, n)), 0) + 4 * np.eye(n)
    matrix, other = device.sparse.matrix(a), device.sparse.matrix(a + a.T)
    x, wide = device.put(rng.standard_normal(n)), device.put(rng.standard_normal((n, 5)))
    pattern = device.sparse.matmul_pattern(matrix, other)
    sends = [
        lambda actor: actor.spmv(matrix, x, deterministic=True),
        lambda actor: actor.spmm(matrix, wide, deterministic=True),
        lambda actor: actor.sddmm(matrix, wide, wide.T),
        lambda actor: actor.semiring(matrix, x, multiply=np.multiply, add=np.add, start=0.0),
        lambda actor: actor.solve_triangular(matrix, x),
        lambda actor: actor.ilu0(matrix).values,
        lambda _actor: pattern.tell(matrix.values, other.values).values,
    ]
    actors = [an.Sparse(device, f"eight-{i}") for i in range(8)]
    for send in sends:
        found = [send(actor) for _ in range(2) for actor in actors]
        for one in found[1:]:
            np.testing.assert_array_equal(one.numpy(), found[0].numpy())


def test_a_deterministic_system_chooses_so_for_all(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System(deterministic=True) as system:
        device = system.device("cuda:0")
        a, x = device.sparse.matrix(np.eye(3)), device.ones(3, "float64")
        assert device.sparse.spmv(a, x).numpy().tolist() == [1, 1, 1]
        with pytest.raises(an.Unsupported, match="deterministic=True store A as csc"):
            device.sparse.spmv(a, x, trans=True)


def test_plans_and_replies(device: an.Device) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((6, 6)) * (rng.random((6, 6)) < 0.5)
    matrix, x = device.sparse.matrix(a), rng.standard_normal((6,))
    given = {"format": "csr", "shape": (6, 6), **matrix.arrays}
    request = an.SparseProductRequest(routine="spmv", **given, x=device.put(x), out=device.zeros((6,), "float64"))
    plan, out = device.sparse.plan(request), device.zeros((6,), "float64")
    plan.ask(*matrix.arrays.values(), device.put(2 * x), out=out, alpha=0.5).result(30)
    np.testing.assert_allclose(out.numpy(), a @ x, atol=1e-12)
    np.testing.assert_allclose(device.sparse.ask(request).result(30).numpy(), a @ x, atol=1e-12)
