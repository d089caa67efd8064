"""Threads of products on the host device: a worker process shares large products out, and leaves small ones alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.plain, pytest.mark.alike]

CODE = """
import numpy.linalg
from threadpoolctl import threadpool_info
from atomr_native.libraries.blas_lt.host.threads import adopt_process, sized

def threads(arrays, scalars):
    print(*(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"))

sized(threads, 1)((), ())
adopt_process()
small, large = sized(threads, 1 << 10), sized(threads, 1 << 30)
for run in (small, large, small):
    run((), ())
"""


def test_only_a_worker_process_chooses_and_by_size() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["2", "1", "2", "1"]
