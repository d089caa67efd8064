"""Launching a Numba kernel on a GPU, by how many arguments it has."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Bar, Case, Setup
from bench.harness.common import PLACES, Body, burst, device
from bench.harness.gpu import ELEMENTS, Sends, add_peer, program_command, sustained
from bench.libraries.kernel._arguments import KERNELS, cupy_calls, numba_calls, numba_kernels, numbers

if TYPE_CHECKING:
    from bench.harness.programs import Program

__all__ = ["BARS", "CASES"]

#: Launches between two waits of a peer.
EVERY = 250


def _of(number: int) -> str:
    return f"{number} argument{'' if number == 1 else 's'}"


def _sends(setup: Setup, place: str, number: int) -> tuple[Any, Sends]:
    """The kernel of so many arguments by the library: its launch, and its plan, which is built; made once a case."""
    return setup.shared(("arguments", place, number), lambda: nullcontext(_make(setup, place, number)))


def _make(setup: Setup, place: str, number: int) -> tuple[Any, Sends]:
    dev = device(setup, place)
    x = [dev.zeros((ELEMENTS,), "float64") for _ in range(KERNELS[number][0])]
    launch = dev.kernel(numba_kernels()[number])[1, ELEMENTS]
    plan = launch.plan(*x, *numbers(number)).wait(60.0)

    def tells(count: int) -> None:
        tell, operands = plan.tell, x
        for _ in range(count):
            tell(*operands)

    return launch, Sends(plan, tuple(x), tells, partial(plan.ask, *x))


def _told(launch: Any, arguments: tuple[Any, ...]) -> Body:
    def body(count: int) -> None:
        tell, given = launch.tell, arguments
        for _ in range(count):
            tell(*given)

    return body


@contextmanager
def _program(setup: Setup) -> Iterator[Program]:
    """The C loops, given the machine code and the words that the library's own plans launch."""
    from atomr_native.builders.cuda.context import CudaContext  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.builders.cuda.target import Target  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.worker.build import build as build_plan  # type: ignore[import-untyped,unused-ignore]
    from bench.harness.programs import start

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number in KERNELS:
            plan = _sends(setup, "process", number)[1].plan
            made: Any = build_plan(plan.spec, CudaContext(Target("sm_90", 1))).run
            (launch,) = made.launches
            image = Path(folder, f"{number}.cubin")
            image.write_bytes(made.cubin)
            words = [_word(kind, what, numbers(number)) for kind, what in launch.arguments]
            lines.append(" ".join([str(image), launch.function, str(launch.block[0]), *words]))
        listed = Path(folder, "kernels")
        listed.write_text("\n".join(lines) + "\n")
        with program_command(setup, "loops") as command, start([*command, f"arguments={listed}"]) as running:
            yield running


def _word(kind: str, what: Any, given: tuple[float, ...]) -> str:
    """Return an argument of a launch as the C program takes it."""
    if kind == "operand":
        return f"p{what}"
    if kind == "uint64":
        return f"{what:x}"
    if kind == "float64":
        return struct.pack(">d", given[what]).hex()
    raise AssertionError(f"the C loops have no {kind}")


def _add_loop(setup: Setup, name: str, number: int, suffix: str, count: int) -> None:
    with setup.attempt(name, kind="twin"):
        running = setup.shared("argument loops", lambda: _program(setup))
        request = f"arguments-{list(KERNELS).index(number)}{suffix}"
        running.check(request)
        setup.add(name, lambda: running.sample(request, count))


def sustained_launches(setup: Setup) -> None:
    """Time per launch of a trivial Numba kernel, sustained, by number of arguments; one block of 32 threads.

    One argument: an array of 32 float64. Three: an array and two float64. Eight: four of each; 16: eight of each. To
    the machine code an array is seven arguments. 2000 launches a sample, told by the plan until the last is done; in
    the peers 250, then one wait. C: `cuLaunchKernel` of the very machine code, with the same words, from one thread;
    each launch begins when the one before has ended, or is "overlapping", as the library's do. Numba: its own launch,
    configured beforehand. CuPy: a RawKernel of the same arithmetic, to which an array is one argument.
    """
    count, few = setup.count(2000), setup.count(EVERY)
    for number in KERNELS:
        of = _of(number)
        for place in PLACES:
            name = f"atomr Numba kernel, {place}, {of}"
            with setup.attempt(name):
                setup.add(name, sustained([_sends(setup, place, number)[1]], count))
        _add_loop(setup, f"C, {of}", number, "-sustained", count)
        _add_loop(setup, f"C overlapping, {of}", number, "-overlapping", count)
        add_peer(setup, f"Numba launch, {of}", numba_calls, str(number), few, every=EVERY)
        add_peer(setup, f"CuPy RawKernel, {of}", cupy_calls, str(number), few, every=EVERY)
        for place in PLACES:
            setup.ratio(f"atomr Numba kernel, {place}, {of}", f"C, {of}")
            setup.ratio(f"atomr Numba kernel, {place}, {of}", f"C overlapping, {of}")
        for peer in ("Numba launch", "CuPy RawKernel"):
            setup.ratio(f"atomr Numba kernel, process, {of}", f"{peer}, {of}")


def told_launches(setup: Setup) -> None:
    """Cost to the caller of launching the same kernels; the work itself is not waited for.

    "told": ``launch.tell(x, 0.5, 0.5)`` of ``launch = dev.kernel(f)[1, 32]``; "planned": the launch's plan, whose
    numbers are its defaults. 1000 calls a sample, 250 of the peers and of C, for whose caller the driver's call is all
    of the cost.
    """
    count, few = setup.count(1000), setup.count(EVERY)
    for number in KERNELS:
        of = _of(number)
        name = f"atomr Numba kernel, told, {of}"
        with setup.attempt(name):
            launch, sends = _sends(setup, "process", number)
            told = _told(launch, (*sends.operands, *numbers(number)))
            setup.add(name, burst(told, sends.finish, count))
        name = f"atomr Numba kernel, planned, {of}"
        with setup.attempt(name):
            sends = _sends(setup, "process", number)[1]
            setup.add(name, burst(sends.tells, sends.finish, count))
        _add_loop(setup, f"C, {of}", number, "", few)
        add_peer(setup, f"Numba launch, {of}", numba_calls, str(number), few)
        add_peer(setup, f"CuPy RawKernel, {of}", cupy_calls, str(number), few)
        for peer in ("C", "Numba launch", "CuPy RawKernel"):
            setup.ratio(f"atomr Numba kernel, told, {of}", f"{peer}, {of}")


BARS = (
    *(
        Bar(
            "Numba kernel, 3 arguments, sustained",
            "gpu_arguments",
            f"atomr Numba kernel, {p}, 3 arguments",
            1.15,
            "x",
            under="C, 3 arguments",
            part=p,
        )
        for p in PLACES
    ),
)
CASES = (
    Case("gpu_arguments", "A Numba kernel by number of arguments, sustained", sustained_launches, devices=("cuda",)),
    Case("gpu_arguments_told", "A Numba kernel by number of arguments: cost to the caller", told_launches,
         devices=("cuda",)),
)  # fmt: skip
