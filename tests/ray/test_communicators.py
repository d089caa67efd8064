"""Communicators over nodes: results, order, ranks that fail, nodes that are lost and come back."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cluster_actors import Collective, seeded_array

import atomr_native as an
from atomr_native.ray import Cluster, ClusterCommunicator, communicator, exchange
from atomr_native.ray.in_process import InProcess

Make = Callable[..., tuple[Cluster, InProcess]]
FAULTS = {"lost": 0.15, "late": 0.15, "repeated": 0.2}


def ranks_of(cluster: Cluster, ranks: Sequence[str], **options: Any) -> tuple[ClusterCommunicator, list[an.ActorRef]]:
    comm = cluster.communicator(list(ranks), **options)
    placed = [rank.partition("/") for rank in ranks]
    return comm, [cluster.spawn(Collective, device, comm, node=node) for node, _, device in placed]


def run(actors: list[an.ActorRef], name: str, arrays: Sequence[Any], **options: Any) -> list[Any]:
    answers = [
        actor.ask((name, array, dict(options))) for actor, array in zip(actors, arrays, strict=True)
    ]  # fmt: skip
    return [answer.result(60) for answer in answers]


def together(name: str, arrays: Sequence[Any], **options: Any) -> list[np.ndarray[Any, Any]]:
    """Return what a communicator of one System returns."""
    with an.System(isolation="thread", standby="off") as system:
        comm = system.communicator([f"host:{rank}" for rank in range(len(arrays))])
        refs = [device.put(array) for device, array in zip(comm.devices, arrays, strict=True)]
        return [found.numpy() for found in getattr(comm, name)(refs, **options)]


def equal(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return all(
        mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
        for mine, theirs in zip(found, expected, strict=True)
    )


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks take from each other, in small pieces."""
    monkeypatch.setattr(communicator, "DIRECT", 0)
    monkeypatch.setattr(exchange, "_PIECE", 16)


@pytest.mark.parametrize("way", ["through rank 0", "direct"])
def test_the_results_are_those_of_one_system(clusters: Make, way: str, request: pytest.FixtureRequest) -> None:
    if way == "direct":
        request.getfixturevalue("direct")
    cluster, _ = clusters(nodes=2, faults=FAULTS)
    comm, actors = ranks_of(cluster, ["node0/host", "node1/host", "node1/host:1"])
    assert (comm.size, comm.ranks) == (3, ("node0/host", "node1/host", "node1/host:1"))
    draw = np.random.default_rng(0)
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int32):
        arrays = [(100 * draw.standard_normal((6, 2))).astype(dtype) for _ in range(3)]
        for op in ("sum", "max", "avg"):
            found = run(actors, "all_reduce", arrays, op=op, in_place=True)
            assert equal(found, together("all_reduce", arrays, op=op)), (dtype, op)
        assert equal(run(actors, "reduce_scatter", arrays), together("reduce_scatter", arrays))
        assert equal(run(actors, "all_gather", arrays), together("all_gather", arrays))
        assert equal(run(actors, "all_to_all", arrays), together("all_to_all", arrays))
        counts = [(1, 2, 3), (0, 0, 6), (6, 0, 0)]
        answers = [
            actor.ask(("all_to_all", array, {"counts": row}))
            for actor, array, row in zip(actors, arrays, counts, strict=True)
        ]
        found = [answer.result(60) for answer in answers]
        assert equal(found, together("all_to_all", arrays, counts=counts))
        total, *others = run(actors, "reduce", arrays)
        assert equal([total], together("all_reduce", arrays)[:1])
        assert others == [None, None]
        first, second, third = run(actors, "gather", arrays, root=1)
        assert (first, third) == (None, None)
        assert equal([second], together("all_gather", arrays)[:1])
    source = np.arange(6.0)
    answers = [actors[0].ask(("broadcast", None, {"root": 1}))]
    answers += [
        actors[rank].ask(("broadcast", source if rank == 1 else None, {"root": 1, "rank": rank})) for rank in (1, 2)
    ]
    assert [answer.result(60).tolist() for answer in answers] == [source.tolist()] * 3
    answers = [actors[0].ask(("scatter", source, {}))]
    answers += [actors[rank].ask(("scatter", None, {"rank": rank})) for rank in (1, 2)]
    assert [answer.result(60).tolist() for answer in answers] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    answers = [actors[0].ask(("barrier", None, {}))]
    assert not answers[0].done()
    answers += [actors[rank].ask(("barrier", None, {"rank": rank})) for rank in (1, 2)]
    assert [answer.result(60) for answer in answers] == [None] * 3
    scaled = run(actors, "all_reduce", [np.ones(2)] * 3, factor=0.5)
    assert [each.tolist() for each in scaled] == [[1.5, 1.5]] * 3
    assert comm.generation == 1


