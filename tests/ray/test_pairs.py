"""Arrays between GPUs of two machines by NCCL, where a communicator spans both.

Nodes are Systems with workers of their own, which take each other's machine for another one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import eventually, poison
from cluster_actors import Collective
from communicator_kinds import using
from placements import GPU

import atomr_native as an
from atomr_native.ray import Cluster
from atomr_native.ray.in_process import InProcess
from atomr_native.ray.moving.client import Client
from atomr_native.ray.moving.way import Way
from atomr_native.ray.traffic import Traffic
from atomr_native.runtime.listing import machine_gpus

PAIR = ("node0/cuda:0", "node1/cuda:1")
FAULTS = {"lost": 0.1, "late": 0.1, "repeated": 0.1}


class Taker(an.Actor):
    """Takes arrays to its device, and says which bytes came by TCP."""

    def __init__(self, device: str) -> None:
        self.device = self.context.system.device(device)

    def receive(self, message: Any) -> Any:
        match message:
            case ("put", array):
                return self.device.put(array)
            case ("take", array):
                found = array.to_device(self.device)
                assert found.device is self.device
                return found.numpy()
            case ("write", array, count):
                for number in range(count):
                    self.device.copy(self.device.full(array.shape, number, array.dtype), array)
        return None


@pytest.fixture(params=["fake", *GPU])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if found == "gpu" and machine_gpus() < 2:
        pytest.skip("this machine has fewer than two GPUs")
    return found


@pytest.fixture
def by_tcp(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of arrays that come by TCP; nodes are on machines of their own."""
    names: list[str] = []
    take = Client.take

    def noted(self: Client, way: Way, key: str, *rest: Any) -> Any:
        names.append(key)
        return take(self, way, key, *rest)

    monkeypatch.setattr(Client, "take", noted)
    monkeypatch.setattr(Way, "near", property(lambda _: False))
    return names


class World:
    """Two nodes with a GPU each, and a communicator of both."""

    def __init__(self, cluster: Cluster, carrier: InProcess) -> None:
        self.cluster, self.carrier = cluster, carrier
        self.comm = cluster.communicator(list(PAIR), timeout=60)
        devices = [name.partition("/")[2] for name in PAIR]
        self.ranks = [cluster.spawn(Collective, device, self.comm, node=node) for node, device in enumerate(devices)]
        self.takers = [cluster.spawn(Taker, device, node=node) for node, device in enumerate(devices)]

    def sums(self) -> list[Any]:
        answers = [rank.ask(("all_reduce", [float(n), 1.0], {})) for n, rank in enumerate(self.ranks)]
        return [answer.result(60).tolist() for answer in answers]

    def taken(self, data: np.ndarray[Any, Any], source: int) -> None:
        """Have the other node take an array of the node `source`."""
        array = self.takers[source].ask(("put", data)).result(60)
        found = self.takers[1 - source].ask(("take", array)).result(60)
        assert found.dtype == data.dtype
        assert np.array_equal(found, data)

    def spans(self, node: int) -> Any:
        (found,) = [each.host.peer.spans for each in self.carrier._nodes if each.place.node == f"node{node}"]
        return found


@pytest.fixture
def make(request: pytest.FixtureRequest, kind: str) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(using(request, kind))

        def made(**faults: Any) -> World:
            carrier = InProcess(**faults)
            given = {"standby": "off", "timeout": 60.0, "within": 0.0, "allow_crash": True}
            cluster = Cluster(nodes=2, gpus=2, carrier=carrier, options=given)
            return World(stack.enter_context(cluster), carrier)

        yield made


def some(count: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).integers(-1000, 1000, count).astype(dtype)


def test_an_array_goes_by_nccl(make: Any, by_tcp: list[str]) -> None:
    world = make(**FAULTS)
    world.taken(some(1 << 18), 0)
    assert len(by_tcp) == 1  # the ranks have not met yet
    assert world.sums() == [[1.0, 2.0]] * 2
    for source in (0, 1):
        for data in (some(1 << 18), some(3 << 17, "float64").reshape(3, 128, -1), some((1 << 20) + 3, "int8")):
            world.taken(data, source)
    assert len(by_tcp) == 1
    world.taken(some(10), 0)  # small
    assert len(by_tcp) == 2
    assert world.sums() == [[1.0, 2.0]] * 2
    assert world.comm.generation == 1


