"""Networks of many tensors, tensors of blocks, and what plans cost: cold, warm and from disk."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os import environ

from bench.harness import Bar, Case, Setup, gpu_peers
from bench.harness.common import device
from bench.harness.gpu import add_peer, ordinal, waited
from bench.harness.unavailable import Unavailable
from bench.libraries.tensor._expressions import EVERY, TURNS, route_in

__all__ = ["BARS", "CASES"]

#: Operands of a network, and the extent of its bonds.
NETWORKS = ((4, 64), (6, 32), (8, 32), (12, 16), (16, 12), (24, 8), (30, 8))


def network(count: int, extent: int) -> tuple[list[list[int]], list[tuple[int, ...]]]:
    """Return the modes of a ring of tensors with some chords, of which two bonds stay open, and the shapes."""
    rng = random.Random(count)
    modes: list[list[int]] = [[] for _ in range(count)]
    pairs = [(i, (i + 1) % count) for i in range(count)]
    pairs += [tuple(rng.sample(range(count), 2)) for _ in range(count // 3)]  # type: ignore[misc]
    for bond, (i, j) in enumerate(pairs):
        modes[i].append(bond)
        modes[j].append(bond)
    free = [len(pairs), len(pairs) + 1]
    modes[0].append(free[0])
    modes[count // 2].append(free[1])
    return [*modes, free], [(extent,) * len(own) for own in modes]


def _torch(count: int, extent: int, index: int) -> gpu_peers.Calls:
    torch = gpu_peers.torch(index)
    try:
        import opt_einsum
    except ImportError as error:
        raise Unavailable(f"opt_einsum does not import: {error}") from error
    modes, shapes = network(count, extent)
    operands = [torch.ones(shape, device="cuda") for shape in shapes]
    text = ",".join("".join(opt_einsum.get_symbol(m) for m in own) for own in modes[:-1])
    text += "->" + "".join(opt_einsum.get_symbol(m) for m in modes[-1])
    made = opt_einsum.contract_expression(text, *shapes)
    run = partial(made, *operands, backend="torch")
    return gpu_peers.Calls({"run": run}, torch.cuda.synchronize)


def _torch_peak(count: int, extent: int, index: int) -> float:
    """MiB that torch allocates for one contraction at most, besides what is there, with the workspace of its cuBLAS."""
    calls = _torch(count, extent, index)
    torch = gpu_peers.torch(index)
    calls.wait()
    torch._C._cuda_clearCublasWorkspaces()  # as ours counts its own, too
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    calls.calls["run"]()
    calls.wait()
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def networks(setup: Setup) -> None:
    """Networks of 4 to 30 float32 tensors of ones, planned; `opt_einsum` with torch beside them.

    *memory*: MiB at once besides the operands: of the plan's workspace, in which intermediate results and the scratch
    memory of libraries lie, and its result; and what torch has allocated, with the workspace of cuBLAS.
    """
    turns = setup.count(TURNS)
    for count, extent in NETWORKS if setup.dry or turns == TURNS else NETWORKS[:2]:
        side = extent if turns == TURNS else 2
        what = f"{count} tensors, {extent}"
        with setup.attempt(ours := f"atomr {what}"):
            import atomr_native as an

            dev = device(setup, "process")
            modes, shapes = network(count, side)
            operands = [dev.full(shape, 1, "float32") for shape in shapes]
            out = dev.tensor.einsum(modes, *operands).wait()
            request = an.EinsumRequest(subscripts=modes, operands=operands, out=out)
            plan = dev.tensor.plan(request).wait(60.0)
            setup.add(ours, waited(partial(plan.tell, *operands, out=out), out.wait, turns, min(EVERY, turns)))
        with setup.attempt(peak := f"atomr {what}, memory"):
            setup.need()
            mib = (plan.record.workspace + out.nbytes) / 2**20
            setup.add(peak, partial(float, mib), remark="MiB")
        add_peer(setup, peer := f"opt_einsum {what}", partial(_torch, count, side), "run", turns, every=EVERY)
        with setup.attempt(theirs := f"opt_einsum {what}, memory", kind="peer"):
            setup.need()
            setup.add(theirs, partial(float, _torch_peak(count, side, ordinal(setup))), remark="MiB")
        setup.ratio(ours, peer)
        setup.ratio(peak, theirs)


def blocks(setup: Setup) -> None:
    """A product of 4096 x 4096 float32 in blocks of 512, of which every other is stored; the dense one beside it.

    *one call*: of cuTENSOR, which multiplies all blocks.
    """
    turns = setup.count(TURNS)
    n, side = (8, 512) if turns == TURNS else (4, 8)
    names = {f"atomr blocks, {n * side}, {side}": "auto", f"atomr blocks, {n * side}, {side}, one call": "cutensor"}
    for name, route in names.items():
        with setup.attempt(name):
            import numpy as np

            import atomr_native as an

            dev = device(setup, "process")
            chosen = [(i, j) for i in range(n) for j in range(n) if (i + j) % 2 == 0]
            values = dev.put(np.ones(len(chosen) * side * side, "float32"))
            a = an.BlockTensor(values, [(side,) * n] * 2, chosen)
            out = dev.tensor.block_contract("ij,jk->ik", a, a)
            given = {"subscripts": "ij,jk->ik", "a": a, "b": a, "out": out, "route": route}
            plan = dev.tensor.plan(an.BlockContractionRequest(**given)).wait(60.0)
            run = partial(plan.tell, values, values, out=out.values)
            sample = waited(run, out.values.wait, turns, min(EVERY, turns))
            setup.add(name, sample, remark=route_in(plan.notes))
    with setup.attempt(dense := f"atomr dense, {n * side}"):
        import atomr_native as an

        dev = device(setup, "process")
        x, y = (dev.zeros((n * side, n * side), "float32") for _ in range(2))
        plan = dev.tensor.plan(an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x), out=y)).wait(60.0)
        setup.add(dense, waited(partial(plan.tell, x, x, out=y), y.wait, turns, min(EVERY, turns)))
    for name in names:
        setup.ratio(name, dense)


@contextmanager
def _cache() -> Iterator[str]:
    """A folder in which caches are, and nothing yet."""
    before = environ.get("ATOMR_NATIVE_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        environ["ATOMR_NATIVE_CACHE"] = folder
        try:
            yield folder
        finally:
            if before is None:
                del environ["ATOMR_NATIVE_CACHE"]
            else:
                environ["ATOMR_NATIVE_CACHE"] = before


def _planned(setup: Setup) -> dict[str, float]:
    """Milliseconds until plans of a step are there, as planned and tuned, in a worker that has none."""
    import atomr_native as an

    found = {}
    with an.System(standby="off") as system:
        dev = system.device(setup.device)
        operands = [dev.zeros((24, 16, 48), "float32"), dev.zeros((48, 16, 24), "float32")]
        dev.tensor.einsum("ijk,kjl->il", operands[0][:8], operands[1]).wait()  # libraries are open
        for name, tune in (("as planned", False), ("tuned", True)):
            request = an.EinsumRequest(subscripts="ijk,kjl->il", operands=operands, tune=tune)
            start = time.perf_counter_ns()
            dev.tensor.plan(request).wait(120.0)
            found[name] = (time.perf_counter_ns() - start) / 1e6
    return found


def plans(setup: Setup) -> None:
    """Milliseconds until a plan is there: without caches on disk, and with what another process has left there.

    Each sample starts a worker, which has opened the libraries.  Tuned plans come after the others.
    """
    with setup.attempt(name := "atomr cold"):
        setup.need()

        def cold() -> dict[str, float]:
            with _cache():
                return _planned(setup)

        setup.add(name, cold)
    with setup.attempt(name := "atomr from disk"):
        setup.need()
        folder = setup.shared(("cache", name), _cache)
        _planned(setup)

        def kept() -> dict[str, float]:
            environ["ATOMR_NATIVE_CACHE"] = folder
            return _planned(setup)

        setup.add(name, kept)
    with setup.attempt(name := "atomr warm"):
        import atomr_native as an

        dev = device(setup, "process")
        x = dev.zeros((24, 24), "float32")
        request = an.EinsumRequest(subscripts="ij,jk->ik", operands=(x, x))
        dev.tensor.plan(request).wait(60.0)

        def warm() -> float:
            start = time.perf_counter_ns()
            dev.tensor.plan(request).wait(60.0)
            return (time.perf_counter_ns() - start) / 1e6

        setup.add(name, warm)


BARS = (
    *(
        Bar(work, "gpu_tensor_networks", f"atomr {what}{more}", 1.0, "x", f"opt_einsum {what}{more}", part=what)
        for work, more in (
            ("networks of tensors over opt_einsum with torch", ""),
            ("peak of memory of networks over opt_einsum with torch", ", memory"),
        )
        for count, extent in NETWORKS
        for what in (f"{count} tensors, {extent}",)
    ),
    Bar("tuned plan of a contraction from disk", "gpu_tensor_plans", "atomr from disk: tuned", 50.0, "ms"),
)  # fmt: skip
CASES = (
    Case("gpu_tensor_networks", "Networks of tensors on a GPU", networks, devices=("cuda",)),
    Case("gpu_tensor_blocks", "Tensors of blocks on a GPU", blocks, devices=("cuda",)),
    Case("gpu_tensor_plans", "Plans of contractions", plans, unit="ms", devices=("cuda",)),
)
