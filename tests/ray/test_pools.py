"""Pools of actors on several nodes, and the patterns over them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from cluster_actors import Batches, Gate, OnDevice

import atomr_native as an
from atomr_native import patterns
from atomr_native.ray import Cluster, ClusterPool
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]


def nodes_of(pool: ClusterPool) -> list[str]:
    return sorted(ref.path.split("/")[1] for ref in pool.refs)


def test_a_pool_is_spread_and_takes_turns(clusters: Make) -> None:
    cluster, _ = clusters(nodes=3)
    pool = cluster.pool(OnDevice, "x", size=6, name="workers")
    assert nodes_of(pool) == ["node0"] * 2 + ["node1"] * 2 + ["node2"] * 2
    assert [pool.ask(number).result(30) for number in range(12)] == [f"x{number}" for number in range(12)]
    assert [len(ref.ask("seen").result(30)) for ref in pool.refs] == [2] * 6
    assert {ref.name for ref in pool.refs} == {f"workers-{number}" for number in range(1, 7)}
    pool.resize(2)
    pool.resize(4)
    assert len({ref.path.split("/")[1] for ref in pool.refs}) == 3
    assert pool.size == 4
    assert repr(pool) == "<ClusterPool 'workers' of 4, round_robin, on node0, node1, node2>"
    pool.stop()
    assert pool.join(30)
    assert pool.head.join(30)
    with pytest.raises(an.ActorStopped):
        pool.ask("late").result(30)
    with pytest.raises(an.ActorStopped):
        pool.resize(5)


def test_routings(cluster: Cluster) -> None:
    broadcast = cluster.pool(OnDevice, size=2, routing="broadcast")
    assert broadcast.ask("x").result(30) == ["x", "x"]
    by_key = cluster.pool(OnDevice, size=4, routing="by_key", key=lambda message: message[0])
    for _ in range(3):
        for key in "abcdefgh":
            by_key.ask((key, 0)).result(30)
    seen = [{key for key, _ in ref.ask("seen").result(30)} for ref in by_key.refs]
    assert sum(map(len, seen)) == 8  # each key has one actor
    Gate.opened.clear()
    loaded = cluster.pool(Gate, size=2, routing="least_loaded")
    answers = [loaded.ask(number) for number in range(8)]
    Gate.opened.set()
    assert all(answer.wait(30) for answer in answers)
    assert Counter(len(ref.ask("last").result(30)) for ref in loaded.refs) == {5: 2}


def test_each_actor_has_a_device_of_its_own_node(cluster: Cluster) -> None:
    pool = cluster.pool(OnDevice, size=4, devices=["node1/host", "node1/host:1"])
    found = [ref.ask("where").result(30) for ref in pool.refs]
    assert [kind for kind, _ in found] == ["Device"] * 4
    assert nodes_of(pool) == ["node1"] * 4
    assert nodes_of(cluster.pool(OnDevice, size=3, nodes=[0])) == ["node0"] * 3


def test_a_pool_in_a_message(cluster: Cluster) -> None:
    pool = cluster.pool(OnDevice, "p", size=3)
    other = cluster.spawn(OnDevice, node=1)
    assert other.ask(("pool", pool, range(6))).result(30) == [f"p{number}" for number in range(6)]
    copy = pickle.loads(pickle.dumps(pool))
    assert copy.refs == pool.refs
    with pytest.raises(an.InvalidRequest, match="is a copy; resize the pool"):
        copy.resize(4)
    copy.stop()
    assert copy.join(30)
    assert pool.join(30)
    with pytest.raises(an.ActorStopped, match="no actor left"):
        copy.ask("x").result(30)
    assert not copy.tell("x")
    assert cluster.dead_letters.total == 1


def test_an_actor_that_stops_leaves_and_its_messages_go_elsewhere(cluster: Cluster) -> None:
    pool = cluster.pool(OnDevice, size=2, routing="by_key", key=lambda message: message % 8)
    pool.refs[0].stop()
    assert [pool.ask(number).result(30) for number in range(20)] == [str(number) for number in range(20)]
    while pool.size != 1:
        pool.ask(0).result(30)


def test_a_pool_whose_node_is_lost_and_one_whose_node_is_back(clusters: Make) -> None:
    cluster, carrier = clusters(supervision=an.OneForOne(max_restarts=1, backoff=0.001))
    pool = cluster.pool(OnDevice, size=4)
    for lives, left in ((1, 4), (2, 2)):
        carrier.kill("node1")
        while pool.size != left or carrier.directory("nodes")["node1"][0] == "down":
            pool.ask(lives).wait(30)
        answers = [pool.ask(number) for number in range(8)]
        assert all(answer.wait(30) for answer in answers)
    assert nodes_of(pool) == ["node0"] * 2
    assert [pool.ask(number).result(30) for number in range(4)] == list("0123")


@pytest.mark.parametrize("seed", range(2))
def test_a_pool_over_lost_late_and_repeated_calls(clusters: Make, seed: int) -> None:
    cluster, _ = clusters(faults={"lost": 0.2, "late": 0.2, "repeated": 0.3, "seed": seed})
    pool = cluster.pool(OnDevice, size=4, name="pool")
    answers = [pool.ask(number) for number in range(200)]
    assert [answer.result(30) for answer in answers] == [str(number) for number in range(200)]
    seen = [number for ref in pool.refs for number in ref.ask("seen").result(30)]
    assert sorted(seen) == list(range(200))


def test_pipelines_and_patterns_over_pools(cluster: Cluster) -> None:
    stages = [cluster.pool(OnDevice, "a", size=2), cluster.pool(OnDevice, "b", size=2)]
    assert sorted(an.Pipeline(stages, in_flight=3).map("xyz")) == ["bax", "bay", "baz"]
    workers = cluster.pool(Batches, size=2)
    batcher = cluster.spawn(patterns.Batcher, workers, node=1, max_size=4)  # a pool as an argument of an actor
    answers = [batcher.ask(number) for number in range(16)]
    assert [answer.result(30) for answer in answers] == [2 * number for number in range(16)]
    cheap, sure = cluster.pool(OnDevice, "cheap ", size=2), cluster.spawn(OnDevice, "sure ", node=1)
    cascade = cluster.spawn(patterns.Cascade, [cheap, sure], split=lambda text: (text, len(text) / 10), node=0)
    assert cascade.ask("x").result(30) == patterns.CascadeResult("sure x", 0.6, 1)
    assert cascade.ask("long").result(30).stage == 0
    swap = cluster.spawn(patterns.HotSwap, patterns.Swap(OnDevice, ("first ",)), node=1)
    assert swap.ask("x").result(30) == "first x"
    assert swap.ask(patterns.Swap(OnDevice, ("second ",), warm_up="w")).result(30) == 2
    assert swap.ask("x").result(30) == "second x"
    fair = cluster.spawn(patterns.FairShare, sure, {"a": 1.0, "b": 2.0}, node=0)
    answers = [fair.ask(patterns.ForTenant(tenant, tenant)) for tenant in "abab"]
    assert [answer.result(30) for answer in answers] == [f"sure {tenant}" for tenant in "abab"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 0}, "size=0"), ({"size": 1, "nodes": [7]}, "node='node7'"), ({"size": 1, "nodes": "node0"}, "nodes="),
        ({"size": 1, "devices": []}, r"devices=\[\]"), ({"size": 1, "devices": ["node9/host"]}, "node9"),
        ({"size": 1, "nodes": [0], "devices": ["node0/host"]}, "allowed: one of them"),
        ({"size": 1, "routing": "any"}, "routing='any'"), ({"size": 1, "key": len}, "routing='by_key'"),
        ({"size": 1, "name": "a/b"}, "name='a/b'"), ({"size": 1, "colour": 1}, "colour"),
    ],
)  # fmt: skip
def test_a_pool_checks_its_arguments_at_once(cluster: Cluster, options: dict[str, Any], text: str) -> None:
    with pytest.raises(an.InvalidRequest, match=text):
        cluster.pool(OnDevice, **options)
    assert all(node["actors"] == {} for node in cluster.stats().values() if node is not None)
