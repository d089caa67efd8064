"""Devices of other nodes that restart or end: who learns of it, and how often."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from cluster_actors import DeviceWatcher

import atomr_native as an
from atomr_native.ray import Cluster, RemoteDevice
from atomr_native.ray.device_life import DeviceLife
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]
CRASHES = {"options": {"allow_crash": True}}


def crash(cluster: Cluster, node: int) -> None:
    """Have the worker of a node's host device end, and wait until it is back."""
    actor = cluster.spawn(Crashes, node=node)
    assert actor.ask("crash").result(30)


class Crashes(an.Actor):
    def receive(self, message: Any) -> Any:
        device, restarted = self.context.system.device("host"), threading.Event()

        def note(_: int) -> None:
            restarted.set()

        device.on_generation(note)
        device.inject_fault("exit")
        try:
            return restarted.wait(30)
        finally:
            device.forget(note)


def watchers_of(cluster: Cluster, nodes: range) -> list[an.ActorRef]:
    device = cluster.device("node1/host")
    made = [cluster.spawn(DeviceWatcher, device, node=node) for node in nodes]
    assert [each.started.result(30) for each in made] == [None] * len(made)
    return made


def test_a_restart_reaches_watchers_on_every_node_once(clusters: Make) -> None:
    cluster, _ = clusters(nodes=3, **CRASHES)
    watchers = watchers_of(cluster, range(3))
    here: list[int] = []
    told = threading.Event()
    device = cluster.device("node1/host")

    def note(generation: int) -> None:
        assert device.zeros((1,)).numpy().tolist() == [0.0]  # a callback may wait for the node
        here.append(generation)
        told.set()

    device.on_generation(note)
    device.on_generation(lambda _: 1 / 0)
    settle(cluster, device)
    crash(cluster, 1)
    for node, watcher in enumerate(watchers):
        (found,) = watcher.ask(1).result(30)
        assert isinstance(found, an.DeviceRestarted)
        assert found.generation == 2
        assert found.device == device, node  # in this process, the same device for all
    assert told.wait(30)
    assert here == [2]
    device.forget(note)
    told.clear()
    crash(cluster, 1)
    assert [len(watcher.ask(2).result(30)) for watcher in watchers] == [2] * 3
    assert here == [2]


def settle(cluster: Cluster, device: RemoteDevice) -> None:
    """Wait until the node of a device has all watches: a watch is a report of the present generation."""
    for peer in peers(cluster):
        life = peer.link(device.node).watch_device(device.name)
        while life._seen is None:
            assert cluster.stats()


def peers(cluster: Cluster) -> list[Any]:
    carrier: Any = cluster._peer.caller
    return [cluster._peer, *(node.host.peer for node in carrier._nodes if node.place.node != "node1")]


def test_a_restart_of_the_node_is_a_restart_of_its_devices(clusters: Make) -> None:
    cluster, carrier = clusters()
    (watcher,) = watchers_of(cluster, range(1))
    settle(cluster, cluster.device("node1/host"))
    carrier.kill("node1")
    (found,) = watcher.ask(1).result(30)
    assert isinstance(found, an.DeviceRestarted)
    assert found.generation == 1  # the first of the new life
    assert cluster.device("node1/host").zeros((1,)).numpy().tolist() == [0.0]


def test_the_loss_of_the_node_is_the_end_of_its_devices(clusters: Make) -> None:
    cluster, carrier = clusters(supervision=an.OneForOne(max_restarts=0))
    (watcher,) = watchers_of(cluster, range(1))
    carrier.kill("node1")
    (found,) = watcher.ask(1).result(30)
    assert isinstance(found, an.DeviceEnded)
    assert isinstance(found.error, an.NodeLost)
    told: SimpleQueue[an.AtomrError] = SimpleQueue()
    device = pickle.loads(pickle.dumps(found.device))
    device.on_end(told.put)  # also after the end
    assert isinstance(told.get(timeout=30), an.NodeLost)
    device.on_end(told.put)
    assert isinstance(told.get(timeout=30), an.NodeLost)


def test_a_report_that_is_not_new_is_no_restart() -> None:
    for began, reports, expected in (
        (0, [(1, 1), (1, 1), (1, 2), (1, 1)], [2]), (1, [(1, 1), (2, 1), (2, 1), (1, 3)], [1]),
        (1, [(2, 1), (2, 2)], [1, 2]), (0, [(2, 1)], []),
    ):  # fmt: skip
        told: list[int] = []
        life = DeviceLife("node1/host", began, lambda action: action())
        life.on_generation(told.append)
        for number, generation in reports:
            life.report(number, generation)
        assert told == expected


def test_the_end_of_a_device_is_told_once(clusters: Make) -> None:
    cluster, _ = clusters(options={"allow_crash": True, "max_restarts": 0})
    (watcher,) = watchers_of(cluster, range(1))
    settle(cluster, cluster.device("node1/host"))
    cluster.spawn(Ends, node=1).ask("end").result(30)
    (found,) = watcher.ask(1).result(30)
    assert isinstance(found, an.DeviceEnded)
    assert isinstance(found.error, an.DeviceLost)


class Ends(an.Actor):
    def receive(self, message: Any) -> Any:
        device, ended = self.context.system.device("host"), threading.Event()
        device.on_end(lambda _: ended.set())
        device.inject_fault("exit")
        return ended.wait(30)


def test_restarts_over_lost_late_and_repeated_calls(clusters: Make) -> None:
    cluster, _ = clusters(faults={"lost": 0.3, "late": 0.3, "repeated": 0.3}, **CRASHES)
    watchers = watchers_of(cluster, range(2))
    settle(cluster, cluster.device("node1/host"))
    for _ in range(2):
        crash(cluster, 1)
    for watcher in watchers:
        generations: list[int] = []
        while 3 not in generations:
            generations = [each.generation for each in watcher.ask(len(generations) + 1).result(30)]
        assert generations == sorted(set(generations))  # several restarts may be reported as one
        assert set(generations) <= {2, 3}


def test_a_watch_takes_a_device_of_the_cluster_and_nothing_else(cluster: Cluster) -> None:
    watcher = cluster.spawn(DeviceWatcher, "node1/host", node=0, supervision=an.OneForOne(max_restarts=0))
    error = watcher.started
    assert error.wait(30)
    assert isinstance(error.exception(), an.ActorStopped)
    assert watcher.join(30)
