"""Batches of small matrices, in one kernel: against bounds in float64, on the awkward list, and their routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from cuda_emulate import Emulator, available
from solver_checks import DTYPES, LAYOUTS, check, hermitian, lent, matrices, op, put, size, wide

import atomr_native as an
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.builders.cuda.target import KernelProgram, Launch
from atomr_native.libraries.solver.cuda.small import jacobi
from atomr_native.libraries.solver.route_figures import FIGURES, Point
from atomr_native.libraries.solver.routes import KNOWN_WRONG, ROUTES

SOLVES = ("cholesky", "lu_factor", "solve", "inv")
DECOMPOSITIONS = ("qr", "qr_factor", "svd", "svdvals", "eigh", "eigvalsh")
#: Extents beside those that the parametrised tests have.
SIZES = (1, 32)


@pytest.fixture(scope="module")
def device(cuda: an.Device) -> an.Device:
    return cuda


def request_of(routine: str, **options: Any) -> Any:
    kind = an.DecompositionRequest if routine in DECOMPOSITIONS else an.SolverRequest
    return kind(routine=routine, **options)


def sent(device: an.Device, routine: str, **options: Any) -> list[np.ndarray]:
    """Send a routine by its kernel; return its results."""
    found = device.solver.tell(request_of(routine, route="kernel", **options))
    return [x.numpy() for x in (found if isinstance(found, tuple) else (found,)) if x is not None]


def awkward(n: int, dtype: str) -> np.ndarray:
    """Return square matrices that are hard, or have exact answers; one of each kind."""
    rng = np.random.default_rng(n)
    i = np.arange(n)
    q = scipy.linalg.qr(matrices(rng, (n, n), "complex128" if dtype.startswith("complex") else "float64"))[0]
    spread = np.logspace(0, -12, n) if n > 1 else np.ones(1)
    close = 1 + (i // 2) * 1e-9
    wilkinson = np.diag(abs(i - n // 2).astype(float)) + np.eye(n, k=1) + np.eye(n, k=-1)
    kinds = [
        matrices(rng, (n, n), dtype), scipy.linalg.hilbert(n), wilkinson, np.eye(n), np.zeros((n, n)), np.ones((n, n)),
        (q * spread) @ op(q, True, True), (q * close) @ op(q, True, True),
        (q * np.where(i % 2, -1, 1)) @ op(q, True, True),
        np.triu(np.ones((n, n))), 1e30 * q, 1e-30 * q, np.diag(np.logspace(0, -30, n) if n > 1 else [1.0]),
        np.full((n, n), 1e-40 if dtype in ("float32", "complex64") else 1e-310),
    ]  # fmt: skip
    return np.stack([np.asarray(x).astype(dtype) for x in kinds])


def verify_decomposition(device: an.Device, routine: str, a: np.ndarray, **options: Any) -> None:
    dtype = str(a.dtype)
    whole = wide(a)
    scale = size(whole) + np.finfo(dtype).tiny
    layout = options.pop("layout", "rows")
    found = [wide(x) for x in sent(device, routine, a=put(device, a, layout), **options)]
    eye = np.eye(max(a.shape[-2:]))
    if routine == "qr":
        q, r = found
        assert (np.tril(r, -1) == 0).all()
        check(op(q, True, True) @ q - eye[: q.shape[-1], : q.shape[-1]], 1, dtype)
        check((q @ r - whole) / scale[..., None, None], 1, dtype)
    elif routine == "qr_factor":
        packed, tau = device.solver.tell(request_of("qr_factor", route="kernel", a=put(device, a, layout)))
        q = wide(device.solver.qr_multiply(packed, tau, device.put(np.eye(a.shape[-2]).astype(dtype))).numpy())
        check((q @ np.triu(wide(packed.numpy())) - whole) / scale[..., None, None], 1, dtype)
    elif routine in ("svd", "svdvals"):
        s = found[1 if routine == "svd" else 0].real
        want = np.linalg.svd(whole, compute_uv=False)
        assert (abs(s - want) <= 32 * max(a.shape[-2:]) * np.finfo(dtype).eps * scale[..., None]).all()
        assert (np.diff(s) <= 0).all()
        if routine == "svd":
            u, _, vh = found
            k = s.shape[-1]
            check(op(u, True, True) @ u - eye[:k, :k], 1, dtype)
            check(vh @ op(vh, True, True) - eye[:k, :k], 1, dtype)
            check(((u * s[..., None, :]) @ vh - whole) / scale[..., None, None], 1, dtype)
    else:
        half = np.tril(whole, -1) if options.get("lower", True) else np.triu(whole, 1)
        whole = half + op(half, True, True) + whole.real * np.eye(a.shape[-1])
        scale = size(whole) + np.finfo(dtype).tiny
        w = found[0].real
        assert (abs(w - np.linalg.eigvalsh(whole)) <= 32 * w.shape[-1] * np.finfo(dtype).eps * scale[..., None]).all()
        assert (np.diff(w) >= 0).all()
        if routine == "eigh":
            v = found[1]
            check(op(v, True, True) @ v - eye, 1, dtype)
            check((whole @ v - v * w[..., None, :]) / scale[..., None, None], 1, dtype)


@pytest.mark.parametrize(
    ("routine", "dtype"),
    [
        *((routine, dtype) for routine in ("qr", "svd", "eigh") for dtype in DTYPES),
        ("qr_factor", "complex64"), ("svdvals", "complex128"), ("eigvalsh", "float32"),
    ],
)  # fmt: skip
def test_decompositions_of_awkward_matrices(device: an.Device, routine: str, dtype: str) -> None:
    n = 6 if dtype in ("float32", "complex128") else 5
    verify_decomposition(device, routine, awkward(n, dtype))


@pytest.mark.parametrize("routine", ["qr", "svd", "eigh"])
@pytest.mark.parametrize("n", SIZES)
def test_decompositions_of_every_extent(device: an.Device, routine: str, n: int) -> None:
    verify_decomposition(device, routine, awkward(n, "float32")[: 9 if n == 32 else None])


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (1, 4)])
def test_matrices_that_are_not_square(device: an.Device, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    for dtype in ("float64", "complex64"):
        a = matrices(rng, (5, *shape), dtype)
        a[1] = 0
        a[2] = np.outer(a[2, :, 0], a[2, 0])  # of rank 1
        for layout in ("columns", "apart"):
            verify_decomposition(device, "svd", a, layout=layout)
        verify_decomposition(device, "qr", a, mode="complete")
        if dtype == "complex64":
            continue
        verify_decomposition(device, "qr", a, layout="wider")
        r = wide(sent(device, "qr", a=device.put(a), mode="r")[0])
        check(op(r, True, True) @ r - op(wide(a), True, True) @ wide(a), size(wide(a)) ** 2, dtype)


def verify_solve(
    device: an.Device, routine: str, a: np.ndarray, b: Any, layouts: tuple[Any, Any], **options: Any
) -> None:
    dtype, (of_a, of_out) = str(a.dtype), layouts
    n = a.shape[-1]
    refs: dict[str, Any] = {"a": put(device, a, of_a)}
    if routine == "solve":
        refs["b"] = put(device, b, of_a)
    if of_out is not None:
        refs["out"] = lent(device, b.shape if routine == "solve" else a.shape, dtype, of_out)
    found = sent(device, routine, **refs, **options)
    x = wide(found[0])
    if options.get("assume") or routine == "cholesky":
        half = np.tril(a, -1) if options["lower"] else np.triu(a, 1)
        a = half + op(half, True, True) + a * np.eye(n)
    if routine == "cholesky":
        product = x @ op(x, True, True) if options["lower"] else op(x, True, True) @ x
        assert ((np.tril(x) if options["lower"] else np.triu(x)) == x).all()
        check(product - wide(a), size(wide(a)), dtype)
    elif routine == "lu_factor":
        pivots = found[1]
        for index in np.ndindex(*a.shape[:-2]):
            p, left, u = scipy.linalg.lu(wide(a[index]))
            check(np.tril(x[index], -1) + np.eye(n) - left, 1e3 * size(left), dtype)
            rows = np.arange(n)
            for i, other in enumerate(pivots[index]):
                rows[[i, other]] = rows[[other, i]]
            assert (np.eye(n)[:, rows] == p).all()
            check(np.triu(x[index]) - u, 1e3 * size(u), dtype)
    else:
        b = np.broadcast_to(np.eye(n), a.shape) if routine == "inv" else b
        check(wide(a) @ x - wide(b), size(wide(a)) * size(x) + size(wide(b)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("routine", SOLVES)
def test_solves_of_every_type_and_layout(device: an.Device, routine: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    n = 7
    general = matrices(rng, (2, 3, n, n), dtype)
    positive = hermitian(general)
    b = matrices(rng, (2, 3, n, 11), dtype)  # more columns than are solved at once
    lower = DTYPES.index(dtype) % 2 == 0
    for number, layout in enumerate(LAYOUTS):
        layouts = layout, (None, *LAYOUTS)[number % 3]
        if routine != "cholesky":
            verify_solve(device, routine, general, b, layouts)
        if routine != "lu_factor":
            extra = {} if routine == "cholesky" else {"assume": "positive_definite"}
            verify_solve(device, routine, positive, b, layouts, lower=lower, **extra)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_columns_that_follow_each_other_are_read_and_written_by_rows_of_lanes(device: an.Device, dtype: str) -> None:
    """The number of matrices is no multiple of those of a block; one is singular, and one has a NaN."""
    rng = np.random.default_rng(7)
    for n in (8, 31, 32):
        a = matrices(rng, (7, n, n), dtype) + 4 * np.eye(n, dtype=dtype)
        a[:, [0, n - 1]] = a[:, [n - 1, 0]]  # rows change places
        for routine in ("lu_factor", "inv"):
            for layouts in (("columns", "columns"), ("columns", "rows"), ("rows", "columns")):
                verify_solve(device, routine, a, None, layouts)
        verify_solve(device, "solve", a, matrices(rng, (7, n, 3), dtype), ("columns", "columns"))
        bad = a.copy()
        bad[2, :, 3], bad[5, 1, 4] = 0, np.nan
        out = lent(device, bad.shape, dtype, "columns")
        x, info = sent(device, "inv", a=put(device, bad, "columns"), out=out, check=False)
        assert info.tolist() == [0, 0, 4, 0, 0, 0, 0]
        assert np.isnan(x[[2, 5]]).all()
        assert np.isfinite(x[[0, 1, 3, 4, 6]]).all()


@pytest.mark.parametrize("n", SIZES)
def test_solves_of_every_extent(device: an.Device, n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = matrices(rng, (5, n, n), "float64"), matrices(rng, (5, n, 2), "float64")
    for routine in SOLVES:
        lower = {"lower": True} if routine == "cholesky" else {}
        verify_solve(device, routine, hermitian(a) if lower else a, b, ("rows", None), **lower)
    x = sent(device, "solve", a=device.put(a), b=device.put(b[0, :, 0]))[0]  # a vector for all
    np.testing.assert_allclose(a @ x[..., None], np.broadcast_to(b[0, :, :1], (5, n, 1)), atol=1e-9)


def test_lu_of_matrices_that_are_not_square(device: an.Device) -> None:
    for m, n in ((5, 3), (3, 5)):
        a = np.random.default_rng(2).standard_normal((4, m, n))
        lu, pivots = sent(device, "lu_factor", a=device.put(a))
        for i in range(4):
            want = scipy.linalg.get_lapack_funcs("getrf", dtype=np.dtype("float64"))(a[i])
            np.testing.assert_allclose(lu[i], want[0], atol=1e-12)
            assert (pivots[i] == want[1]).all()


def test_many_matrices_of_which_few_fail(device: an.Device) -> None:
    """The first failure is named, whichever block finds it; the others' results are those of matrices alone."""
    a = hermitian(np.random.default_rng(3).standard_normal((5000, 3, 3)))
    a[[4999, 777, 3000]] = np.diag([1.0, -1.0, 1.0])
    for send, kind, info in (
        (device.solver.cholesky, an.NotPositiveDefinite, 2),
        (lambda x, **o: device.solver.inv(x, assume="positive_definite", **o), an.NotPositiveDefinite, 2),
    ):
        found = send(device.put(a))
        with pytest.raises(kind, match=r"at index \(777,\)") as caught:
            found.numpy()
        assert (caught.value.index, caught.value.info, caught.value.count) == ((777,), info, 3)
        found, numbers = send(device.put(a), check=False)
        assert np.flatnonzero(numbers.numpy()).tolist() == [777, 3000, 4999]
        assert np.flatnonzero(np.isnan(found.numpy()).all((1, 2))).tolist() == [777, 3000, 4999]
    a[2000] = 0
    x, numbers = device.solver.solve(device.put(a), device.put(np.ones((3, 1))), check=False)
    assert np.flatnonzero(numbers.numpy()).tolist() == [2000]
    assert np.isnan(x.numpy()[2000]).all()
    lu, pivots, numbers = device.solver.lu_factor(device.put(a), check=False)
    assert (lu.numpy()[2000] == 0).all()  # factors of a singular matrix are its factors
    assert numbers.numpy()[2000] == 1
    assert pivots.numpy().min() == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_results_that_are_no_numbers(device: an.Device, value: float) -> None:
    a = hermitian(np.random.default_rng(4).standard_normal((9, 4, 4)))
    a[3, 2, 0] = value
    ref = device.put(a)
    for routine in DECOMPOSITIONS:
        for x in sent(device, routine, a=ref):
            assert np.isnan(x[3]).all()
            assert np.isfinite(np.delete(x, 3, 0)).all()
    assert np.isfinite(sent(device, "eigvalsh", a=ref, lower=False)[0]).all()  # in the triangle that is not read
    assert np.isfinite(sent(device, "cholesky", a=ref, lower=False)[0]).all()
    if value != value:
        for routine, others in (("lu_factor", {}), ("inv", {}), ("solve", {"b": device.put(np.ones((4, 1)))})):
            x = sent(device, routine, a=ref, **others)[0]
            assert np.isnan(x[3]).all()
            assert np.isfinite(np.delete(x, 3, 0)).all()


