"""Operands that a BLAS routine does not read: with alpha = 0 all but out, and what lies outside of a triangle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an

N = 4
BAD = np.full((N, N), np.nan)
VECTOR = np.full(N, np.nan)
OUT = np.arange(16.0).reshape(N, N) + 1

pytestmark = pytest.mark.host_only  # cuBLAS says so itself

#: Routine, operands, options, and what is left.
CASES: list[tuple[str, dict[str, np.ndarray], dict[str, Any], np.ndarray]] = [
    ("axpy", {"x": VECTOR, "out": OUT[0]}, {}, OUT[0]),
    ("ger", {"x": VECTOR, "y": VECTOR, "out": OUT}, {}, OUT),
    ("gemv", {"a": BAD, "x": VECTOR}, {}, np.zeros(N)),
    ("gemv", {"a": BAD, "x": VECTOR, "out": OUT[0]}, {"beta": 2.0}, 2 * OUT[0]),
    ("gemm", {"a": BAD, "b": BAD}, {}, np.zeros((N, N))),
    ("gemm", {"a": BAD, "b": BAD, "out": OUT}, {"beta": -1.0}, -OUT),
    (
        "gemm",
        {"a": np.stack([BAD, BAD]), "b": BAD, "out": np.stack([OUT, OUT])},
        {"beta": 2.0},
        np.stack([OUT, OUT]) * 2,
    ),
    ("symm", {"a": BAD, "b": BAD, "out": OUT}, {"beta": 2.0}, 2 * OUT),
    ("symm", {"a": BAD, "b": BAD}, {"side": "right"}, np.zeros((N, N))),
    ("syrk", {"a": BAD, "out": OUT}, {"beta": 2.0}, 2 * np.tril(OUT) + np.triu(OUT, 1)),
    ("syrk", {"a": BAD, "out": OUT}, {"lower": False, "beta": 2.0}, 2 * np.triu(OUT) + np.tril(OUT, -1)),
    ("trmm", {"a": BAD, "b": BAD}, {}, np.zeros((N, N))),
    ("trsm", {"a": BAD, "out": BAD}, {}, np.zeros((N, N))),
    ("geam", {"a": BAD}, {}, np.zeros((N, N))),
    ("geam", {"a": BAD, "b": OUT}, {"beta": 3.0, "trans_b": True}, 3 * OUT.T),
]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("routine", "arrays", "options", "left"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_alpha_0_reads_out_only(
    device: an.Device,
    routine: str,
    arrays: dict[str, np.ndarray],
    options: dict[str, Any],
    left: np.ndarray,
    dtype: str,
) -> None:
    refs = {name: device.put(array, dtype) for name, array in arrays.items()}
    for alpha in (0.0, -0.0) if dtype == "float32" else (0j,):
        given = {name: device.copy(ref) if name == "out" else ref for name, ref in refs.items()}
        found = device.blas.tell(an.BlasRequest(routine=routine, alpha=alpha, **options, **given)).numpy()
        np.testing.assert_array_equal(found, left)


def test_scal_by_0_is_a_product(device: an.Device) -> None:
    """It reads out, as in the BLAS."""
    assert np.isnan(device.blas.scal(device.put(VECTOR), 0.0).numpy()).all()


@pytest.mark.parametrize("value", [1e308, np.inf, -np.inf])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_symm_takes_each_element_once(device: an.Device, value: float, lower: bool, side: str) -> None:
    """Neither is a diagonal doubled on the way, nor is the other triangle read."""
    full = np.arange(16.0).reshape(N, N) + 1
    full = full + full.T
    full[range(N), range(N)] = value
    half = np.where(np.tri(N, dtype=bool) if lower else np.tri(N, dtype=bool).T, full, np.nan)
    b = np.ones((N, 1)) if side == "left" else np.ones((1, N))
    want = full.sum(1, keepdims=True) if side == "left" else full.sum(0, keepdims=True)
    found = device.blas.symm(device.put(half), device.put(b), side=side, lower=lower).numpy()
    np.testing.assert_array_equal(found, want)
