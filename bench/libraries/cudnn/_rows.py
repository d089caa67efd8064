"""Rows of operations of cuDNN beside torch's: a message after the other, torch eager, by backend and as CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, TypeVar

from bench.harness import Effort, Setup, Unavailable, describe, gpu_peers
from bench.harness.calls import Operation
from bench.harness.common import device
from bench.harness.gpu import ordinal, sustained, waited

__all__ = ["add_ours", "add_torch", "at_most", "calls_of", "captured", "numbers", "operation", "tensor"]

#: Numbers that are repeated, since millions of random ones take longer than what is measured.
_TILE = 65521
#: Microseconds of a sample, in which the wait at its end is a small part, and the fewest and the most calls in it.
_SPAN, _FEWEST, _MOST = 16000.0, 12, 200
#: Operations of a GPU in a microsecond, by which it is guessed how long a call takes.
_FLOPS = 3e8
_WARM = 3
Shape = TypeVar("Shape", bound=Any)


@cache
def numbers(shape: tuple[int, ...], dtype: str, scale: float = 0.1) -> Any:
    """Return numbers as of a normal distribution, the same for everybody."""
    import numpy as np

    from atomr_native.dtypes import DTYPES

    tile = (np.random.default_rng(0).standard_normal(_TILE) * scale).astype(DTYPES[dtype])
    return np.resize(tile, shape)


def calls_of(flops: float) -> int:
    """Return how many calls of so many operations a sample has."""
    return int(min(_MOST, max(_FEWEST, _SPAN / (flops / _FLOPS))))


def at_most(setup: Setup, shape: Shape, limits: Shape) -> Shape:
    """Return a shape, in a quick run one within limits, as that only says that it works."""
    if setup.effort is Effort.FULL:
        return shape
    return shape._make(_least(n, most) for n, most in zip(shape, limits, strict=True))


def _least(n: Any, most: Any) -> Any:
    return tuple(map(min, n, most)) if isinstance(n, tuple) else min(n, most)


def operation(dev: Any, request: Any, last: str) -> Operation:
    """Return a request's plan with its arrays, and new ones for the rest; `last` is waited for."""
    operands = {
        o.name: dev.empty(o.spec.shape, o.spec.dtype) if o.given is None else o.given for o in request.lowered.operands
    }
    return Operation(dev.cudnn.plan(request), operands, partial(dev.cudnn.tell, request), operands[last])


def add_ours(setup: Setup, name: str, make: Callable[[Any], Operation], count: int, *, flops: float = 0.0) -> None:
    """Add messages of a plan, told one after the other until the last is done, in a worker process."""
    with setup.attempt(name):
        made = make(device(setup, "process"))
        made.plan.wait(60.0)
        setup.add(name, sustained([made.sends()], setup.count(count)), flops=flops)


def tensor(torch: Any, shape: tuple[int, ...], dtype: str, scale: float = 0.1) -> Any:
    """Return the same numbers as an array of torch."""
    count = math.prod(shape)
    tile = torch.from_numpy(numbers((_TILE,), "float32", scale)).to("cuda", getattr(torch, dtype))
    return tile.repeat(-(-count // _TILE))[:count].reshape(shape).contiguous()


def captured(torch: Any, call: Callable[[], object]) -> Callable[[], object]:
    """Return a call as the launch of a CUDA graph, whose operands and results live as long as it."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(_WARM):
            call()
    aside.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay(_kept: object = (call, kept)) -> object:  # the graph names the memory of both
        return graph.replay()

    return replay


def add_torch(
    setup: Setup,
    name: str,
    make: Callable[[Any], Callable[[], object]],
    count: int,
    *,
    graph: bool = False,
    within: Callable[[Any], AbstractContextManager[Any]] | None = None,
    flops: float = 0.0,
) -> None:
    """Add the call of torch that `make` returns, or a CUDA graph of it; samples are taken in the context `within`.

    What torch refuses is a gap in the table.
    """
    with setup.attempt(name, kind="peer"):
        setup.need()
        torch = gpu_peers.torch(ordinal(setup))
        turns = setup.count(count)

        def prepared() -> Callable[[], float]:
            call = make(torch)
            call()
            torch.cuda.synchronize()
            made = captured(torch, call) if graph else call
            return waited(made, torch.cuda.synchronize, turns, turns)

        try:
            if within is None:
                setup.add(name, prepared(), flops=flops)
                return
            with within(torch):
                inner = prepared()
        except Exception as error:
            raise Unavailable(f"torch refuses it: {describe(error)}") from error

        def sample() -> float:
            with within(torch):
                return inner()

        setup.add(name, sample, flops=flops)
