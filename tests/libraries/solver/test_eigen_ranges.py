"""Ranges of eigenvalues as one message: backward errors, counts, batches, what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from fake_cuda import using
from solver_checks import DTYPES, LAYOUTS, check, hermitian, lent, matrices, op, put, size, wide

import atomr_native as an


@pytest.fixture(scope="module", params=["cuda:0", "host"])
def device(request: pytest.FixtureRequest, cuda_system: an.System) -> an.Device:
    return cuda_system.device(request.param)


def spread(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return Hermitian matrices with eigenvalues of both signs."""
    a = matrices(rng, shape, dtype)
    return np.asarray((a + a.conj().swapaxes(-1, -2)) / 2)


def verify(a: np.ndarray, w: np.ndarray, v: np.ndarray, want: np.ndarray) -> None:
    """Hold one matrix's eigenvalues and vectors against all that NumPy finds."""
    scale, dtype = size(wide(a)), str(a.dtype)
    assert w.shape == want.shape
    assert v.shape == (len(a), len(want))
    if not w.size:
        return
    assert (abs(w - want) <= 64 * np.finfo(dtype).eps * len(a) * scale).all()
    v = wide(v)
    check(op(v, True, True) @ v - np.eye(len(want)), 1, dtype, factor=64 * len(a))
    check(wide(a) @ v - v * w, scale, dtype, factor=64 * len(a))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges_of_every_type_and_layout(device: an.Device, dtype: str, layout: str) -> None:
    """By index and by value, of one matrix and of batches, by each triangle, into outputs in each layout."""
    rng = np.random.default_rng(len(layout))
    for shape in ((7, 7), (2, 3, 5, 5)):
        a = spread(rng, shape, dtype)
        n, exact = shape[-1], np.linalg.eigvalsh(wide(a))
        for lower in (True, False):
            half = np.tril(a) if lower else np.triu(a)
            ref = put(device, half, layout)
            first, last = (1, n - 2) if lower else (n - 1, n - 1)
            request = an.EigenRangeRequest(a=ref, lower=lower, subset_by_index=(first, last))
            outputs = {o.name: lent(device, o.spec.shape, o.spec.dtype, layout) for o in request.lowered.operands[1:3]}
            for given in ({}, outputs):
                w, v = device.solver.tell(
                    an.EigenRangeRequest(a=ref, lower=lower, subset_by_index=(first, last), **given)
                )
                for index in np.ndindex(shape[:-2]):
                    verify(a[index], w.numpy()[index], v.numpy()[index], exact[index][first : last + 1])
            bounds = (-0.7, 1.1)
            w, v, count = device.solver.tell(an.EigenRangeRequest(a=ref, lower=lower, subset_by_value=bounds))
            for index in np.ndindex(shape[:-2]):
                want = exact[index][(exact[index] > bounds[0]) & (exact[index] <= bounds[1])]
                found = int(count.numpy()[index])
                assert found == len(want)
                verify(a[index], w.numpy()[index][:found], v.numpy()[index][:, :found], want)
                assert np.isnan(w.numpy()[index][found:]).all()
                assert np.isnan(v.numpy()[index][:, found:]).all()


def test_bounds_and_values_alone(device: an.Device) -> None:
    """The first bound is not in the range, and the second is; bounds may be infinite."""
    a = device.put(np.diag([3.0, -1.0, 2.0, 0.0]))
    solver = device.solver
    for bounds, want in [
        ((-1.0, 2.0), [0, 2]), ((-np.inf, np.inf), [-1, 0, 2, 3]), ((2.5, 2.75), []), ((-np.inf, -1.0), [-1]),
    ]:  # fmt: skip
        w, count = solver.tell(an.EigenRangeRequest(a=a, vectors=False, subset_by_value=bounds))
        np.testing.assert_allclose(w.numpy()[: int(count)], want, atol=1e-14)
    single = device.put(np.diag(np.array([3.0, -1.0, 2.0], np.float32)))
    w, count = solver.tell(an.EigenRangeRequest(a=single, vectors=False, subset_by_value=(-1e300, 1e300)))
    assert int(count) == 3
    w = solver.tell(an.EigenRangeRequest(a=a, vectors=False, subset_by_index=(0, 1)))
    np.testing.assert_allclose(w.numpy(), [-1, 0], atol=1e-14)


def test_matrices_without_elements_and_with_nan(device: an.Device) -> None:
    solver = device.solver
    for shape in ((2, 0, 0), (0, 3, 3)):
        request = an.EigenRangeRequest(a=device.zeros(shape, "float32"), subset_by_value=(0.0, 1.0), check=False)
        w, v, count, info = solver.tell(request)
        assert (w.shape, v.shape) == (shape[:-1], shape)
        assert count.numpy().tolist() == info.numpy().tolist() == [0] * shape[0]
    a = np.stack([np.diag([1.0, 2.0, 3.0])] * 3)
    a[1, 2, 0] = np.inf
    a[2, 0, 2] = np.nan  # in the other triangle
    w, v, count = solver.tell(an.EigenRangeRequest(a=device.put(a), subset_by_value=(1.5, 9.0)))
    assert count.numpy().tolist() == [2, 0, 2]
    assert np.isnan(w.numpy()[1]).all()
    assert np.isnan(v.numpy()[1]).all()
    assert np.isfinite(w.numpy()[::2, :2]).all()
    w, v = solver.tell(an.EigenRangeRequest(a=device.put(a), subset_by_index=(0, 1)))
    assert np.isnan(w.numpy()[1]).all()
    assert np.isfinite(v.numpy()[::2]).all()


