"""Clusters on Ray itself: three of its nodes on this machine.  Left out where Ray is not installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import atomr_native as an
from atomr_native.ray import Cluster, use_device
from atomr_native.runtime.listing import machine_gpus

HAS_RAY = importlib.util.find_spec("ray") is not None
HAS_SERVICES = HAS_RAY and all(importlib.util.find_spec(name) for name in ("fastapi", "pyarrow", "pandas"))
CHECKS = ("messages", "tasks", "arrays", "results", "groups_of_nodes", "state", "death", "chaos", "bad_input", "end")


def checks_of(program: str, *arguments: str, **environment: str) -> list[str]:
    """Run a program of tests/helpers; return the checks that it has made."""
    path = Path(__file__).parents[1] / "helpers" / program
    done = subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=580,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return [line.split()[0][6:] for line in done.stdout.splitlines() if line.startswith("check_")]


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: make test-ray")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_on_three_nodes() -> None:
    assert checks_of("ray_program.py") == list(CHECKS)


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: make test-ray")
@pytest.mark.skipif(machine_gpus() < 2, reason="needs two GPUs")
@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_two_nodes_with_a_gpu_each() -> None:
    assert checks_of("ray_gpu_program.py") == ["gpus", "transfers", "times", "communicator", "apart", "results"]


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: make test-ray")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_nodes_with_a_fake_gpu_each(fake_environment: dict[str, str]) -> None:
    environment = {**fake_environment, "FAKE_CUDA_DEVICES": "2"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment["PYTHONPATH"], os.environ["PYTHONPATH"])))
    assert checks_of("ray_gpu_program.py", "fake", **environment) == ["gpus", "communicator", "apart"]


@pytest.mark.skipif(not HAS_SERVICES, reason="ray[serve,train] is not installed: make test-ray-services")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_ray_train_and_ray_serve() -> None:
    assert checks_of("ray_services_program.py") == ["train", "serve"]


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_a_cluster_without_ray_is_refused_by_name() -> None:
    with an.System(standby="off") as system:
        calls = (Cluster, lambda: Cluster.join("name"), lambda: use_device(system.device("host")))
        errors = [refusal(call) for call in calls]
    assert [error.rule for error in errors] == ["ray.missing"] * 3
    assert all("pip install '.[ray]'" in str(error) for error in errors)


def test_a_device_of_another_kind_is_no_device() -> None:
    with pytest.raises(an.InvalidRequest, match="allowed: a Device"):
        use_device("cuda:0")  # type: ignore[arg-type]


def refusal(call: Callable[[], object]) -> an.Unsupported:
    with pytest.raises(an.Unsupported) as error:
        call()
    return error.value
