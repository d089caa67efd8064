"""A cluster inside of Ray Serve and Ray Train: each check prints its name.  Run by tests/ray/test_on_ray.py."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import ray
import ray.train
from cluster_actors import Collective
from ray import serve
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray_start import patiently

import atomr_native as an
from atomr_native.ray import Cluster


class Weights(an.Actor):
    """Has a row of weights on its node's device; adds to it, and multiplies by it."""

    def __init__(self) -> None:
        self.row = self.context.system.device("host").zeros((3,), durable=True)

    def receive(self, message: Any) -> Any:
        match message:
            case ("add", row):
                self.row += row.to_device(self.row.device)
                return self.row.numpy().tolist()
            case ("times", number):
                return (self.row * number).numpy().tolist()
        return self.row


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
class Predictions:
    """Answers by an actor of the cluster."""

    def __init__(self, name: str, weights: an.ActorRef) -> None:
        self.cluster, self.weights = Cluster.join(name), weights

    async def __call__(self, number: float) -> Any:
        return await self.weights.ask(("times", number))


def step(config: dict[str, Any]) -> None:
    """One worker of Ray Train: gives its rows to the actor, from the memory of its node."""
    rank = ray.train.get_context().get_world_rank()
    with Cluster.join(config["name"]) as cluster:
        row = cluster.device(f"node{rank}/host").put([float(rank + 1)] * 3)
        config["weights"].ask(("add", row)).result(60)
        total = config["ranks"][rank].ask(("all_reduce", [float(rank)], {})).result(60)
        assert total.tolist() == [1.0]
        ray.train.report({"total": 1.0})


def check_train(cluster: Cluster, weights: an.ActorRef) -> None:
    comm = cluster.communicator(["node0/host", "node1/host"], timeout=60)
    ranks = [cluster.spawn(Collective, "host", comm, node=node) for node in range(2)]
    trainer = DataParallelTrainer(
        step,
        train_loop_config={"name": cluster.name, "weights": weights, "ranks": ranks},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=tempfile.mkdtemp()),
    )
    result = trainer.fit()
    assert result.error is None, result
    assert weights.ask(("times", 1)).result(60) == [3.0] * 3


def check_serve(cluster: Cluster, weights: an.ActorRef) -> None:
    serve.start(proxy_location="Disabled")
    handle = serve.run(Predictions.bind(cluster.name, weights), route_prefix=None)
    found = [handle.remote(float(number)) for number in range(8)]
    assert [each.result(timeout_s=60) for each in found] == [[3.0 * number] * 3 for number in range(8)]
    serve.shutdown()


def main() -> None:
    options = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 200 << 20}
    patiently(lambda: ray.init(address="local", num_cpus=8, **options))
    try:
        with Cluster(nodes=2, options={"standby": "off"}) as cluster:
            weights = cluster.spawn(Weights, node=1)
            for check in (check_train, check_serve):
                begun = time.monotonic()
                check(cluster, weights)
                print(check.__name__, f"{time.monotonic() - begun:.1f} s", flush=True)  # noqa: T201
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
