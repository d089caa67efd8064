"""Batches and many lanes: throughput of messages that are waited for together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.harness import Case, Setup, peers
from bench.harness.common import PLACES, device, noop, waiter

__all__ = ["CASES", "batched"]

SIZES = (1, 10, 100, 1000)
LANES = (1, 4, 16)


def batched(tell: Callable[[], object], finish: Callable[[], object], size: int, repeats: int) -> Callable[[], float]:
    """Sample: `repeats` times (`size` - 1 tells, then one ask and its wait); microseconds per message."""

    def sample() -> float:
        local, end, clock = tell, finish, time.perf_counter_ns
        start = clock()
        for _ in range(repeats):
            for _ in range(size - 1):
                local()
            end()
        return (clock() - start) / 1e3 / (repeats * size)

    return sample


def batches(setup: Setup) -> None:
    """Time per message of no-ops sent k at a time: k - 1 tells, then one ask that is waited for.

    About 10 000 messages a sample (2000 for peers).  The lane does the same work in the meantime, so this is the
    sustained rate where k is large and the round trip where k is 1.
    """
    total, few = setup.count(10_000), setup.count(2000)
    for size in SIZES:
        for place in PLACES:
            name = f"atomr {place}, {size}"
            with setup.attempt(name):
                plan = noop(device(setup, place))
                setup.add(name, batched(plan.tell, waiter(plan.ask), size, max(1, total // size)))
        setup.twin(f"C threads, {size}", "batch", "--batch", size, "--count", total)
        setup.twin(f"C processes, {size}", "batch", "--place", "processes", "--batch", size, "--count", total)
        for label, make in (("SimpleQueue", peers.queue_actor), ("Pykka", peers.pykka_actor)):
            name = f"{label}, {size}"
            with setup.attempt(name, kind="peer"):
                actor = setup.shared(label, make)
                setup.add(name, batched(actor.tell, actor.ask, size, max(1, few // size)))
        setup.ratio(f"atomr process, {size}", f"C processes, {size}")
        setup.ratio(f"atomr thread, {size}", f"C threads, {size}")


def _round_robin(plans: list[Any], rounds: int) -> Callable[[], float]:
    tells = [plan.tell for plan in plans]
    asks = [plan.ask for plan in plans]

    def sample() -> float:
        clock = time.perf_counter_ns
        start = clock()
        for _ in range(rounds - 1):
            for tell in tells:
                tell()
        for reply in [ask() for ask in asks]:
            reply.result()
        return (clock() - start) / 1e3 / (rounds * len(tells))

    return sample


def lanes(setup: Setup) -> None:
    """Time per no-op message, sent in turn to 1, 4 and 16 lanes, until the last of every lane has answered.

    About 9600 messages a sample, from one sending thread.  With more lanes than cores the lanes share them.
    """
    total = setup.count(9600)
    for number in LANES:
        rounds = max(2, total // number)
        for place in PLACES:
            name = f"atomr {place}, {number}"
            with setup.attempt(name):
                dev = device(setup, place)
                plans = [noop(dev, f"bench{index}") for index in range(number)]
                setup.add(name, _round_robin(plans, rounds))
        for where in ("threads", "processes"):
            setup.twin(
                f"C {where}, {number}",
                "batch", "--place", where, "--lanes", number, "--batch", rounds, "--count", total,
            )  # fmt: skip
        setup.ratio(f"atomr process, {number}", f"C processes, {number}")
        setup.ratio(f"atomr thread, {number}", f"C threads, {number}")


CASES = (
    Case("batch", "Batches: no-ops, then wait for the last", batches),
    Case("lanes", "1, 4 and 16 lanes of no-ops", lanes),
)
