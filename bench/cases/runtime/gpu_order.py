"""What order between lanes costs on a GPU."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Case, Setup
from bench.harness.common import PLACES, device
from bench.harness.gpu import ELEMENTS, add_loop, kernel, sustained

__all__ = ["CASES"]

NUMBERS = {1: "one lane", 2: "two lanes", 3: "three lanes"}


def _hops(setup: Setup, place: str, lanes: int, count: int) -> Callable[[], float]:
    x = device(setup, place).zeros((ELEMENTS,), "float64")
    return sustained([kernel(setup, place, lane, x) for lane in range(lanes)], count)


def build(setup: Setup) -> None:
    """Time per kernel where each one depends on the last, which ran on another lane.

    The price of a hop is what it costs more than on one lane. The kernel is that of the table above, on one array;
    3000 a sample, told from Python to each lane in turn, until the last is done. C: the same launches on as many
    streams in turn, one thread, with `cuEventRecord` and `cuStreamWaitEvent`. "core only": the library's core in C,
    without Python and in one process, after it has shown with 20000 kernels of two speeds that none overtakes
    another.
    """
    count = setup.count(3000)
    for lanes, words in NUMBERS.items():
        for place in PLACES:
            name = f"atomr {place}, {words}"
            with setup.attempt(name):
                setup.add(name, _hops(setup, place, lanes, count))
    for lanes, words, request in ((1, "one lane", "sustained"), (2, "two lanes", "two"), (3, "three lanes", "three")):
        request = request if lanes == 1 else f"{request}-dependent"
        add_loop(setup, f"core only, {words}", request, count, "lanes", "atomr")
    add_loop(setup, "C one stream", "launch-sustained", count)
    add_loop(setup, "C two streams", "launch-two-streams", count)
    add_loop(setup, "C three streams", "launch-three-streams", count)
    for words, streams in (("two lanes", "C two streams"), ("three lanes", "C three streams")):
        for place in PLACES:
            setup.ratio(f"atomr {place}, {words}", streams)
            setup.ratio(f"atomr {place}, {words}", f"atomr {place}, one lane")
        setup.ratio(f"core only, {words}", streams)


CASES = (Case("gpu_order", "Kernels that depend on each other, lane by lane", build, devices=("cuda",)),)
