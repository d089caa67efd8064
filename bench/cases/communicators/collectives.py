"""Collectives and copies of two devices, beside NCCL in C and torch.distributed, with a process a GPU each."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.cases.communicators._ranks import Ranks, add_c, add_torch, begin, ranks
from bench.harness import Bar, Case, Setup

__all__ = ["BARS", "CASES"]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WORKS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send")
LARGE = (MIB, 16 * MIB, 256 * MIB, GIB, 4 * GIB)
SMALL = (8, 4 * KIB, 64 * KIB)
COPIES = (MIB, 16 * MIB, 256 * MIB, GIB)
WAYS = {"told": "caller", "sustained": "sustained", "asked": "synchronize"}
SIDE, BESIDE = 8192, 64 * MIB


def _size(nbytes: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def _is_full(setup: Setup) -> bool:
    return setup.count(1000) == 1000


def _bytes(setup: Setup, nbytes: int) -> int:
    """Bytes of an array; a quick run has few of them."""
    return nbytes if _is_full(setup) else min(nbytes, 64 * KIB)


def _turns(setup: Setup, nbytes: int) -> int:
    """Calls in a sample: fewer of those that take milliseconds each."""
    return max(2, setup.count(min(200, max(4, 4 * GIB // nbytes))))


def _add(setup: Setup, name: str, make: Callable[[], Callable[[], float]]) -> None:
    with setup.attempt(name):
        setup.need()
        setup.add(name, make())


def small(setup: Setup) -> None:
    """All-reduces of a few bytes on two devices, by their plan.

    *told*: cost to the caller of a message to both ranks, 1000 a sample. *sustained*: 1000 told, until the last is
    done. *asked*: until the reply, 200. The plan has the same arrays each time.
    """
    for nbytes in SMALL:
        _small(setup, f"all_reduce, {_size(nbytes)}", nbytes)


def _small(setup: Setup, what: str, nbytes: int) -> None:
    many, few = setup.count(1000), setup.count(200)
    for way in ("told", "sustained"):
        _add(
            setup,
            f"atomr {what}, {way}",
            lambda way=way: ranks(setup).told("all_reduce", nbytes, many, sustained=way == "sustained"),
        )
    _add(setup, f"atomr {what}, asked", lambda: ranks(setup).asked("all_reduce", nbytes, few))


def gpu_small(setup: Setup) -> None:
    """All-reduces of a few bytes on two GPUs, by their plan.

    As on the host devices. C and torch.distributed: a process for each GPU; the calls alone, 1000 and one wait, and a
    wait after each of 200.
    """
    begin(setup, f"all_reduce:{SMALL[-1]}:sustained", "twin", "peer")
    many, few = setup.count(1000), setup.count(200)
    for nbytes in SMALL:
        what = f"all_reduce, {_size(nbytes)}"
        _small(setup, what, nbytes)
        for way, named in WAYS.items():
            count = few if way == "asked" else many
            add_c(setup, f"C {what}, {way}", f"all_reduce:{nbytes}:{named}", count)
            add_torch(setup, f"torch {what}, {way}", f"all_reduce:{nbytes}:{named}", count)
            setup.ratio(f"atomr {what}, {way}", f"C {what}, {way}")
            setup.ratio(f"atomr {what}, {way}", f"torch {what}, {way}")


def gpu_large(setup: Setup) -> None:
    """Collectives of large arrays on two GPUs, sustained: microseconds of each.

    Bytes are counted as nccl-tests does: those of the larger of a rank's two arrays, of float32. C and
    torch.distributed: a process for each GPU, the same library. The bus bandwidth is bytes / time for all-reduce,
    reduce, broadcast and send, and half of that for the others.
    """
    largest = _bytes(setup, LARGE[-1])
    begin(setup, f"all_reduce:{largest}:sustained", "twin", "peer")
    for work in WORKS:
        for nbytes in LARGE:
            what, count, size = f"{work}, {_size(nbytes)}", _turns(setup, nbytes), _bytes(setup, nbytes)
            request = f"{work}:{size}:sustained"
            _add(
                setup,
                f"atomr {what}",
                partial(lambda w, b, n: ranks(setup, largest).told(w, b, n, sustained=True), work, size, count),
            )
            add_c(setup, f"C {what}", request, count)
            add_torch(setup, f"torch {what}", request, count)
            setup.ratio(f"atomr {what}", f"C {what}")
            setup.ratio(f"atomr {what}", f"torch {what}")


def _copied(made: Ranks, nbytes: int, count: int) -> Callable[[], float]:
    x, out = made.arrays(nbytes)
    copy, source, target = made.comm.devices[1].copy, x[0], out[1]

    def sample() -> float:
        copy(source, out=target).wait()
        start = time.perf_counter_ns()
        for _ in range(count):
            copy(source, out=target)
        target.wait()
        return (time.perf_counter_ns() - start) / 1e3 / count

    return sample


def gpu_copies(setup: Setup) -> None:
    """Copies from a GPU to another, `device.copy(ref, out=)`, one behind the other; microseconds of each.

    C: `cuMemcpyPeerAsync` with access between the GPUs. torch: send and recv of torch.distributed.
    """
    begin(setup, f"send:{_bytes(setup, COPIES[-1])}:sustained", "peer")
    begin(setup, f"copy:{_bytes(setup, COPIES[-1])}:sustained", "twin")
    for nbytes in COPIES:
        what, count, size = f"copy, {_size(nbytes)}", _turns(setup, nbytes), _bytes(setup, nbytes)
        _add(setup, f"atomr {what}", partial(lambda b, n: _copied(ranks(setup), b, n), size, count))
        add_c(setup, f"C {what}", f"copy:{size}:sustained", count)
        add_torch(setup, f"torch {what}", f"send:{size}:sustained", count)
        setup.ratio(f"atomr {what}", f"C {what}")


def _beside(made: Ranks, side: int, nbytes: int, count: int) -> Callable[[], float]:
    plan, x, out = made.collective("all_reduce", nbytes)
    chains: list[tuple[Any, Any, Any]] = []
    for device in made.comm.devices:
        square, into = (device.zeros((side, side), "bfloat16") for _ in range(2))
        chains.append((device.blas_lt.plan(square, square).wait(60.0), square, into))

    def turn(n: int) -> None:
        for _ in range(n):
            for product, square, into in chains:
                product.tell(square, square, into)
            plan.tell(x, out=out)
        plan.ask(x, out=out).result()
        for _, _, into in chains:
            into.wait()

    def sample() -> float:
        turn(2)
        start = time.perf_counter_ns()
        turn(count)
        return (time.perf_counter_ns() - start) / 1e3 / count

    return sample


def gpu_beside(setup: Setup) -> None:
    """All-reduces of 64 MiB beside a chain of products on each of two GPUs, until both are done.

    Microseconds of a product of 8192 x 8192 bfloat16 and an all-reduce, 20 a sample. torch:
    ``mm(out=)`` and ``all_reduce(async_op=True)``.
    """
    count, nbytes = setup.count(20), _bytes(setup, BESIDE)
    side = SIDE if _is_full(setup) else 64
    begin(setup, f"chain:{nbytes}:sustained", "peer")
    _add(setup, "atomr both", lambda: _beside(ranks(setup), side, nbytes, count))
    add_torch(setup, "torch both", f"chain:{nbytes}:sustained", count)
    setup.ratio("atomr both", "torch both")


BARS = (
    *(
        Bar("cost of a tell to two ranks", case, f"atomr all_reduce, {_size(n)}, told", 0.5, "us", part=_size(n))
        for case, sizes in (("collectives", SMALL[:1]), ("gpu_collectives_small", SMALL))
        for n in sizes
    ),
    *(
        Bar(f"small collectives, {way}", "gpu_collectives_small", f"atomr all_reduce, {_size(n)}, {way}", limit, "x",
            under=f"C all_reduce, {_size(n)}, {way}", part=_size(n))
        for way, limit in (("sustained", 1.10), ("asked", 1.15))
        for n in SMALL
    ),
    *(
        Bar(f"bandwidth of collectives, {work}", "gpu_collectives", f"atomr {work}, {_size(n)}", 1 / 0.98, "x",
            under=f"C {work}, {_size(n)}", part=_size(n))
        for work in WORKS
        for n in LARGE
    ),
    *(
        Bar("copies from GPU to GPU", "gpu_peer_copies", f"atomr copy, {_size(n)}", 1 / 0.95, "x",
            under=f"C copy, {_size(n)}", part=_size(n))
        for n in COPIES
    ),
    Bar("all-reduces beside a chain of products", "gpu_collectives_beside", "atomr both", 1.0, "x", under="torch both"),
)  # fmt: skip
CASES = (
    Case("collectives", "Collectives of two host devices", small, devices=("host",), rounds=21),
    Case("gpu_collectives_small", "Small collectives of two GPUs", gpu_small, devices=("cuda",), rounds=31),
    Case("gpu_collectives", "Collectives of two GPUs", gpu_large, devices=("cuda",), rounds=11, share=2.0),
    Case("gpu_peer_copies", "Copies between two GPUs", gpu_copies, devices=("cuda",), rounds=15),
    Case("gpu_collectives_beside", "Collectives beside products", gpu_beside, devices=("cuda",), rounds=15),
)
