"""What the cases share that measure how fast a GPU's memory is gone through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from bench.harness import gpu_peers
from bench.harness.common import device
from bench.harness.gpu import ordinal
from bench.harness.harness import Setup

__all__ = ["COPY", "TORCH_COPY", "add_copies", "compare_copies", "size", "swept"]

#: Names of the copies that others are compared with.
COPY, TORCH_COPY = "atomr copy", "torch copy_"
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


def add_copies(setup: Setup, turns: int, shape: tuple[int, int]) -> None:
    """Add copies of a bfloat16 matrix: `Device.copy`, and torch's `copy_`, by which the bars are."""
    nbytes = 4.0 * shape[0] * shape[1]
    with setup.attempt(COPY):
        dev = device(setup, "process")
        source, target = (dev.zeros(shape, "bfloat16") for _ in range(2))
        setup.add(COPY, swept(partial(dev.copy, source, out=target), target.wait, turns, nbytes))
    with setup.attempt(TORCH_COPY, kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        a, b = (torch.ones(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        setup.add(TORCH_COPY, swept(partial(b.copy_, a), torch.cuda.synchronize, turns, nbytes))


def compare_copies(setup: Setup, names: Iterable[str]) -> None:
    """Compare what moves memory with the copies."""
    for name in (COPY, *names):
        setup.ratio(name, TORCH_COPY)
