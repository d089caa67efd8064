"""What the cases share: opening the package, and the timing loops.

The only place that knows how a System is opened and what a native no-op is called.  When the public API moves,
this file moves with it, and the cases stay.

A loop body makes the measured call directly, with everything it needs in locals.  Included are the call, the
``for`` loop around it (about 0.015 us a turn) and one pair of clock reads a sample; nothing is subtracted.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bench.harness.harness import Kind, Setup, median
from bench.harness.unavailable import Unavailable

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "PLACES",
    "Body",
    "REST_SECONDS",
    "SPIN_US",
    "add_best",
    "asks",
    "awaited",
    "burst",
    "device",
    "noop",
    "opened",
    "repeat",
    "rested",
    "system",
    "timed",
    "waiter",
]

Body = Callable[[int], object]
T = TypeVar("T")

PLACES = ("process", "thread")
REST_SECONDS = 0.001
SPIN_US = 50
DEEP_MAILBOX = 65536
WAIT_SECONDS = 60.0


@contextmanager
def opened(name: str, isolation: str, options: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """A System and one of its devices, ready for use.

    Raises
    ------
    Unavailable
        The package is not built, or has no such device here.
    """
    try:
        an = importlib.import_module("atomr_native")
    except ImportError as error:
        raise Unavailable(f"atomr_native does not import: {error}") from error
    if not hasattr(an, "System"):
        raise Unavailable("atomr_native has no System: it is not built")
    with an.System(isolation=isolation, **options) as made:
        try:
            dev = made.device(name)
        except an.Unsupported as error:
            raise Unavailable(str(error)) from error
        dev.wait_ready(WAIT_SECONDS)
        yield made, dev


def system(setup: Setup, isolation: str, **options: Any) -> tuple[Any, Any]:
    """The case's System of that isolation and its device; opened once per case and set of options.

    The mailbox is deep (65536) unless an option says otherwise, so that a burst of 10 000 tells never waits for room.
    """
    options.setdefault("mailbox_size", DEEP_MAILBOX)
    key = (isolation, tuple(sorted(options.items())))
    return setup.shared(key, lambda: opened(setup.device, isolation, options))


def device(setup: Setup, isolation: str, **options: Any) -> Any:
    """The device of `system`."""
    return system(setup, isolation, **options)[1]


def noop(dev: Any, name: str = "bench") -> Any:
    """A plan without operands that the lane `name` answers natively; opening a lane twice is avoided."""
    return dev.lane(name).noop()


def repeat(call: Callable[[], object]) -> Body:
    """A loop body: a call without arguments, bound to a local."""

    def body(count: int) -> None:
        local = call
        for _ in range(count):
            local()

    return body


def asks(ask: Callable[[], Any]) -> Body:
    """A loop body: ask, and wait for the reply."""

    def body(count: int) -> None:
        local = ask
        for _ in range(count):
            local().result()

    return body


def waiter(ask: Callable[[], Any]) -> Callable[[], object]:
    """One ask that is waited for, as a call: it drains a lane."""

    def wait() -> object:
        return ask().result()

    return wait


def timed(body: Body, count: int) -> Callable[[], float]:
    """Sample: `count` turns of a loop body, microseconds each."""

    def sample() -> float:
        clock = time.perf_counter_ns
        start = clock()
        body(count)
        return (clock() - start) / 1e3 / count

    return sample


@contextmanager
def _one_cpu() -> Iterator[None]:
    """Let this thread, and those that it starts meanwhile, run on one CPU only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def add_best(
    setup: Setup,
    name: str,
    make: Callable[[], AbstractContextManager[T]],
    sample: Callable[[T], Callable[[], float]],
    kind: Kind = "atomr",
) -> None:
    """Add a contender whose threads are in this process, at its best: in each round the faster of two ways.

    Two threads that wake each other take many times as long where the system puts them on two CPUs that sleep, which it
    does or does not for minutes.  So there are two of the contender: one where the system wants it, and one whose
    threads, the caller's among them, share one CPU.
    """
    with setup.attempt(name, kind):
        free = sample(setup.enter(make()))
        with _one_cpu():
            near = sample(setup.enter(make()))

        def best() -> float:
            with _one_cpu():
                on_one = near()
            return min(free(), on_one)

        setup.add(name, best)


def burst(body: Body, drain: Callable[[], object], count: int) -> Callable[[], float]:
    """Sample: what `count` turns cost the caller; `drain` waits for the work before and after, untimed.

    A few turns go first, untimed, so that the receiver is awake.
    """
    measure = timed(body, count)

    def sample() -> float:
        drain()
        body(10)
        us = measure()
        drain()
        return us

    return sample


def rested(call: Callable[[], object], count: int, drain: Callable[[], object] | None = None) -> Callable[[], float]:
    """Sample: median of `count` single calls, each after a sleep of 1 ms, by which the receiver has parked.

    Each is timed alone, so two clock reads (about 0.08 us) are included.
    """

    def sample() -> float:
        clock = time.perf_counter_ns
        times = []
        for _ in range(count):
            time.sleep(REST_SECONDS)
            start = clock()
            call()
            times.append((clock() - start) / 1e3)
            if drain is not None:
                drain()
        return median(times)

    return sample


def awaited(loop: asyncio.AbstractEventLoop, ask: Callable[[], Awaitable[object]], count: int) -> Callable[[], float]:
    """Sample: `count` awaits, one after the other, in one coroutine on `loop`; microseconds each."""

    async def body() -> float:
        local, clock = ask, time.perf_counter_ns
        start = clock()
        for _ in range(count):
            await local()
        return (clock() - start) / 1e3 / count

    return lambda: loop.run_until_complete(body())