def test_an_iteration_without_an_end_is_counted(tmp_path: Path) -> None:
    """Of two sweeps at most: diagonal matrices have converged then, another has not."""
    if reason := available():
        pytest.skip(reason)
    text, lanes, threads = jacobi.eigh("float64", 6, vectors=False)
    assert "SWEEPS = 30" in text
    a = hermitian(np.random.default_rng(5).standard_normal((4, 6, 6)))
    a[[0, 2, 3]] = np.diag(np.arange(6.0))
    w, infos = np.zeros((4, 6)), np.zeros(4, np.int32)
    words = np.full(4, -1, np.int32)
    numbers = (4, 1, 4, 6, 1, 0, 0, 36, 0, 0, 0, 0, 0, 1, 0, 0, 6, 0, 0, 1, 1, 1, 5)
    arguments = (*(("operand", i) for i in (0, 0, 1, 2, 3)), *(("uint64", x) for x in numbers))
    launches = (Launch("small", (1, 1, 1), (threads, 1, 1), 0, arguments),)
    source = prelude(("float64",), ()) + text.replace("SWEEPS = 30", "SWEEPS = 2")
    assert lanes == 8
    Emulator(tmp_path).run(KernelProgram(b"", launches, source=source), (a, w, infos, words))
    assert infos.tolist() == [0, 6, 0, 0]
    assert words.tolist() == [6, ~1, 1, -1]  # info, the place counted down, how many
    assert np.isnan(w[1]).all()
    assert (w[[0, 2, 3]] == np.arange(6)).all()


