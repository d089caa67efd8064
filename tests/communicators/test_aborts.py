"""Communicators of GPUs: deaths in the middle of a collective, failures of NCCL, and what its versions lack."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest
from actions import eventually, poison
from communicator_kinds import made_of, names, using
from crash import kill
from placements import GPU

import atomr_native as an


@pytest.fixture(params=["fake", *GPU])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def make(request: pytest.FixtureRequest, kind: str) -> Iterator[Callable[..., an.System]]:
    """Make a System; options of the fake begin with ``nccl_``."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(using(request, kind))

        def make(**options: Any) -> an.System:
            settings = {name: options.pop(name) for name in list(options) if name.startswith("nccl_")}
            for name, value in settings.items():
                stack.enter_context(fake_cuda.using({f"FAKE_CUDA_{name.upper()}": str(value)}))
            return stack.enter_context(an.System(timeout=60.0, within=0.0, allow_crash=True, **options))

        yield make


def put(comm: an.Communicator, array: object, *, durable: bool = False) -> list[an.GpuRef]:
    refs = [device.put(array, durable=durable) for device in comm.devices]
    for ref in refs:
        ref.wait()
    return refs


def request_of(refs: list[an.GpuRef], out: list[an.GpuRef] | None = None) -> an.CollectiveRequest:
    return an.CollectiveRequest("all_reduce", refs, out=refs if out is None else out)


def summed(comm: an.Communicator, kind: str, value: float) -> list[float]:
    """Return the sum of one number a rank.

    On a busy GPU an abort may take more than 5 s, which ends its worker and volatile memory, and a connection that NCCL
    does not bring about is given up after 20 s: then it is sent again.
    """
    for _ in range(5 if kind == "gpu" else 0):
        with contextlib.suppress(an.DeviceFault, an.DependencyFailed, an.GpuRefStale, an.LibraryError):
            return comm.all_reduce(put(comm, [value]))[1].numpy().tolist()  # type: ignore[no-any-return]
        for device in comm.devices:
            device.wait_ready(60)
    return comm.all_reduce(put(comm, [value]))[1].numpy().tolist()  # type: ignore[no-any-return]


def is_at_work(comm: an.Communicator) -> bool:
    """Whether all ranks have taken a message that is not complete."""
    lanes = [owner.core.lane_stats(comm._registry.lane_of(owner)) for owner in comm._owners]
    return all(lane["claimed"] > lane["completed"] for lane in lanes)


