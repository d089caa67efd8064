"""A user's kernel that writes where it must not: the fault names it, and the program goes on."""

from __future__ import annotations

from typing import Any

import fake_kernels
import numpy as np
import pytest

import atomr_native as an

TRAPPED = """
extern "C" __global__ void wild(float *x, long far) { if (far) asm volatile("trap;"); x[0] += 1; }
"""


def wild(x, far):
    x[far] += 1


def kernel_of(device: an.Device, engine: str) -> Any:
    if engine == "fake":
        return fake_kernels.make(device, TRAPPED, "wild", (8, 8))
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    return device.kernel(wild)


def test_a_fault_names_the_kernel(cuda_engine: str) -> None:
    with an.System(max_restarts=5) as system:
        device = system.device("cuda:0")
        kept = device.put(np.arange(4, dtype=np.float32), durable=True).wait()
        launch = kernel_of(device, cuda_engine)[1, 1]
        reply = launch(device.zeros(4), 1 << 40)
        with pytest.raises(an.DeviceFault, match=r"kernel\.wild") as caught:
            reply.result(60)
        assert caught.value.suspects[0].operation == "kernel.wild"
        assert caught.value.restarted
        device.wait_ready(60)
        launch(kept, 0).result(60)  # the same kernel, on the next worker
        np.testing.assert_array_equal(kept.numpy(), [1, 1, 2, 3])


@pytest.mark.gpu
def test_checked_it_is_no_fault() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with an.System(debug=True) as system:
        device = system.device("cuda:0")
        with pytest.raises(an.LibraryError, match=r"index 1099511627776 is out of bounds.*size 4.*x.far"):
            device.kernel(wild)[1, 1](device.zeros(4), 1 << 40).result(60)
        assert device.generation == 1
