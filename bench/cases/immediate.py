"""Immediate calls: what a library call costs the caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.cases._common import PLACES, Body, burst, device, timed
from bench.harness import Case, Setup

__all__ = ["CASES"]


def _operands(dev: Any, eye: Any) -> tuple[Any, Any, Any]:
    return dev.put(eye), dev.put(eye), dev.empty(eye.shape, "float32")


def _matmul(matmul: Callable[..., Any], x: Any, w: Any) -> Body:
    def body(count: int) -> None:
        call, a, b = matmul, x, w
        for _ in range(count):
            call(a, b)

    return body


def _wait_matmul(matmul: Callable[..., Any], x: Any, w: Any) -> None:
    matmul(x, w).wait()


def _matmul_out(matmul: Callable[..., Any], x: Any, w: Any, y: Any) -> Body:
    def body(count: int) -> None:
        call, a, b, c = matmul, x, w, y
        for _ in range(count):
            call(a, b, out=c)

    return body


def _add_out(run: Callable[..., Any], x: Any, w: Any, y: Any) -> Body:
    def body(count: int) -> None:
        call, left, right, c = run, x, w, y
        for _ in range(count):
            call("a + b", out=c, a=left, b=right)

    return body


def build(setup: Setup) -> None:
    """Cost to the caller of an immediate call, its plan already cached.

    ``dev.blas_lt.matmul(x, w)`` of 8x8 float32 validates, finds its plan, allocates the output, enqueues, and drops
    the output handle; the rows with `out` reuse one. The elementwise call is ``a + b`` of 64 float32. The loop is
    included, waiting for the work is not. 2000 calls a sample. NumPy does the same matmul at once, in the caller, and
    includes the work.
    """
    import numpy as np

    count = setup.count(2000)
    eye = np.eye(8, dtype=np.float32)
    for place in PLACES:
        name = f"atomr matmul, {place}"
        with setup.attempt(name):
            x, w, y = _operands(device(setup, place), eye)
            matmul = device(setup, place).blas_lt.matmul
            setup.add(name, burst(_matmul(matmul, x, w), partial(_wait_matmul, matmul, x, w), count))
        name = f"atomr matmul with out, {place}"
        with setup.attempt(name):
            x, w, y = _operands(device(setup, place), eye)
            matmul = device(setup, place).blas_lt.matmul
            setup.add(name, burst(_matmul_out(matmul, x, w, y), y.wait, count))
        name = f"atomr elementwise with out, {place}"
        with setup.attempt(name):
            x, w, y = _operands(device(setup, place), eye)
            run = device(setup, place).elementwise.run
            setup.add(name, burst(_add_out(run, x, w, y), y.wait, count))
    with setup.attempt("NumPy matmul with out", kind="peer"):
        body = _matmul_out(np.matmul, eye.copy(), eye.copy(), np.empty_like(eye))
        setup.add("NumPy matmul with out", timed(body, count))


CASES = (Case("immediate", "Immediate call, cost to the caller", build),)
