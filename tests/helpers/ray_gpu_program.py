"""A cluster of two nodes with a GPU each, on one machine: each check prints its name.  Run by test_on_ray.py.

With the argument "fake" GPUs are those of the fake driver, and nothing is measured.  A check that fails does not keep
the others from running.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import ray
from cluster_actors import Collective, seeded_array
from ray_program import FOREVER, answered, refused
from ray_start import patiently

import atomr_native as an
from atomr_native.ray import Cluster, use_device
from atomr_native.ray.moving.client import Client
from atomr_native.ray.moving.way import Way

SIZES = (1 << 20, 64 << 20, 1 << 30)


class OnGpu(an.Actor):
    """Takes arrays to the GPU of its node."""

    def receive(self, message: Any) -> Any:
        device = self.context.system.device("cuda:0")
        match message:
            case "devices":
                listed = [each.name for each in self.context.system.devices() if each.kind == "cuda"]
                return listed, str(refused(an.Unsupported, lambda: self.context.system.device("cuda:1")))
            case ("put", array):
                return device.put(array)
            case ("take", array):
                found = array.to_device(device)
                assert found.device is device
                return found.numpy()
            case ("time", array, count):
                array.to_device(device)
                start = time.perf_counter()
                for _ in range(count):
                    array.to_device(device)
                return (time.perf_counter() - start) / count
            case "reached":
                peers = an_peers()
                return [
                    sorted(each._refused) for peer in peers for found in peer.moves._idle.values() for each in found
                ]
            case ("apart", array):
                return far(lambda: array.to_device(device)).numpy()
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return message


def far(work: Callable[[], Any]) -> Any:
    """Return the result of work that takes other processes' machines for other ones, and no array by TCP."""
    refusal = an.InvalidRequest("an array by TCP")
    with patch.object(Way, "near", property(lambda _: False)), patch.object(Client, "take", side_effect=refusal):
        return work()


def an_peers() -> Any:
    from atomr_native.ray import _peers

    return _peers.all_peers()


@ray.remote(num_cpus=0, num_gpus=1, enable_tensor_transport=True)
class Plain:
    """An actor of Ray's own, with a GPU."""

    def __init__(self) -> None:
        self.system = an.System(standby="off")
        self.device = self.system.device("cuda:0")
        use_device(self.device)

    @ray.method(tensor_transport="ATOMR")
    def make(self, count: int) -> Any:
        return [self.device.full((count,), 2.0)]

    def total(self, found: Any) -> float:
        assert found[0].device is self.device
        return float(found[0].numpy().sum())


def check_gpus(cluster: Cluster, actors: list[an.ActorRef]) -> None:
    for actor in actors:
        listed, text = actor.ask("devices").result(120)
        assert listed == ["cuda:0"], listed
        assert "1 GPUs are assigned" in text, text


def check_transfers(cluster: Cluster, actors: list[an.ActorRef]) -> None:
    data = np.random.default_rng(3).standard_normal(3 << 20).astype("float32")
    for source in (0, 1):
        array = cluster.device(f"node{source}/cuda:0").put(data)
        assert (array.numpy() == data).all()
        for target in (0, 1):
            assert (actors[target].ask(("take", array)).result(120) == data).all()
    print("not reached:", [actor.ask("reached").result(60) for actor in actors], flush=True)  # noqa: T201


def check_times(cluster: Cluster, actors: list[an.ActorRef]) -> None:
    for size in SIZES:
        array = cluster.device("node1/cuda:0").full((size,), 3, "uint8")
        spent = actors[0].ask(("time", array, 10)).result(120)
        print(f"{size >> 20} MiB: {1e6 * spent:.0f} us, {size / spent / 1e9:.1f} GB/s", flush=True)  # noqa: T201


def called_again(ranks: list[an.ActorRef]) -> list[Any]:
    """Return the sums of all ranks, after the loss of a node."""
    calls = [(rank, ("all_reduce", [float(n), 1.0], {})) for n, rank in enumerate(ranks)]
    answers = [rank.ask(call) for rank, call in calls]
    found = []
    for (rank, call), answer in zip(calls, answers, strict=True):
        try:
            found.append(answer.result(120).tolist())
        except an.NodeLost:  # it called before it was known that the other rank had gone
            found.append(rank.ask(call).result(120).tolist())
    return found


