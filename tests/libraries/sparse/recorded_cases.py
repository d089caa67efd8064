"""Messages of sparse matrices, for the test that records every operation."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from recorded_cases import Case, case

import atomr_native as an

NUMBA = importlib.util.find_spec("numba_cuda") is not None


def _triangle(device: an.Device) -> Any:
    return device.sparse.matrix(np.tril(np.ones((8, 8))) + 7 * np.eye(8))


def _structured(device: an.Device, _: Any, crowd: an.GpuRef, w: an.GpuRef) -> Any:
    pruned = device.sparse.structured(w, prune="tile")
    return device.sparse.linear_24(crowd, pruned, activation="gelu", route="structured")


def _compiled(device: an.Device, triangle: Any, column: an.GpuRef) -> Any:
    return device.sparse.semiring(triangle, column, multiply=lambda a, x: a if a > x else x, add=np.add, start=0.0)


CASES: dict[str, Case] = {
    "spmv": case(lambda d, a, column, alpha: d.sparse.spmv(a, column, alpha=alpha), "column", _triangle,
                 alpha=(2.0, 0.5)),
    "spmm": case(lambda d, a, wide: d.sparse.spmm(a, wide), "wide", _triangle),
    "sddmm": case(lambda d, a, wide: d.sparse.sddmm(a, wide, wide), "wide", _triangle),
    "sparse solve": case(lambda d, a, wide: d.sparse.solve_triangular(a, wide), "wide", _triangle),
    "semiring": case(
        lambda d, a, column: d.sparse.semiring(a, column, multiply=np.add, add=np.minimum, start=1e9), "column",
        _triangle,
    ),
    "sparse product": case(
        lambda d, pattern, entries, more, beta: pattern.tell(entries, more, beta=beta).values, "entries entries",
        lambda d: d.sparse.matmul_pattern(_triangle(d), _triangle(d)), beta=(9.0, 0.5),
    ),
    "sparse sum": case(
        lambda d, pattern, entries, more, beta: pattern.tell(entries, more, beta=beta).values, "entries entries",
        lambda d: d.sparse.add_pattern(_triangle(d), _triangle(d)), beta=(9.0, 0.5),
    ),
    "incomplete factors": case(
        lambda d, a, entries: d.sparse.ilu0(a.with_values(entries)).values, "entries", _triangle
    ),
    "incomplete factor": case(
        lambda d, a, definite: d.sparse.ic0(a.with_values(definite)).values, "definite",
        lambda d: d.sparse.matrix(np.ones((8, 8))),
    ),
    "sparse solver": case(
        lambda d, solver, column: solver.tell(column), "column",
        lambda d: d.sparse.solver(_triangle(d), method="gmres", preconditioner="none", restart=2),
    ),
    "structured product": case(_structured, "crowd crowd"),
    **({"compiled semiring": case(_compiled, "column", _triangle)} if NUMBA else {}),
}  # fmt: skip
#: Kernels that are compiled for a GPU.
NOT_ON_FAKE = {"compiled semiring"}
#: The call of the one reads the answer; factors of the other are the state of a solver.
NEVER = {"sparse.broken_24", "sparse.direct", *(() if NUMBA else ("sparse.semiring_compiled",))}
