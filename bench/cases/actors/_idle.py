"""The smallest actor, and samples of it; as a program, the same in a process of its own, for a build of `rebuilt`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Unavailable, rebuilt
from bench.harness.common import asks, burst, repeat, timed, waiter

__all__ = ["idle", "measures"]


@contextmanager
def idle(*, asynchronous: bool = False) -> Iterator[Any]:
    """The smallest actor, without a bound on its mailbox, in a System without devices."""
    try:
        an = importlib.import_module("atomr_native")
    except ImportError as error:
        raise Unavailable(f"atomr_native does not import: {error}") from error

    class Idle(an.Actor):  # type: ignore[misc,name-defined]
        def receive(self, message: object) -> None:
            """Do nothing."""

    class IdleAsync(an.Actor):  # type: ignore[misc,name-defined]
        async def receive(self, message: object) -> None:
            """Do nothing."""

    with an.System() as system:
        ref = system.spawn(IdleAsync if asynchronous else Idle, mailbox=an.Mailbox(None))
        ref.ask("ready").result(60)
        yield ref


def measures(ref: Any) -> tuple[Callable[[int], Callable[[], float]], Callable[[int], Callable[[], float]]]:
    """What makes samples of asking and of telling an actor, from how often."""
    asking, telling = asks(lambda: ref.ask("ask")), repeat(lambda: ref.tell("tell"))
    drain = waiter(lambda: ref.ask("ask"))
    return lambda count: timed(asking, count), lambda count: burst(telling, drain, count)


def main(folder: str) -> None:
    """Measure what is asked for on standard input, until that ends, with the package from a folder."""
    rebuilt.use(folder)
    with idle() as ref:
        samples = dict(zip(("ask", "tell"), measures(ref), strict=True))
        for line in sys.stdin:
            what, count = line.split()
            print(samples[what](int(count))(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
