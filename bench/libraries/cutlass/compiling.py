"""How long kernels of `device.cutlass` take to compile: new ones, from the cache on disk, and with another function."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.harness import Case, Setup

__all__ = ["CASES"]

_EXTENT: Final = 4096
_CACHE: Final = "ATOMR_NATIVE_CACHE"


def _scaled(factor: float) -> Callable[[float], float]:
    """Return a function of an epilogue with a constant of its own."""

    def scaled(acc: float) -> float:
        return acc / (1.0 + factor * acc * acc)

    return scaled


def _milliseconds(epilogue: Any) -> float:
    """Return what it takes to get the kernel of a product, as a plan does."""
    import ml_dtypes
    import numpy as np

    import atomr_native as an
    from atomr_native.libraries.cutlass.precompile import precompile, wanted_of

    a, b = (np.empty((_EXTENT, _EXTENT), ml_dtypes.bfloat16) for _ in range(2))
    ((_, seconds, problem),) = precompile(list(wanted_of([an.GemmRequest(a=a, b=b.T, epilogue=epilogue)])), (9, 0))
    if problem is not None:
        raise problem
    return 1e3 * seconds


def _measured() -> dict[str, float]:
    """Return milliseconds by name; the two new kernels compile at the same time."""
    tree, function, other = "gelu_tanh(acc) * 0.5", _scaled(0.25), _scaled(0.5)
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get(_CACHE)
        os.environ[_CACHE] = folder
        try:
            with ThreadPoolExecutor(2) as pool:
                found = dict(zip(("new, tree", "new, Python function"), pool.map(_milliseconds, (tree, function)),
                                 strict=True))  # fmt: skip
            found["another Python function"] = _milliseconds(other)
            found["from disk, tree"] = _milliseconds(tree)
            found["from disk, Python function"] = _milliseconds(function)
        finally:
            if before is None:
                del os.environ[_CACHE]
            else:
                os.environ[_CACHE] = before
    return found


def compiling(setup: Setup) -> None:
    """Time to get a kernel of sm_90a, bfloat16: measured once, before the only round, with an empty cache on disk."""
    found: dict[str, float] = {}
    problem: BaseException | None = None
    if not setup.dry:
        try:
            found = _measured()
        except Exception as error:
            problem = error
    names = ("new, tree", "new, Python function", "another Python function", "from disk, tree",
             "from disk, Python function")  # fmt: skip
    for name in names:
        with setup.attempt(name):
            setup.need()
            if problem is not None:
                raise problem
            setup.add(name, lambda name=name: found[name])


CASES = (Case("gpu_cutlass_compiling", "Compilation of CUTLASS's kernels", compiling, "ms", 1, devices=("cuda",)),)
