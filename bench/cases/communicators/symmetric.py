"""Collectives of symmetric arrays of two GPUs, beside those of ordinary arrays and of NCCL in C."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.cases.communicators._ranks import Ranks, add_c, begin, engines, ranks
from bench.harness import Case, Setup

__all__ = ["CASES"]

KIB, MIB = 1 << 10, 1 << 20
SMALL = ("all_reduce", (8, 4 * KIB, 64 * KIB))
LARGE = (("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), (MIB, 16 * MIB, 256 * MIB))
BY_ENGINES = ("all_gather", "all_to_all")
NAMES = {8: "8 B", 4 * KIB: "4 KiB", 64 * KIB: "64 KiB", MIB: "1 MiB", 16 * MIB: "16 MiB", 256 * MIB: "256 MiB"}


def _add(setup: Setup, name: str, made: Callable[[Setup], Ranks], work: str, nbytes: int, count: int) -> None:
    symmetric = not name.startswith("ordinary")

    def make() -> Callable[[], float]:
        return made(setup).told(work, nbytes, count, sustained=True, symmetric=symmetric)

    with setup.attempt(name):
        setup.need()
        setup.add(name, make())


def gpu_symmetric(setup: Setup) -> None:
    """Collectives of two GPUs, sustained, by their plan; microseconds of each.

    *symmetric*: arrays of `Communicator.symmetric`, in windows of NCCL. *engines*: those of a communicator that was
    made with ``copy_engines=True``. *ordinary*: other arrays. C: the calls of NCCL with ordinary memory, a process for
    each GPU.
    """
    begin(setup, f"all_reduce:{LARGE[1][-1] if setup.count(1000) == 1000 else 64 * KIB}:sustained", "twin")
    work, sizes = SMALL
    rows = [(work, nbytes, setup.count(1000)) for nbytes in sizes]
    rows += [(work, nbytes, setup.count(50)) for work in LARGE[0] for nbytes in LARGE[1]]
    for work, nbytes, count in rows:
        size = nbytes if setup.count(1000) == 1000 else min(nbytes, 64 * KIB)  # a quick run has few bytes
        what, add = f"{work}, {NAMES[nbytes]}", partial(_add, setup, work=work, nbytes=size, count=count)
        add(f"symmetric {what}", ranks)
        add(f"ordinary {what}", ranks)
        add_c(setup, f"C {what}", f"{work}:{size}:sustained", count)
        if work in BY_ENGINES:
            add(f"engines {what}", engines)
            setup.ratio(f"engines {what}", f"ordinary {what}")
        setup.ratio(f"symmetric {what}", f"ordinary {what}")
        setup.ratio(f"symmetric {what}", f"C {what}")


CASES = (
    Case("gpu_collectives_symmetric", "Collectives of symmetric arrays", gpu_symmetric, devices=("cuda",), rounds=11),
)
