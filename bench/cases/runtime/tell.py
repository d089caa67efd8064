"""Planned tell: what sending costs the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.harness import Bar, Case, Setup, peers
from bench.harness.common import PLACES, SPIN_US, Body, burst, device, noop, repeat, rested, waiter

__all__ = ["BARS", "CASES", "matmul_tell"]


def matmul_tell(dev: Any) -> tuple[Body, Body, Callable[[], object], Callable[[], object]]:
    """A planned tell with three handles (8x8 float32 matmul): loop bodies with all handles by position and with out=
    by keyword, a single call, and a wait for all sent.
    """
    import numpy as np

    eye = np.eye(8, dtype=np.float32)
    x, w, y = dev.put(eye), dev.put(eye), dev.empty((8, 8), "float32")
    plan = dev.blas_lt.plan(x, w)

    def body(count: int) -> None:
        tell, a, b, c = plan.tell, x, w, y
        for _ in range(count):
            tell(a, b, c)

    def named(count: int) -> None:
        tell, a, b, c = plan.tell, x, w, y
        for _ in range(count):
            tell(a, b, out=c)

    return body, named, lambda: plan.tell(x, w, out=y), y.wait


def awake(setup: Setup) -> None:
    """Cost to the caller of a tell while the receiver is awake and drains.

    The atomr rows send a planned 8x8 float32 matmul with three handles: three handle checks, dependency stamps, one
    ring place; the Python loop and the call are included. The no-op rows have no operands. 10 000 messages a sample,
    into a mailbox of 65536; waiting for the work is outside. Peers: the same loop.
    """
    count = setup.count(10_000)
    for place in PLACES:
        name = f"atomr {place}, lane awake"
        with setup.attempt(name):
            body, _, _, drain = matmul_tell(device(setup, place))
            setup.add(name, burst(body, drain, count))
        name = f"atomr {place}, lane awake, out= by keyword"
        with setup.attempt(name):
            _, named, _, drain = matmul_tell(device(setup, place))
            setup.add(name, burst(named, drain, count))
        name = f"atomr no-op {place}, lane awake"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, burst(repeat(plan.tell), waiter(plan.ask), count))
    for place in ("threads", "processes"):
        setup.twin(f"C ring, {place}, pinned apart", "enqueue", "--place", place, "--count", count)
    few = setup.count(2000)
    for name, make in (("queue.SimpleQueue", peers.queue_actor), ("Pykka", peers.pykka_actor)):
        with setup.attempt(name, kind="peer"):
            actor = setup.enter(make())
            setup.add(name, burst(repeat(actor.tell), actor.ask, few))
    setup.ratio("atomr process, lane awake", "Pykka")
    setup.ratio("atomr no-op process, lane awake", "C ring, processes, pinned apart")
    setup.ratio("atomr no-op thread, lane awake", "C ring, threads, pinned apart")


def parked(setup: Setup) -> None:
    """Cost to the caller of a tell that finds the receiver asleep, wake-up included.

    Each message is sent 1 ms after the last and timed alone; the median of 50 is one sample.
    """
    count = setup.count(50)
    for place in PLACES:
        name = f"atomr {place}, lane parked"
        with setup.attempt(name):
            _, _, tell, drain = matmul_tell(device(setup, place))
            setup.add(name, rested(tell, count, drain))
        name = f"atomr no-op {place}, lane parked"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, rested(plan.tell, count, waiter(plan.ask)))
    options = ("--spin-us", SPIN_US, "--rest-us", 1000, "--count", count)
    for place in ("threads", "processes"):
        setup.twin(f"C ring, {place}, pinned apart", "enqueue", "--place", place, *options)
    for name, make in (("queue.SimpleQueue", peers.queue_actor), ("Pykka", peers.pykka_actor)):
        with setup.attempt(name, kind="peer"):
            actor = setup.enter(make())
            setup.add(name, rested(actor.tell, count, actor.ask))
    setup.ratio("atomr no-op process, lane parked", "C ring, processes, pinned apart")


BARS = (*(Bar("planned tell, lane awake", "tell", f"atomr {p}, lane awake", 0.2, "us", part=p) for p in PLACES),)
CASES = (
    Case("tell", "Planned tell, lane awake", awake),
    Case("tell_parked", "Planned tell, lane parked", parked),
)
