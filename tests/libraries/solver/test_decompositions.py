"""QR, singular values and eigenvalues: backward errors, orthogonality, layouts, batches, and what has no result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from fake_cuda import using
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solver_checks import DTYPES, LAYOUTS, check, hermitian, lent, library_route, matrices, op, put, size, wide

import atomr_native as an

SHAPES = ((1, 1), (4, 4), (7, 3), (3, 7), (1, 5), (5, 1), (33, 32))


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


@pytest.fixture
def fake_device(fake_environment: dict[str, str]) -> Iterator[an.Device]:
    with using(fake_environment), an.System() as made:
        yield made.device("cuda:0")


def orthonormal(q: np.ndarray, dtype: str, *, rows: bool = False) -> None:
    q = op(wide(q), True, True) if rows else wide(q)
    check(op(q, True, True) @ q - np.eye(q.shape[-1]), 1, dtype)


def close(found: np.ndarray, wanted: np.ndarray, scale: Any, dtype: str) -> None:
    """Hold real values to Weyl's bound."""
    bound = 32 * max(1, found.shape[-1]) * np.finfo(dtype).eps * np.asarray(scale)[..., None]
    assert (abs(wide(found) - wanted) <= bound).all()


def verify(device: an.Device, routine: str, a: np.ndarray, options: dict[str, Any], layouts: tuple[Any, Any]) -> None:
    """Send a decomposition and hold its result against its definition."""
    dtype, (of_a, of_out) = str(a.dtype), layouts
    m, n = a.shape[-2:]
    options = {**options, "route": library_route(routine, a)}
    request = an.DecompositionRequest(routine=routine, a=put(device, a, of_a), **options)
    if of_out is not None:  # its outputs, in a layout
        given_outputs = {
            o.name: lent(device, o.spec.shape, o.spec.dtype, of_out)
            for o in request.lowered.operands
            if o.given is None and o.name in ("q", "r", "packed", "tau_out", "u", "s", "vh", "w", "v")
        }
        request = an.DecompositionRequest(routine=routine, a=request.a, **given_outputs, **options)
    found = device.solver.tell(request)
    if routine == "qr":
        q, r = wide(found.Q.numpy()), wide(found.R.numpy())
        assert q.shape[-1] == (m if options["mode"] == "complete" else min(m, n))
        assert (np.tril(r, -1) == 0).all()
        orthonormal(q, dtype)
        check(q @ r - wide(a), size(wide(a)), dtype)
    elif routine == "svd":
        u, s, vh = wide(found.U.numpy()), found.S.numpy(), wide(found.Vh.numpy())
        assert u.shape[-1] == (m if options["mode"] == "complete" else min(m, n))
        assert vh.shape[-2] == (n if options["mode"] == "complete" else min(m, n))
        orthonormal(u, dtype)
        orthonormal(vh, dtype, rows=True)
        k = min(m, n)
        check((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - wide(a), size(wide(a)), dtype)
        close(s, np.linalg.svd(wide(a), compute_uv=False), size(wide(a)), dtype)
    elif routine == "svdvals":
        close(found.numpy(), np.linalg.svd(wide(a), compute_uv=False), size(wide(a)), dtype)
    else:
        half = np.tril(a, -1) if options["lower"] else np.triu(a, 1)
        whole = wide(half + op(half, True, True) + a.real * np.eye(n))
        w = (found if routine == "eigvalsh" else found.eigenvalues).numpy()
        close(w, np.linalg.eigvalsh(whole), size(whole), dtype)
        if routine == "eigh":
            v = wide(found.eigenvectors.numpy())
            orthonormal(v, dtype)
            check(whole @ v - v * w[..., None, :], size(whole), dtype)


def options_of(routine: str, number: int) -> dict[str, Any]:
    if routine in ("qr", "svd"):
        return {"mode": ("reduced", "complete")[number % 2]}
    return {"lower": bool(number % 2)} if routine.startswith("eig") else {}


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, ...]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    routine, dtype = draw(st.sampled_from(["qr", "svd", "svdvals", "eigh", "eigvalsh"])), draw(st.sampled_from(DTYPES))
    m, n = draw(st.sampled_from(SHAPES))
    batch = draw(st.sampled_from([(), (), (3,), (2, 2)])) if m * n < 100 else ()
    a = matrices(rng, (*batch, m, m if routine.startswith("eig") else n), dtype)
    layouts = draw(st.sampled_from(LAYOUTS)), draw(st.sampled_from([None, *LAYOUTS]))
    return routine, a, options_of(routine, draw(st.integers(0, 1))), layouts


@given(problem=problems())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_decompositions(device: an.Device, problem: tuple[Any, ...]) -> None:
    verify(device, *problem)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("routine", ["qr", "svd", "svdvals", "eigh", "eigvalsh"])
