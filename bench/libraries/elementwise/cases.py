"""Programs and reductions of `device.elementwise`: what their messages cost, and how fast memory is gone through."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.harness import Case, Setup, gpu_peers
from bench.harness.bandwidth import add_copies, compare_copies, size, swept
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, asks, device, repeat, timed
from bench.harness.gpu import ordinal

__all__ = ["CASES"]

PROGRAM = "m * x + y"
ELEMENTS = 64
LARGE = 1 << 22


def _program(elements: int) -> Callable[[Any], Operation]:
    def make(dev: Any) -> Operation:
        x, y, out = (dev.zeros((elements,), "float32") for _ in range(3))
        plan = dev.elementwise.plan(PROGRAM, x=x, y=y, m=0.5, out=out)
        call = partial(dev.elementwise.run, PROGRAM, x=x, y=y, m=0.5, out=out)
        return Operation(plan, {"x": x, "y": y, "out": out}, call, out)

    return make


def _sum(dev: Any) -> Operation:
    x, out = dev.zeros((ELEMENTS,), "float32"), dev.zeros((), "float32")
    return Operation(
        dev.elementwise.plan_reduce("sum", x, out=out),
        {"x": x, "out": out},
        partial(dev.elementwise.reduce, "sum", x, out=out),
        out,
    )


#: Operators, and the methods that they stand for.
OPERATORS: dict[str, tuple[Callable[[Any, Any, Any], object], Callable[[Any, Any, Any], object]]] = {
    "x + y": (lambda _, x, y: x + y, lambda e, x, y: e.run("x + y", x=x, y=y)),
    "x * 2.0": (lambda _, x, __: x * 2.0, lambda e, x, _: e.run("x * a", x=x, a=2.0)),
    "x += y": (lambda _, x, y: operator.iadd(x, y), lambda e, x, y: e.run("x + y", out=x, x=x, y=y)),
}


def operators(setup: Setup) -> None:
    """Operators of arrays of 64 float32, and the immediate calls of ``device.elementwise`` that they stand for.

    Cost to the caller, 500 a sample; an operator should add at most 0.3 us.
    """
    count = setup.count(500)
    for place in PLACES:
        for name, (short, call) in OPERATORS.items():
            for label, function in ((f"{name}, {place}", short), (f"run for {name}, {place}", call)):
                with setup.attempt(label):
                    dev = device(setup, place)
                    x, y = dev.zeros((ELEMENTS,), "float32"), dev.zeros((ELEMENTS,), "float32")
                    setup.add(label, timed(repeat(partial(function, dev.elementwise, x, y)), count))
            setup.ratio(f"{name}, {place}", f"run for {name}, {place}")


def _numpy(elements: int) -> Callable[[], object]:
    """NumPy's way to the same, without memory that it takes and gives back."""
    import numpy as np

    x, y, out = (np.zeros(elements, np.float32) for _ in range(3))
    m = np.float32(0.5)

    def call() -> None:
        np.multiply(x, m, out=out)
        np.add(out, y, out=out)

    return call


