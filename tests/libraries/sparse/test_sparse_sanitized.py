"""Sparse routines under NVIDIA's compute-sanitizer: no kernel, a library's or ours, touches memory of others.

cuSPARSE documents false reports of the tool racecheck for SpMV and SpMM; memcheck has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import scripts
from sanitizer import run_sanitized

#: Runs with the device in this very process, on the kind of device that it is told.
PROGRAM = """
import sys
import numpy as np
import scipy.sparse
import atomr_native as an
from sparse_checks import dense, patterns

rng = np.random.default_rng(0)
with an.System(isolation="thread", standby="off", memory_limit=1 << 30) as system:
    device = system.device(sys.argv[1])
    sparse, results = device.sparse, []
    for pattern in patterns(rng):
        for dtype, index in (("float32", "int32"), ("complex128", "int64"), ("int8", "int32")):
            given = dense(rng, pattern, dtype)
            rows, columns = given.shape
            x, wide = (device.put(dense(rng, np.ones(n, bool), dtype)) for n in ((columns,), (columns, 3)))
            a = sparse.matrix(given, index_dtype=index)
            for form in ("csr", "csc", "coo"):
                results += [sparse.spmm(sparse.convert(a, form), wide), sparse.spmv(sparse.convert(a, form), x)]
            results.append(sparse.spmv(a, device.put(dense(rng, np.ones(rows, bool), dtype)), trans=True))
            if dtype != "int8" and 0 not in given.shape:
                results.append(sparse.sddmm(a, device.put(dense(rng, np.ones((rows, 5), bool), dtype)),
                                            device.put(dense(rng, np.ones((5, columns), bool), dtype))))
                results.append(sparse.matmul(a, sparse.convert(a.T, "csr")).values)
                results.append(sparse.spmv(sparse.convert(a, "sliced_ell", slice_size=4), x))
    full = sparse.matrix(np.tril(rng.uniform(0.5, 1, (33, 33))) + 9 * np.eye(33))
    results += [sparse.solve_triangular(full, device.ones((33, 2), "float64")), sparse.ilu0(full).values,
                sparse.ic0(full).values]
    results.append(sparse.prune_24(device.put(rng.standard_normal((12, 20)).astype("f2")), method="tile"))
    short = scipy.sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(1101, 1101)).tocsr()
    results.append(sparse.spmv(sparse.matrix(short), device.ones((1101,), "float64")))
    for result in results:
        result.wait()
print("results:", len(results))
"""


def test_the_program() -> None:
    """It runs, and counts what it does."""
    assert "results: 236" in scripts.run(PROGRAM, "host")


@pytest.mark.gpu
@pytest.mark.slow
def test_routines_touch_nothing_else(tmp_path: Path) -> None:
    assert "results: 236" in run_sanitized(PROGRAM, tmp_path, "cuda:0")
