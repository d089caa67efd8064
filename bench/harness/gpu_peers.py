"""The Python peers on a GPU: torch, CuPy, nvmath-python and Numba, each doing what the library's messages do.

Every function returns callables that enqueue and return at once, and `wait`, which waits for the device.  They run on
the default stream of the first visible GPU in this process, whose context they share.  A library that is not installed,
does not import, or sees no GPU raises `Unavailable`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from bench.harness.unavailable import Unavailable, describe

__all__ = [
    "ELEMENTS",
    "EXTENT",
    "Calls",
    "cupy",
    "cupy_calls",
    "numba_calls",
    "numba_cuda",
    "numba_device",
    "numba_kernel",
    "nvmath",
    "nvmath_fft",
    "nvmath_sparse",
    "torch",
    "torch_calls",
]

EXTENT = 32
ELEMENTS = 32
SOURCE = """
extern "C" __global__ void scale(double *x, double m, double a) {
  if (threadIdx.x < 32) x[threadIdx.x] = x[threadIdx.x] * m + a;
}
"""


#: The module numba.cuda, once it is needed; Numba wants it as a global of its kernels.
cuda: Any = None


@dataclass(frozen=True)
class Calls:
    """One library: `calls` by name, each of which enqueues one operation; `wait` for all of them."""

    calls: dict[str, Callable[[], object]]
    wait: Callable[[], object]


@cache
def _need(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} does not import: {error}") from error
    except Exception as error:  # numba.cuda with a NumPy that is too new for it: an AttributeError
        raise Unavailable(f"{name} does not import: {describe(error)}") from error


def torch(ordinal: int) -> Any:
    """The module torch, with this device current."""
    module = _need("torch")
    if not module.cuda.is_available():
        raise Unavailable("torch sees no GPU")
    module.cuda.set_device(ordinal)
    return module


def torch_calls(ordinal: int) -> Calls:
    """``mm`` and ``addmm`` of 32x32 bfloat16 with and without ``out=``, ``mul`` of 32 float64 with ``out=``."""
    module = torch(ordinal)
    square = partial(module.randn, (EXTENT, EXTENT), dtype=module.bfloat16, device="cuda")
    x, w, out = square(), square(), square()
    bias = module.randn(EXTENT, dtype=module.bfloat16, device="cuda")
    vector = module.zeros(ELEMENTS, dtype=module.float64, device="cuda")
    return Calls(
        {
            "mm out": partial(module.mm, x, w, out=out),
            "addmm out": partial(module.addmm, bias, x, w, out=out),
            "addmm": partial(module.addmm, bias, x, w),
            "mul out": partial(module.mul, vector, 1.0, out=vector),
        },
        module.cuda.synchronize,
    )


def cupy(ordinal: int) -> Any:
    """The module cupy, with this device current."""
    module = _need("cupy")
    try:
        seen = module.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise Unavailable(f"CuPy sees no GPU: {describe(error)}") from error
    if seen <= ordinal:
        raise Unavailable(f"CuPy sees {seen} GPUs")
    module.cuda.Device(ordinal).use()
    return module


def cupy_calls(ordinal: int) -> Calls:
    """``matmul`` of 32x32 float32 with ``out=`` (no bfloat16), and a RawKernel of three arguments."""
    module = cupy(ordinal)
    x, w, out = (module.ones((EXTENT, EXTENT), module.float32) for _ in range(3))
    kernel = module.RawKernel(SOURCE, "scale")
    arguments = (module.zeros(ELEMENTS), 1.0, 0.0)
    return Calls(
        {
            "matmul out": partial(module.matmul, x, w, out=out),
            "RawKernel": partial(kernel, (1,), (ELEMENTS,), arguments),
        },
        module.cuda.Device(ordinal).synchronize,
    )


def nvmath() -> Any:
    """The module nvmath.linalg.advanced, whose operands are torch's."""
    return _need("nvmath.linalg.advanced")


def nvmath_fft() -> Any:
    """The module nvmath.fft, whose operands are torch's."""
    return _need("nvmath.fft")


def nvmath_sparse() -> Any:
    """The module nvmath.sparse.advanced, whose operands are CuPy's."""
    return _need("nvmath.sparse.advanced")


def numba_cuda() -> Any:
    """The module numba.cuda."""
    return _need("numba.cuda")


def numba_device(ordinal: int) -> None:
    """Make this device the current one of Numba."""
    try:
        numba_cuda().select_device(ordinal)
    except Exception as error:
        raise Unavailable(f"Numba sees no GPU: {describe(error)}") from error


def numba_kernel() -> Any:
    """``x = x * m + a`` as a Numba kernel, not compiled yet."""
    global cuda
    cuda = numba_cuda()

    @cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
    def scale(x: Any, m: float, a: float) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            x[i] = x[i] * m + a

    return scale


def numba_calls(ordinal: int) -> Calls:
    """A compiled kernel of three arguments, with its launch configured beforehand."""
    kernel = numba_kernel()
    numba_device(ordinal)

    import numpy as np

    x = cuda.to_device(np.zeros(ELEMENTS))
    launch = kernel[1, ELEMENTS]
    launch(x, 1.0, 0.0)
    cuda.synchronize()
    return Calls({"launch": partial(launch, x, 1.0, 0.0)}, cuda.synchronize)
