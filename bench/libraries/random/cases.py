"""Random numbers: what their messages cost on the host device, and how fast a GPU's memory is filled."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.harness import Bar, Case, Effort, Setup, Unavailable, gpu_peers
from bench.harness.bandwidth import add_copies, size, swept
from bench.harness.calls import Operation, add_calls
from bench.harness.common import PLACES, device, repeat, timed
from bench.harness.gpu import add_loop, ordinal

__all__ = ["BARS", "CASES"]

ELEMENTS = 64
#: What is timed on a GPU: distribution, dtype, parameters.
KINDS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("uniform", "float32", (0.0, 1.0)),
    ("uniform", "bfloat16", (0.0, 1.0)),
    ("normal", "float32", (0.0, 1.0)),
    ("normal", "float64", (0.0, 1.0)),
    ("integers", "int32", (0, 1000)),
    ("gamma", "float32", (2.0, 1.0)),
    ("poisson", "int32", (20.0,)),
)
#: The same of cuRAND's own generators: row, engine, distribution.
ENGINES: tuple[tuple[str, str, str], ...] = (
    ("atomr random, XORWOW, uniform", "curand_xorwow", "uniform"),
    ("atomr random, MTGP32, uniform", "curand_mtgp32", "uniform"),
    ("atomr random, Sobol, uniform", "curand_sobol32", "uniform"),
)
#: C loops of cuRAND's Philox, and the rows beside which they stand.
CURAND: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("C curandGenerateUniform", "curand-uniform", ("atomr random, uniform, float32",)),
    ("C curandGenerateNormal", "curand-normal", ("atomr random, normal, float32",)),
    ("C curandGenerateNormalDouble", "curand-normal64", ("atomr random, normal, float64",)),
)
#: torch's methods of the same distributions, and the rows beside which they stand.
TORCH: tuple[tuple[str, str, str, str], ...] = (
    ("torch normal_", "normal_", "float32", "normal"),
    ("torch uniform_", "uniform_", "float32", "uniform"),
    ("torch uniform_, bfloat16", "uniform_", "bfloat16", "uniform"),
)


def _normal(dev: Any) -> Operation:
    import atomr_native as an

    out = dev.zeros((ELEMENTS,), "float32")
    plan = dev.random.plan(an.RandomRequest(distribution="normal", parameters=(0.0, 1.0), seed=7, out=out))
    return Operation(plan, {"out": out}, partial(dev.random.normal, out=out, seed=7), out)


def host(setup: Setup) -> None:
    """64 float32 of the normal distribution on the host device: told, called, asked and sustained.

    NumPy fills an array of its own by its ziggurat, in the program.
    """
    import numpy as np

    add_calls(setup, "normal, 64", _normal)
    with setup.attempt(name := "NumPy standard_normal, 64", kind="peer"):
        made, out = np.random.Generator(np.random.Philox(7)), np.zeros(ELEMENTS, np.float32)
        draw = partial(made.standard_normal, dtype=np.float32, out=out)
        setup.add(name, timed(repeat(draw), setup.count(2000)))


def gpu(setup: Setup) -> None:
    """Time in which 64 MiB are written, by messages that fill 8192 x 4096 random numbers.

    200 planned messages, one wait. The copies move 128 MiB each: `Device.copy`, and `Tensor.copy_`. torch:
    `Tensor.normal_` and `Tensor.uniform_`. C: cuRAND's Philox in a loop, which has no bfloat16. XORWOW, MTGP32 and
    Sobol: by cuRAND, whose state each message sets.
    """
    import atomr_native as an

    turns, (rows, columns) = size(setup)
    elements = rows * columns
    add_copies(setup, turns, (rows, columns))
    for distribution, dtype, parameters in KINDS:
        name = f"atomr random, {distribution}, {dtype}"
        with setup.attempt(name):
            dev = device(setup, "process")
            out = dev.zeros((rows, columns), dtype)
            request = an.RandomRequest(distribution=distribution, parameters=parameters, seed=7, out=out)
            try:
                plan = dev.random.plan(request).wait(60.0)
            except an.Unsupported as error:  # no compiler for the library's kernels
                raise Unavailable(str(error)) from error
            setup.add(name, swept(partial(plan.tell, out=out), out.wait, turns, out.dtype.itemsize * elements))
    for peer, method, dtype, distribution in TORCH:
        with setup.attempt(peer, kind="peer"):
            setup.need()
            torch = gpu_peers.torch(ordinal(setup))
            y = torch.ones((rows, columns), dtype=getattr(torch, dtype), device="cuda")
            setup.add(
                peer, swept(getattr(y, method), torch.cuda.synchronize, turns, float(y.element_size()) * elements)
            )
        setup.ratio(f"atomr random, {distribution}, {dtype}", peer)
    full = setup.effort is Effort.FULL  # the fake driver's cuRAND is that of the host, which is slow
    for name, engine, distribution in ENGINES if full else ENGINES[1:]:
        with setup.attempt(name):
            dev = device(setup, "process")
            out = dev.zeros((rows, columns), "float32")
            request = an.RandomRequest(distribution=distribution, parameters=(0.0, 1.0), seed=0, out=out, engine=engine)
            try:
                plan = dev.random.plan(request).wait(60.0)
            except (an.Unsupported, an.LibraryError) as error:  # no cuRAND
                raise Unavailable(str(error)) from error
            setup.add(name, swept(partial(plan.tell, out=out), out.wait, setup.count(20), 4.0 * elements))
    for name, request_name, beside in CURAND if full or setup.dry else ():
        add_loop(setup, name, request_name, setup.count(50))
        for row in beside:
            setup.ratio(row, name)


def launches(setup: Setup) -> None:
    """64 float32 of the normal distribution on a GPU, as on the host device. C: a loop of `cuLaunchKernel`."""
    add_calls(setup, what := "normal, 64", _normal)
    count, few = setup.count(2000), setup.count(500)
    add_loop(setup, "C cuLaunchKernel, sustained", "launch-sustained", count)
    add_loop(setup, "C cuLaunchKernel, synchronize", "launch-synchronize", few)
    for place in PLACES:
        setup.ratio(f"atomr {what}, sustained, {place}", "C cuLaunchKernel, sustained")
        setup.ratio(f"atomr {what}, asked, {place}", "C cuLaunchKernel, synchronize")


BARS = (
    *(
        Bar("random numbers over torch and cuRAND", "gpu_random", f"atomr random, {what}", limit, "x", under, part=what)
        for what, limit, unders in (
            ("uniform, float32", 1.0, ("torch uniform_", "C curandGenerateUniform")),
            ("uniform, bfloat16", 1.0, ("torch uniform_, bfloat16",)),
            ("normal, float32", 1 / 0.9, ("torch normal_", "C curandGenerateNormal")),
            ("normal, float64", 1 / 0.9, ("C curandGenerateNormalDouble",)),
        )
        for under in unders
    ),
    *(
        Bar("message of random numbers over a C loop", "gpu_random_launches",
            f"atomr normal, {ELEMENTS}, sustained, {place}", 1.15, "x", "C cuLaunchKernel, sustained", part=place)
        for place in PLACES
    ),
)  # fmt: skip
CASES = (
    Case("random", "Random numbers", host),
    Case("gpu_random", "Random numbers: time to write an array", gpu, devices=("cuda",)),
    Case("gpu_random_launches", "Random numbers: cost of a message on a GPU", launches, devices=("cuda",)),
)
