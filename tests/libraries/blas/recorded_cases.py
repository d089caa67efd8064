"""Messages of BLAS, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "axpy": case(lambda d, _, row, other, alpha: d.blas.axpy(row, other, alpha=alpha), "row other", alpha=(2.0, 3.0)),
    "trsm": case(lambda d, _, x, y, alpha: d.blas.trsm(x, y, alpha=alpha), "x y", alpha=(1.0, 2.0)),
    "dot": case(lambda d, _, row, other: d.blas.dot(row, other), "row other"),
}  # fmt: skip
