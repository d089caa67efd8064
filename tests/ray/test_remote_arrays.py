"""Device memory of other nodes: where it is, who holds it, what becomes of it."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cluster_actors import Arrays

import atomr_native as an
from atomr_native.ray import Cluster, RemoteRef
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]


def exports(carrier: InProcess, node: str) -> int:
    (found,) = [each for each in carrier._nodes if each.place.node == node]
    return len(found.host.arrays)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        gc.collect()
        if condition():
            return
        asyncio.run(asyncio.sleep(0.01))
    assert condition()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 5), (4, 3, 2)])
def test_bytes_arrive(cluster: Cluster, dtype: str, shape: tuple[int, ...]) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    array = np.arange(24).reshape(4, 3, 2)[tuple(slice(n) for n in shape)].reshape(-1)[: int(np.prod(shape))]
    array = array.reshape(shape).astype(kind)
    ref = cluster.device("node1/host").put(array)
    assert (ref.node, ref.device, ref.shape, ref.dtype) == ("node1", "host", shape, kind)
    assert (ref.ndim, ref.size, ref.nbytes) == (array.ndim, array.size, array.nbytes)
    found = ref.numpy()
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


def test_a_handle_arrives_on_its_node_as_itself_and_elsewhere_by_name(cluster: Cluster) -> None:
    here, there = cluster.spawn(Arrays, node=1), cluster.spawn(Arrays, node=0)
    x = cluster.device("node1/host").put(np.arange(4.0)[::2])
    assert here.ask(("kind", x)).result(30) == "GpuRef"
    assert there.ask(("kind", x)).result(30) == "RemoteRef"
    for actor, node in ((here, "node1"), (there, "node0")):
        doubled = actor.ask(("double", x)).result(30)
        assert isinstance(doubled, RemoteRef)
        assert doubled.node == node
        assert doubled.numpy().tolist() == [0.0, 4.0]
        assert here.ask(("double", doubled)).result(30).numpy().tolist() == [0.0, 8.0]
    with an.System() as system:  # the same actor without a cluster
        local = system.spawn(Arrays).ask(("double", system.device("host").put([1.0]))).result(30)
        assert local.numpy().tolist() == [2.0]
        assert x.to_device(system.device("host")).numpy().tolist() == [0.0, 2.0]
        assert cluster.device("node0/host").put(x).numpy().tolist() == [0.0, 2.0]


def test_memory_is_freed_with_the_last_handle(clusters: Make) -> None:
    cluster, carrier = clusters()
    keeper = cluster.spawn(Arrays, node=0)
    x = cluster.device("node1/host").zeros((5,))
    assert exports(carrier, "node1") == 1
    keeper.ask(("keep", x)).result(30)
    again = pickle.loads(pickle.dumps(x))
    same = copy.deepcopy(x)
    del x, again, same
    gc.collect()
    kept = keeper.ask("kept").result(30)
    assert kept.numpy().tolist() == [0.0] * 5  # node0 holds it, and now this process again
    del kept
    gc.collect()
    assert exports(carrier, "node1") >= 1
    keeper.ask("drop").result(30)
    until(lambda: exports(carrier, "node1") == 0)


def test_a_handle_on_its_way_is_held(clusters: Make) -> None:
    """The result of an actor has no holder but the message, until this process has it."""
    cluster, carrier = clusters(faults={"late": 0.5, "repeated": 0.5})
    actor = cluster.spawn(Arrays, node=1)
    x = cluster.device("node1/host").put([3.0])
    answers = [actor.ask(("double", x)) for _ in range(20)]
    del x
    gc.collect()
    assert [each.result(30).numpy().tolist() for each in answers] == [[6.0]] * 20
    del answers
    until(lambda: exports(carrier, "node1") == 0)


def test_free_is_for_all_handles(cluster: Cluster) -> None:
    actor = cluster.spawn(Arrays, node=0)
    x = cluster.device("node1/host").put([1.0])
    actor.ask(("keep", x)).result(30)
    other = actor.ask("kept").result(30)
    x.free()
    x.free()
    assert not x.valid
    with pytest.raises(an.GpuRefStale) as error:
        other.numpy()
    assert error.value.reason == "freed"
    assert not actor.ask("kept").result(30).valid


def test_the_memory_of_a_lost_node_is_stale(clusters: Make) -> None:
    cluster, carrier = clusters()
    device = cluster.device("node1/host")
    actor = cluster.spawn(Arrays, node=0)
    x = device.put([1.0])
    actor.ask(("keep", x)).result(30)
    carrier.kill("node1")
    for _ in range(2):
        with pytest.raises(an.GpuRefStale) as error:
            x.numpy()
        assert error.value.reason == "node lost"
    with pytest.raises(an.GpuRefStale) as error:
        actor.ask(("double", x)).result(30)
    assert error.value.reason == "node lost"
    y = device.put([2.0])  # of the next life
    assert y.numpy().tolist() == [2.0]
    assert y.valid
    assert not x.valid


async def waited(ref: RemoteRef) -> Any:
    return await ref


def test_waits_and_conversions(cluster: Cluster) -> None:
    device = cluster.device("node1/host")
    x = device.full((2,), 7, "int32")
    assert x.wait() is x
    assert asyncio.run(waited(x)) is x
    assert np.asarray(x).tolist() == [7, 7]
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(an.InvalidRequest, match="copy=False"):
        np.array(x, copy=False)
    assert device.get(x).tolist() == [7, 7]
    assert device.empty((3,), durable=True).shape == (3,)
    assert device == cluster.device("node1/host:0") == pickle.loads(pickle.dumps(device))
    assert device.stats()["memory"]
    assert repr(x) == "<RemoteRef int32[2] on node1/host>"


def test_devices_that_do_not_exist(cluster: Cluster) -> None:
    for name, text in (
        ("node9/host", "node='node9'; allowed: node0, node1"), ("host", "such as 'node0/host'"),
        ("node0/tpu:0", "tpu:0"), ("node0/cuda:0", "node0 has 0 GPUs"), (7, "such as 'node0/host'"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=text):
            cluster.device(name)  # type: ignore[arg-type]
    device = cluster.device("node0/host")
    with pytest.raises(an.InvalidRequest):
        device.full((2,), 300, "int8")
    with pytest.raises(an.InvalidRequest, match="not an array of node0/host"):
        device.get(cluster.device("node1/host").zeros(()))
    with pytest.raises(an.InvalidRequest, match="object"):
        device.put([object()])
    with pytest.raises(TypeError, match=r"cluster\.device"):
        RemoteRef()


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_limit_of_memory_from_the_reservation(clusters: Make, gpus: int) -> None:
    cluster, _ = clusters(memory=100 << 20, gpus=gpus)
    with pytest.raises(an.OutOfMemory) as error:
        cluster.device("node1/host").empty((90 << 20,), "int8")
    assert error.value.limit == (100 << 20) * 4 // 5