def test_qr_of_small_matrices_is_captured(device: an.Device) -> None:
    """It cannot fail: two of them are one graph."""
    a = np.random.default_rng(6).standard_normal((5, 4, 4))
    first, second = device.put(a), device.put(2 * a)
    with device.record() as recording:
        x = device.solver.qr(recording.operand("a", first), mode="r")
        y = device.solver.qr(second, mode="r")
    for number in (1.0, 3.0):
        recording.plan.ask(device.put(number * a)).result(60)
        np.testing.assert_allclose(2 * x.numpy(), number * y.numpy(), rtol=1e-12, atol=1e-12)
    assert recording.plan.replays.launched > 0


def test_routes_come_from_a_table(cuda_system: an.System, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the extents and the batch, unless the request names one; the plan's notes say which."""
    device = cuda_system.device("cuda:0")
    for routine in ("cholesky", "eigh", "inv"):
        monkeypatch.setitem(FIGURES, routine, (Point(8, 4, 1, 2, 3), Point(40, 4, 0, 2, 3)))

    def notes(routine: str, shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> str:
        request = request_of(routine, a=device.zeros(shape, dtype), **options)
        return " ".join(device.solver.plan(request).wait(60).notes)

    assert "4 matrices in one kernel, 8 lanes each" in notes("cholesky", (4, 5, 5))
    assert "4 matrices in one call of potrfBatched" in notes("cholesky", (4, 33, 33))
    assert "4 matrices in one call of potrfBatched" in notes("cholesky", (4, 5, 5), route="batched")
    assert "4 calls of potrf" in notes("cholesky", (4, 5, 5), route="loop")
    assert "kernel" not in notes("cholesky", (5, 5))
    assert "one kernel" in notes("cholesky", (5, 5), route="kernel")
    assert "syevBatched" in notes("eigh", (4, 33, 33))
    assert "4 calls of gesvd" in notes("svd", (4, 5, 3), mode="complete")
    request = an.SolverRequest(routine="inv", a=device.zeros((4, 5, 5)))
    assert device.solver.scratch(request) == {}


@pytest.mark.parametrize(
    ("routine", "shape", "options", "words"),
    [
        ("cholesky", (2, 33, 33), {"route": "kernel"}, "at most 32 rows and columns.*allowed: batched, loop"),
        ("cholesky", (2, 3, 3), {"route": "fast"}, "route='fast'; allowed: kernel, batched, loop"),
        ("cholesky", (2, 3, 3), {"route": 1}, "route=1"),
        ("svd", (2, 3, 4), {"route": "batched"}, "svd has no such route; allowed: kernel, loop"),
        ("svd", (2, 3, 4), {"route": "kernel", "mode": "complete"}, "min.m, n. columns"),
        ("lu_factor", (2, 3, 4), {"route": "batched"}, "square"),
        ("eig", (2, 3, 3), {"route": "loop"}, "one way: omit it"),
    ],
)
@pytest.mark.plain
def test_routes_that_a_matrix_cannot_take(routine: str, shape: Any, options: dict[str, Any], words: str) -> None:
    kind = an.DecompositionRequest if routine in (*DECOMPOSITIONS, "eig") else an.SolverRequest
    with pytest.raises(an.InvalidRequest, match=words):
        kind(routine=routine, a=np.zeros(shape), **options).lowering()


@pytest.mark.plain
def test_known_wrong_results_are_avoided() -> None:
    """No batch takes such a route by the table, and none that asks for it."""
    assert KNOWN_WRONG
    for routine, dtype, route in KNOWN_WRONG:
        for n in (3, 33):
            a = np.zeros((4, n, n), dtype)
            assert request_of(routine, a=a).lowering().attributes.route != route
            with pytest.raises(an.InvalidRequest, match=r"pytorch#\d+"):
                request_of(routine, a=a, route=route).lowering()
    assert set(ROUTES) >= {routine for routine, _, _ in KNOWN_WRONG}
