"""Threads of a simulated block take turns, and wait for each other as those of a GPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from actions import eventually

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda, float32, int32

from atomr_native.compile.numba import simulated_block, simulator


def run(kernel: Any, block: Any, *arrays: np.ndarray) -> None:
    simulator.simulated(kernel)[1, block, 0, 0](*map(simulator.simulated_array, arrays))  # type: ignore[index]


def wait_for_threads() -> None:
    eventually(lambda: not any(isinstance(thread, simulated_block.BlockThread) for thread in threading.enumerate()))


def sum_of_block(x, out):
    shared = cuda.shared.array(256, float32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    half = 128
    while half:
        if i < half:
            shared[i] += shared[i + half]
        cuda.syncthreads()
        half //= 2
    if i == 0:
        out[0] = shared[0]


def test_barriers() -> None:
    x, out = np.arange(256, dtype="f4"), np.zeros(1, "f4")
    run(sum_of_block, 256, x, out)
    assert out[0] == 255 * 128


def later_first(flags, out):
    """Each thread waits in a loop for the next one, which has not had its turn."""
    i = cuda.threadIdx.x
    while i + 1 < flags.size and flags[i + 1] == 0:
        cuda.threadfence_block()
    out[i] = cuda.atomic.add(out, out.size - 1, 1)
    flags[i] = 1


def test_a_thread_may_wait_in_a_loop_for_a_later_one() -> None:
    flags, out = np.zeros(8, "i4"), np.zeros(9, "i4")
    run(later_first, 8, flags, out)
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 8]


def locked(lock, out):
    while cuda.atomic.cas(lock, 0, 0, 1):
        pass
    out[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
    cuda.syncthreads()
    out[1 + cuda.threadIdx.x] = out[0]


def test_a_lock() -> None:
    lock, out = np.zeros(1, "i4"), np.zeros(65, "i4")
    run(locked, 64, lock, out)
    assert (out == 64).all()


def as_many_barriers(out):
    i = cuda.threadIdx.x
    for _ in range(i):
        cuda.syncthreads()
    out[i] = cuda.atomic.add(out, out.size - 1, 1)


def test_threads_that_have_ended_are_not_awaited() -> None:
    out = np.zeros(11, "i4")
    run(as_many_barriers, 10, out)
    assert out.tolist() == [*range(10), 10]


def warps_and_barriers(out):
    i = cuda.threadIdx.x
    total = int32(i)
    step = 16
    while step:
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, step)
        step //= 2
    cuda.syncthreads()
    out[i] = total + cuda.syncthreads_or(i == 40)


def test_warps_and_barriers_in_turn() -> None:
    out = np.zeros(64, "i4")
    run(warps_and_barriers, 64, out)
    assert out.tolist() == [sum(range(32)) + 1] * 32 + [sum(range(32, 64)) + 1] * 32


def one_fails(out):
    i = cuda.threadIdx.x
    if i == 5:
        raise ValueError("the sixth")
    cuda.syncthreads()
    out[i] = 1


def test_a_failure_ends_the_block() -> None:
    out = np.zeros(32, "i4")
    with pytest.raises(ValueError, match=r"tid=\[5, 0, 0\].*the sixth"):
        run(one_fails, 32, out)
    wait_for_threads()
    assert not out.any()


def test_a_thread_that_cannot_be_started_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def start(thread: Any) -> None:
        started.append(thread)
        if len(started) == 9:
            raise RuntimeError("can't start new thread")
        threading.Thread.start(thread)

    monkeypatch.setattr(simulated_block.BlockThread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run(sum_of_block, 256, np.zeros(256, "f4"), np.zeros(1, "f4"))
    assert len(started) == 9
    wait_for_threads()


def places(out):
    out[cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z] = cuda.atomic.add(out, (0, 0, 4), 1)


def test_threads_run_in_the_order_of_their_numbers() -> None:
    out = np.zeros((2, 3, 5), "i4")
    run(places, (2, 3, 4), out)
    assert out[:, :, :4].transpose(2, 1, 0).ravel().tolist() == list(range(24))