@pytest.fixture
def held(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file; while it is there, no collective of the fake gets on."""
    if kind != "fake":
        pytest.skip("collectives of a GPU cannot be held")
    path = tmp_path / "held"
    monkeypatch.setenv("FAKE_CUDA_NCCL_HOLD", str(path))
    return path


def kill_at_work(comm: an.Communicator, rank: int, held: Path) -> an.CollectiveReply:
    """Kill a rank inside of a collective, and return its reply."""
    refs = put(comm, np.ones(100))
    held.touch()
    reply = comm.ask(request_of(refs))
    eventually(lambda: is_at_work(comm))
    kill(comm.devices[rank])
    held.unlink()
    return reply


def test_a_rank_that_cannot_take_part_fails_all(make: Callable[..., an.System], kind: str) -> None:
    comm = made_of(make(), kind, 0, 1)
    refs = put(comm, [1.0, 2.0])
    poison(comm.devices[1].lane("mine"), refs[1])
    reply = comm.ask(request_of(refs))
    with pytest.raises(an.DependencyFailed, match="boom"):
        reply.result(60)
    assert [type(one.exception()) for one in reply.replies] == [an.DependencyFailed] * 2
    with pytest.raises(an.LibraryError, match="boom"):
        refs[0].numpy()
    refs[0].clear_error()
    assert refs[0].numpy().tolist() == [1.0, 2.0]
    assert comm.all_reduce(put(comm, [1.0, 2.0]))[1].numpy().tolist() == [2.0, 4.0]
    assert [device.restarts for device in comm.devices] == [0, 0]


def test_a_failure_that_comes_late_is_awaited_before_the_vote(make: Callable[..., an.System], kind: str) -> None:
    comm = made_of(make(), kind, 0, 1)
    n = 500  # so that the outcome is open for a while
    refs = [device.put(np.eye(n)) for device in comm.devices]
    matrix = np.ones((n, n)) + np.diag(np.arange(n))
    matrix[-1] = 0
    singular = comm.devices[1].solver.solve(comm.devices[1].put(matrix), refs[1])
    late = comm.devices[1].copy(singular)
    reply = comm.ask(request_of([refs[0], late]))
    with pytest.raises(an.DependencyFailed, match=r"cuda:1 could not take part|singular"):
        reply.result(60)
    assert all(isinstance(one.exception(), an.AtomrError) for one in reply.replies)
    refs[0].clear_error()
    assert np.array_equal(refs[0].numpy(), np.eye(n))


def test_a_death_at_work_fails_the_message_and_what_was_launched_behind_it(
    make: Callable[..., an.System], kind: str, held: Path
) -> None:
    comm = made_of(make(), kind, 0, 1)
    first = comm.devices[0]
    generations: list[int] = []
    comm.on_generation(generations.append)
    kept, queued = put(comm, [7.0]), put(comm, [3.0], durable=True)
    refs = put(comm, np.ones(100))
    held.touch()
    reply = comm.ask(request_of(refs))
    behind = first.elementwise.run("x + 1", x=refs[0])
    beside = first.elementwise.run("x + 1", x=kept[0])
    eventually(lambda: is_at_work(comm))
    kill(comm.devices[1])
    held.unlink()
    with pytest.raises(an.DeviceFault, match="cuda:1"):
        reply.result(60)
    assert all(isinstance(one.exception(), an.DeviceFault) for one in reply.replies)
    for ref in (behind, refs[0]):
        with pytest.raises((an.DeviceFault, an.DependencyFailed), match="cuda:1"):
            ref.numpy()
    assert (beside.numpy().tolist(), kept[0].numpy().tolist()) == ([8.0], [7.0])
    assert comm.ask(request_of(queued)).result(60)[0].numpy().tolist() == [6.0]
    eventually(lambda: generations == [2])
    assert (first.restarts, comm.devices[1].restarts, comm.generation) == (0, 1, 2)
    comm.close()


@pytest.mark.parametrize("dies", [False, True])
def test_collectives_on_results_of_collectives_are_launched_behind_them(
    make: Callable[..., an.System], kind: str, held: Path, dies: bool
) -> None:
    """Only the ranks' connection decides about the inputs, so none waits for the outcome of the one before."""
    comm = made_of(make(), kind, 0, 1)
    refs = put(comm, np.ones(100))
    held.touch()
    replies = [comm.ask(request_of(refs)) for _ in range(3)]
    more = [device.elementwise.run("x + 1", x=ref) for device, ref in zip(comm.devices, refs, strict=True)]
    replies.append(comm.ask(request_of(more)))
    lanes = [functools.partial(owner.core.lane_stats, comm._registry.lane_of(owner)) for owner in comm._owners]
    eventually(lambda: all(lane()["claimed"] == lane()["sent"] for lane in lanes))
    assert not any(reply.done() for reply in replies)
    if dies:
        kill(comm.devices[1])
    held.unlink()
    if dies:
        for reply in replies:
            with pytest.raises((an.DeviceFault, an.DependencyFailed)):
                reply.result(60)
        for ref in (refs[0], more[0]):
            with pytest.raises((an.DeviceFault, an.DependencyFailed), match="cuda:1"):
                ref.numpy()
    else:
        assert replies[-1].result(60)[1].numpy()[:2].tolist() == [18.0, 18.0]
        assert refs[1].numpy()[:2].tolist() == [8.0, 8.0]
    comm.close()


def test_an_idle_rank_that_dies_is_back_for_the_next_message(make: Callable[..., an.System], kind: str) -> None:
    comm = made_of(make(), kind, 0, 1)
    part = comm.sub([1, 0])
    for rank in (0, 1):
        before = comm.devices[rank].generation
        kill(comm.devices[rank])
        eventually(lambda r=rank, b=before: comm.devices[r].generation > b)  # type: ignore[misc]
        for one in (comm, part):
            assert summed(one, kind, 2.0) == [4.0]
    if kind == "fake":  # see `summed`
        assert [device.restarts for device in comm.devices] == [1, 1]
    rest = comm.without(0)
    assert rest.all_reduce([rest.devices[0].put([2.0])])[0].numpy().tolist() == [2.0]


def test_survivors_restart_at_once_if_they_may(make: Callable[..., an.System], kind: str, held: Path) -> None:
    comm = made_of(make(), kind, 0, 1, on_death="restart")
    state = put(comm, [5.0], durable=True)
    reply = kill_at_work(comm, 1, held)
    with pytest.raises(an.DeviceFault):
        reply.result(60)
    eventually(lambda: [device.restarts for device in comm.devices] == [1, 1])
    for device in comm.devices:
        device.wait_ready(60)
    assert comm.all_reduce(state, out=state)[0].numpy().tolist() == [10.0]


def test_an_abort_that_hangs_ends_the_worker(make: Callable[..., an.System], held: Path) -> None:
    comm = made_of(make(nccl_abort_ms=-1), "fake", 0, 1)
    state = put(comm, [5.0], durable=True)
    reply = kill_at_work(comm, 1, held)
    with pytest.raises(an.DeviceFault):
        reply.result(60)
    eventually(lambda: [device.restarts for device in comm.devices] == [1, 1])
    for device in comm.devices:
        device.wait_ready(60)
    assert comm.all_reduce(state, out=state)[1].numpy().tolist() == [10.0]


@pytest.mark.parametrize("how", ["in progress", "blocked", "called"])
def test_ranks_that_do_not_come_to_an_end_inside_the_library_are_given_up(
    make: Callable[..., an.System], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if kind != "fake":
        pytest.skip("connecting GPUs cannot be held")
    stuck = tmp_path / "stuck"
    monkeypatch.setenv("FAKE_CUDA_NCCL_STUCK", str(stuck))
    monkeypatch.setenv(f"ATOMR_NATIVE_NCCL_{'CALL' if how == 'called' else 'CONNECT'}_S", "0.3")
    comm = made_of(make(), kind, 0, 1)
    state = put(comm, [5.0], durable=True)
    kill(comm.devices[0])
    eventually(lambda: comm.devices[0].restarts == 1)
    comm.devices[0].wait_ready(60)
    stuck.write_text({"in progress": "a", "blocked": "b", "called": "c"}[how])
    reply = comm.ask(request_of(state, [device.empty(1, "float64") for device in comm.devices]))
    with pytest.raises((an.LibraryError, an.DeviceFault) if how == "blocked" else an.LibraryError):
        reply.result(60)
    stuck.unlink()
    if how == "blocked":  # a library that does not return ends its worker
        eventually(lambda: comm.devices[1].restarts == 1)
        comm.devices[1].wait_ready(60)
    else:
        assert [device.restarts for device in comm.devices] == [1, 0]
    assert comm.all_reduce(state, out=state)[0].numpy().tolist() == [10.0]


class TestLibrary:
    """What NCCL refuses, and its versions; on the fake."""

    @pytest.fixture
    def kind(self) -> str:
        return "fake"

    @pytest.fixture
    def refusals(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return a file of calls that fail; see fake_driver.h."""
        path = tmp_path / "refusals"
        path.write_text("")
        monkeypatch.setenv("FAKE_CUDA_REFUSE", str(path))
        return path

    def test_a_rank_whose_library_fails_fails_all(self, make: Callable[..., an.System], refusals: Path) -> None:
        comm = made_of(make(), "fake", 0, 1)
        refusals.write_text("ncclAllReduce 3 1\n")
        with pytest.raises(an.LibraryError, match="nccl: ncclInternalError"):
            comm.ask(request_of(put(comm, [1.0, 2.0]))).result(60)
        refs = put(comm, [1.0, 2.0])
        assert comm.all_reduce(refs)[0].numpy().tolist() == [2.0, 4.0]
        assert [device.restarts for device in comm.devices] == [0, 0]

    def test_an_error_at_work_fails_all(self, make: Callable[..., an.System], refusals: Path, held: Path) -> None:
        comm = made_of(make(), "fake", 0, 1)
        held.touch()
        reply = comm.ask(request_of(put(comm, np.ones(100))))
        eventually(lambda: is_at_work(comm))
        refusals.write_text("ncclCommGetAsyncError 6 1\n")
        with pytest.raises(an.LibraryError, match="nccl: ncclRemoteError"):
            reply.result(60)
        held.unlink()
        assert all(one.exception() for one in reply.replies)
        refs = put(comm, [1.0, 2.0])
        assert comm.all_reduce(refs)[0].numpy().tolist() == [2.0, 4.0]
        assert [device.restarts for device in comm.devices] == [0, 0]

    @pytest.mark.parametrize("call", ["ncclGetUniqueId", "ncclCommInitRankConfig"])
    def test_ranks_that_cannot_connect(self, make: Callable[..., an.System], refusals: Path, call: str) -> None:
        refusals.write_text(f"{call} 2 1\n")
        system = make()
        with pytest.raises((an.LibraryError, an.DependencyFailed), match=call):
            made_of(system, "fake", 0, 1)
        comm = made_of(system, "fake", 0, 1)
        assert comm.all_reduce(put(comm, [1.0]))[0].numpy().tolist() == [2.0]

    def test_a_library_that_is_too_old(self, make: Callable[..., an.System]) -> None:
        with pytest.raises(an.Unsupported, match=r"NCCL 2\.17\.1 is older than 2\.18") as met:
            made_of(make(nccl_version=21701), "fake", 0, 1)
        assert (met.value.rule, met.value.lifted_by) == ("nccl.version", ("library",))

    def test_float8_needs_a_newer_library_for_reductions_only(self, make: Callable[..., an.System]) -> None:
        comm = made_of(make(nccl_version=22304), "fake", 0, 1)
        refs = [device.put(np.ones(3), dtype="float8_e5m2") for device in comm.devices]
        with pytest.raises(an.Unsupported, match=r"float8_e5m2 needs NCCL 2\.24; loaded is 2\.23\.4") as met:
            comm.all_reduce(refs)
        assert met.value.rule == "nccl.float8"
        assert comm.all_gather(refs)[0].shape == (6,)

    def test_without_the_library(self, make: Callable[..., an.System], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ATOMR_NATIVE_NCCL", "/nowhere/libnccl.so.2")
        system = make(standby="off")
        with pytest.raises(an.Unsupported, match="nvidia-nccl-cu13"):
            made_of(system, "fake", 0, 1)

    @pytest.mark.parametrize("peer", [0, 1])
    def test_gpus_that_do_not_reach_each_other_say_so(
        self, make: Callable[..., an.System], monkeypatch: pytest.MonkeyPatch, peer: int
    ) -> None:
        monkeypatch.setenv("FAKE_CUDA_PEER", str(peer))
        comm = made_of(make(standby="off"), "fake", 0, 1)
        plan = comm.plan(request_of(put(comm, [1.0])))
        assert ["without access" in note for note in plan.notes] == [True] * (not peer)
        moved = comm.plan(an.CollectiveRequest("gather", put(comm, [1.0, 2.0])))
        assert moved.notes[0] == "gather: sends and receives in one group"

    def test_devices_are_of_one_kind(self, make: Callable[..., an.System]) -> None:
        system = make()
        with pytest.raises(an.InvalidRequest, match="two kinds"):
            system.communicator([*names("host", 0), *names("fake", 0)])
        with pytest.raises(an.InvalidRequest, match="on_death='wait'; allowed: 'abort', 'restart'"):
            system.communicator(names("fake", 0, 1), on_death="wait")  # type: ignore[arg-type]


# On two H100 a kill and the connection after it take 1.4 s, and twice that beside other tests.
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_ranks_that_are_killed_at_random(make: Callable[..., an.System], kind: str, kills: int) -> None:
    """Each reply is a value that all ranks agree on, or a typed error; no array ever holds anything else."""
    comm = made_of(make(max_restarts=6 * kills), kind, 0, 1)
    draw = random.Random(kills)
    for _ in range(kills):
        inputs = [device.put(np.full(100_000, rank + 1.0), durable=True) for rank, device in enumerate(comm.devices)]
        replies, outs = [], []
        for _ in range(4):
            outs.append([device.empty(100_000, "float64", durable=True) for device in comm.devices])
            replies.append(comm.ask(request_of(inputs, outs[-1])))
        victim, moment = comm.devices[draw.randrange(2)], draw.randrange(4)
        replies[moment].replies[draw.randrange(2)].wait(60)  # then the next one is at work
        before = victim.generation
        kill(victim)
        for reply, mine in zip(replies, outs, strict=True):
            try:
                reply.result(60)
            except (an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                for ref in mine:
                    with contextlib.suppress(an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                        assert (ref.numpy() == 3.0).all()
            else:
                assert all((ref.numpy() == 3.0).all() for ref in mine)
        eventually(lambda v=victim, b=before: v.generation > b)  # type: ignore[misc]
        victim.wait_ready(60)
        assert summed(comm, kind, 1.0) == [2.0]
