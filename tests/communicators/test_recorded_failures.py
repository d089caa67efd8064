"""What a death, a failing step, or a rank that cannot take part does to a recorded program over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from actions import poison
from communicator_kinds import made_of, using
from crash import await_generation, kill
from placements import GPU

import atomr_native as an


@pytest.fixture(scope="module", params=["host", "fake", *GPU])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def system(request: pytest.FixtureRequest, kind: str) -> Iterator[an.System]:
    with using(request, kind), an.System(timeout=60.0, within=0.0, allow_crash=True) as made:
        yield made


@pytest.fixture
def pair(system: an.System, kind: str) -> an.Communicator:
    return made_of(system, kind, 0, 1)


def put(comm: an.Communicator, arrays: Any, *, durable: bool = False) -> list[an.GpuRef]:
    made = zip(comm.devices, arrays, strict=True)
    return [device.put(np.asarray(array, "float32"), durable=durable).wait() for device, array in made]


def on_a_busy_gpu(comm: an.Communicator, kind: str, work: Callable[[], None]) -> None:
    """Do some work; again, if an abort has taken more than 5 s meanwhile, which ends its worker.

    With many processes on a GPU each has it for a small part of the time only.
    """
    for attempt in range(4 if kind == "gpu" else 1):
        before = [device.restarts for device in comm.devices]
        try:
            work()
        except (an.AtomrError, AssertionError):
            for device in comm.devices:
                device.wait_ready(60)
            if attempt == 3 or kind != "gpu" or [device.restarts for device in comm.devices] == before:
                raise
        else:
            return


def values(refs: list[an.GpuRef]) -> list[Any]:
    return [ref.numpy().tolist() for ref in refs]


def test_a_poisoned_operand_of_one_rank_fails_all_and_nothing_is_written(pair: an.Communicator) -> None:
    x, y = put(pair, [[1.0], [2.0]]), put(pair, [[0.0], [0.0]])
    with pair.record() as g:
        given = g.operand("x", x)
        for ref in y:
            ref.fill(7)
        pair.all_reduce(given, out=given)
    bad = put(pair, [[1.0], [2.0]])
    poison(pair.devices[1].lane("mine"), bad[1])
    reply = g.plan.ask([x[0], bad[1]])
    with pytest.raises(an.DependencyFailed, match="boom"):
        reply.result(60)
    assert [type(one.exception()) for one in reply.replies] == [an.DependencyFailed] * 2
    for ref in (x[0], *y):
        with pytest.raises(an.LibraryError, match="boom"):
            ref.wait()
        ref.clear_error()
    assert values([x[0], *y]) == [[1.0], [0.0], [0.0]]
    g.plan.ask(x).result(60)
    assert values(x) == [[3.0], [3.0]]
    assert values(y) == [[7.0], [7.0]]


def test_a_step_that_fails_on_one_rank_fails_all(pair: an.Communicator, kind: str) -> None:
    on_a_busy_gpu(pair, kind, lambda: fail_a_step(pair))
    on_a_busy_gpu(pair, kind, lambda: add(pair))


def add(pair: an.Communicator) -> None:
    assert values(pair.all_reduce(put(pair, [[1.0], [1.0]]))) == [[2.0], [2.0]]


def fail_a_step(pair: an.Communicator) -> None:
    x = put(pair, [[1.0], [2.0]])
    flags = [device.put(np.asarray(value, "int32")).wait() for device, value in zip(pair.devices, (0, 1), strict=True)]
    with pair.record() as g:
        pair.all_reduce(x, out=x)
        for device, flag in zip(pair.devices, flags, strict=True):
            with device.recording.while_(flag, limit=3):  # that of rank 1 would never end
                flag.fill(1)
        pair.all_reduce(x, out=x)
    reply = g.plan.ask()
    with pytest.raises(an.LoopLimitReached):
        reply.result(60)
    assert isinstance(reply.replies[0].exception(), an.DependencyFailed)
    for ref in x:
        with pytest.raises(an.AtomrError):
            ref.wait()


def test_a_death_in_a_program_fails_all_and_the_next_one_runs(pair: an.Communicator, kind: str) -> None:
    x = put(pair, [[1.0], [2.0]], durable=True)
    with pair.record() as g:
        given = g.operand("x", x)
        for _ in range(3):
            pair.all_reduce(given, out=given)
    g.plan.ask(x).result(60)
    assert values(x) == [[12.0], [12.0]]
    died = 0
    for attempt in range(5):  # more work each time, since all of it may be done before the kill
        for device in pair.devices:
            device.wait_ready(60)
        generation = pair.devices[1].generation
        some = put(pair, np.ones((2, 200_000)))
        replies = [g2.ask() for g2 in [recorded(pair, some)] * (4 << attempt)]
        kill(pair.devices[1])
        for reply in replies:
            try:
                reply.result(60)
            except (an.DeviceFault, an.DependencyFailed, an.GpuRefStale):
                died += 1
        await_generation(pair.devices[1], generation + 1)
        if died:
            break
    assert died

    def run_again() -> None:
        fresh = put(pair, [[1.0], [2.0]])
        g.plan.ask(fresh).result(60)
        assert values(fresh) == [[12.0], [12.0]]

    on_a_busy_gpu(pair, kind, run_again)


def recorded(comm: an.Communicator, arrays: list[an.GpuRef]) -> an.CommunicatorProgram:
    with comm.record() as g:
        for _ in range(8):
            comm.all_reduce(arrays, out=arrays, op="max")
    return g.plan