def seeded(count: int) -> list[np.ndarray[Any, Any]]:
    return [seeded_array(rank) for rank in range(count)]


def test_large_arrays_stay_where_they_are(clusters: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, carrier = clusters(nodes=3)
    _, actors = ranks_of(cluster, [f"node{node}/host" for node in range(3)])
    sizes: list[int] = []
    call = carrier.call

    def counted(handle: Any, method: str, *args: Any) -> Any:
        sizes.append(len(pickle.dumps(args[2:], 5)) if method in ("deliver", "control") else 0)
        return call(handle, method, *args)

    monkeypatch.setattr(carrier, "call", counted)
    answers = [actors[rank].ask(("seeded", rank, {})) for rank in range(3)]
    assert equal(
        [answer.result(60) for answer in answers], [each[:: 1 << 9] for each in together("all_reduce", seeded(3))]
    )
    assert 0 < max(sizes) < 64 << 10


def errors(answers: Sequence[an.Answer]) -> list[Any]:
    assert all(answer.wait(60) for answer in answers)
    return [answer.exception() for answer in answers]


def await_life(actor: an.ActorRef) -> None:
    """Wait until the node of an actor answers again."""
    while isinstance(errors([actor.ask(("alive", None, {}))])[0], an.NodeLost):
        continue


def test_what_one_rank_does_wrong_all_ranks_learn(clusters: Make) -> None:
    cluster, _ = clusters(faults=FAULTS)
    _, actors = ranks_of(cluster, ["node0/host", "node1/host"])
    for calls, kind, text in (
        ([("all_reduce", [1.0], {}), ("stale", [1.0], {})], an.GpuRefStale, "freed"),
        ([("all_reduce", [1.0], {}), ("all_gather", [1.0], {})], an.InvalidRequest, "rank 0 calls all_reduce"),
        ([("all_reduce", [1.0], {}), ("all_reduce", [1.0], {"op": "max"})], an.InvalidRequest, "the same collectives"),
        ([("all_reduce", [1.0], {}), ("all_reduce", [1.0, 2.0], {})], an.InvalidRequest, "all_reduce"),
        ([("all_reduce", [1.0], {"op": "odd"})] * 2, an.InvalidRequest, "odd"),
    ):  # fmt: skip
        found = errors([actor.ask(call) for actor, call in zip(actors, calls, strict=True)])
        assert [type(error) for error in found] == [kind, kind]
        assert all(text in str(error) for error in found)
    assert [each.tolist() for each in run(actors, "all_reduce", [[1.0], [2.0]])] == [[3.0], [3.0]]


def test_calls_that_are_wrong_at_once(cluster: Cluster) -> None:
    comm, actors = ranks_of(cluster, ["node0/host", "node1/host"])
    for call, text in (
        (("all_reduce", [1.0], {"factor": "x"}), "factor='x'"), (("reduce", [1.0], {"root": 2}), "root=2"),
        (("broadcast", None, {}), "array=None on rank 0"), (("barrier", None, {"rank": 1}), "rank=1"),
        (("all_reduce", [1.0], {"out": 3}), "out=3"), (("all_to_all", [1.0], {"counts": "ab"}), "counts='ab'"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=text):
            actors[0].ask(call).result(60)
    with pytest.raises(an.InvalidRequest, match="this process has the ranks"):
        comm.barrier()
    for devices, text in (
        ([], r"devices=\[\]"), ("node0/host", "devices='node0/host'"), (["node0/host"] * 2, "each once"),
        (["node7/host"], "node='node7'"), (["host"], "such as 'node0/host'"), (["node0/cuda:0"], "has 0 GPUs"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=text):
            cluster.communicator(devices)
    with pytest.raises(TypeError, match="made by a cluster"):
        ClusterCommunicator()
    comm.close()
    with pytest.raises(an.ActorStopped):
        actors[0].ask(("all_reduce", [1.0], {})).result(60)


def test_ranks_that_do_not_come(cluster: Cluster) -> None:
    comm, actors = ranks_of(cluster, ["node0/host", "node1/host"], timeout=0.2)
    with pytest.raises(an.AskTimeout, match=r"all_reduce: ranks \[1\] have not come"):
        actors[0].ask(("all_reduce", [1.0], {})).result(60)
    assert comm.generation == 2
    while True:  # rank 1 comes to a later generation, too
        answers = [actor.ask(("all_reduce", [1.0], {})) for actor in actors]
        if errors(answers) == [None, None]:
            break
    assert [answer.result(0).tolist() for answer in answers] == [[2.0], [2.0]]


@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_a_node_that_is_back_takes_part_again(clusters: Make, victim: str) -> None:
    cluster, carrier = clusters(faults=FAULTS)
    comm, actors = ranks_of(cluster, ["node0/host", "node1/host"])
    run(actors, "all_reduce", [[1.0], [2.0]])
    dead, other = (0, 1) if victim == "node0" else (1, 0)
    waiting = actors[other].ask(("all_reduce", [1.0], {}))
    carrier.kill(victim)
    (error,) = errors([waiting])
    assert isinstance(error, an.NodeLost)
    assert error.node == victim
    await_life(actors[dead])
    answers = [actor.ask(("all_reduce", [float(rank)], {})) for rank, actor in enumerate(actors)]
    assert errors(answers) == [None, None]
    assert [answer.result(0).tolist() for answer in answers] == [[1.0], [1.0]]
    assert comm.generation == 2


def test_a_node_that_is_lost_for_good(clusters: Make) -> None:
    cluster, carrier = clusters(supervision=an.OneForOne(max_restarts=0))
    _, actors = ranks_of(cluster, ["node0/host", "node1/host"])
    run(actors, "all_reduce", [[1.0], [2.0]])
    carrier.kill("node1")
    for _ in range(2):
        (error,) = errors([actors[0].ask(("all_reduce", [1.0], {}))])
        assert isinstance(error, an.NodeLost)
        assert error.node == "node1"
    _, rest = ranks_of(cluster, ["node0/host"])
    assert run(rest, "all_reduce", [[1.0]])[0].tolist() == [1.0]


@pytest.mark.parametrize(("seed", "way"), [(0, "through rank 0"), (1, "direct"), (2, "direct")])
def test_ranks_agree_whatever_ends(
    clusters: Make, seed: int, way: str, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    """Nodes end at random: a result is the sum of one call of all ranks; after an error all go on together."""
    if way == "direct":
        request.getfixturevalue("direct")
    cluster, carrier = clusters(
        nodes=3, faults={**FAULTS, "seed": seed},
        supervision=an.OneForOne(max_restarts=None, backoff=0.001, max_backoff=0.002),
    )  # fmt: skip
    _, actors = ranks_of(cluster, [f"node{node}/host" for node in range(3)], timeout=0.5)
    draw = np.random.default_rng(seed)
    done = 0
    for step in range(20):
        victim = int(draw.integers(3)) if step % 10 == 5 else None
        answers = [actor.ask(("all_reduce", [10.0**rank * step], {})) for rank, actor in enumerate(actors)]
        if victim is not None:
            killer = threading.Timer(0.01 * draw.random(), carrier.kill, [f"node{victim}"])
            killer.start()
            killer.join()
        found = errors(answers)
        for answer, error in zip(answers, found, strict=True):
            assert error is None or isinstance(error, an.NodeLost | an.AskTimeout), error
            if error is None:
                assert answer.result(0).tolist() == [111.0 * step]
        done += found == [None] * 3
        if victim is not None or any(found):
            for actor in actors:
                await_life(actor)
    assert done
