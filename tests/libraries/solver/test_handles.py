"""Handles, workspaces and errors of cuSOLVER, on the fake driver."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from actions import eventually
from fake_cuda import compiling_here, using

import atomr_native as an
from atomr_native.errors import LibraryError, Unsupported

#: Larger than what a kernel of ours computes.
EYE = 2 * np.eye(64)


@pytest.fixture
def system(fake_environment: dict[str, str]) -> Iterator[an.System]:
    with using(fake_environment), an.System() as made:
        yield made


def test_handles_are_made_when_needed_and_counted(system: an.System) -> None:
    device = system.device("cuda:0")
    a = device.put(EYE)
    device.solver.plan(an.SolverRequest(routine="solve_triangular", a=a, b=a)).wait(60)
    assert device.stats()["native_handles"] == {}
    device.solver.plan(an.SolverRequest(routine="cholesky", a=a)).wait(60)
    assert device.stats()["native_handles"] == {"cusolver": 1}  # the device's own, for sizes
    for _ in range(3):
        device.solver.cholesky(a).wait()
    assert device.stats()["native_handles"] == {"cusolver": 2}
    second = an.Solver(device, "second")
    np.testing.assert_array_equal(second.inv(a).numpy(), EYE / 4)
    assert device.stats()["native_handles"] == {"cusolver": 3}


def test_handles_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """In this process: the worker of a thread leaves nothing behind."""
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUSOLVER"])
    alive = ctypes.c_uint.in_dll(library, "fake_solver_handles")
    before = alive.value
    with using(fake_environment), compiling_here(), an.System(isolation="thread") as system:
        device = system.device("cuda:0")
        np.testing.assert_array_equal(device.solver.inv(device.put(EYE)).numpy(), EYE / 4)
        assert alive.value == before + 2
    gc.collect()
    eventually(lambda: alive.value == before)


def test_a_handle_that_cannot_be_made_fails_its_plan_only(refuse: Callable[..., Path]) -> None:
    refuse(cusolverDnCreate=(2, 1))
    with an.System() as system:
        device = system.device("cuda:0")
        a = device.put(EYE)
        with pytest.raises(LibraryError, match=r"cusolver: CUSOLVER_STATUS_ALLOC_FAILED \(2\)"):
            device.solver.inv(a)
        assert device.stats()["native_handles"] == {}
        np.testing.assert_array_equal(device.solver.inv(a[:60, :60]).numpy(), np.eye(60) / 2)


def test_workspaces_have_a_limit(fake_environment: dict[str, str]) -> None:
    with using(fake_environment), an.System(workspace_limit=1024) as system:
        device = system.device("cuda:0")
        np.testing.assert_array_equal(device.solver.cholesky(device.put(np.eye(4))).numpy(), np.eye(4))
        with pytest.raises(Unsupported, match="the limit is 1024") as caught:
            device.solver.cholesky(device.put(np.eye(100)))
        assert caught.value.rule == "solver.workspace_limit"
        assert "workspace_limit" in caught.value.lifted_by


def test_batches_of_many_axes_apart_are_refused(system: an.System) -> None:
    device = system.device("cuda:0")
    a = device.put(np.zeros((4, 4, 4, 4, 2, 2)) + np.eye(2))[::2, ::2, ::2, ::2]
    with pytest.raises(Unsupported, match="fold to 4 in memory") as caught:
        device.solver.inv(a)
    assert caught.value.rule == "solver.batch_axes"
    assert (device.solver.inv(a[0]).numpy() == np.eye(2)).all()
