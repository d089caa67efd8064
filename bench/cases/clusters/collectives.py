"""Collectives over GPUs of two nodes on this machine, beside the communicator of one System, and arrays by NCCL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bench.harness import Case, Setup, Unavailable

__all__ = ["CASES"]

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4 KiB": 4 * KIB, "1 MiB": MIB, "64 MiB": 64 * MIB, "1 GiB": 1024 * MIB}
LIMIT = 60.0  # seconds


def sums(setup: Setup) -> None:
    """An all-reduce in place of float32, from the call until the result is there; microseconds.

    "one System": `comm.ask(...).result()` on GPUs 0 and 1.  "two nodes": an actor on each of two Systems of this
    program calls `ClusterCommunicator.all_reduce`; the slower one counts.  Ranks agree on each call first, which takes
    the same time whatever the size.
    """
    full = setup.count(1000) == 1000
    for name, size in SIZES.items():
        count = (size if full else 4096) // 4
        with setup.attempt(f"one System, {name}"):
            setup.add(f"one System, {name}", _one(setup.shared("one", _system), count))
        with setup.attempt(f"two nodes, {name}"):
            setup.add(f"two nodes, {name}", _two(setup.shared("two", _nodes), count))
        setup.ratio(f"two nodes, {name}", f"one System, {name}")


def crossings(setup: Setup) -> None:
    """Arrays of node 0's GPU, taken to that of node 1 as from another machine; microseconds, until they are there.

    Both are Systems of this program.  By NCCL, and by TCP as without a communicator that spans the two.
    """
    full = setup.count(1000) == 1000
    for name, size in list(SIZES.items())[1:]:
        nbytes = size if full else MIB
        for what, least in (("by NCCL", 0), ("by TCP", 1 << 62)):
            with setup.attempt(f"{what}, {name}"):
                taker, source = setup.shared("two", _apart)
                setup.add(f"{what}, {name}", _taken(taker, source.full((nbytes,), 1, "uint8"), least))
        setup.ratio(f"by NCCL, {name}", f"by TCP, {name}")


def _taken(taker: Any, array: Any, least: int) -> Callable[[], float]:
    from atomr_native.ray import pairs  # type: ignore[import-untyped,unused-ignore]

    def sample() -> float:
        with patch.object(pairs, "LEAST", least), _failing(not least):
            return float(taker.ask(array).result(LIMIT))

    sample()
    return sample


@contextmanager
def _failing(wanted: bool) -> Iterator[None]:
    """Have arrays that come by TCP fail, if that is wanted."""
    from atomr_native.ray.moving.client import Client  # type: ignore[import-untyped,unused-ignore]

    if not wanted:
        yield
        return
    with patch.object(Client, "take", side_effect=Unavailable("NCCL does not bring it")):
        yield


@contextmanager
def _apart() -> Iterator[tuple[Any, Any]]:
    from atomr_native.ray.moving.way import Way  # type: ignore[import-untyped,unused-ignore]
    from bench.cases.clusters._actors import Taking

    with _cluster() as (cluster, _), patch.object(Way, "near", property(lambda _: False)):
        yield cluster.spawn(Taking, "cuda:1", node=1), cluster.device("node0/cuda:0")


@contextmanager
def _system() -> Iterator[Any]:
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

    with an.System(standby="off") as system:
        try:
            yield system.communicator(["cuda:0", "cuda:1"])
        except an.Unsupported as error:
            raise Unavailable(str(error)) from error


@contextmanager
def _nodes() -> Iterator[list[Any]]:
    with _cluster() as (_, actors):
        yield actors


@contextmanager
def _cluster() -> Iterator[tuple[Any, list[Any]]]:
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.ray import Cluster  # type: ignore[import-untyped,unused-ignore]
    from atomr_native.ray.in_process import InProcess  # type: ignore[import-untyped,unused-ignore]
    from bench.cases.clusters._actors import Summing

    with Cluster(nodes=2, gpus=2, carrier=InProcess(), options={"standby": "off"}) as cluster:
        names = ["node0/cuda:0", "node1/cuda:1"]
        comm = cluster.communicator(names, timeout=LIMIT)
        actors = [cluster.spawn(Summing, comm, f"cuda:{node}", node=node) for node in range(2)]
        try:
            for each in [actor.ask((1, 1)) for actor in actors]:
                each.result(LIMIT)
        except an.Unsupported as error:
            raise Unavailable(str(error)) from error
        for actor in actors:
            for note in actor.ask("notes").result(LIMIT):
                raise Unavailable(note)
        yield cluster, actors


def _one(comm: Any, count: int) -> Callable[[], float]:
    import atomr_native as an  # type: ignore[import-untyped,unused-ignore]

    arrays = [device.zeros((count,)) for device in comm.devices]
    request = an.CollectiveRequest("all_reduce", arrays, out=arrays)

    def sample() -> float:
        start = time.perf_counter_ns()
        comm.ask(request).result(LIMIT)
        return (time.perf_counter_ns() - start) / 1e3

    sample()
    return sample


def _two(actors: list[Any], count: int) -> Callable[[], float]:
    def sample() -> float:
        answers = [actor.ask((count, 5)) for actor in actors]
        return max(float(answer.result(LIMIT)) for answer in answers)

    sample()
    return sample


CASES = (
    Case("gpu_cluster_collectives", "Collectives over GPUs of two nodes", sums, devices=("cuda",), rounds=31),
    Case("gpu_cluster_crossings", "Arrays of another node's GPU by NCCL", crossings, devices=("cuda",), rounds=15),
)  # fmt: skip