def host(setup: Setup) -> None:
    """``m * x + y`` and the sum of 64 float32, and the program over 4 Mi float32, on the host device.

    *told*, *called*: cost to the caller, by the plan and by the method, 2000 a sample. *asked*: until the reply, 500,
    and 20 of the large arrays. *sustained*: 2000 told, until the last is done. NumPy does the work at once, in the
    caller, with ``out=``: two functions for the program.
    """
    add_calls(setup, PROGRAM, _program(ELEMENTS))
    add_calls(setup, "sum", _sum)
    many, few = setup.count(2000), setup.count(20)
    for place in PLACES:
        with setup.attempt(name := f"atomr {PROGRAM} of 4 Mi, asked, {place}"):
            sends = _program(LARGE)(device(setup, place)).sends()
            sends.plan.wait(60.0)
            setup.add(name, timed(asks(sends.ask), few))
    with setup.attempt(f"NumPy {PROGRAM}", kind="peer"):
        setup.add(f"NumPy {PROGRAM}", timed(repeat(_numpy(ELEMENTS)), many))
    with setup.attempt(f"NumPy {PROGRAM} of 4 Mi", kind="peer"):
        setup.need()
        setup.add(f"NumPy {PROGRAM} of 4 Mi", timed(repeat(_numpy(LARGE)), few))
    with setup.attempt("NumPy sum", kind="peer"):
        import numpy as np

        x, out = np.zeros(ELEMENTS, np.float32), np.zeros((), np.float32)
        setup.add("NumPy sum", timed(repeat(partial(np.sum, x, out=out)), many))
    for place in PLACES:
        setup.ratio(f"atomr {PROGRAM}, sustained, {place}", f"NumPy {PROGRAM}")
        setup.ratio(f"atomr {PROGRAM} of 4 Mi, asked, {place}", f"NumPy {PROGRAM} of 4 Mi")


#: What is timed on a GPU, with the bytes that it reads and writes for an element of x.
KINDS = {
    "atomr m * x + y": 6.0,
    "atomr where(x > y, x, exp(y))": 6.0,
    "atomr sum": 2.0,
    "atomr sum of rows": 2.0,
    "atomr max of columns": 2.0,
}
#: Eager torch for the same, with the bytes that one pass would move.
TORCH = {"torch m * x + y": 6.0, "torch sum": 2.0}


def _planned(dev: Any, name: str, shape: tuple[int, int]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what sends one planned message, and what waits for it."""
    x, y, out = (dev.full(shape, 0.5, "bfloat16") for _ in range(3))
    kind = name.partition(" ")[2]
    if kind.startswith(("sum", "max")):
        op, _, over = kind.partition(" of ")
        axis = {"": None, "rows": 1, "columns": 0}[over]
        out = dev.zeros({None: (), 1: shape[:1], 0: shape[1:]}[axis], "bfloat16")
        plan, inputs = dev.elementwise.plan_reduce(op, x, axis, out=out), [x]
    else:
        numbers = {"m": 0.5} if "m" in kind.split() else {}
        plan, inputs = dev.elementwise.plan(kind, x=x, y=y, out=out, **numbers), [x, y]
    return partial(plan.wait(60.0).tell, *inputs, out=out), out.wait


def gpu(setup: Setup) -> None:
    """Time in which 64 MiB are read or written, by programs and reductions over a 8192 x 4096 bfloat16 array.

    200 planned messages, one wait. Counted is what one pass moves. Copies are `Device.copy`, and `Tensor.copy_`. torch:
    the same by its eager functions. What messages cost is in the tables of small kernels.
    """
    turns, shape = size(setup)
    elements = shape[0] * shape[1]
    add_copies(setup, turns, shape)
    for name, moved in KINDS.items():
        with setup.attempt(name):
            setup.add(name, swept(*_planned(device(setup, "process"), name, shape), turns, moved * elements))
    compare_copies(setup, KINDS)
    for name, moved in TORCH.items():
        with setup.attempt(name, kind="peer"):
            setup.need()
            torch = gpu_peers.torch(ordinal(setup))
            x, y = (torch.full(shape, 0.5, dtype=torch.bfloat16, device="cuda") for _ in range(2))
            call = x.sum if name == "torch sum" else partial(_eager, x, y)
            setup.add(name, swept(call, torch.cuda.synchronize, turns, moved * elements))
        setup.ratio(name.replace("torch", "atomr"), name)


def _eager(x: Any, y: Any) -> Any:
    return 0.5 * x + y


CASES = (
    Case("operators", "Operators of arrays", operators),
    Case("elementwise", "Elementwise programs and reductions", host),
    Case("gpu_elementwise", "Elementwise programs and reductions: time to move 64 MiB", gpu, devices=("cuda",)),
)
