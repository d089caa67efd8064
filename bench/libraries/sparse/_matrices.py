"""Sparse matrices for benchmarks."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

__all__ = ["from_files", "power_law", "stencil"]

#: The folder of matrices of one's own, which the environment names.
FOLDER = "ATOMR_BENCH_MATRICES"


@cache
def _read(path: Path) -> Any:
    import scipy.io

    made = scipy.io.mmread(path, spmatrix=False).tocsr().astype("f4")
    if made.shape[0] != made.shape[1]:
        raise ValueError(f"{path} has shape {made.shape}; allowed: square matrices")
    made.sum_duplicates()
    return made


def from_files() -> dict[str, Callable[[], Any]]:
    """Return square matrices in Matrix Market files, by name: those of the folder that the environment names."""
    folder = os.environ.get(FOLDER)
    found = sorted(Path(folder).glob("*.mtx*")) if folder else []
    return {path.name.partition(".mtx")[0]: partial(_read, path) for path in found}


@cache
def stencil(side: int) -> Any:
    """Return the matrix of the 7-point stencil of a cube, float32 CSR; not to be written."""
    import numpy as np
    import scipy.sparse

    line = scipy.sparse.diags_array([np.full(side - 1, -1.0), np.full(side, 2.0), np.full(side - 1, -1.0)],
                                    offsets=[-1, 0, 1])  # fmt: skip
    one = scipy.sparse.eye_array(side)
    kron = scipy.sparse.kron
    return (kron(kron(line, one), one) + kron(kron(one, line), one) + kron(kron(one, one), line)).tocsr().astype("f4")


@cache
def power_law(n: int, mean: int = 16) -> Any:
    """Return a matrix whose rows and columns have lengths by a power law, float32 CSR without duplicates."""
    import numpy as np
    import scipy.sparse

    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, n + 1) ** 0.7
    ends = [rng.permutation(n)[rng.choice(n, n * mean, p=weights / weights.sum())] for _ in range(2)]
    made = scipy.sparse.coo_array((np.ones(n * mean, "f4"), tuple(ends)), shape=(n, n)).tocsr()
    made.sum_duplicates()
    made.data[:] = rng.uniform(0.5, 1.5, made.nnz)
    return made
