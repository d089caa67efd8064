"""What the cases share that measure how fast a GPU's memory is gone through."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.harness import Setup

__all__ = ["COPY", "size", "swept"]

#: Name of the copy that others are compared with.
COPY = "atomr copy"
_WARM = 3
_MIB = 2**20
_TURNS = 200
_SHAPE = (8192, 4096)  # 64 MiB of bfloat16
_SMALL = (256, 256)


def size(setup: Setup) -> tuple[int, tuple[int, int]]:
    """Calls in a sample, and the matrix that each goes through: small in a quick run."""
    turns = setup.count(_TURNS)
    return turns, _SHAPE if turns == _TURNS else _SMALL


def swept(tell: Callable[[], object], wait: Callable[[], object], turns: int, nbytes: float) -> Callable[[], float]:
    """Sample: microseconds in which 64 MiB are read or written, of `turns` calls that move `nbytes` each."""

    def sample() -> float:
        for _ in range(_WARM):
            tell()
        wait()
        start = time.perf_counter_ns()
        for _ in range(turns):
            tell()
        wait()
        return (time.perf_counter_ns() - start) / 1e3 / turns * (64 * _MIB / nbytes)

    return sample