def test_every_decomposition_of_every_type_and_layout(device: an.Device, routine: str, dtype: str) -> None:
    """Each layout with each dtype, and with each shape and option of some dtype."""
    rng = np.random.default_rng(0)
    shapes = [(5, 5)] if routine.startswith("eig") else [(5, 3), (3, 5)]
    cases = [(shape, n) for shape in shapes for n in range(2) if n == 0 or options_of(routine, n)]
    cases *= 4 // len(cases)
    for turn, layouts in enumerate((("rows", None), ("columns", "rows"), ("apart", "columns"), ("wider", "apart"))):
        shape, number = cases[(turn + DTYPES.index(dtype)) % 4]
        verify(device, routine, matrices(rng, (2, *shape), dtype), options_of(routine, number), layouts)


@pytest.mark.parametrize(
    ("dtype", "m", "n"),
    [("float32", 6, 4), ("float64", 4, 6), ("complex64", 5, 5), ("complex128", 6, 4), ("complex64", 4, 6)],
)
def test_q_is_applied_without_being_made(device: an.Device, dtype: str, m: int, n: int) -> None:
    rng = np.random.default_rng(1)
    solver, a = device.solver, matrices(rng, (2, m, n), dtype)
    ref = device.put(a)
    packed, tau = solver.qr_factor(ref)
    q = wide(solver.qr(ref, mode="complete").Q.numpy())
    upper = np.triu(wide(packed.numpy()))
    check(q @ upper - wide(a), size(wide(a)), dtype)
    assert (solver.qr(ref, mode="r").numpy() == np.triu(packed.numpy())[:, : min(m, n)]).all()
    c = matrices(rng, (2, m, 3), dtype)
    for layout in LAYOUTS:
        for adjoint in (False, True):
            factor = op(q, adjoint, adjoint)
            operands = put(device, packed.numpy(), layout)[..., :m], tau, put(device, c, layout)
            found = solver.qr_multiply(*operands, adjoint=adjoint)
            check(wide(found.numpy()) - factor @ wide(c), size(wide(c)), dtype)
            turned, out = op(c, True, False), lent(device, (2, 3, m), dtype, layout)
            right = device.put(np.ascontiguousarray(turned))
            assert solver.qr_multiply(packed[..., :m], tau, right, right=True, adjoint=adjoint, out=out) is out
            check(wide(out.numpy()) - wide(turned) @ factor, size(wide(c)), dtype)
    one = solver.qr_multiply(packed[0, :, :m], tau[0], device.put(c))  # batches broadcast
    check(wide(one.numpy()) - q[0] @ wide(c), size(wide(c)), dtype)


def test_awkward_matrices(device: an.Device) -> None:
    rng = np.random.default_rng(2)
    low = rng.standard_normal((8, 2)) @ rng.standard_normal((2, 6))
    wilkinson = np.diag(abs(np.arange(-10.0, 11))) + np.eye(21, k=1) + np.eye(21, k=-1)
    turn = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    clustered = turn @ np.diag([1, 1, 1, 1 + 1e-14, 1 + 1e-13, 2, 2, 2, -5]) @ turn.T
    for a in (scipy.linalg.hilbert(10), low, low.T, np.zeros((4, 3)), np.ones((3, 4)), wilkinson, clustered):
        for routine in ("qr", "svd", "eigh"):
            if routine != "eigh" or a.shape[0] == a.shape[1]:
                for number in range(2):
                    verify(device, routine, a, options_of(routine, number), ("rows", None))
    tiny = np.full((3, 2), 1e-310)
    assert np.isfinite(device.solver.svdvals(device.put(tiny)).numpy()).all()


