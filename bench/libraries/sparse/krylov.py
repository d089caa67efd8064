"""Rounds of conjugate gradients beside their C calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup
from bench.harness.bars import Bar
from bench.harness.common import device
from bench.libraries.sparse._calls import add_call
from bench.libraries.sparse._matrices import stencil

__all__ = ["BARS", "CASES"]

#: Points along each side of the cubes of the stencils.
SIDES = (32, 64, 128)
#: Rounds of a message: fewer than a solution takes.
ROUNDS = 60


def _sample(dev: Any, side: int) -> Callable[[], float]:
    import numpy as np

    n = side**3
    solver = dev.sparse.solver(dev.sparse.matrix(stencil(side)), method="cg", preconditioner="none", limit=ROUNDS)
    b, out = dev.put(np.random.default_rng(0).standard_normal(n).astype("f4")), dev.zeros(n)

    def sample() -> float:
        start = time.perf_counter_ns()
        found = solver.tell(b, tolerance=0.0, out=out)
        found.x.wait()
        return (time.perf_counter_ns() - start) / 1e3 / ROUNDS

    if int(solver.tell(b, tolerance=0.0, out=out).rounds) != ROUNDS:
        raise AssertionError(f"the solver did not take {ROUNDS} rounds")
    return sample


def krylov(setup: Setup) -> None:
    """A round of conjugate gradients with 7-point stencils on a GPU, float32, in a message of 60 that nothing waits in.

    C calls of a round: ``cusparseSpMV``, two ``cublasSdot``, three ``cublasSaxpy`` and a ``cublasSscal`` with factors
    on the device, through ctypes; the quotients, and the test of the residual, are left out.
    """
    for side in SIDES:
        what = f"a round of cg, 7-point stencil of {side}^3"
        with setup.attempt(ours := f"atomr {what}"):
            setup.add(ours, _sample(device(setup, "process"), side))
        rounds = partial(lambda n, library: library.round(stencil(n)), side)
        add_call(setup, f"C calls of {what}", rounds, setup.count(ROUNDS), of=ours)


CASES = (Case("gpu_krylov", "Conjugate gradients on a GPU", krylov, devices=("cuda",)),)
BARS = tuple(
    Bar(
        "rounds of conjugate gradients over C", "gpu_krylov", f"atomr a round of cg, 7-point stencil of {side}^3", 1.1,
        "x", f"C calls of a round of cg, 7-point stencil of {side}^3", f"stencil of {side}^3",
    )
    for side in SIDES
)  # fmt: skip
