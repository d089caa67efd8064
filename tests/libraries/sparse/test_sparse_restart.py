"""Sparse matrices across a restart of the device: volatile arrays are stale, durable ones live on."""

from __future__ import annotations

import numpy as np
import pytest
from placements import Placement

import atomr_native as an


def test_durable_matrices_live_on(worker_process: Placement) -> None:
    with worker_process.system(allow_crash=True) as system:
        device = system.device(worker_process.device)
        a = np.array([[2.0, 0.0], [1.0, 4.0]])
        volatile, durable = (device.sparse.matrix(a, durable=kept) for kept in (False, True))
        b = device.put(np.array([2.0, 9.0]), durable=True)
        assert device.sparse.solve_triangular(durable, b).numpy().tolist() == [1, 2]
        device.inject_fault("abort")
        device.wait_ready(60)
        with pytest.raises(an.GpuRefStale):
            device.sparse.spmv(volatile, b)
        assert device.sparse.solve_triangular(durable, b).numpy().tolist() == [1, 2]
        assert device.sparse.spmv(durable, b).numpy().tolist() == [4, 38]