def test_empty_matrices_and_batches(device: an.Device) -> None:
    solver = device.solver
    for shape in ((3, 0), (0, 3), (0, 0), (2, 3, 0), (0, 4, 3)):
        a = device.zeros(shape, "float32")
        m, n = shape[-2:]
        for mode in ("reduced", "complete"):
            (q, r), (u, s, vh) = solver.qr(a, mode=mode), solver.svd(a, mode=mode)
            k = m if mode == "complete" else min(m, n)
            assert q.numpy().shape == u.numpy().shape == (*shape[:-2], m, k)
            assert r.numpy().shape == (*shape[:-2], k, n)
            assert s.numpy().shape == (*shape[:-2], min(m, n))
            for basis in (q, u, vh.mT):
                assert (basis.numpy() == np.eye(*basis.shape[-2:])).all()
        packed, tau = solver.qr_factor(a)
        assert (packed.numpy().shape, tau.numpy().shape) == (shape, (*shape[:-2], min(m, n)))
    w, v = solver.eigh(device.zeros((2, 0, 0), "complex64"))
    assert (w.numpy().shape, v.numpy().shape) == ((2, 0), (2, 0, 0))
    c = device.put(np.ones((3, 2)))
    assert (solver.qr_multiply(device.zeros((3, 0), "float64"), device.zeros((0,), "float64"), c).numpy() == 1).all()
    values, info = solver.svdvals(device.zeros((2, 0, 3)), check=False)
    assert values.shape == (2, 0)
    assert (info.numpy() == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_matrices_that_are_not_finite(device: an.Device, value: float) -> None:
    """Their results are NaN, those of the others of the batch are not."""
    solver, rng = device.solver, np.random.default_rng(3)
    a = hermitian(rng.standard_normal((3, 4, 4)))
    a[1, 2, 0] = value
    ref = device.put(a)
    found = [*solver.qr(ref), *solver.qr_factor(ref), *solver.svd(ref), *solver.eigh(ref)]
    found += [solver.svdvals(ref), solver.eigvalsh(ref), solver.pinv(ref)]
    for result in found:
        x = result.numpy()
        assert np.isnan(x[1]).all()
        assert np.isfinite(x[::2]).all()
    assert np.isfinite(solver.eigvalsh(ref, lower=False).numpy()).all()  # it is in the triangle that is not read


def test_an_iteration_without_an_end_is_an_error(fake_device: an.Device) -> None:
    """The fake library's never ends for this first element."""
    device = fake_device
    a = np.stack([np.eye(3)] * 4)
    a[2, 0, 0] = 12345678.0
    ref = device.put(a)
    for routine in ("svd", "svdvals", "eigh", "eigvalsh"):
        send = partial(an.DecompositionRequest, routine=routine, a=ref, route=library_route(routine, a))
        found = device.solver.tell(send())
        first = found[0] if isinstance(found, tuple) else found
        with pytest.raises(an.NotConverged, match=r"at index \(2,\) .* did not converge \(info 3\)") as caught:
            first.numpy()
        assert (caught.value.index, caught.value.info, caught.value.count) == ((2,), 3, 1)
        first, *_, info = device.solver.tell(send(check=False))
        assert info.numpy().tolist() == [0, 0, 3, 0]
        assert np.isnan(first.numpy()[2]).all()
        assert np.isfinite(first.numpy()[[0, 1, 3]]).all()


def test_batches_of_eigenvalues_go_by_dtype(cuda_system: an.System) -> None:
    """In one call, but for complex64, of which the library's results were wrong."""
    device = cuda_system.device("cuda:0")
    for dtype in DTYPES:
        a = device.put(hermitian(matrices(np.random.default_rng(4), (3, 4, 4), dtype)))
        plan = device.solver.plan(an.DecompositionRequest(routine="eigh", a=a, route=library_route("eigh", a))).wait(60)
        one = "3 matrices in 1 call of syevBatched" in plan.notes
        assert one == (dtype != "complex64")
        out = lent(device, (3, 4, 4), dtype, "wider")  # with gaps between columns
        request = an.DecompositionRequest(routine="eigh", a=a, v=out, route="loop")
        assert "v_work" in device.solver.scratch(request)


@pytest.mark.parametrize(("limit", "words"), [(16384, r"4 calls of syevBatched"), (12620, "200 calls of syevd")])
def test_batches_beyond_the_workspace_go_in_groups(fake_environment: dict[str, str], limit: int, words: str) -> None:
    a = hermitian(np.random.default_rng(7).standard_normal((200, 4, 4)))
    a[130, 0, 0] = 12345678.0
    with using(fake_environment), an.System(workspace_limit=limit) as system:
        device = system.device("cuda:0")
        request = an.DecompositionRequest(routine="eigvalsh", a=device.put(a), check=False, route="batched")
        assert words in " ".join(device.solver.plan(request).wait(60).notes)
        w, info = device.solver.tell(request)
        assert np.flatnonzero(info.numpy()).tolist() == [130]
        good = np.delete(np.arange(200), 130)
        np.testing.assert_allclose(w.numpy()[good], np.linalg.eigvalsh(a[good]), rtol=1e-10)


def test_outputs_plans_and_replies(device: an.Device) -> None:
    a = np.random.default_rng(5).standard_normal((3, 5))
    ref, s = device.put(a), device.zeros((3,), "float64")
    found = device.solver.svd(ref, s=s)
    assert found.S is s
    request = an.DecompositionRequest(routine="svdvals", a=ref, s=s, route="loop")
    scratch = device.solver.scratch(request)
    assert list(scratch) == ["factor"]
    device.solver.plan(request).ask(device.put(2 * a), s=s, **scratch).result(30)
    np.testing.assert_allclose(s.numpy(), 2 * np.linalg.svd(a, compute_uv=False), rtol=1e-12)
    assert isinstance(device.solver.ask(an.DecompositionRequest(routine="qr", a=ref)).result(30), an.QRResult)
