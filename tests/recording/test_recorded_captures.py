"""CUDA graphs of recorded plans: on the fake driver, with captures that fail, and other threads at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from crash import await_generation

import atomr_native as an

NOT_SUPPORTED, INVALIDATED, UPDATE_FAILURE = 801, 901, 910


@pytest.fixture
def device(refuse: Callable[..., Path]) -> Iterator[an.Device]:
    refuse()
    with an.System(standby="off", allow_crash=True) as system:
        yield system.device("cuda:0")


def _plan(device: an.Device, total: an.GpuRef, steps: int = 3) -> an.RecordedPlan:
    def add(x: an.GpuRef, n: float) -> None:
        for _ in range(steps):
            device.elementwise.run("out = t + n * x", t=total, n=n, x=x, out=total)

    return device.graph(add).plan(device.ones(8), 1.0)


def test_a_message_with_other_addresses_or_numbers_updates_the_graph(device: an.Device) -> None:
    total = device.zeros(8)
    plan = _plan(device, total)
    x, y = device.ones(8), device.full(8, 2.0)
    for given, n in ((x, 1.0), (x, 1.0), (x, 1.0), (y, 1.0), (y, 2.0), (y, 2.0), (x, 1.0)):
        plan.tell(given, n=n)
    assert set(total.numpy().tolist()) == {3 * (3 + 2 + 4 + 4 + 1.0)}
    assert plan.replays == an.Replays(stepwise=1, launched=6, captured=1, instantiated=1, patched=3)
    assert "CUDA graph" in plan.notes[-1]


def test_only_steps_of_libraries_are_captured_again(device: an.Device) -> None:
    w, out, total = device.put(2 * np.eye(4, dtype="float32")), device.zeros((4, 4)), device.zeros((4, 4))

    @device.graph
    def step(x: an.GpuRef, y: an.GpuRef, n: float) -> None:
        device.blas_lt.matmul(x, w, out=out)
        device.elementwise.run("out = t + n * o + y", t=total, n=n, o=out, y=y, out=total)

    plan = step.plan(total + 0, total + 0, 1.0)
    x, other, y, z = (device.full((4, 4), value) for value in (1.0, 2.0, 10.0, 20.0))
    expected = 0.0
    for arguments, patched, captured in (
        ((x, y, 1.0), 0, 0), ((x, y, 1.0), 0, 1), ((x, y, 3.0), 1, 1), ((x, z, 3.0), 2, 1), ((other, z, 3.0), 2, 2),
        ((other, z, 3.0), 2, 2), ((other, y, 5.0), 3, 2),
    ):  # fmt: skip
        plan.tell(*arguments[:2], n=arguments[2])
        expected += arguments[2] * (2.0 if arguments[0] is x else 4.0) + (10 if arguments[1] is y else 20)
        assert set(total.numpy().ravel().tolist()) == {expected}
        assert (plan.replays.patched, plan.replays.captured) == (patched, captured)
    assert plan.replays.instantiated == 1
    assert "captured again where their addresses or numbers change: blas_lt.matmul" in plan.notes


@pytest.mark.parametrize("call", ["cuStreamBeginCaptureToGraph", "cuGraphInstantiateWithFlags"])
def test_where_nothing_can_be_captured_the_steps_are_launched(
    device: an.Device, refuse: Callable[..., Path], call: str
) -> None:
    total = device.zeros(8)
    plan = _plan(device, total)
    x = device.ones(8)
    plan.tell(x)
    total.wait()
    refuse(**{call: (INVALIDATED, 1)})
    for _ in range(3):
        plan.tell(x)
    assert set(total.numpy().tolist()) == {12.0}
    assert plan.replays.stepwise == 4
    assert "cannot be captured: CUDA_ERROR" in plan.notes[-1]


def test_without_captures_in_pieces_the_steps_are_a_chain(device: an.Device, refuse: Callable[..., Path]) -> None:
    refuse(cuStreamBeginCaptureToGraph=(NOT_SUPPORTED, 99))
    total = device.zeros(8)
    plan = _plan(device, total)
    for _ in range(3):
        plan.tell(device.ones(8))
    assert set(total.numpy().tolist()) == {9.0}
    assert plan.replays.launched == 2


def test_control_flow_that_cannot_be_captured_is_run_by_the_lane(
    device: an.Device, refuse: Callable[..., Path]
) -> None:
    """A capture may fail for a body that has not run, so that it is tried again."""
    x, more = device.zeros(()), device.ones((), dtype="bool")
    with device.record() as g:
        most = g.scalar("most", 3.0)
        x.fill(0)
        more.fill(1)
        with g.while_(more, limit=4):
            device.copy(x + 1, out=x)
            device.elementwise.run("out = x < most", x=x, most=most, out=more)
    plan = g.plan
    refuse(cuGraphAddNode_v2=(INVALIDATED, 2))
    for most in (3.0, 2.0, 4.0, 1.0):
        plan.tell(most=most)
        assert float(x) == most
    assert (plan.replays.stepwise, plan.replays.launched) == (3, 1)
    refuse(cuGraphAddNode_v2=(INVALIDATED, 99), cuGraphExecKernelNodeSetParams_v2=(NOT_SUPPORTED, 99))
    for most in (2.0, 4.0, 1.0):
        plan.tell(most=most)
        assert float(x) == most
    assert plan.replays.launched == 1
    assert "cannot be captured: CUDA_ERROR" in plan.notes[-1]
    with pytest.raises(an.LoopLimitReached):
        plan.ask(most=9.0).result(60)


def test_a_graph_that_cannot_be_updated_is_made_anew(device: an.Device, refuse: Callable[..., Path]) -> None:
    total = device.zeros(8)
    plan = _plan(device, total)
    x = device.ones(8)
    plan.tell(x)
    plan.tell(x)
    total.wait()
    refuse(cuGraphExecUpdate_v2=(UPDATE_FAILURE, 1), cuGraphExecKernelNodeSetParams_v2=(NOT_SUPPORTED, 99))
    for n in (2.0, 3.0):
        plan.tell(x, n=n)
    assert set(total.numpy().tolist()) == {3 * (1 + 1 + 2 + 3.0)}
    assert plan.replays == an.Replays(stepwise=1, launched=3, captured=3, instantiated=2)


def test_a_fault_of_a_launched_graph_restarts_the_device(device: an.Device, refuse: Callable[..., Path]) -> None:
    total = device.zeros(8, durable=True)
    plan = _plan(device, total)
    x = device.ones(8, durable=True)
    for _ in range(2):
        plan.tell(x)
    total.wait()
    assert plan.replays.launched == 1
    device.inject_fault("illegal address")
    await_generation(device, 2)
    total.fill(0)
    for _ in range(3):
        plan.tell(x)
    assert set(total.numpy().tolist()) == {9.0}
    assert plan.replays == an.Replays(stepwise=1, launched=2, captured=1, instantiated=1)


def test_captures_beside_other_lanes(device: an.Device) -> None:
    """Every message captures, while another thread loads kernels, makes handles and depends on the program's lane."""
    total = device.zeros(8)
    w = device.put(np.eye(8, dtype="float32"))

    @device.graph
    def step(x: an.GpuRef, n: float) -> None:
        h = device.blas_lt.matmul(x, w)
        h = device.blas.gemm(h, w)
        device.elementwise.run("out = t + n * h", t=total, n=n, h=h[0], out=total)

    failed: list[BaseException] = []
    rounds: list[int] = []

    def busy() -> None:
        try:
            for number in range(60):
                device.elementwise.run(f"out = t * {number % 5}.5", t=total).wait()
                rounds.append(number)
        except BaseException as error:
            failed.append(error)

    x, y = (device.put(np.eye(8, dtype="float32")) for _ in range(2))  # products of other arrays are captured again
    plan = step.plan(x, 1.0)
    thread = threading.Thread(target=busy)
    thread.start()
    sent = 0
    while thread.is_alive():
        for _ in range(20):  # so that the other lane's messages wait for some of these while later ones are captured
            plan.tell((x, y)[sent % 2], n=1.0 - sent % 2)
            sent += 1
        total.wait()
    thread.join(60)
    assert not failed
    assert len(rounds) == 60
    assert total.numpy()[0] == (sent + 1) // 2
    assert plan.replays == an.Replays(stepwise=1, launched=sent - 1, captured=sent - 1, instantiated=1)
