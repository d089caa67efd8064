"""The solver under NVIDIA's compute-sanitizer: no kernel touches memory that it was not given."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Runs with the device in this very process.
PROGRAM = """
import numpy as np
import atomr_native as an
from solver_checks import hermitian, matrices

rng = np.random.default_rng(0)

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    solver, results = device.solver, []
    for dtype in ("float32", "complex128"):
        for shape in ((3, 7, 7), (2, 40, 40)):
            a = matrices(rng, shape, dtype) + 4 * np.eye(shape[-1])
            a = device.put(a.astype(dtype))
            spd, b = device.put(hermitian(a.numpy())), a[..., :3] + 0
            results += [solver.solve(a, b), solver.inv(a), solver.det(a), solver.cholesky(spd)]
            results += [solver.solve(spd, b, assume=one) for one in ("positive_definite", "symmetric", "hermitian")]
            results += [*solver.qr(a[..., :5]), *solver.svd(a[..., :5]), *solver.eigh(spd), solver.inv_triangular(a)]
            results += [*solver.svd(a, algorithm="jacobi"), *solver.eigh(spd, algorithm="jacobi")]
            results += [*solver.svd(a, algorithm="polar"), *solver.eig(a, where="device")]
            results += solver.tell(an.EigenRangeRequest(a=spd, subset_by_value=(0.0, 50.0)))
            for route in ("loop", "batched"):
                request = an.SolverRequest(routine="solve_triangular", a=a, b=b, route=route)
                results.append(solver.tell(request))
    wide = device.put(matrices(rng, (20, 20), "float64") + 9 * np.eye(20))
    results.append(solver.solve_refined(wide, device.ones((20,), "float64"), factor="tf32").x)
    for one in results:
        one.wait()
print("results:", len(results))
"""


def test_the_solver_touches_nothing_else(tmp_path: Path) -> None:
    assert "results: 121" in run_sanitized(PROGRAM, tmp_path)
