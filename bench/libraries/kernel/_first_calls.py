"""First calls of kernels in a fresh process: arguments are LIBRARY ORDINAL KERNEL...

Prints a line of JSON with the milliseconds of each kernel: from the source to the end of its first launch.  Before, the
library's modules are imported, the device is in use, and the arguments are there; without kernels, that is all.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.harness import describe

__all__ = ["CALLS", "KERNELS", "NUMBA", "main"]

NUMBA = "Numba kernel"
PLAIN = """
extern "C" __global__ void scale(double *x, double m, double a) {
  if (threadIdx.x < 32) x[threadIdx.x] = x[threadIdx.x] * m + a;
}
"""
HEADERS = """
#include <cub/block/block_reduce.cuh>
#include <cuda/std/complex>
extern "C" __global__ void scale(double *x, double m, double a) {
  using reduction = cub::BlockReduce<NUMBER, 32>;
  __shared__ typename reduction::TempStorage shared;
  const cuda::std::complex<double> value(x[threadIdx.x] * m + a, 1.0);
  const NUMBER sum = reduction(shared).Sum(static_cast<NUMBER>((value * value).real()));
  x[threadIdx.x] = threadIdx.x == 0 ? sum : 0;
}
"""
#: Source and whether it needs CCCL's headers, by name; the last three begin with the same headers.
KERNELS: dict[str, tuple[str, bool]] = {
    "CUDA C++": (PLAIN, False),
    **{
        f"CUDA C++ with CCCL, {which}": (HEADERS.replace("NUMBER", number), True)
        for which, number in (("1st", "double"), ("2nd", "float"), ("3rd", "int"))
    },
}
STANDARD = "--std=c++17"

cuda: Any = None


def _has_headers() -> bool:
    from atomr_native.compile.nvrtc import toolkit_headers  # type: ignore[import-untyped,unused-ignore]

    return any(Path(folder, "cub/block/block_reduce.cuh").exists() for folder in toolkit_headers())


def _numba_kernel() -> Any:
    from numba import cuda as module  # type: ignore[import-not-found,unused-ignore]

    global cuda
    cuda = module

    def scale(x: Any, m: float, a: float) -> None:
        i = cuda.threadIdx.x
        if i < x.size:
            x[i] = x[i] * m + a

    return scale


#: From the name of a kernel to what makes it, launches it and waits.
Calls = Callable[[str], Callable[[], object]]


def _atomr(ordinal: int, stack: ExitStack) -> Calls:
    function = _numba_kernel()
    import atomr_native as an
    from atomr_native.compile.nvrtc import toolkit_headers  # type: ignore[import-untyped,unused-ignore]

    device = stack.enter_context(an.System()).device(f"cuda:{ordinal}")
    device.wait_ready(60.0)
    x = device.zeros((32,), "float64")
    x.wait()

    def call(name: str) -> Callable[[], object]:
        if name == NUMBA:
            kernel = cuda.jit(function)
            return lambda: device.kernel(kernel)[1, 32](x, 0.5, 0.5).result()
        source, headers = KERNELS[name]
        include = toolkit_headers() if headers else ()
        return lambda: device.cuda_kernel(source, "scale", options=[STANDARD], include=include)[1, 32](
            x, 0.5, 0.5
        ).result()

    return call


def _numba(ordinal: int, _: ExitStack) -> Calls:
    function = _numba_kernel()
    import numpy as np

    cuda.select_device(ordinal)
    x = cuda.to_device(np.zeros(32))
    kernel = cuda.jit(cache=True)(function)

    def launch() -> None:
        kernel[1, 32](x, 0.5, 0.5)
        cuda.synchronize()

    return lambda _: launch


def _cupy(ordinal: int, _: ExitStack) -> Calls:
    import cupy  # type: ignore[import-not-found,import-untyped,unused-ignore]

    from atomr_native.compile.nvrtc import toolkit_headers

    device = cupy.cuda.Device(ordinal)
    device.use()
    x = cupy.zeros(32)
    device.synchronize()

    def call(name: str) -> Callable[[], object]:
        source, headers = KERNELS[name]
        include = [f"-I{folder}" for folder in toolkit_headers()] if headers else []

        def launch() -> None:
            cupy.RawKernel(source, "scale", options=(STANDARD, *include))((1,), (32,), (x, 0.5, 0.5))
            device.synchronize()

        return launch

    return call


#: What is measured of each library.
CALLS: dict[str, tuple[Callable[[int, ExitStack], Calls], tuple[str, ...]]] = {
    "atomr": (_atomr, (NUMBA, *KERNELS)),
    "Numba": (_numba, (NUMBA,)),
    "CuPy": (_cupy, tuple(KERNELS)[:2]),
}


def main(words: Sequence[str]) -> int:
    """Run one process's calls; returns the exit status: 3 and a reason where the library cannot run."""
    library, ordinal, *kernels = words
    found = {}
    with ExitStack() as stack:
        try:
            calls = CALLS[library][0](int(ordinal), stack)
        except Exception as error:
            print(describe(error), file=sys.stderr)
            return 3
        for name in kernels:
            if name in KERNELS and KERNELS[name][1] and not _has_headers():
                continue
            call = calls(name)
            start = time.perf_counter_ns()
            call()
            found[name] = (time.perf_counter_ns() - start) / 1e6
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
