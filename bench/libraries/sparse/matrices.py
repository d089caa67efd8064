"""Sparse matrices for benchmarks."""

from __future__ import annotations

from typing import Any

__all__ = ["stencil"]


def stencil(side: int) -> Any:
    """Return the matrix of the 7-point stencil of a cube, float32 CSR."""
    import numpy as np
    import scipy.sparse

    line = scipy.sparse.diags_array([np.full(side - 1, -1.0), np.full(side, 2.0), np.full(side - 1, -1.0)],
                                    offsets=[-1, 0, 1])  # fmt: skip
    one = scipy.sparse.eye_array(side)
    kron = scipy.sparse.kron
    return (kron(kron(line, one), one) + kron(kron(one, line), one) + kron(kron(one, one), line)).tocsr().astype("f4")
