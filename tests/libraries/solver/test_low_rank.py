"""Singular values by random vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from solver_checks import DTYPES, check, matrices, op, size, wide

import atomr_native as an

#: Random numbers are kernels that the fake driver cannot run.
GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)


@pytest.fixture(scope="module", params=["host", GPU])
def device(request: pytest.FixtureRequest) -> Iterator[an.Device]:
    with an.System(standby="off") as system:
        yield system.device(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_low_rank_are_found(device: an.Device, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((20, 14), (2, 13, 18)):
        *batch, m, n = shape
        a = (matrices(rng, (*batch, m, 3), dtype) @ matrices(rng, (*batch, 3, n), dtype)).astype(dtype)
        u, s, vh = device.solver.svd_low_rank(device.put(a), 3, oversampling=2, iterations=1)
        assert (u.shape, s.shape, vh.shape) == ((*batch, m, 3), (*batch, 3), (*batch, 3, n))
        left, right = wide(u.numpy()), wide(vh.numpy())
        check((left * s.numpy()[..., None, :]) @ right - wide(a), size(wide(a)), dtype)
        check(op(left, True, True) @ left - np.eye(3), 1, dtype)
        check(right @ op(right, True, True) - np.eye(3), 1, dtype)


def test_iterations_and_oversampling_make_it_more_exact(device: an.Device) -> None:
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((30, 30)))[0] for _ in range(2))
    values = 0.8 ** np.arange(30)
    a = device.put((left * values) @ right)
    worst = [
        abs(device.solver.svd_low_rank(a, 4, oversampling=more, iterations=turns).S.numpy() - values[:4]).max()
        for more, turns in ((0, 0), (4, 1), (8, 6))
    ]
    assert worst[0] > 10 * worst[1] > 100 * worst[2]
    found = device.solver.svd_low_rank(a, 4, seed=5)
    assert (found.S.numpy() == device.solver.svd_low_rank(a, 4, seed=5).S.numpy()).all()
    assert (found.S.numpy() != device.solver.svd_low_rank(a, 4, seed=6).S.numpy()).any()


def test_the_whole_and_infos(device: an.Device) -> None:
    a = np.random.default_rng(2).standard_normal((5, 4))
    u, s, vh, info = device.solver.svd_low_rank(device.put(a), 4, check=False)
    np.testing.assert_allclose((u.numpy() * s.numpy()) @ vh.numpy(), a, atol=1e-12)
    assert info.numpy() == 0
    a[1, 1] = np.nan
    assert np.isnan(device.solver.svd_low_rank(device.put(np.tile(a, (9, 9))), 2).S.numpy()).all()


def test_what_cannot_work_is_refused(device: an.Device) -> None:
    a = device.put(np.eye(3))
    for options, words in (
        ({"rank": 0}, "rank"), ({"rank": 4}, "rank"), ({"rank": 1, "oversampling": -1}, "oversampling"),
        ({"rank": 1, "iterations": 1.5}, "iterations"), ({"rank": 1, "check": 2}, "check=2"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=words):
            device.solver.svd_low_rank(a, **options)
    with pytest.raises(an.InvalidRequest, match="not empty"):
        device.solver.svd_low_rank(device.zeros((0, 3)), 1)
