"""What the cases of CUDA devices share: the kernel and the matmul that everybody runs, and how they are sent.

The kernel is ``x = x * m + a`` over 32 float64: one block, four arguments (the last says how many elements).  The C
programs launch the very machine code that the library's plan launches.  The matmul is 32x32x32 bfloat16 with a bias.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness.common import Body, burst, device, repeat
from bench.harness.harness import Kind, Setup

if TYPE_CHECKING:
    from bench.harness.gpu_peers import Calls
    from bench.harness.programs import Program

__all__ = [
    "ELEMENTS",
    "LANES",
    "Sends",
    "add_loop",
    "add_peer",
    "asked",
    "kernel",
    "matmul",
    "numba",
    "ordinal",
    "program_command",
    "sends_of_product",
    "squares",
    "sustained",
    "waited",
]

KERNEL = "x = x * m + a"
ELEMENTS = 32
EXTENT = 32
LANES = 4
WARM = 20
PROGRAMS = ("loops", "lanes")
#: Two kernels of different speed, with which lanes.c shows that order is kept.
ORDER = """
extern "C" __global__ void quick(unsigned long long *x, unsigned long long m, unsigned long long a) {
  if (threadIdx.x == 0) *x = *x * m + a;
}
extern "C" __global__ void slow(unsigned long long *x, unsigned long long m, unsigned long long a) {
  unsigned long long spent = m;
  for (int i = 0; i < 2000; i++) spent = spent * 6364136223846793005ull + a;
  if (threadIdx.x == 0) *x = *x * m + a + (spent == 0 && m == 0);
}
"""


def ordinal(setup: Setup) -> int:
    """Number of the case's device."""
    return int(setup.device.partition(":")[2] or 0)


# ---------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True)
class Sends:
    """One plan and its operands: `tells` sends so many in a loop, `ask` one that is waited for."""

    plan: Any
    operands: tuple[Any, ...]
    tells: Body
    ask: Callable[[], Any]

    def finish(self) -> object:
        """Send one more, and wait for it."""
        return self.ask().result()


def _actor(setup: Setup, place: str, kind: str, lane: int) -> Any:
    """A library actor on a lane of its own, one a case and number."""
    import atomr_native as an

    dev = device(setup, place)
    make = getattr(an, kind)
    return setup.shared((kind, place, lane), lambda: nullcontext(make(dev, f"bench {kind} {lane}")))


def kernel(setup: Setup, place: str, lane: int = 0, x: Any = None) -> Sends:
    """The kernel on lane `lane`, over `x` or an array of its own; its plan is built."""
    x = device(setup, place).zeros((ELEMENTS,), "float64") if x is None else x
    plan = _actor(setup, place, "ElementwiseActor", lane).plan(KERNEL, x=x, m=1.0, a=0.0).wait(60.0)
    return sends_of(plan, x)


def sends_of(plan: Any, x: Any) -> Sends:
    """Messages of a plan with one array, whose numbers are the plan's defaults."""

    def tells(count: int) -> None:
        tell, a = plan.tell, x
        for _ in range(count):
            tell(a)

    return Sends(plan, (x,), tells, partial(plan.ask, x))


def sends_of_product(plan: Any, x: Any, w: Any, out: Any) -> Sends:
    """Messages of a plan that multiplies two arrays into a third."""

    def tells(count: int) -> None:
        tell, a, b, d = plan.tell, x, w, out
        for _ in range(count):
            tell(a, b, d)

    return Sends(plan, (x, w, out), tells, partial(plan.ask, x, w, out))


def numba(setup: Setup, place: str) -> tuple[Any, Sends]:
    """The kernel as the user's Numba kernel, by the library: its launch, and its plan."""
    from bench.harness.gpu_peers import numba_kernel

    dev = device(setup, place)
    x = dev.zeros((ELEMENTS,), "float64")
    launch = dev.kernel(numba_kernel())[1, ELEMENTS]
    plan = launch.plan(x, 1.0, 0.0).wait(60.0)
    return launch, sends_of(plan, x)


def squares(dev: Any, number: int) -> list[Any]:
    """So many 32x32 arrays of bfloat16, and a bias."""
    import numpy as np

    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((EXTENT, EXTENT)) for _ in range(number)]
    return [dev.put(array, "bfloat16") for array in [*arrays, arrays[0][0]]]


def matmul(setup: Setup, place: str, lane: int = 0) -> Sends:
    """The matmul on lane `lane`, over arrays of its own; its plan is built."""
    x, w, y, bias = squares(device(setup, place), 3)
    plan = _actor(setup, place, "BlasLt", lane).plan(x, w, bias=bias, epilogue="bias").wait(60.0)

    def tells(count: int) -> None:
        tell, a, b, c, d = plan.tell, x, w, bias, y
        for _ in range(count):
            tell(a, b, c, d)

    return Sends(plan, (x, w, bias, y), tells, partial(plan.ask, x, w, bias, y))