def check_communicator(cluster: Cluster, actors: list[an.ActorRef]) -> None:
    comm = cluster.communicator(["node0/cuda:0", "node1/cuda:0"])
    ranks = [cluster.spawn(Collective, "cuda:0", comm, node=node) for node in range(2)]
    answers = [rank.ask(("all_reduce", [float(n), 1.0], {})) for n, rank in enumerate(ranks)]
    assert [answer.result(120).tolist() for answer in answers] == [[1.0, 2.0]] * 2
    answers = [rank.ask(("seeded", n, {})) for n, rank in enumerate(ranks)]
    total = (seeded_array(0) + seeded_array(1))[:: 1 << 9]
    assert all((answer.result(120) == total).all() for answer in answers)
    assert [rank.ask(("notes", None, {})).result(120) for rank in ranks] == [(), ()]  # by NCCL
    generation = comm.generation
    array = cluster.device("node1/cuda:0").put([1.0])
    refused(an.NodeLost, lambda: actors[1].ask("die").result(60))
    assert answered(actors[1], "back") == "back"
    assert refused(an.GpuRefStale, array.numpy).reason == "node lost"
    for rank in ranks:
        assert answered(rank, ("alive", None, {})) == "alive"
    assert called_again(ranks) == [[1.0, 2.0]] * 2
    assert [rank.ask(("notes", None, {})).result(120) for rank in ranks] == [(), ()]
    assert comm.generation == generation + 1


def check_apart(cluster: Cluster, actors: list[an.ActorRef]) -> None:
    """Arrays between GPUs whose processes take each other for processes of two machines: by NCCL, also after a loss."""
    comm = cluster.communicator(["node0/cuda:0", "node1/cuda:0"])
    ranks = [cluster.spawn(Collective, "cuda:0", comm, node=node) for node in range(2)]
    data = np.random.default_rng(5).standard_normal(3 << 20).astype("float32")
    for life in range(2):
        assert called_again(ranks) == [[1.0, 2.0]] * 2
        for source in (0, 1):
            array = cluster.device(f"node{source}/cuda:0").put(data)
            for _ in range(3):
                assert (actors[1 - source].ask(("apart", array)).result(120) == data).all()
        if not life:
            refused(an.NodeLost, lambda: actors[1].ask("die").result(60))
            for each in (actors[1], *ranks):
                assert answered(each, ("alive", None, {}))


def check_results(cluster: Cluster) -> None:
    cluster.close()
    first, second = Plain.remote(), Plain.remote()
    for count in (1000, 16 << 20):
        assert ray.get(second.total.remote(first.make.remote(count)), timeout=120) == 2.0 * count


def made(check: Callable[..., None], *arguments: Any) -> bool:
    begun = time.monotonic()
    try:
        check(*arguments)
    except Exception:
        print(f"{check.__name__[6:]} failed:", traceback.format_exc(), flush=True)  # noqa: T201
        return False
    print(check.__name__, f"{time.monotonic() - begun:.1f} s", flush=True)  # noqa: T201
    return True


def main() -> int:
    good, fake = True, sys.argv[1:] == ["fake"]
    checks = (
        (check_gpus, check_communicator, check_apart)
        if fake
        else (check_gpus, check_transfers, check_times, check_communicator, check_apart)
    )
    options = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 500 << 20}
    patiently(lambda: ray.init(address="local", num_cpus=8, num_gpus=2, **options))
    try:
        with Cluster(nodes=2, gpus=1, options={"standby": "off"}, supervision=FOREVER) as cluster:
            actors = [cluster.spawn(OnGpu, node=node) for node in range(2)]
            for check in checks:
                good &= made(check, cluster, actors)
            if not fake:
                good &= made(check_results, cluster)
    finally:
        ray.shutdown()
    return not good


if __name__ == "__main__":
    sys.exit(main())
