"""Communicators whose ranks are GPUs of several nodes: by NCCL, through losses, and through host memory without it.

Nodes are Systems with workers of their own; each uses other GPUs of the machine.  The fake NCCL keeps to the rules.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fake_cuda
import ml_dtypes
import numpy as np
import pytest
from actions import eventually
from cluster_actors import Collective
from communicator_kinds import using
from placements import GPU

import atomr_native as an
from atomr_native.ray import Cluster, ClusterCommunicator, communicator, meeting
from atomr_native.ray.in_process import InProcess
from atomr_native.runtime.listing import machine_gpus

Make = Callable[..., tuple[Cluster, InProcess]]
PAIR = ("node0/cuda:0", "node1/cuda:1")
FAULTS = {"lost": 0.1, "late": 0.1, "repeated": 0.1}
#: What a call may end with while a rank comes back.
RECOVERABLE = (an.NodeLost, an.AskTimeout, an.DeviceFault, an.DependencyFailed, an.GpuRefStale, an.LibraryError)
FOREVER = an.OneForOne(max_restarts=None, backoff=0.001, max_backoff=0.002)


@pytest.fixture(params=["fake", *GPU])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if found == "gpu" and machine_gpus() < 2:
        pytest.skip("this machine has fewer than two GPUs")
    return found


@pytest.fixture
def make(request: pytest.FixtureRequest, kind: str) -> Iterator[Make]:
    """Make clusters whose nodes see all GPUs."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(using(request, kind))

        def made(nodes: int = 2, *, faults: dict[str, Any] | None = None, **options: Any) -> tuple[Cluster, InProcess]:
            carrier = InProcess(**(faults or {}))
            given = {"standby": "off", "timeout": 60.0, "within": 0.0, "allow_crash": True}
            options = {"gpus": 4 if kind == "fake" else 2, "options": given, **options}
            return stack.enter_context(Cluster(nodes=nodes, carrier=carrier, **options)), carrier

        yield made


def ranks_of(cluster: Cluster, ranks: Sequence[str], **options: Any) -> tuple[ClusterCommunicator, list[an.ActorRef]]:
    comm = cluster.communicator(list(ranks), **options)
    placed = [rank.partition("/") for rank in ranks]
    return comm, [cluster.spawn(Collective, device, comm, node=node) for node, _, device in placed]


def ask(actors: list[an.ActorRef], name: str, arrays: Sequence[Any], **options: Any) -> list[an.Answer]:
    return [actor.ask((name, array, dict(options))) for actor, array in zip(actors, arrays, strict=True)]


def run(actors: list[an.ActorRef], name: str, arrays: Sequence[Any], **options: Any) -> list[Any]:
    return [answer.result(120) for answer in ask(actors, name, arrays, **options)]


def errors(answers: Sequence[an.Answer]) -> list[Any]:
    assert all(answer.wait(120) for answer in answers)
    return [answer.exception() for answer in answers]


def system_of(carrier: InProcess, node: str) -> an.System:
    (found,) = [each.host.system for each in carrier._nodes if each.place.node == node and each.host is not None]
    return found


def notes(actors: list[an.ActorRef]) -> list[tuple[str, ...]]:
    return [actor.ask(("notes", None, {})).result(60) for actor in actors]


def work(actors: list[an.ActorRef]) -> None:
    """Have the ranks sum, as soon as all of them have come back."""
    met: list[Any] = []
    refused = 0
    for _ in range(200):
        found = ask(actors, "all_reduce", [[float(rank), 1.0] for rank in range(len(actors))])
        met = errors(found)
        if met == [None] * len(actors):
            break
        assert all(each is None or isinstance(each, RECOVERABLE) for each in met), met
        refused += all(isinstance(each, an.LibraryError) for each in met)  # by NCCL, which a death may cause once
        assert refused < 5, met
    else:
        pytest.fail(f"the ranks do not come back: {met}")
    total = [float(sum(range(len(actors)))), float(len(actors))]
    assert [answer.result(0).tolist() for answer in found] == [total] * len(actors)


