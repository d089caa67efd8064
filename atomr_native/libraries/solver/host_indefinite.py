"""LDL^T and LDL^H on the host device: LAPACK's factors of a lower triangle, and solves and determinants by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["blocks", "factor", "safe_pivots", "solve"]

Array = np.ndarray[Any, Any]


def factor(a: Array, *, hermitian: bool, lower: bool) -> tuple[Array, Array, int]:
    """Return L and the blocks of D, zeros above, with LAPACK's pivots and info.

    Reads one triangle of A; the factors are those of a lower one.
    """
    from scipy.linalg import get_lapack_funcs

    if not lower:
        a = a.conj().T if hermitian else a.T
    name = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"
    found, pivots, info = get_lapack_funcs(name, dtype=a.dtype)(a, lower=1)
    return np.tril(found), pivots.astype(np.int32), int(info)


def safe_pivots(pivots: Array) -> Array:
    """Return pivots of which those that are none are their own rows, as on a GPU: so a solve reads no other memory."""
    n = len(pivots)
    valid = (pivots != 0) & (abs(pivots.astype(np.int64)) <= n)
    found, i = pivots.copy(), 0
    while i < n:
        if valid[i] and pivots[i] < 0 and i + 1 < n and valid[i + 1] and pivots[i + 1] < 0:
            i += 2
            continue
        if not valid[i] or pivots[i] < 0:
            found[i] = i + 1
        i += 1
    return found


def blocks(pivots: Array) -> Iterator[tuple[int, int, int]]:
    """Yield the first row of each block of D, how many rows it has, and the row with which its last is exchanged."""
    at = 0
    while at < len(pivots):
        rows = 2 if pivots[at] < 0 else 1
        yield at, rows, abs(int(pivots[at])) - 1
        at += rows


def solve(ldl: Array, pivots: Array, b: Array, *, hermitian: bool) -> Array:
    """Return X of ``A X = B`` by the factors of `factor`."""
    x = np.array(b)

    def exchange(i: int, j: int) -> None:
        if i != j:
            x[[i, j]] = x[[j, i]]

    order = list(blocks(pivots))
    for at, rows, row in order:
        end = at + rows
        exchange(end - 1, row)
        x[end:] -= ldl[end:, at:end] @ x[at:end]
        if rows == 1:
            x[at] /= ldl[at, at].real if hermitian else ldl[at, at]
            continue
        d, e, f = ldl[at, at], ldl[at + 1, at], ldl[at + 1, at + 1]
        other = e.conj() if hermitian else e
        of_f, of_d = f / e, d / other
        rest = of_f * of_d - 1
        first, second = x[at].copy(), x[at + 1].copy()
        x[at] = (of_f * first / other - second / e) / rest
        x[at + 1] = (of_d * second / e - first / other) / rest
    for at, rows, row in reversed(order):
        end = at + rows
        left = ldl[end:, at:end]
        x[at:end] -= (left.conj().T if hermitian else left.T) @ x[end:]
        exchange(end - 1, row)
    return x
