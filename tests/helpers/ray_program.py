"""A cluster on three nodes of Ray on this machine: each check prints its name.  Run by tests/ray/test_on_ray.py."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import ray
import ray.util.client
from cluster_actors import Arrays, Collective, DeviceWatcher, Log, Trains, Watcher
from processes import assert_dead
from ray.cluster_utils import Cluster as Machines
from ray_chaos import Process, answered, check_chaos
from ray_start import patiently

import atomr_native as an
from atomr_native.ray import Cluster, ClusterPool, RemoteRef, on_ray, transport, use_device

KILLS = int(os.environ.get("ATOMR_NATIVE_RAY_KILLS", "8"))
FOREVER = an.OneForOne(max_restarts=None, backoff=0.01, max_backoff=0.1)


def refused(error: type[Exception], call: Callable[[], object]) -> Any:
    """Return the error that a call must raise."""
    try:
        found = call()
    except error as raised:
        return raised
    raise SystemExit(f"{call} returned {found!r}, where it must raise {error.__name__}")


@ray.remote(num_cpus=0)
def task(ref: an.ActorRef, array: RemoteRef, name: str) -> Any:
    with Cluster.join(name) as joined:
        spawned = joined.spawn(Log, node=2).ask("x").result(60)
        return ref.ask("task").result(60), float(array.numpy().sum()), ref, spawned


@ray.remote(num_cpus=0)
def through_pool(pool: ClusterPool, name: str) -> Any:
    with Cluster.join(name):
        return [answer.result(60) for answer in [pool.ask("x") for _ in range(6)]]


@ray.remote(num_cpus=0, enable_tensor_transport=True, max_restarts=1)
class Plain:
    """An actor of Ray's own, with a System."""

    def __init__(self) -> None:
        self.system = an.System(standby="off")
        self.device = self.system.device("host")
        use_device(self.device)
        # Made here: threads of a first transfer and of a first call would make one each.
        assert ray._private.worker.global_worker._rdt_manager is not None

    @ray.method(tensor_transport="ATOMR")
    def make(self, count: int) -> Any:
        self.kept = self.device.full((count,), 2.0)
        return {"w": [self.kept, 5], "v": self.device.put(np.arange(4))}

    def total(self, found: Any) -> Any:
        assert all(each.device is self.device for each in (found["w"][0], found["v"]))
        return float(found["w"][0].sum().numpy()), found["w"][1], found["v"].numpy().tolist()

    def is_kept(self, found: Any) -> bool:
        return bool(found["w"][0] is self.kept)

    def same(self, references: list[Any]) -> list[Any]:
        return references

    def given(self) -> int:
        return len(transport._here._arrays)

    def pid(self) -> int:
        return os.getpid()


def check_messages(cluster: Cluster) -> None:
    refs = [cluster.spawn(Log, node=node) for node in range(3)]
    pids = {cluster.spawn(Process, node=node).ask("pid").result(60) for node in range(3)}
    assert len(pids | {os.getpid()}) == 4
    for ref in refs:
        for number in range(500):
            assert ref.tell(number)
    assert [ref.ask("seen").result(60) for ref in refs] == [list(range(500))] * 3
    assert refs[0].ask(("forward", refs[1], "node")).result(60) == refs[1]
    assert pickle.loads(pickle.dumps(refs[2])) == refs[2]
    error = refused(an.OutOfMemory, lambda: refs[0].ask("fail").result(60))
    assert error.requested == 7
    process = cluster.spawn(Process, node=1)
    assert process.ask("visible").result(60) == ""
    assert process.ask("join").result(60) == "x"
    refused(an.InvalidRequest, lambda: process.ask("make").result(60))


def check_tasks(cluster: Cluster) -> None:
    ref, array = cluster.spawn(Log, node=1), cluster.device("node0/host").put(np.ones(1 << 18, "float32"))
    count, total, same, spawned = ray.get(task.remote(ref, array, cluster.name))
    assert (count, total, same, spawned) == (1, float(1 << 18), ref, 1)


