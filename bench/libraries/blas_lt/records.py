"""Planned matmuls with the same operands again and again: with launch records and without, beside C and its graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup
from bench.harness.common import PLACES, device
from bench.harness.gpu import Sends, add_loop, asked, sustained

__all__ = ["BARS", "CASES"]

#: Rows and columns, as in twin.c, and what the C loops over them are called there.
LOOPS = {32: "matmul", 512: "matmul-512"}
#: Operands that alternate: each pair is one record.
TURNS = 3
_OPTIONS = {"records": "auto", "no records": "off"}


def _matrices(dev: Any, extent: int) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(7)
    return [dev.put(rng.standard_normal(shape), "bfloat16") for shape in ((extent, extent),) * 2 + ((extent,),)]


def _run(setup: Setup, extent: int) -> int:
    """Return the extent that is run: the small one in a quick run, which then only says that it works."""
    return extent if setup.effort is Effort.FULL else min(LOOPS)


def _sends(setup: Setup, place: str, records: str, extent: int, outputs: int, *, tune: bool = False) -> Sends:
    """A plan of x @ w + bias that writes so many outputs in turn."""
    dev = device(setup, place, launch_records=records)
    extent = _run(setup, extent)
    x, w, bias = _matrices(dev, extent)
    outs = [dev.empty((extent, extent), "bfloat16") for _ in range(outputs)]
    plan = dev.blas_lt.plan(x, w, bias=bias, epilogue="bias", tune=tune).wait(60.0)

    def tells(count: int) -> None:
        tell, a, b, c = plan.tell, x, w, bias
        if len(outs) == 1:
            (d,) = outs
            for _ in range(count):
                tell(a, b, c, d)
            return
        for turn in range(count):
            tell(a, b, c, outs[turn % len(outs)])

    for out in outs * 5:  # until there is a record of each
        plan.ask(x, w, bias, out).result()
    return Sends(plan, (x, w, bias, outs[0]), tells, partial(plan.ask, x, w, bias, outs[0]))


def _add(setup: Setup, what: str, sample: Callable[[Sends, int], Callable[[], float]], count: int, loop: str) -> None:
    for extent in LOOPS:
        name = LOOPS[_run(setup, extent)]
        call, graph = f"C cublasLtMatmul, {extent}, {what}", f"C cuGraphLaunch, {extent}, {what}"
        for place in PLACES:
            for label, records in _OPTIONS.items():
                ours = f"atomr {place}, {label}, {extent}, {what}"
                with setup.attempt(ours):
                    setup.add(ours, sample(_sends(setup, place, records, extent, 1), count))
        add_loop(setup, call, f"{name}-{loop}", count)
        add_loop(setup, graph, f"{name}-graph-{loop}", count)
        for place in PLACES:
            setup.ratio(f"atomr {place}, records, {extent}, {what}", call)
            setup.ratio(f"atomr {place}, records, {extent}, {what}", graph)
            setup.ratio(f"atomr {place}, no records, {extent}, {what}", call)


def repeated(setup: Setup) -> None:
    """Time per planned matmul (N x N x N bfloat16 + bias) with the same operands, for N = 32 and 512.

    *sustained*: 4000 told, until the last is done. *asked*: 1000, one after the other, until the reply. *no records*:
    ``System(launch_records="off")``. *three outputs*: taken in turn. *tuned*: ``tune=True``. C: `cublasLtMatmul` with
    the algorithm of the heuristic, which ours has without tuning, descriptors set once, workspace at hand, and the
    graph of one such call, launched each time; *asked*: with `cuStreamSynchronize`.
    """
    _add(setup, "sustained", lambda sends, count: sustained([sends], count), setup.count(4000), "sustained")
    _add(setup, "asked", lambda sends, count: asked(sends.ask, count), setup.count(1000), "synchronize")
    for extent in LOOPS:
        name = f"atomr process, records, {extent}, three outputs, sustained"
        with setup.attempt(name):
            setup.add(name, sustained([_sends(setup, "process", "auto", extent, TURNS)], setup.count(4000)))
        setup.ratio(name, f"atomr process, records, {extent}, sustained")
        name = f"atomr process, records, tuned, {extent}, sustained"
        with setup.attempt(name):
            setup.add(name, sustained([_sends(setup, "process", "auto", extent, 1, tune=True)], setup.count(4000)))
        setup.ratio(name, f"C cublasLtMatmul, {extent}, sustained")


BARS = tuple(
    Bar(
        f"matmul {extent}, same operands, {what}",
        "gpu_records",
        f"atomr {place}, records, {extent}, {what}",
        limit,
        "x",
        f"C cublasLtMatmul, {extent}, {what}",
        place,
    )
    for what, limit in (("sustained", 0.6), ("asked", 0.7))
    for extent in LOOPS
    for place in PLACES
)
CASES = (Case("gpu_records", "Matmuls with the same operands, from launch records", repeated, devices=("cuda",)),)
