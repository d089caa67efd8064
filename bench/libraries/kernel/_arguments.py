"""Kernels of 0 to 16 arguments, and how the Python peers launch them.

One argument: an array.  Three: an array and two numbers.  Eight, 16: as many arrays as numbers.  A launch is one block
of 32 threads, which goes through arrays of 32 float64 and writes the first; without arguments it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from bench.harness.gpu_peers import ELEMENTS, Calls, cupy, numba_cuda, numba_device

__all__ = ["KERNELS", "cupy_calls", "numba_calls", "numba_kernels", "numbers"]

#: Arrays and numbers of each kernel, by how many arguments it has.
KERNELS = {0: (0, 0), 1: (1, 0), 3: (1, 2), 8: (4, 4), 16: (8, 8)}

#: The module numba.cuda, once it is needed; Numba wants it as a global of its kernels.
cuda: Any = None


@cache
def numba_kernels() -> dict[int, Any]:
    """Return the kernels, not compiled yet, by how many arguments they have."""
    global cuda
    cuda = numba_cuda()

    def none() -> None:
        pass

    def one(x: Any) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            x[i] = x[i] + 1.0

    def three(x: Any, m: float, a: float) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            x[i] = x[i] * m + a

    def eight(x: Any, y: Any, z: Any, w: Any, m: float, n: float, o: float, p: float) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            x[i] = x[i] * m + y[i] * n + z[i] * o + w[i] * p

    def sixteen(
        x: Any, y: Any, z: Any, w: Any, e: Any, f: Any, g: Any, h: Any,
        m: float, n: float, o: float, p: float, q: float, r: float, s: float, t: float,
    ) -> None:  # fmt: skip
        i = cuda.threadIdx.x
        if i < x.size:
            low = x[i] * m + y[i] * n + z[i] * o + w[i] * p
            x[i] = low + e[i] * q + f[i] * r + g[i] * s + h[i] * t

    functions = (none, one, three, eight, sixteen)
    return {number: cuda.jit(f) for number, f in zip(KERNELS, functions, strict=True)}


def numbers(number: int) -> tuple[float, ...]:
    """Return the numbers among the arguments."""
    return (0.5,) * KERNELS[number][1]


def numba_calls(ordinal: int) -> Calls:
    """The kernels launched by Numba's dispatchers, configured beforehand, by how many arguments they have."""
    kernels = numba_kernels()
    numba_device(ordinal)

    import numpy as np

    calls: dict[str, Callable[[], object]] = {}
    for number, (arrays, _) in KERNELS.items():
        given = [cuda.to_device(np.zeros(ELEMENTS)) for _ in range(arrays)]
        calls[str(number)] = partial(kernels[number][1, ELEMENTS], *given, *numbers(number))
        calls[str(number)]()
    cuda.synchronize()
    return Calls(calls, cuda.synchronize)


def _source(number: int) -> str:
    """Return a kernel in CUDA C++."""
    arrays, scalars = KERNELS[number]
    parameters = [f"double *x{i}" for i in range(arrays)] + [f"double m{i}" for i in range(scalars)]
    if number == 1:
        value = "x0[i] + 1.0"
    elif number == 3:
        value = "x0[i] * m0 + m1"
    else:
        value = " + ".join(f"x{i}[i] * m{i}" for i in range(arrays))
    body = f"int i = threadIdx.x; if (i < {ELEMENTS}) x0[i] = {value};" if arrays else ""
    return f'extern "C" __global__ void k{number}({", ".join(parameters)}) {{ {body} }}'


def cupy_calls(ordinal: int) -> Calls:
    """The kernels as RawKernels of CuPy, by how many arguments they have."""
    module = cupy(ordinal)
    calls: dict[str, Callable[[], object]] = {}
    for number, (arrays, _) in KERNELS.items():
        kernel = module.RawKernel(_source(number), f"k{number}")
        given = (*(module.zeros(ELEMENTS) for _ in range(arrays)), *numbers(number))
        calls[str(number)] = partial(kernel, (1,), (ELEMENTS,), given)
    return Calls(calls, module.cuda.Device(ordinal).synchronize)