def test_a_range_without_an_end_is_an_error(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        a = np.stack([np.eye(3)] * 3)
        a[1, 0, 0] = 12345678.0
        ref = device.put(a)
        w, _ = device.solver.tell(an.EigenRangeRequest(a=ref, subset_by_index=(0, 1)))
        with pytest.raises(an.NotConverged) as caught:
            w.numpy()
        assert (caught.value.operation, caught.value.index, caught.value.count) == ("solver.eigh_range", (1,), 1)
        request = an.EigenRangeRequest(a=ref, subset_by_value=(0.0, 2.0), vectors=False, check=False)
        w, count, info = device.solver.tell(request)
        assert info.numpy().tolist() == [0, 3, 0]
        assert count.numpy().tolist() == [3, 0, 3]
        assert np.isnan(w.numpy()[1]).all()


def test_large_matrices_have_ranges_without_the_others(device: an.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods send a range as one message above a size, and views of all eigenvalues below it."""
    monkeypatch.setattr("atomr_native.libraries.solver.ranges.WHOLE", 12)
    rng, solver = np.random.default_rng(5), device.solver
    for n in (6, 20):
        a = spread(rng, (n, n), "float64")
        ref, exact = device.put(a), np.linalg.eigvalsh(a)
        w, v = solver.eigh(ref, subset_by_index=(1, 3))
        verify(a, w.numpy(), v.numpy(), exact[1:4])
        np.testing.assert_allclose(solver.eigvalsh(ref, subset_by_index=(1, 3)).numpy(), exact[1:4], atol=1e-12)
        w, v, info = solver.eigh(ref, subset_by_value=(-1.0, 1.0), check=False)
        want = exact[(exact > -1) & (exact <= 1)]
        verify(a, w.numpy(), v.numpy(), want)
        assert int(info) == 0
        np.testing.assert_allclose(solver.eigvalsh(ref, subset_by_value=(-1.0, 1.0)).numpy(), want, atol=1e-12)
    before = hermitian(rng.standard_normal((20, 20)))
    w, v = solver.eigh(ref, device.put(before), subset_by_index=(2, 4))
    reduced = a @ v.numpy() - before @ v.numpy() * w.numpy()
    check(reduced, size(before) * 20, "float64")


def test_a_plan_says_that_its_lane_waits(cuda_system: an.System) -> None:
    device = cuda_system.device("cuda:0")
    request = an.EigenRangeRequest(a=device.put(np.eye(3)), subset_by_index=(0, 1))
    assert "syevdx" in " ".join(device.solver.plan(request).wait(60).notes)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs subset_by_index or subset_by_value"),
        ({"subset_by_index": (0, 1), "subset_by_value": (0, 1)}, "allowed: one of them"),
        ({"subset_by_index": (1, 3)}, "(1, 3); allowed: 0 <= first <= last < 3"),
        ({"subset_by_index": (2, 1)}, "0 <= first <= last < 3"),
        ({"subset_by_index": 1}, "subset_by_index=1; allowed: a pair"),
        ({"subset_by_index": (0.5, 1)}, "allowed: a pair"),
        ({"subset_by_value": (2, 1)}, "the first below the second"),
        ({"subset_by_value": (np.nan, 1)}, "the first below the second"),
        ({"subset_by_index": (0, 1), "vectors": 1}, "vectors=1"),
        ({"subset_by_index": (0, 1), "found": np.zeros((), "i4")}, "does not take found here; its outputs: w, v"),
        ({"subset_by_index": (0, 1), "vectors": False, "v": np.zeros((3, 2))}, "does not take v here"),
        ({"subset_by_index": (0, 1), "info": np.zeros((), "i4")}, "does not take info here"),
        ({"subset_by_index": (0, 1), "w": np.zeros(3)}, "w has shape (3,); allowed: (2,)"),
        ({"subset_by_value": (0, 1), "v": np.zeros((3, 3), "f4")}, "v has dtype float32; allowed: float64"),
        ({"subset_by_value": (0, 1), "a": np.zeros((3, 2))}, "takes square matrices"),
        ({"subset_by_value": (0, 1), "a": np.zeros((3, 3), "i4")}, "a has dtype int32"),
        ({"subset_by_value": (0, 1), "a": np.zeros(3)}, "must be a matrix of 2 axes"),
    ],
)
def test_ranges_that_are_none_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(an.InvalidRequest, match=re.escape(words)):
        _ = an.EigenRangeRequest(**{"a": np.zeros((3, 3)), **options}).lowered