def check_arrays(cluster: Cluster) -> None:
    actors = [cluster.spawn(Arrays, node=node) for node in range(3)]
    data = np.arange(1 << 20, dtype="float32")
    for source in range(3):
        array = cluster.device(f"node{source}/host").put(data)
        for target in range(3):
            kind = actors[target].ask(("kind", array)).result(60)
            assert kind == ("GpuRef" if target == source else "RemoteRef")
            doubled = actors[target].ask(("double", array)).result(60)
            assert doubled.node == f"node{target}"
            assert (doubled.numpy() == 2 * data).all()


def check_results(cluster: Cluster) -> None:
    with an.System(standby="off") as system:
        use_device(system.device("host"))
        first, second = Plain.remote(), Plain.remote()
        made = first.make.remote(1000)
        assert ray.get(second.total.remote(made)) == (2000.0, 5, [0, 1, 2, 3])
        assert ray.get(first.is_kept.remote(made))
        passed = ray.get(second.same.remote([made]))[0]
        assert ray.get(second.total.remote(passed)) == (2000.0, 5, [0, 1, 2, 3])
        here = ray.get(made)["w"][0]
        assert here.device is system.device("host")
        assert (here.numpy() == 2).all()
        assert ray.get(first.given.remote()) == 2
        del made, passed, here
        end = time.monotonic() + 30
        while ray.get(first.given.remote()):
            assert time.monotonic() < end, "the memory of a result that nobody names"
            time.sleep(0.05)
        lost = first.make.remote(10)
        pid = ray.get(first.pid.remote())
        ray.wait([first.given.remote()])
        os.kill(pid, signal.SIGKILL)
        error = refused(an.GpuRefStale, lambda: ray.get(second.total.remote(lost), timeout=60))
        assert "node lost" in (getattr(error, "reason", ""), getattr(error.cause, "reason", ""))
        end = time.monotonic() + 60
        while True:
            try:
                assert ray.get(first.pid.remote()) != pid
                break
            except ray.exceptions.ActorUnavailableError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert ray.get(second.total.remote(first.make.remote(8)), timeout=60) == (16.0, 5, [0, 1, 2, 3])
        ray.kill(first)
        ray.kill(second)


def check_groups_of_nodes(cluster: Cluster) -> None:
    pool = cluster.pool(Log, size=6)
    assert [pool.ask("x").result(60) for _ in range(12)] == [1] * 6 + [2] * 6
    copied = ray.get(through_pool.remote(pool, cluster.name))
    assert copied == [3] * 6
    ranks = [f"node{node}/host" for node in range(3)]
    comm = cluster.communicator(ranks)
    actors = [cluster.spawn(Collective, "host", comm, node=node) for node in range(3)]
    for _ in range(3):
        answers = [actor.ask(("all_reduce", [float(rank)], {})) for rank, actor in enumerate(actors)]
        assert [answer.result(60).tolist() for answer in answers] == [[3.0]] * 3
    waiting = [actor.ask(("all_reduce", [1.0], {})) for actor in actors[1:]]
    assert refused(an.NodeLost, lambda: cluster.spawn(Process, node=0).ask("die").result(60)).may_have_run
    for answer in waiting:
        assert isinstance(refused(an.NodeLost, lambda answer=answer: answer.result(60)), an.NodeLost)
    for actor in actors:
        assert answered(actor, ("alive", None, {})) == "alive"
    answers = [actor.ask(("all_reduce", [2.0], {})) for actor in actors]
    assert [answer.result(60).tolist() for answer in answers] == [[6.0]] * 3


