"""Incomplete factorizations on the host device, row by row; they are there for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec
from .attributes import FactorAttributes
from .host import each, scipy_matrix

__all__ = ["build_factors"]

Array = np.ndarray[Any, Any]
Row = dict[int, Any]


def build_factors(spec: PlanSpec[FactorAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.ilu0`` and ``sparse.ic0``."""
    how = spec.attributes
    factor = _lower_upper if spec.op == "sparse.ilu0" else _cholesky

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        values, indices, offsets, out = arrays
        matrix = scipy_matrix("csr", (how.n, how.n), {"values": values, "indices": indices, "offsets": offsets})
        zero = values.dtype.type(0)
        rows: list[Row] = []
        for i in range(how.n):
            part = slice(matrix.indptr[i], matrix.indptr[i + 1])
            columns = matrix.indices[part]
            row = dict(zip(columns.tolist(), values[part], strict=True))
            if (columns[1:] <= columns[:-1]).any():
                row = dict.fromkeys(row, zero * np.nan)
            rows.append(row)
            factor(i, rows, zero)
        made = [rows[i][c] for i in range(how.n) for c in matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]]
        out[...] = np.array(made, values.dtype)

    return Built(each(spec, run))


def _lower_upper(i: int, rows: list[Row], zero: Any) -> None:
    """Compute row i of L and U from the rows before."""
    row = rows[i]
    for k in sorted(k for k in row if k < i):
        row[k] = row[k] / rows[k].get(k, zero)
        for j, u in rows[k].items():
            if j > k and j in row:
                row[j] = row[j] - row[k] * u


def _cholesky(i: int, rows: list[Row], zero: Any) -> None:
    """Compute row i of L from the rows before, and put its conjugate into the column above the diagonal."""
    row = rows[i]
    for j in sorted(row):
        if j > i:
            row[j] = zero
            continue
        other = rows[j]
        terms = [row[k] * np.conj(other[k]) for k in sorted(row) if k < j and k in other]
        for term in terms:
            row[j] = row[j] - term
        if j == i:
            row[j] = np.sqrt(row[j].real).astype(zero.dtype)
        else:
            row[j] = row[j] / other.get(j, zero)
            if i in other:
                other[i] = np.conj(row[j])
