"""First calls of kernels on a GPU, each in a fresh process: compiled, and from the disk cache of an earlier process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count

from bench.harness import Case, Setup, Unavailable
from bench.harness.gpu import ordinal
from bench.harness.machine import ROOT
from bench.libraries.kernel._first_calls import CALLS, NUMBA

__all__ = ["CASES"]

LIMIT_SECONDS = 50.0
#: Where the libraries, and the driver, keep what they have compiled.
CACHES = ("ATOMR_NATIVE_CACHE", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")
CANNOT_RUN = 3


def _process(library: str, number: int, kernels: Sequence[str], cache: str) -> dict[str, float]:
    """Milliseconds of the first calls in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.libraries.kernel._first_calls", library, str(number), *kernels],
        env={**os.environ, **dict.fromkeys(CACHES, cache)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    last = (done.stderr.strip().splitlines() or ["not a word"])[-1]
    if done.returncode == CANNOT_RUN:
        raise Unavailable(f"{library}: {last}")
    if done.returncode:
        raise RuntimeError(f"the process of {library} ended with {done.returncode}: {last}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _add(setup: Setup, library: str, kernels: Sequence[str]) -> None:
    name = library
    with setup.attempt(name, kind="atomr" if library == "atomr" else "peer"):
        setup.need()
        number = ordinal(setup)
        # Reads the library's files once, as those of the others are, and shows whether it runs here.
        _process(library, number, (), setup.enter(tempfile.TemporaryDirectory()))
        rounds = count()

        def sample() -> Mapping[str, float]:
            if next(rounds) == 0:
                return {}  # the round that warms up, which is not kept
            with tempfile.TemporaryDirectory() as cache:
                first, second = (_process(library, number, kernels, cache) for _ in range(2))
            return {
                **{f"{kernel}, compiled": ms for kernel, ms in first.items()},
                **{f"{kernel}, from the cache": ms for kernel, ms in second.items()},
            }

        setup.add(name, sample)


def first_calls(setup: Setup) -> None:
    """From a kernel's source to the end of its first launch, in a process that has not compiled any yet.

    "compiled": the disk caches are empty; "from the cache": the same again in another process. Modules are imported,
    the device is in use and the array is there before. Kernels of three arguments: ``x = x * m + a`` in Numba
    (``cache=True`` in Numba's own process) and CUDA C++, and in CUDA C++ three with cub's block reduction and
    `cuda::std::complex`, one after the other in one process; they differ in the type of number. CuPy: RawKernel, the
    first two.
    """
    for library, (_, kernels) in CALLS.items():
        _add(setup, library, kernels)
    for how in ("compiled", "from the cache"):
        setup.ratio(f"atomr: {NUMBA}, {how}", f"Numba: {NUMBA}, {how}")
        for kernel in CALLS["CuPy"][1]:
            setup.ratio(f"atomr: {kernel}, {how}", f"CuPy: {kernel}, {how}")


CASES = (
    Case("gpu_compile", "First calls of kernels, in fresh processes", first_calls, "ms", rounds=2, devices=("cuda",)),
)
