"""Immediate calls: what a library call costs the caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bench.harness import Bar, Case, Setup
from bench.harness.common import PLACES, Body, burst, device, timed

__all__ = ["BARS", "CASES"]

#: What is called, and with what, by position and by name.
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


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


class Operands(NamedTuple):
    """A device, and matrices on it."""

    dev: Any
    x: Any
    w: Any
    y: Any


def _norm(o: Operands, **out: Any) -> Call:
    return o.dev.fused.rms_norm, (o.x, o.x[0]), out


def _adamw(o: Operands) -> Call:
    m, v = (o.dev.zeros(o.x.shape, "float32") for _ in range(2))
    return o.dev.fused.adamw, (o.y, o.x, m, v), {"step": 1}


#: A call of each library actor, and those of `blas_lt` that read or store more, by what they are given.
_LIBRARY: dict[str, Callable[[Operands], Call]] = {
    "fused.rms_norm": lambda o: _norm(o),
    "fused.rms_norm with out": lambda o: _norm(o, out=o.y),
    "fused.adamw": lambda o: _adamw(o),
    "float8.quantize": lambda o: (o.dev.float8.quantize, (o.x,), {}),
    "blas.axpy": lambda o: (o.dev.blas.axpy, (o.x[0], o.w[0]), {"alpha": 0.5}),
    "elementwise.reduce": lambda o: (o.dev.elementwise.reduce, ("sum", o.x), {}),
    "copy, to bfloat16": lambda o: (o.dev.copy, (o.x,), {"dtype": "bfloat16"}),
    "fill": lambda o: (o.y.fill, (1.0,), {}),
    "matmul, gelu_aux_bias": lambda o: (
        o.dev.blas_lt.matmul, (o.x, o.w), {"bias": o.x[0], "epilogue": "gelu_aux_bias"},
    ),
    "matmul with beta, c": lambda o: (o.dev.blas_lt.matmul, (o.x, o.w), {"c": o.x, "beta": 0.5}),
    "matmul with d_scale": lambda o: (o.dev.blas_lt.matmul, (o.x, o.w), {"d_scale": o.x[0, 0]}),
    "grouped, two members": lambda o: (o.dev.blas_lt.grouped, ([o.x, o.w], [o.w, o.x]), {}),
}  # fmt: skip


def _call(call: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]) -> Body:
    def body(count: int) -> None:
        local, given, named = call, operands, options
        for _ in range(count):
            local(*given, **named)

    return body


def _wait_call(call: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]) -> None:
    made = call(*operands, **options)
    (made[0] if isinstance(made, tuple | list) else made).wait()


def library(setup: Setup) -> None:
    """Cost to the caller of an immediate call of each library actor, its plan already cached, as `immediate`.

    The actor is in a process; 8x8 float32, 1000 calls a sample.
    """
    import numpy as np

    count = setup.count(1000)
    for what, make in _LIBRARY.items():
        name = f"atomr {what}"
        with setup.attempt(name):
            dev = device(setup, "process")
            call = make(Operands(dev, *_operands(dev, np.eye(8, dtype=np.float32))))
            setup.add(name, burst(_call(*call), partial(_wait_call, *call), count))


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


BARS = (
    *(Bar("immediate matmul call", "immediate", f"atomr matmul, {p}", 1.5, "us", part=p) for p in PLACES),
    *(
        Bar("immediate call of a library actor", "immediate_library", f"atomr {name}", 1.5, "us", part=name)
        for name in ("fused.rms_norm", "fused.adamw", "float8.quantize", "blas.axpy", "elementwise.reduce")
    ),
)
CASES = (
    Case("immediate", "Immediate call, cost to the caller", build),
    Case("immediate_library", "Immediate calls of the library actors, cost to the caller", library),
)