def test_a_view_and_a_device_of_another_node(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    remote = world.cluster.device("node1/cuda:1").put(some(1 << 19).reshape(2, -1))
    copied = world.cluster.device("node0/cuda:0").put(remote)
    assert by_tcp == []
    assert np.array_equal(copied.numpy(), remote.numpy())


def test_a_transfer_is_as_of_between_two_writes(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    array = world.takers[1].ask(("put", np.zeros(1 << 20, "int8"))).result(60)
    writes = world.takers[1].ask(("write", array, 16))
    for _ in range(3):
        assert len(np.unique(world.takers[0].ask(("take", array)).result(60))) == 1
    writes.result(60)
    assert by_tcp == []


@pytest.mark.slow
def test_transfers_and_collectives_at_once(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    data = [some(1 << 18), some(1 << 19)]
    arrays = [taker.ask(("put", each)).result(60) for taker, each in zip(world.takers, data, strict=True)]
    world.taken(data[0], 0)
    world.taken(data[1], 1)
    ends = threading.Event()
    failed: list[BaseException] = []

    def sum_on() -> None:
        try:
            while not ends.is_set():
                assert world.sums() == [[1.0, 2.0]] * 2
        except BaseException as error:
            failed.append(error)

    summing = threading.Thread(target=sum_on)
    summing.start()
    try:
        for _ in range(4):
            answers = [world.takers[node].ask(("take", arrays[1 - node])) for node in range(2)]
            for node, answer in enumerate(answers):
                assert np.array_equal(answer.result(60), data[1 - node])
    finally:
        ends.set()
        summing.join()
    assert not failed
    assert len(by_tcp) < 8
    assert world.comm.generation == 1


def test_a_transfer_does_not_wait_behind_a_collective(
    make: Any, kind: str, by_tcp: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "gpu":
        pytest.skip("collectives of a GPU cannot be held")
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    world = make()
    world.sums()
    world.taken(some(1 << 18), 0)
    held.touch()
    answers = [rank.ask(("all_reduce", [1.0], {})) for rank in world.ranks]
    eventually(lambda: all(world.spans(node).traffic._collectives for node in range(2)))
    world.taken(some(1 << 18), 0)
    assert len(by_tcp) == 1
    held.unlink()
    assert [answer.result(60).tolist() for answer in answers] == [[2.0]] * 2
    world.taken(some(1 << 18), 0)
    assert len(by_tcp) == 1


def test_collectives_wait_for_a_transfer() -> None:
    traffic, order = Traffic(), []
    with traffic.collective(), traffic.collective():
        assert not traffic.begin(0.0)
    assert traffic.begin(0.0)
    assert not traffic.begin(0.0)

    def collective() -> None:
        with traffic.collective():
            order.append("collective")

    waiting = threading.Thread(target=collective)
    waiting.start()
    eventually(lambda: len(traffic._change._waiters) == 1)  # type: ignore[attr-defined]
    order.append("transfer")
    traffic.end()
    waiting.join()
    assert order == ["transfer", "collective"]
    assert traffic.begin(1.0)


def test_pairs_end_with_their_communicator(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    world.taken(some(1 << 18), 0)
    assert by_tcp == []
    world.comm.close()
    for node in range(2):
        eventually(lambda node=node: not world.spans(node)._spans)
    world.taken(some(1 << 18), 0)
    assert len(by_tcp) == 1


def test_a_worker_that_dies_between_transfers(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    for node in (1, 0):
        world.taken(some(1 << 18), 0)
        (host,) = [each.host for each in world.carrier._nodes if each.place.node == f"node{node}"]
        device = host.system.device(f"cuda:{node}")
        os.kill(device.worker_pid, signal.SIGKILL)
        eventually(lambda device=device: device.generation == 2)
    for _ in range(3):
        world.taken(some(1 << 18), 0)
    assert len(by_tcp) < 3


def test_a_node_that_is_lost(make: Any, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    world.taken(some(1 << 18), 0)
    array = world.takers[0].ask(("put", some(1 << 18))).result(60)
    world.carrier.kill("node0")
    with pytest.raises(an.GpuRefStale) as stale:
        world.takers[1].ask(("take", array)).result(60)
    assert stale.value.reason == "node lost"


def test_without_nccl_arrays_go_by_tcp(
    make: Any, kind: str, by_tcp: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "gpu":
        pytest.skip("NCCL of a GPU cannot be made to fail")
    refusals = tmp_path / "refusals"
    refusals.write_text("")
    monkeypatch.setenv("FAKE_CUDA_REFUSE", str(refusals))
    world = make()
    world.sums()
    for failures in range(1, 6):
        refusals.write_text("ncclSend 3 1\n" if failures < 4 else "")
        world.taken(some(1 << 18), 0)
        assert len(by_tcp) == failures  # the last two are not tried any more
    world.taken(some(1 << 18), 1)  # the other direction is
    assert len(by_tcp) == 5
    assert world.sums() == [[1.0, 2.0]] * 2
    assert world.comm.generation == 1


def test_a_poisoned_array_has_its_own_error(make: Any, kind: str, by_tcp: list[str]) -> None:
    world = make()
    world.sums()
    array = world.cluster.device("node0/cuda:0").put(some(1 << 18))
    (host,) = [each.host for each in world.carrier._nodes if each.place.node == "node0"]
    poison(host.system.device("cuda:0").lane("mine"), host.arrays.find(array._held.ident))
    with pytest.raises(an.LibraryError, match="boom"):
        world.takers[1].ask(("take", array)).result(60)
    assert world.sums() == [[1.0, 2.0]] * 2
