"""Recorded programs of small kernels on a GPU, beside the same graphs in C, torch's and CuPy's."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count as counted
from statistics import median
from typing import Any

from bench.harness import Bar, Case, Setup, gpu_peers
from bench.harness.common import PLACES, Body, burst, device
from bench.harness.gpu import ELEMENTS, KERNEL, Sends, add_loop, asked, kernel, ordinal, sends_of, sustained

__all__ = ["BARS", "CASES"]

STEPS = 100
CHAINS = 4
#: Bound arrays of a message.
BOUND = 16
MORE = 256
#: Messages with all of them, for which a mailbox has room.
FEW = 25


def _run(dev: Any, x: Any, factor: Any = 1.0) -> None:
    dev.elementwise.run(KERNEL, x=x, m=factor, a=0.0)


def _with_graph(plan: Any, x: Any) -> Sends:
    """The messages of a plan whose graph is made."""
    sends = sends_of(plan, x)
    for _ in range(3):
        sends.finish()
    return sends


def recorded(setup: Setup, place: str, chains: int = 1) -> Sends:
    """100 kernels in so many chains, in each of which one depends on the last, as one plan; its graph is made."""
    dev = device(setup, place)
    x, *others = (dev.zeros((ELEMENTS,), "float64") for _ in range(chains))
    with dev.record() as g:
        arrays = [g.operand("x", x), *others]
        number = g.scalar("m", 1.0)
        for step in range(STEPS):
            _run(dev, arrays[step % chains], 1.0 if step else number)
    return _with_graph(g.plan, x)


def bound(setup: Setup, place: str, count: int) -> Sends:
    """A kernel for each of so many bound arrays, as one plan; its graph is made."""
    dev = device(setup, place)
    x, *arrays = (dev.zeros((ELEMENTS,), "float64") for _ in range(count + 1))
    with dev.record() as g:
        _run(dev, g.operand("x", x))
        for array in arrays:
            _run(dev, array)
    return _with_graph(g.plan, x)


def _changing(sends: Sends) -> Body:
    """Messages each of which has another number than the one before."""

    def body(count: int) -> None:
        tell, (x,) = sends.plan.tell, sends.operands
        for number in range(count):
            tell(x, m=number & 1)

    return body


def _alternating(sends: Sends, other: Any) -> Body:
    """Messages each of which has another array than the one before."""

    def body(count: int) -> None:
        tell, arrays = sends.plan.tell, (sends.operands[0], other)
        for number in range(count):
            tell(arrays[number & 1])

    return body


def build(setup: Setup) -> None:
    """Time per message of a recorded plan of 100 small kernels, each of which depends on the last.

    The kernel is that of the other GPU tables. Sustained: told one after the other, until the last is done, 500 a
    sample. "tell": what the caller pays, 2000 a sample. "ask": one that is waited for, again at once. "number changed"
    and "array changed": sustained, and each message has another number for its first kernel, or another array, than
    the message before. "not recorded": as 100 planned messages, 5 times a sample. C: the same launches captured into a
    graph, and `cuGraphLaunch` of it; "number changed" sets the parameters of one node before each launch, "array
    changed" those of all. torch: 100 times ``mul_`` in a `CUDAGraph`; CuPy: a RawKernel, 100 times in a `Graph`.
    """
    count, many = setup.count(500), setup.count(2000)
    for place in PLACES:
        for words, size in (("sustained", count), ("tell", many), ("ask", count), ("number changed", count),
                            ("array changed", count)):  # fmt: skip
            name = f"atomr {place}, {words}"
            with setup.attempt(name):
                setup.add(name, _sample(setup, place, words, size))
    with setup.attempt("atomr process, not recorded"):
        one = sustained([kernel(setup, "process")], STEPS * max(1, count // 100))
        setup.add("atomr process, not recorded", lambda: one() * STEPS)
    for words, request in (
        ("sustained", "graph-sustained"), ("tell", "graph-launch"), ("ask", "graph-synchronize"),
        ("number changed", "graph-set-one"), ("array changed", "graph-set-all"),
    ):  # fmt: skip
        add_loop(setup, f"C cuGraphLaunch, {words}", request, count)
        setup.ratio(f"atomr process, {words}", f"C cuGraphLaunch, {words}")
    for who, make in _PEERS.items():
        for words in ("sustained", "ask"):
            name = f"{who}, {words}"
            with setup.attempt(name, kind="peer"):
                setup.add(name, _replayed(*make(setup, 1), count, every=words == "ask"))
            setup.ratio(f"atomr process, {words}", name)
    setup.ratio("atomr process, sustained", "atomr process, not recorded")


def branches(setup: Setup) -> None:
    """As the plan of 100 small kernels, in four chains of 25 that do not touch the same memory.

    C: the same four chains in a graph. torch: ``mul_`` on four streams, which the captured one waits for.
    """
    count = setup.count(500)
    for place in PLACES:
        for words in ("sustained", "ask"):
            name = f"atomr {place}, {words}"
            with setup.attempt(name):
                sends = recorded(setup, place, CHAINS)
                setup.add(name, asked(sends.ask, count) if words == "ask" else sustained([sends], count))
    for words, request in (("sustained", "branches-sustained"), ("ask", "branches-synchronize")):
        add_loop(setup, f"C cuGraphLaunch, {words}", request, count)
        with setup.attempt(f"torch graph, {words}", kind="peer"):
            setup.add(f"torch graph, {words}", _replayed(*_torch(setup, CHAINS), count, every=words == "ask"))
        for other in ("C cuGraphLaunch", "torch graph"):
            setup.ratio(f"atomr process, {words}", f"{other}, {words}")


def _median_of(sample: Callable[[], float], times: int) -> Callable[[], float]:
    """Sample: the median of so many samples."""
    return lambda: median(sample() for _ in range(times))


def bound_arrays(setup: Setup) -> None:
    """Cost to the caller of telling a recorded plan with bound arrays, 500 a sample.

    The mailbox holds 39 messages with 272 arrays, and in a full one a caller waits for the lane. So these are told by
    25, and a sample is the median of 20 such bursts. "each more": by how much a message with 272 costs more than one
    with 16, for each array.
    """
    count = setup.count(500)
    for place in PLACES:
        samples: dict[int, Callable[[], float]] = {}
        for number in (BOUND, BOUND + MORE):
            with setup.attempt(f"atomr {place}, {number} bound arrays"):
                sends = bound(setup, place, number)
                samples[number] = (
                    burst(sends.tells, sends.finish, count)
                    if number == BOUND
                    else _median_of(burst(sends.tells, sends.finish, min(count, FEW)), setup.count(20))
                )
                setup.add(f"atomr {place}, {number} bound arrays", samples[number])
        with setup.attempt(f"atomr {place}, each more"):
            few, many = samples[BOUND], samples[BOUND + MORE]
            setup.add(f"atomr {place}, each more", lambda few=few, many=many: (many() - few()) / MORE)


def recording(setup: Setup) -> None:
    """Milliseconds to record 100 messages whose plans exist, and to build the plan; each time with another number.

    "with its graph": until its third message is done, which is the first launch of a graph. torch and CuPy: capturing
    the same number of kernels, and one replay.
    """
    for name, messages in (("atomr process", 0), ("atomr process, with its graph", 3)):
        with setup.attempt(name):
            setup.add(name, _recordings(device(setup, "process"), messages))
    for who, make in _PEERS.items():
        with setup.attempt(who, kind="peer"):
            setup.add(who, _captured(setup, make))
        setup.ratio("atomr process, with its graph", who)


def _sample(setup: Setup, place: str, words: str, count: int) -> Callable[[], float]:
    """The sample of a contender; each has a plan of its own."""
    sends = recorded(setup, place)
    if words == "sustained":
        return sustained([sends], count)
    if words == "tell":
        return burst(sends.tells, sends.finish, count)
    if words == "ask":
        return asked(sends.ask, count)
    if words == "number changed":
        return _until_done(_changing(sends), sends, count)
    return _until_done(_alternating(sends, device(setup, place).zeros((ELEMENTS,), "float64")), sends, count)


def _recordings(dev: Any, messages: int) -> Callable[[], float]:
    """Sample: record 100 messages, build the plan and wait for so many of its messages; milliseconds."""
    x = dev.zeros((ELEMENTS,), "float64")
    factors = counted(1)

    def sample() -> float:
        factor = 1.0 + next(factors) / 1024  # a program that the worker has not built yet
        begun = time.perf_counter_ns()
        with dev.record() as g:
            given = g.operand("x", x)
            for _ in range(STEPS):
                _run(dev, given, factor)
        plan = g.plan.wait(60.0)
        for _ in range(messages):
            plan.ask(x).result()
        return (time.perf_counter_ns() - begun) / 1e6

    return sample


def _torch(setup: Setup, chains: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what replays 100 kernels of torch in a graph, in so many chains, and what waits for them."""
    torch = gpu_peers.torch(ordinal(setup))
    arrays = [torch.zeros(ELEMENTS, dtype=torch.float64, device="cuda") for _ in range(chains)]
    streams = [torch.cuda.Stream() for _ in range(chains - 1)]
    graph = torch.cuda.CUDAGraph()
    arrays[0].mul_(1.0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        here = torch.cuda.current_stream()
        for stream, array in zip((None, *streams), arrays, strict=True):
            if stream is not None:
                stream.wait_stream(here)
            with torch.cuda.stream(stream):
                for _ in range(STEPS // chains):
                    array.mul_(1.0)
        for stream in streams:
            here.wait_stream(stream)
    setup.stack.callback(arrays.clear)  # the graph names their memory
    setup.stack.callback(graph.reset)
    return graph.replay, torch.cuda.synchronize


def _cupy(setup: Setup, _: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what launches a graph of 100 kernels of CuPy, and what waits for it."""
    cupy = gpu_peers.cupy(ordinal(setup))
    kernel = cupy.RawKernel(gpu_peers.SOURCE, "scale")
    x, stream = cupy.zeros(ELEMENTS), cupy.cuda.Stream(non_blocking=True)
    arguments = (x, 1.0, 0.0)
    kernel((1,), (ELEMENTS,), arguments)
    cupy.cuda.Device(ordinal(setup)).synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(STEPS):
            kernel((1,), (ELEMENTS,), arguments)
        graph = stream.end_capture()
    setup.stack.callback(lambda kept=x: kept)  # the graph names its memory
    return lambda: graph.launch(stream), stream.synchronize


_PEERS = {"torch graph": _torch, "CuPy graph": _cupy}


def _replayed(
    replay: Callable[[], object], wait: Callable[[], object], count: int, *, every: bool
) -> Callable[[], float]:
    """Sample: so many replays, each waited for or only the last; microseconds each."""

    def sample() -> float:
        local, done = replay, wait
        local()
        done()
        begun = time.perf_counter_ns()
        for _ in range(count):
            local()
            if every:
                done()
        done()
        return (time.perf_counter_ns() - begun) / 1e3 / count

    return sample


def _captured(
    setup: Setup, make: Callable[[Setup, int], tuple[Callable[[], object], Callable[[], object]]]
) -> Callable[[], float]:
    """Sample: a capture and one replay, milliseconds."""
    make(setup, 1)

    def sample() -> float:
        begun = time.perf_counter_ns()
        replay, wait = make(setup, 1)
        replay()
        wait()
        return (time.perf_counter_ns() - begun) / 1e6

    return sample


def _until_done(body: Body, sends: Sends, count: int) -> Callable[[], float]:
    """Sample: so many messages, until the last is done; microseconds each."""

    def sample() -> float:
        begun = time.perf_counter_ns()
        body(count - 1)
        sends.finish()
        return (time.perf_counter_ns() - begun) / 1e3 / count

    return sample


BARS = (
    *(
        Bar(f"100 recorded kernels, {words}, over C's graph", "gpu_recorded", f"atomr process, {words}", limit, "x",
            f"C cuGraphLaunch, {words}")
        for words, limit in (("sustained", 1.05), ("ask", 1.1), ("number changed", 1.1), ("array changed", 1.1))
    ),
    *(
        Bar(f"four recorded branches, {words}, over C's graph", "gpu_branches", f"atomr process, {words}", limit, "x",
            f"C cuGraphLaunch, {words}")
        for words, limit in (("sustained", 1.05), ("ask", 1.1))
    ),
    *(
        Bar(f"tell of a recorded plan, {what}", "gpu_bound", f"atomr {place}, {series}", limit, "us", part=place)
        for what, series, limit in (
            ("16 bound arrays", f"{BOUND} bound arrays", 0.5), ("each more", "each more", 0.01),
        )
        for place in PLACES
    ),
    Bar("recording and building 100 messages", "gpu_recording", "atomr process, with its graph", 20.0, "ms"),
)  # fmt: skip
_ON = ("cuda",)
CASES = (
    Case("gpu_recorded", "A recorded plan of 100 small kernels", build, devices=_ON),
    Case("gpu_branches", "A recorded plan of four chains of 25 small kernels", branches, devices=_ON),
    Case("gpu_bound", "A recorded plan with bound arrays", bound_arrays, devices=_ON),
    Case("gpu_recording", "Recording 100 messages", recording, rounds=15, unit="ms", devices=_ON),
)