@pytest.fixture
def no_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a call that does not go by NCCL fail."""

    def refuse(*_: Any) -> Any:
        raise an.InvalidRequest("a call through host memory")

    monkeypatch.setattr(communicator.ClusterCommunicator, "_by_host", refuse)


def test_the_results_are_those_of_one_system(
    make: Make, kind: str, no_host_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _ = make(faults=FAULTS)
    names = PAIR if kind == "gpu" else ("node1/cuda:1", "node0/cuda:0", "node1/cuda:2")
    comm, actors = ranks_of(cluster, names)
    size = len(names)
    draw = np.random.default_rng(0)
    with an.System(isolation="thread", standby="off") as system:
        local = system.communicator([f"host:{rank}" for rank in range(size)])

        def check(name: str, arrays: list[Any], found: list[Any], **options: Any) -> None:
            refs = [device.put(array) for device, array in zip(local.devices, arrays, strict=True)]
            expected = [each.numpy() for each in getattr(local, name)(refs, **options)]
            for mine, theirs in zip(found, expected, strict=True):
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                assert mine.tobytes() == theirs.tobytes(), (name, options, mine, theirs)

        for dtype in (np.float32, ml_dtypes.bfloat16, np.int32):
            arrays = [draw.integers(-50, 50, (6, 2)).astype(dtype) for _ in names]  # sums are exact
            for op in ("sum", "max", "prod") if dtype == np.int32 else ("sum", "min"):
                check("all_reduce", arrays, run(actors, "all_reduce", arrays, op=op, in_place=True), op=op)
                check("all_reduce", arrays, run(actors, "all_reduce", arrays, op=op), op=op)
            if dtype == ml_dtypes.bfloat16:
                continue
            check("reduce_scatter", arrays, run(actors, "reduce_scatter", arrays))
            check("all_gather", arrays, run(actors, "all_gather", arrays))
            check("all_to_all", arrays, run(actors, "all_to_all", arrays))
            total, *others = run(actors, "reduce", arrays)
            check("all_reduce", arrays, [total] * size)
            assert others == [None] * (size - 1)
            first, second, *others = run(actors, "gather", arrays, root=1)
            check("all_gather", arrays, [second] * size)
            assert [first, *others] == [None] * (size - 1)
        counts = [(1, 2, 3), (0, 0, 6), (6, 0, 0)] if size == 3 else [(5, 1), (2, 4)]
        answers = [
            actor.ask(("all_to_all", array, {"counts": row}))
            for actor, array, row in zip(actors, arrays, counts, strict=True)
        ]
        check("all_to_all", arrays, [answer.result(120) for answer in answers], counts=counts)
    source = np.arange(2.0 * size)
    for name in ("broadcast", "scatter"):
        answers = [
            actor.ask((name, source if rank == 1 else None, {"root": 1, "rank": rank}))
            for rank, actor in enumerate(actors)
        ]
        found = [answer.result(120).tolist() for answer in answers]
        whole = source.tolist()
        assert found == [whole if name == "broadcast" else whole[2 * rank : 2 * rank + 2] for rank in range(size)]
    scaled = run(actors, "all_reduce", [np.ones(2)] * size, factor=0.5)
    assert [each.tolist() for each in scaled] == [[0.5 * size] * 2] * size
    assert [each.shape for each in run(actors, "all_reduce", [np.ones((0, 3))] * size)] == [(0, 3)] * size
    assert comm.generation == 1
    assert set(notes(actors)) == {()}


def test_two_communicators_and_one_of_a_node(make: Make, kind: str, no_host_memory: None) -> None:
    cluster, carrier = make()
    _, first = ranks_of(cluster, PAIR)
    comm, second = ranks_of(cluster, PAIR[::-1])
    assert [each.tolist() for each in run(first, "all_gather", [[1.0], [2.0]])] == [[1.0, 2.0]] * 2
    assert [each.tolist() for each in run(second, "all_gather", [[1.0], [2.0]])] == [[1.0, 2.0]] * 2
    if kind == "fake":
        local = system_of(carrier, "node0").communicator(["cuda:0", "cuda:2"])
        refs = [device.put([3.0]) for device in local.devices]
        assert [each.numpy().tolist() for each in local.all_reduce(refs)] == [[6.0]] * 2
    comm.close()
    with pytest.raises(an.ActorStopped):
        run(second, "all_reduce", [[1.0], [2.0]])
    assert [each.tolist() for each in run(first, "all_gather", [[1.0], [2.0]])] == [[1.0, 2.0]] * 2
    device = system_of(carrier, "node1").device("cuda:1")
    eventually(lambda: len(device._state.meetings.numbers()) == 1)  # the workers have forgotten the other one


def test_what_one_rank_does_wrong_all_ranks_learn(make: Make, kind: str, no_host_memory: None) -> None:
    cluster, _ = make()
    comm, actors = ranks_of(cluster, PAIR)
    for calls, error, text in (
        ([("all_reduce", [1.0], {}), ("stale", [1.0], {})], an.GpuRefStale, "freed"),
        ([("all_reduce", [1.0], {}), ("all_gather", [1.0], {})], an.InvalidRequest, "rank 0 calls all_reduce"),
        ([("all_reduce", [1.0], {}), ("all_reduce", [1.0, 2.0], {})], an.InvalidRequest, "all_reduce"),
        ([("all_reduce", [1.0], {}), ("poisoned", [1.0], {})], an.LibraryError, "boom"),
    ):  # fmt: skip
        found = errors([actor.ask(call) for actor, call in zip(actors, calls, strict=True)])
        assert [type(each) for each in found] == [error, error]
        assert all(text in str(each) for each in found)
        work(actors)
    assert comm.generation == 1


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_dies_inside_of_a_collective(
    make: Make, kind: str, victim: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host_memory: None
) -> None:
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    cluster, carrier = make()
    comm, actors = ranks_of(cluster, PAIR)
    work(actors)
    devices = [system_of(carrier, f"node{rank}").device(f"cuda:{rank}") for rank in (0, 1)]
    held.touch()
    answers = ask(actors, "all_reduce", [np.ones(100 if kind == "fake" else 1 << 26)] * 2)
    if kind == "fake":  # a GPU may have finished before it is killed
        eventually(lambda: all(_at_work(each) for each in devices))
    else:
        eventually(lambda: all(_at_work(each) for each in devices) or all(each.done() for each in answers))
    pid = devices[victim].worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    held.unlink()
    found = errors(answers)
    if kind == "fake":
        assert [type(each) for each in found] == [an.DeviceFault] * 2, found
    assert all(each is None or isinstance(each, RECOVERABLE) for each in found), found
    work(actors)
    assert kind == "gpu" or comm.generation == 2


def test_a_worker_that_dies_between_collectives(make: Make, kind: str, no_host_memory: None) -> None:
    cluster, carrier = make()
    comm, actors = ranks_of(cluster, PAIR)
    work(actors)
    device = system_of(carrier, "node1").device("cuda:1")
    pid = device.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: device.generation == 2)
    work(actors)  # which connects the ranks anew
    assert kind == "gpu" or comm.generation == 1
    assert set(notes(actors)) == {()}


def _at_work(device: an.Device) -> bool:
    lanes = device.system._communicators()._lanes
    lane = device._state.core.lane_stats(lanes[device.name])
    return bool(lane["claimed"] > lane["completed"])


@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_a_node_that_is_lost_and_comes_back(
    make: Make, kind: str, victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host_memory: None
) -> None:
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    cluster, carrier = make(supervision=FOREVER)
    comm, actors = ranks_of(cluster, PAIR)
    work(actors)
    if kind == "fake":
        devices = [system_of(carrier, f"node{rank}").device(f"cuda:{rank}") for rank in (0, 1)]
        held.touch()
        answers = ask(actors, "all_reduce", [np.ones(100)] * 2)
        eventually(lambda: all(_at_work(each) for each in devices))
    else:
        answers = ask(actors[:1] if victim == "node1" else actors[1:], "all_reduce", [np.ones(100)])
    carrier.kill(victim)
    held.unlink(missing_ok=True)
    found = errors(answers)
    assert all(isinstance(each, an.NodeLost) for each in found), found
    assert {each.node for each in found} == {victim}
    work(actors)
    assert comm.generation >= 2
    assert set(notes(actors)) == {()}


def test_a_rank_whose_library_fails_fails_all(
    make: Make, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_host_memory: None
) -> None:
    if kind == "gpu":
        pytest.skip("NCCL of a GPU cannot be made to fail")
    refusals = tmp_path / "refusals"
    refusals.write_text("")
    monkeypatch.setenv("FAKE_CUDA_REFUSE", str(refusals))
    monkeypatch.setattr(meeting, "_KNOWN", 1)
    cluster, carrier = make()
    comm, actors = ranks_of(cluster, PAIR)
    work(actors)
    refusals.write_text("ncclAllReduce 3 1\n")
    found = errors(ask(actors, "all_reduce", [[1.0, 2.0]] * 2))
    assert [type(each) for each in found] == [an.LibraryError] * 2
    assert all("nccl: ncclInternalError" in str(each) for each in found)
    work(actors)
    assert [each.tolist() for each in run(actors, "all_gather", [[1.0], [2.0]])] == [[1.0, 2.0]] * 2
    work(actors)
    assert comm.generation == 2
    assert [system_of(carrier, f"node{rank}").device(f"cuda:{rank}").restarts for rank in (0, 1)] == [0, 0]


def test_ranks_that_find_no_nccl_go_through_host_memory(make: Make, kind: str) -> None:
    if kind == "gpu":
        pytest.skip("NCCL is there")
    with fake_cuda.using({"FAKE_CUDA_NCCL_VERSION": "21701"}):
        cluster, _ = make()
        _, actors = ranks_of(cluster, PAIR)
        work(actors)
        assert [each.tolist() for each in run(actors, "all_gather", [[1.0], [2.0]])] == [[1.0, 2.0]] * 2
        for (note,) in notes(actors):
            assert "NCCL 2.17.1 is older than 2.18" in note


def test_nodes_without_a_way_to_each_other_go_through_host_memory(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from atomr_native.ray import relay

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError("no way")

    monkeypatch.setattr(relay.Relay, "connect", refuse)
    cluster, _ = make()
    comm, actors = ranks_of(cluster, PAIR)
    work(actors)
    assert all("no way to the node of rank 0" in note for (note,) in notes(actors))
    assert comm.generation == 1


def test_nccl_that_does_not_connect_them(
    make: Make, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "gpu":
        pytest.skip("NCCL connects them")
    stuck = tmp_path / "stuck"
    stuck.touch()
    monkeypatch.setenv("FAKE_CUDA_NCCL_STUCK", str(stuck))
    monkeypatch.setenv("ATOMR_NATIVE_NCCL_CONNECT_S", "0.3")
    cluster, _ = make()
    _, actors = ranks_of(cluster, PAIR)
    work(actors)
    assert all("NCCL does not connect the ranks" in note for (note,) in notes(actors))


def test_a_rank_that_runs_late(make: Make, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "gpu":
        pytest.skip("collectives of a GPU cannot be held")
    held = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(held))
    cluster, _ = make()
    comm, actors = ranks_of(cluster, PAIR, timeout=1.5)
    work(actors)
    held.touch()
    found = errors(ask(actors, "all_reduce", [np.ones(100)] * 2))
    assert [type(each) for each in found] == [an.AskTimeout] * 2, found
    held.unlink()
    work(actors)
    assert comm.generation == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ranks_agree_whatever_ends(make: Make, kind: str, seed: int) -> None:
    """Workers and nodes end at random: a result is the sum of one call of all ranks, and all go on together."""
    cluster, carrier = make(faults={**FAULTS, "seed": seed}, supervision=FOREVER)
    _, actors = ranks_of(cluster, PAIR, timeout=5.0)
    draw = np.random.default_rng(seed)
    work(actors)
    done = 0
    for step in range(16):
        answers = ask(actors, "all_reduce", [np.full(1000, 10.0**rank * step) for rank in range(2)])
        if step % 4 == 3:
            victim, pause = int(draw.integers(2)), 0.02 * draw.random()
            threading.Timer(pause, _end, (carrier, victim, bool(draw.integers(2)))).start()
        found = errors(answers)
        for answer, error in zip(answers, found, strict=True):
            assert error is None or isinstance(error, (*RECOVERABLE, an.ActorStopped)), error
            if error is None:
                assert set(answer.result(0).tolist()) == {11.0 * step}
        done += found == [None] * 2
        if any(found):
            work(actors)
    assert done


def _end(carrier: InProcess, number: int, whole: bool) -> None:
    """Kill a node, or the worker of its GPU."""
    if whole:
        carrier.kill(f"node{number}")
        return
    with contextlib.suppress(ValueError, an.AtomrError, ProcessLookupError):  # it is ending anyway
        pid = system_of(carrier, f"node{number}").device(f"cuda:{number}").worker_pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
