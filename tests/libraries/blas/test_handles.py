"""Handles of native libraries: one for each lane that uses the library, made with its first message, ended with it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from actions import eventually
from fake_cuda import compiling_here, using

import atomr_native as an
from atomr_native.errors import LibraryError
from atomr_native.libraries.blas.request import BlasRequest


def multiply(lane: an.Blas, x: np.ndarray, y: np.ndarray) -> an.GpuRef:
    device = lane.device
    return lane.tell(BlasRequest(routine="gemm", a=device.put(x), b=device.put(y)))


def matrices(count: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((count, 24, 24))


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_lanes_do_not_share_a_handle(fake_environment: dict[str, str]) -> None:
    """Both lanes have set the stream of their handle before either goes on: of one handle, one stream would be lost."""
    a, b = matrices(2), matrices(2)
    settings = {"FAKE_CUDA_MEET": "2", "FAKE_CUDA_DELAY_US": "2000"}
    with using({**fake_environment, **settings}), an.System(watchdog=120.0) as system:
        device = system.device("cuda:0")
        lanes = [device.blas, an.Blas(device, "second")]
        placed = [(device.put(x), device.put(y)) for x, y in zip(a, b, strict=True)]
        for lane, (x, y) in zip(lanes, placed, strict=True):
            lane.plan("gemm", a=x, b=y).wait()  # so that nothing is built while one waits for the other
        sent = [lane.tell(BlasRequest(routine="gemm", a=x, b=y)) for lane, (x, y) in zip(lanes, placed, strict=True)]
        for x, y, product in zip(a, b, sent, strict=True):
            close(product.numpy(), x @ y)


def test_handles_are_made_with_the_first_message_and_counted(fake_environment: dict[str, str]) -> None:
    x, y = matrices(2)
    with using(fake_environment), an.System() as system:
        device = system.device("cuda:0")
        assert device.stats()["native_handles"] == {}
        second = an.Blas(device, "second")
        second.plan("gemm", a=device.put(x), b=device.put(y))
        assert device.stats()["native_handles"] == {}
        for _ in range(3):
            close(multiply(second, x, y).numpy(), x @ y)
        assert device.stats()["native_handles"] == {"cublas": 1}
        close(multiply(device.blas, x, y).numpy(), x @ y)
        close(device.blas_lt.matmul(device.put(x), device.put(y)).numpy(), x @ y)
        assert device.stats()["native_handles"] == {"cublas": 2, "cublaslt": 1}
        assert system.device("host").stats()["native_handles"] == {}


def test_handles_end_with_their_device(fake_environment: dict[str, str]) -> None:
    """In this process: the worker of a thread leaves nothing behind."""
    x, y = matrices(2)
    library = ctypes.CDLL(fake_environment["ATOMR_NATIVE_CUBLAS"])
    alive = ctypes.c_uint.in_dll(library, "fake_blas_handles")
    before = alive.value
    with using(fake_environment), compiling_here(), an.System(isolation="thread") as system:
        device = system.device("cuda:0")
        for lane in (device.blas, an.Blas(device, "second")):
            close(multiply(lane, x, y).numpy(), x @ y)
        assert alive.value == before + 2
    gc.collect()
    eventually(lambda: alive.value == before)


def test_a_handle_that_cannot_be_made_fails_its_message_only(refuse: Callable[..., Path]) -> None:
    x, y = matrices(2)
    refuse(cublasCreate_v2=(3, 1))
    with an.System() as system:
        device = system.device("cuda:0")
        with pytest.raises(LibraryError, match=r"cublas: CUBLAS_STATUS_ALLOC_FAILED \(3\) in .*: cublasCreate"):
            multiply(device.blas, x, y).numpy()
        assert device.stats()["native_handles"] == {}
        close(multiply(device.blas, x, y).numpy(), x @ y)
        assert device.stats()["native_handles"] == {"cublas": 1}


def test_scratch_memory_is_the_lanes(fake_environment: dict[str, str]) -> None:
    """A plan that needs scratch memory has it from the lane's workspace, up to the limit; others have none."""
    x, y = matrices(2)
    with using(fake_environment), an.System(workspace_limit=1 << 20) as system:
        device = system.device("cuda:0")
        device.blas.scal(device.put(x), 2.0).wait()
        assert device.stats()["actors"]["blas"]["workspace"] == 0
        close(multiply(device.blas, x, y).numpy(), x @ y)
        assert device.stats()["actors"]["blas"]["workspace"] == 1 << 20
        close(device.blas.scal(device.put(x), 2.0).numpy(), 2 * x)
