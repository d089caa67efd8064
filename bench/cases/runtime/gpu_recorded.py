"""A recorded program of small kernels on a GPU, beside the same graph in C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.harness import Case, Setup
from bench.harness.common import PLACES, Body, burst, device
from bench.harness.gpu import ELEMENTS, KERNEL, Sends, add_loop, asked, sends_of, sustained

__all__ = ["CASES"]

STEPS = 100


def recorded(setup: Setup, place: str) -> Sends:
    """100 kernels, each of which depends on the last, as one plan; its graph is made."""
    dev = device(setup, place)
    x = dev.zeros((ELEMENTS,), "float64")
    with dev.record() as g:
        given, number = g.operand("x", x), g.scalar("m", 1.0)
        dev.elementwise.run(KERNEL, x=given, m=number, a=0.0)
        for _ in range(STEPS - 1):
            dev.elementwise.run(KERNEL, x=given, m=1.0, a=0.0)
    sends = sends_of(g.plan, x)
    for _ in range(3):
        sends.finish()
    return sends


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
    the message before. C: the same launches captured into a graph, and `cuGraphLaunch` of it; "number changed" sets the
    parameters of one node before each launch, "array changed" those of all.
    """
    count, many = setup.count(500), setup.count(2000)
    for place in PLACES:
        for words, size in (("sustained", count), ("tell", many), ("ask", count), ("number changed", count),
                            ("array changed", count)):  # fmt: skip
            name = f"atomr {place}, {words}"
            with setup.attempt(name):
                setup.add(name, _sample(setup, place, words, size))
    for words, request in (
        ("sustained", "graph-sustained"), ("tell", "graph-launch"), ("ask", "graph-synchronize"),
        ("number changed", "graph-set-one"), ("array changed", "graph-set-all"),
    ):  # fmt: skip
        add_loop(setup, f"C cuGraphLaunch, {words}", request, count)
        setup.ratio(f"atomr process, {words}", f"C cuGraphLaunch, {words}")


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


def _until_done(body: Body, sends: Sends, count: int) -> Callable[[], float]:
    """Sample: so many messages, until the last is done; microseconds each."""

    def sample() -> float:
        begun = time.perf_counter_ns()
        body(count - 1)
        sends.finish()
        return (time.perf_counter_ns() - begun) / 1e3 / count

    return sample


CASES = (Case("gpu_recorded", "A recorded plan of 100 small kernels", build, devices=("cuda",)),)
