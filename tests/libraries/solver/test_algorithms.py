"""Algorithms of singular values and eigenvalues that a request names: backward errors, routes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import using
from solver_checks import DTYPES, check, hermitian, lent, matrices, op, put, size, wide

import atomr_native as an
from atomr_native.libraries.solver.algorithms import ALGORITHMS, algorithms_of
from atomr_native.libraries.solver.decomposition_rules import DECOMPOSITIONS

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "solver.md").read_text(encoding="utf-8")
NAMED = [(name, routine) for name, algorithm in ALGORITHMS.items() for routine in algorithm.calls]
#: Those with vectors with each dtype, and others with a dtype each.
TYPED = [
    (name, routine, dtype)
    for i, (name, routine) in enumerate(NAMED)
    for dtype in (DTYPES if routine in ("svd", "eigh") else DTYPES[i % 4 :][:1])
]


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def tolerance(name: str, dtype: str) -> float:
    """Approximate singular values come from a product of A with itself, so half of the digits may be lost."""
    eps = float(np.finfo(dtype).eps)
    return 0.5 * eps**0.5 if name == "approximate" else 64 * eps


def verify(
    device: an.Device, name: str, routine: str, a: np.ndarray, layout: str | None = None, **options: Any
) -> None:
    """Send a decomposition by an algorithm, and hold it against its definition."""
    dtype, bound = str(a.dtype), tolerance(name, str(a.dtype))
    scale = size(wide(a)) + 1e-300
    request = an.DecompositionRequest(routine=routine, a=put(device, a, layout or "rows"), algorithm=name, **options)
    if layout is not None:
        outputs = {
            o.name: lent(device, o.spec.shape, o.spec.dtype, layout)
            for o in request.lowered.operands
            if o.given is None and o.name in ("u", "s", "vh", "w", "v")
        }
        request = an.DecompositionRequest(routine=routine, a=request.a, algorithm=name, **outputs, **options)
    found = device.solver.tell(request)
    if routine.startswith("svd"):
        s = (found if routine == "svdvals" else found.S).numpy()
        assert (np.diff(s, axis=-1) <= 0).all()
        assert (abs(s - np.linalg.svd(wide(a), compute_uv=False)) <= bound * a.shape[-1] * scale[..., None]).all()
        if routine == "svd":
            u, vh = wide(found.U.numpy()), wide(found.Vh.numpy())
            assert (size((u * s[..., None, :]) @ vh - wide(a)) <= bound * max(a.shape[-2:]) * scale).all()
            for q in (u, op(vh, True, True)):
                assert (size(op(q, True, True) @ q - np.eye(q.shape[-1])) <= bound * max(a.shape[-2:])).all()
        return
    w = (found if routine == "eigvalsh" else found.eigenvalues).numpy()
    assert (abs(w - np.linalg.eigvalsh(wide(a))) <= bound * a.shape[-1] * scale[..., None]).all()
    if routine == "eigh":
        v = wide(found.eigenvectors.numpy())
        check(op(v, True, True) @ v - np.eye(a.shape[-1]), 1, dtype)
        check(wide(a) @ v - v * w[..., None, :], scale, dtype)


@pytest.mark.parametrize(("name", "routine", "dtype"), TYPED)
def test_every_algorithm_of_every_type(device: an.Device, name: str, routine: str, dtype: str) -> None:
    """Tall, square and wide, one matrix and batches, in each layout."""
    rng = np.random.default_rng(len(name))
    eigen = routine.startswith("eig")
    shapes = [(5, 5), (2, 4, 4)] if eigen else [(6, 4), (4, 6), (2, 5, 3), (2, 3, 5)]
    for turn, shape in enumerate(shapes):
        a = matrices(rng, shape, dtype)
        route = {} if len(shape) == 2 or "loop" not in ALGORITHMS[name].routes else {"route": "loop"}
        verify(device, name, routine, hermitian(a) if eigen else a, (None, "rows", "apart", "columns")[turn], **route)


def test_awkward_matrices_by_each_algorithm(device: an.Device) -> None:
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    clustered = turn @ np.diag([1, 1, 1, 1 + 1e-14, 1 + 1e-13, 2, 2, 2, -5]) @ turn.T
    low = rng.standard_normal((8, 2)) @ rng.standard_normal((2, 6))
    for name, routine in NAMED:
        if routine in ("svd", "eigh"):
            verify(device, name, routine, clustered)
        if routine == "svd" and name != "approximate":
            for a in (low, low.T, np.zeros((4, 3)), np.ones((3, 4)), 1 / (np.arange(1.0, 9)[:, None] + np.arange(8))):
                verify(device, name, routine, a)


def test_matrices_without_elements_and_with_nan(device: an.Device) -> None:
    rng = np.random.default_rng(3)
    for name in algorithms_of("svd"):
        u, s, vh = device.solver.svd(device.zeros((2, 0, 3), "float32"), algorithm=name)
        assert (u.shape, s.shape, vh.shape) == ((2, 0, 0), (2, 0), (2, 0, 3))
        a = rng.standard_normal((3, 4, 4))
        a[1, 2, 2] = np.nan
        for x in device.solver.svd(device.put(a), algorithm=name):
            assert np.isnan(x.numpy()[1]).all()
            assert np.isfinite(x.numpy()[::2]).all()
    for name in algorithms_of("eigh"):
        for x in device.solver.eigh(device.put(hermitian(a)), algorithm=name):
            assert np.isnan(x.numpy()[1]).all()


def test_an_algorithm_without_an_end_is_an_error(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        a = np.stack([np.eye(3)] * 3)
        a[1, 0, 0] = 12345678.0
        for name, routine in NAMED:
            route = "loop" if "loop" in ALGORITHMS[name].routes else None
            found = device.solver.tell(
                an.DecompositionRequest(routine=routine, a=device.put(a), algorithm=name, route=route)
            )
            first = found[0] if isinstance(found, tuple) else found
            with pytest.raises(an.NotConverged) as caught:
                first.numpy()
            assert (caught.value.index, caught.value.count) == ((1,), 1)


def test_notes_name_the_function(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    a = device.put(np.eye(3))
    for name, routine in NAMED:
        plan = device.solver.plan(an.DecompositionRequest(routine=routine, a=a, algorithm=name)).wait(60)
        assert f"by {ALGORITHMS[name].calls[routine]}" in plan.notes
    many = device.put(np.stack([np.eye(40)] * 3))
    plan = device.solver.plan(an.DecompositionRequest(routine="svd", a=many, algorithm="approximate")).wait(60)
    assert plan.notes[0] == "3 matrices in 1 call of gesvdaStridedBatched"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"routine": "svd", "algorithm": "power"},
            ["'power'; allowed: 'auto', 'qr', 'jacobi', 'polar', 'approximate'"],
        ),
        ({"routine": "eigh", "algorithm": "qr"}, ["'qr'; allowed: 'auto', 'divide', 'jacobi'"]),
        ({"routine": "svd", "algorithm": None}, ["algorithm=None"]),
        ({"routine": "qr", "algorithm": "jacobi"}, ["does not take algorithm='jacobi'; it takes mode"]),
        ({"routine": "svd", "algorithm": "polar", "mode": "complete"}, ["made by 'qr'", "mode='reduced'"]),
        ({"routine": "svd", "algorithm": "polar", "route": "kernel"}, ["has no such route; allowed: loop"]),
        ({"routine": "svd", "algorithm": "approximate", "route": "loop"}, ["allowed: batched"]),
        ({"routine": "svd", "left": True}, ["does not take left=True"]),
    ],
)
def test_what_an_algorithm_cannot_do_is_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(an.InvalidRequest) as caught:
        _ = an.DecompositionRequest(a=np.ones((2, 5, 5)), **options).lowered
    for word in words:
        assert caught.match(re.escape(word))


def test_the_table_of_algorithms_is_that_of_the_code() -> None:
    section = TEXT.partition("### Algorithms")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    found = {}
    for name, routines, functions, routes, waits, _complete in rows:
        found[name.strip("`")] = (
            set(re.findall(r"`(\w+)`", routines)), set(re.findall(r"`(\w+)`", functions)),
            tuple(re.findall(r"`(\w+)`", routes)), waits == "yes",
        )  # fmt: skip
    assert found == {
        name: (set(rule.calls), set(rule.calls.values()), rule.routes, rule.waits) for name, rule in ALGORITHMS.items()
    }
    assert all("algorithm" in DECOMPOSITIONS[routine].options for _, routine in NAMED)
