"""Clusters on Ray itself: three of its nodes on this machine.  Left out where Ray is not installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import atomr_native as an
from atomr_native.ray import Cluster

HAS_RAY = importlib.util.find_spec("ray") is not None
CHECKS = ("messages", "tasks", "arrays", "results", "groups_of_nodes", "state", "death", "chaos", "bad_input", "end")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install '.[ray]'")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_on_three_nodes() -> None:
    program = Path(__file__).parents[1] / "helpers" / "ray_program.py"
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=580,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("check_")] == [
        f"check_{name}" for name in CHECKS
    ]


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_a_cluster_without_ray_is_refused_by_name() -> None:
    for call in (Cluster, lambda: Cluster.join("name")):
        with pytest.raises(an.Unsupported, match=r"pip install '\.\[ray\]'") as error:
            call()
        assert error.value.rule == "ray.missing"
