"""Numba kernels that call CUDA C++, and those that synchronise their grid: compilation needs no GPU."""

from __future__ import annotations

import base64

import numpy as np
import pytest

import atomr_native as an

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
from numba import cuda

from atomr_native import _cubin, _kernel_code, _numba

CUBE = 'extern "C" __device__ int cube(float *r, float x) { *r = x * x * x; return 0; }'
cube = cuda.declare_device("cube", "float32(float32)", link=cuda.CUSource(CUBE))


@cuda.jit
def cubes(x):
    i = cuda.grid(1)
    x[i] = cube(x[i])


@cuda.jit
def waits(x):
    grid = cuda.cg.this_grid()
    x[0] = 1
    grid.sync()


@pytest.mark.parametrize("kernel", [cubes, waits])
def test_compilation(kernel):
    types = (_numba.array_type(np.dtype("f4"), 1, "C"),)
    made = _kernel_code.machine_code(kernel.py_func, types, (9, 0), _numba.jit_options(kernel))
    assert made.entry in _cubin.kernels(base64.b64decode(made.code))
    assert made.cooperative == (kernel is waits)


def test_the_host_device():
    with an.System() as system:
        device = system.device("host")
        x = device.put(np.arange(4, dtype=np.float32))
        with pytest.raises(an.Unsupported, match="stand_ins"):
            device.kernel(cubes)[1, 4](x)
        device.kernel(cubes, stand_ins={"cube": lambda v: v * v * v})[1, 4](x).result(60)
        np.testing.assert_array_equal(x.numpy(), np.arange(4) ** 3)
        with pytest.raises(an.Unsupported, match="synchronises its grid"):
            device.kernel(waits)[2, 1](x)
        device.kernel(waits)[1, 2](x).result(60)
