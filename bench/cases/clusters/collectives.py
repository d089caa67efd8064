"""Collectives over GPUs of two nodes on this machine, beside the communicator of one System."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
        yield actors


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
)  # fmt: skip
