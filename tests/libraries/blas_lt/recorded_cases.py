"""Messages of matrix products, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case

CASES: dict[str, Case] = {
    "matmul": case(
        lambda d, _, x, y, row, alpha: d.blas_lt.matmul(x, y, bias=row, epilogue="gelu_aux_bias", alpha=alpha),
        "x y row", alpha=(1.0, 2.5),
    ),
    "gradient": case(
        lambda d, _, x, y, aux: d.blas_lt.matmul(x, y, aux=aux, epilogue="dgelu_bgrad"), "x y x",
    ),
    "grouped": case(lambda d, _, x, y: d.blas_lt.grouped([x, y[:4]], [y, x]), "x y"),
}  # fmt: skip