def check_state(cluster: Cluster) -> None:
    trainer, process = cluster.spawn(Trains, node=1), cluster.spawn(Process, node=1)
    watcher = cluster.spawn(DeviceWatcher, cluster.device("node1/host"), node=2)
    assert watcher.started.result(60) is None
    trainer.ask("step").result(60)
    saved = trainer.ask(("save", cluster.device("node0/host"))).result(60)
    assert refused(an.NodeLost, lambda: process.ask("die").result(60)).may_have_run
    assert answered(trainer, "state") == (0, [0.0] * 4)
    assert answered(trainer, ("load", saved)) == (1, [1.0] * 4)
    assert isinstance(watcher.ask(1).result(60)[0], an.DeviceRestarted)


def check_death(cluster: Cluster) -> None:
    process, other = cluster.spawn(Process, node=1), cluster.spawn(Log, node=0)
    array = cluster.device("node1/host").put([1.0])
    watcher = cluster.spawn(Watcher, cluster.spawn(Log, node=1).ask(("spawn", "child")).result(60), node=0)
    assert watcher.started.result(60) is None
    pid, worker = process.ask("pid").result(60), process.ask("worker").result(60)
    assert refused(an.NodeLost, lambda: process.ask("die").result(60)).may_have_run
    assert_dead(worker)
    assert answered(process, "pid") != pid
    assert isinstance(watcher.ask("found").result(60).error, an.NodeLost)
    assert other.ask("x").result(60) == 1
    assert refused(an.GpuRefStale, array.numpy).reason == "node lost"


def check_bad_input(cluster: Cluster) -> None:
    refused(an.InvalidRequest, lambda: Cluster(nodes=1, gpus=1))
    refused(an.InvalidRequest, lambda: Cluster(nodes=9, cpus=0.1, strategy="STRICT_SPREAD"))
    refused(an.InvalidRequest, lambda: Cluster(nodes=1, cpus=0.1, name=cluster.name))
    refused(an.InvalidRequest, lambda: Cluster.join("no such cluster"))
    refused(an.InvalidRequest, lambda: cluster.device("node0/cuda:0"))
    for module, name, value, rule in (
        (on_ray, "__version__", "0.0.1", "ray.version"),
        (ray, "__version__", "2.54.1", "ray.oldest"),
        (ray.util.client.ray, "is_connected", lambda: True, "ray.client"),
    ):
        with patch.object(module, name, value):
            error = refused(an.Unsupported, lambda: Cluster(nodes=1, cpus=0.1))
        assert error.rule == rule, error
    group = ray.util.placement_group([{"CPU": 0.5}])
    refused(an.InvalidRequest, lambda: Cluster(nodes=2, cpus=0.1, placement_group=group))
    refused(an.InvalidRequest, lambda: Cluster(nodes=1, cpus=2, placement_group=group))
    with Cluster(nodes=1, cpus=0.5, placement_group=group) as small:
        assert small.spawn(Log).ask("x").result(60) == 1


def main() -> None:
    machines = Machines()
    for _ in range(4):  # the first is the head; one more than the cluster has nodes
        patiently(lambda: machines.add_node(num_cpus=2, object_store_memory=150 << 20))
    ray.init(address=machines.address, log_to_driver=False)
    options = {"standby": "off", "within": 0.0}  # without a limit of restarts
    try:
        pids: list[int] = []
        with Cluster(nodes=3, strategy="STRICT_SPREAD", options=options, supervision=FOREVER) as cluster:
            for check in (
                check_messages,
                check_tasks,
                check_arrays,
                check_results,
                check_groups_of_nodes,
                check_state,
                check_death,
                partial(check_chaos, machines=machines, count=KILLS),
                check_bad_input,
            ):
                begun = time.monotonic()
                check(cluster)
                print(getattr(check, "__name__", "check_chaos"), f"{time.monotonic() - begun:.1f} s", flush=True)  # noqa: T201
            for node in range(3):
                process = cluster.spawn(Process, node=node)
                pids += [answered(process, "pid"), answered(process, "worker")]
        assert_dead(*pids, seconds=10)
        print("check_end", flush=True)  # noqa: T201
    finally:
        ray.shutdown()
        machines.shutdown()


if __name__ == "__main__":
    sys.exit(main())
