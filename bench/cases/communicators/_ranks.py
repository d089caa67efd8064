"""What the cases of communicators share: two devices, arrays on them, and the programs beside them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from bench.harness import Setup, Unavailable
from bench.harness.common import DEEP_MAILBOX, opened
from bench.harness.gpu import ordinal
from bench.harness.programs import Program, build, start

__all__ = ["RANKS", "Ranks", "add_c", "add_torch", "begin", "engines", "of_system", "ranks"]

RANKS = 2


def _warm(nbytes: int) -> int:
    """Calls before a sample, as ranks.c and _torch.py have them: few of those that take milliseconds each."""
    return 5 if nbytes < 1 << 28 else 1


class Ranks:
    """A communicator of two devices, and two arrays on each, of `room` bytes at first, which grow."""

    def __init__(self, system: Any, names: list[str], room: int = 0, **options: Any) -> None:
        import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

        try:
            self.comm = system.communicator(names, **options)
        except an.Unsupported as error:
            raise Unavailable(str(error)) from error
        self.request = an.CollectiveRequest
        self._least, self._room = room, 0
        self._arrays: list[list[Any]] = []
        self._symmetric: list[list[Any]] = []

    def symmetric(self, nbytes: int) -> list[list[Any]]:
        """Like `arrays`, but symmetric ones."""
        if not self._symmetric or nbytes > self._symmetric[0][0].nbytes:
            self._symmetric.clear()
            self._symmetric = [self.comm.symmetric(nbytes // 4) for _ in range(2)]
            if self.comm.notes:
                raise Unavailable(self.comm.notes[0])
            for ref in (ref for refs in self._symmetric for ref in refs):
                ref.fill(0.0)
        return [[ref[: nbytes // 4] for ref in refs] for refs in self._symmetric]

    def arrays(self, nbytes: int) -> list[list[Any]]:
        """Two arrays of float32 on each rank: an array, and another for its result."""
        if nbytes > self._room:
            self._arrays.clear()
            self._room = max(nbytes, self._least)
            self._arrays = [[device.zeros((self._room // 4,)) for device in self.comm.devices] for _ in range(2)]
        return [[ref[: nbytes // 4] for ref in refs] for refs in self._arrays]

    def collective(self, work: str, nbytes: int, *, symmetric: bool = False) -> tuple[Any, Any, Any]:
        """The plan of a collective, whose larger array has so many bytes, its arrays, and its outputs."""
        x, out = self.symmetric(nbytes) if symmetric else self.arrays(nbytes)
        part = nbytes // 4 // RANKS
        if work == "all_gather":
            x = [ref[:part] for ref in x]
        elif work == "reduce_scatter":
            out = [ref[:part] for ref in out]
        given: Any = x[0] if work in ("broadcast", "send") else x
        into: Any = out[0] if work == "reduce" else out[1] if work == "send" else out
        root = 1 if work == "send" else 0
        plan = self.comm.plan(self.request(work, given, out=into, root=root))
        return plan, given, into

    def told(
        self, work: str, nbytes: int, count: int, *, sustained: bool, symmetric: bool = False
    ) -> Callable[[], float]:
        """Sample: microseconds of each of `count` tells, for the caller or until the last is done."""
        plan, given, into = self.collective(work, nbytes, symmetric=symmetric)

        warm = _warm(nbytes)

        def sample() -> float:
            tell, x, out, clock = plan.tell, given, into, time.perf_counter_ns
            for _ in range(warm):
                tell(x, out=out)
            plan.ask(x, out=out).result()
            start = clock()
            for _ in range(count - 1):
                tell(x, out=out)
            if not sustained:
                spent = clock() - start
                plan.ask(x, out=out).result()
                return spent / 1e3 / max(1, count - 1)
            plan.ask(x, out=out).result()
            return (clock() - start) / 1e3 / count

        return sample

    def asked(self, work: str, nbytes: int, count: int, *, symmetric: bool = False) -> Callable[[], float]:
        """Sample: microseconds of an ask that is waited for, `count` times one after the other."""
        plan, given, into = self.collective(work, nbytes, symmetric=symmetric)

        def sample() -> float:
            ask, x, out, clock = plan.ask, given, into, time.perf_counter_ns
            for _ in range(_warm(nbytes)):
                ask(x, out=out).result()
            start = clock()
            for _ in range(count):
                ask(x, out=out).result()
            return (clock() - start) / 1e3 / count

        return sample


@contextmanager
def of_system(setup: Setup, **options: Any) -> Iterator[Ranks]:
    """Ranks in a System of their own."""
    kind, first = setup.device.partition(":")[0], ordinal(setup)
    names = [f"{kind}:{first}", f"{kind}:{first + 1}"]
    options.setdefault("mailbox_size", DEEP_MAILBOX)
    made_with = {name: options.pop(name) for name in ("copy_engines", "room") if name in options}
    with opened(names[0], "process", options) as (system, _):
        made = Ranks(system, names, **made_with)
        try:
            yield made
        finally:
            made.comm.close()


def ranks(setup: Setup, room: int = 0) -> Ranks:
    """The case's ranks, with arrays of at least so many bytes."""
    return setup.shared("ranks", lambda: of_system(setup, room=room))


def engines(setup: Setup) -> Ranks:
    """Ranks whose symmetric arrays move by copy engines."""
    return setup.shared("engines", lambda: of_system(setup, copy_engines=True))


def _c() -> list[str]:
    return [str(build("ranks"))]


def _torch() -> list[str]:
    return [sys.executable, "-m", "bench.cases.communicators._torch"]


_COMMANDS: dict[Any, Callable[[], list[str]]] = {"twin": _c, "peer": _torch}


@contextmanager
def _begun(setup: Setup, kind: Any, request: str) -> Iterator[Future[Program]]:
    """A program of two processes, which a thread builds, starts and asks for the first time meanwhile."""
    first = ordinal(setup)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:

        def run() -> Program:
            running = stack.enter_context(start([*_COMMANDS[kind](), str(first), str(first + 1)]))
            running.check(request)
            return running

        yield pool.submit(run)


def _program(setup: Setup, kind: Any, request: str) -> Future[Program]:
    return setup.shared((kind, "ranks"), partial(_begun, setup, kind, request))


def begin(setup: Setup, request: str, *kinds: Any) -> None:
    """Begin the programs beside, the C program ("twin") and torch.distributed ("peer"), while the System starts.

    Their first request is best of the largest arrays, which stay.
    """
    if not setup.dry:
        for kind in kinds:
            _program(setup, kind, request)


def _add(setup: Setup, name: str, request: str, count: int, kind: Any) -> None:
    with setup.attempt(name, kind=kind):
        running = _program(setup, kind, request).result()
        running.check(request)
        setup.add(name, lambda: running.sample(request, count))


def add_c(setup: Setup, name: str, request: str, count: int) -> None:
    """Add a contender of the C program with a process a GPU: ranks.c says how requests are named."""
    _add(setup, name, request, count, "twin")


def add_torch(setup: Setup, name: str, request: str, count: int) -> None:
    """Add torch.distributed, with a process a GPU: its requests are those of the C program."""
    _add(setup, name, request, count, "peer")