# ---------------------------------------------------------------------------------------------- samples


def sustained(lanes: Sequence[Sends], count: int) -> Callable[[], float]:
    """Sample: `count` messages dealt out to `lanes`, until the last of each has been answered; microseconds each."""
    (one, *more) = lanes
    turns = max(1, count // len(lanes))
    calls = [(send.plan.tell, send.operands) for send in lanes]

    def deal(turns: int) -> None:
        if not more:
            one.tells(turns)
            return
        for _ in range(turns):
            for tell, operands in calls:
                tell(*operands)

    def finish() -> None:
        for reply in [send.ask() for send in lanes]:
            reply.result()

    def sample() -> float:
        clock = time.perf_counter_ns
        deal(min(WARM, turns))
        finish()
        start = clock()
        deal(turns - 1)
        finish()
        return (clock() - start) / 1e3 / (turns * len(lanes))

    return sample


def asked(call: Callable[[], Any], count: int) -> Callable[[], float]:
    """Sample: ask and wait for the reply, `count` times one after the other."""

    def sample() -> float:
        local, clock = call, time.perf_counter_ns
        for _ in range(WARM):
            local().result()
        start = clock()
        for _ in range(count):
            local().result()
        return (clock() - start) / 1e3 / count

    return sample


def waited(
    call: Callable[[], object], wait: Callable[[], object], count: int, every: int, *, warm: int = WARM
) -> Callable[[], float]:
    """Sample of a peer: `count` calls, the device waited for after `every` of them and at the end; `warm` before."""

    def sample() -> float:
        local, clock = call, time.perf_counter_ns
        for _ in range(min(warm, count)):
            local()
        wait()
        start = clock()
        for _ in range(count // every):
            for _ in range(every):
                local()
            wait()
        return (clock() - start) / 1e3 / (count // every * every)

    return sample


# ---------------------------------------------------------------------------------------------- twins and peers


@contextmanager
def program_command(setup: Setup, name: str) -> Iterator[list[str]]:
    """Command line of a C program, which is given the machine code of the library's own plan."""
    from atomr_native.builders.cuda.context import CudaContext  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.builders.cuda.cubin import compile_cubin  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.builders.cuda.target import Target  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.worker.build import build as build_plan  # type: ignore[import-untyped,unused-ignore]
    from bench.harness.programs import build

    major, minor = device(setup, "process").facts["compute_capability"]
    target = Target(f"sm_{major}{minor}{'a' if major == 9 else ''}", 1)
    made: Any = build_plan(kernel(setup, "process").plan.spec, CudaContext(target)).run
    (launch,) = made.launches
    if launch.arguments != (("operand", 0), ("float64", 0), ("float64", 1), ("uint64", 32)) or launch.grid != (1, 1, 1):
        raise AssertionError(f"the C programs launch another kernel than this: {launch}")
    with tempfile.TemporaryDirectory() as folder:
        image, order = Path(folder, "kernel.cubin"), Path(folder, "order.cubin")
        image.write_bytes(made.cubin)
        start = [str(build(name)), str(ordinal(setup))]
        if name == "lanes":
            order.write_bytes(compile_cubin(ORDER, target.arch))
            yield [*start, str(image), launch.function, str(launch.block[0]), str(order)]
        else:
            yield [*start, f"kernel={image}", f"function={launch.function}", f"block={launch.block[0]}"]


@contextmanager
def _program(setup: Setup, name: str) -> Iterator[Program]:
    from bench.harness.programs import start

    with program_command(setup, name) as command, start(command) as running:
        yield running


def add_loop(setup: Setup, name: str, request: str, count: int, where: str = "loops", kind: Kind = "twin") -> None:
    """Add a contender of one of the C programs: `request` is what the program calls it."""
    with setup.attempt(name, kind=kind):
        running = setup.shared(("program", where), lambda: _program(setup, where))
        running.check(request)
        setup.add(name, lambda: running.sample(request, count))


def add_peer(
    setup: Setup, name: str, make: Callable[[int], Calls], call: str, count: int, *, every: int | None = None
) -> None:
    """Add a Python peer: what a call costs the caller, or with `every`, with waits after so many of them."""
    with setup.attempt(name, kind="peer"):
        library = setup.shared(make, lambda: nullcontext(make(ordinal(setup))))
        enqueue = library.calls[call]
        if every is None:
            setup.add(name, burst(repeat(enqueue), library.wait, count))
        else:
            setup.add(name, waited(enqueue, library.wait, count, min(every, count)))
