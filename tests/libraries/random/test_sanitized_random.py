"""Random numbers under NVIDIA's compute-sanitizer: no kernel, the library's or ours, touches memory that is not its."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizer import run_sanitized

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Runs with the device in this very process, as the sanitizer wants it.
PROGRAM = """
import numpy as np
import atomr_native as an

with an.System(isolation="thread", memory_limit=1 << 30) as system:
    device = system.device("cuda:0")
    random, results = device.random, []
    methods = (
        "uniform", "integers", "bernoulli", "normal", "lognormal", "truncated_normal", "exponential", "gamma", "beta",
        "cauchy", "geometric", "poisson", "binomial",
    )
    for name in methods:
        results += [getattr(random, name)((3, n), seed=1, offset=n) for n in (1, 13, 1000)]
    results.append(random.normal(mean=device.put(np.ones((3, 1))), std=device.put(np.ones(7)), seed=1))
    for replace in (True, False):
        results.append(random.discrete(np.ones(1000), 300, replace=replace, seed=1))
    results += [random.permutation(n, seed=1) for n in (1, 1000, 5000)]
    results += [random.shuffle(device.put(np.ones((n, 3), np.float32)), seed=1) for n in (5, 5000)]
    for name in ("curand_philox", "curand_xorwow", "curand_sobol32"):
        results.append(random.uniform(1000, low=1.0, high=3.0, engine=name, seed=0))
    for one in results:
        one.wait()
print("arrays:", len(results))
"""


def test_kernels_touch_nothing_else(tmp_path: Path) -> None:
    assert "arrays: 50" in run_sanitized(PROGRAM, tmp_path)
