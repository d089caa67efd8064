"""Control flow of recorded plans: branches and loops that the device decides, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from actions import poison
from placements import Placement

import atomr_native as an
from atomr_native.builders.cuda.context import CudaContext
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.program.branches import check_driver


def _flag(device: an.Device, value: int = 0, dtype: str = "bool") -> an.GpuRef:
    return device.full((), value, dtype=dtype)


def _used_graph(plan: an.RecordedPlan, placement: Placement, messages: int) -> None:
    if placement.cuda:
        found = plan.replays
        assert (found.stepwise, found.launched) == (1, messages - 1), plan.notes


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64"])
def test_branches(device: an.Device, placement: Placement, dtype: str) -> None:
    flag, x = _flag(device, dtype=dtype), device.zeros(4)
    with device.record() as g:
        given = g.operand("flag", flag)
        with g.if_(given):
            device.copy(x + 1, out=x)
        with g.else_():
            device.copy(x + 10, out=x)
        device.copy(x + 100, out=x)
    plan = g.plan
    assert [step.operation.partition(".")[0] for step in plan.steps] == ["if"] + ["elementwise", "memory"] * 3
    assert plan.steps[0].bodies == (range(1, 3), range(3, 5))
    assert [step.after for step in plan.steps[4:]] == [(3,), (0,), (0, 5)]
    total = 0
    for value in (1, 0, 0, 1, 1):
        plan.tell(_flag(device, value, dtype))
        total += (1 if value else 10) + 100
        assert x.numpy().tolist() == [total] * 4
    _used_graph(plan, placement, 5)


def test_a_branch_may_change_its_own_flag(device: an.Device, placement: Placement) -> None:
    flag, x = _flag(device, 1), device.zeros(())
    with device.record() as g:
        with g.if_(flag):
            flag.fill(0)
            device.copy(x + 1, out=x)
        with g.else_():
            flag.fill(1)
            device.copy(x + 10, out=x)
    for expected in (1, 11, 12, 22):
        g.plan.tell()
        assert float(x) == expected
    _used_graph(g.plan, placement, 4)


def test_loops(device: an.Device, placement: Placement) -> None:
    @device.graph
    def double(x: an.GpuRef, rounds: an.GpuRef, more: an.GpuRef, *, most: float) -> None:
        device.elementwise.run("out = x < most", x=x, most=most, out=more)
        with device.recording.while_(more, limit=20):
            device.copy(x * 2, out=x)
            device.copy(rounds + 1, out=rounds)
            device.elementwise.run("out = x < most", x=x, most=most, out=more)
        device.copy(rounds * 10, out=rounds)

    def run(value: float, most: float) -> list[float]:
        x, rounds, more = device.full((), value), device.zeros((), dtype="int32"), _flag(device)
        plan.tell(x, rounds, more, most=most)
        return [float(x), int(rounds)]

    given = device.ones(()), device.zeros((), dtype="int32"), _flag(device)
    plan = double.plan(*given, most=5.0)
    assert run(1, 5) == [8, 30]
    assert run(7, 5) == [7, 0]
    assert run(1, 2**20) == [2**20, 200]
    assert run(3, 6) == [6, 10]
    _used_graph(plan, placement, 4)
    if placement.cuda:
        assert (plan.replays.captured, plan.replays.instantiated, plan.replays.patched) == (1, 1, 2)


def test_switches(device: an.Device, placement: Placement) -> None:
    index, x = _flag(device, dtype="int32"), device.zeros(())
    with device.record() as g:
        given = g.operand("index", index)
        x.fill(-1)
        with g.switch(given, 6) as cases:
            assert len(cases) == 6
            for number in (5, 0, 4, 1):
                with cases[number]:
                    x.fill(number)
    plan = g.plan
    for value in (0, 1, 2, 3, 4, 5, 6, -1, -(2**31)):
        plan.tell(_flag(device, value, "int32"))
        assert float(x) == (value if value in (0, 1, 4, 5) else -1)
    _used_graph(plan, placement, 9)


def test_nested_control_flow(device: an.Device, placement: Placement) -> None:
    """Collatz: a branch in a loop in a loop, with temporaries."""
    numbers = device.put(np.array([6, 7, 1, 27], "int64"))
    at, left = device.zeros((), dtype="int64"), _flag(device)
    n, odd, more = device.zeros((), dtype="int64"), _flag(device), _flag(device)
    counts = device.zeros(4, dtype="int64")
    which = device.put(np.arange(4, dtype="int64"))
    with device.record() as g:
        device.copy(at < 4, out=left)
        with g.while_(left, limit=4):
            chosen = device.elementwise.run("out = n * (w == a)", n=numbers, w=which, a=at)
            device.copy(chosen.sum(), out=n)
            device.copy(n > 1, out=more)
            with g.while_(more, limit=200):
                device.elementwise.run("out = n % 2 == 1", n=n, out=odd)
                with g.if_(odd):
                    tripled = n * 3
                    device.copy(tripled + 1, out=n)
                with g.else_():
                    device.elementwise.run("out = n // 2", n=n, out=n)
                device.elementwise.run("out = c + (w == a)", c=counts, w=which, a=at, out=counts)
                device.copy(n > 1, out=more)
            device.copy(at + 1, out=at)
            device.copy(at < 4, out=left)
        at.fill(0)
    for turn in range(1, 4):
        g.plan.tell()
        assert counts.numpy().tolist() == [turn * n for n in (8, 16, 0, 111)]
    _used_graph(g.plan, placement, 3)
    assert "then" in g.plan.dot()
    assert "round" in g.plan.dot()


def test_what_a_loop_needs_of_temporaries_keeps_its_bytes(device: an.Device, placement: Placement) -> None:
    """`before` is made outside and used by each round first, when temporaries of the round have been written."""
    x, out, rounds, more = device.ones(1000), device.zeros(1000), device.zeros(()), _flag(device)
    with device.record() as g:
        given = g.operand("x", x)
        before = given * 3
        more.fill(1)
        rounds.fill(0)
        out.fill(0)
        with g.while_(more, limit=10):
            device.copy(out + before, out=out)
            device.copy((out * 2 + 1) / 2 - 0.5, out=out)
            device.copy(rounds + 1, out=rounds)
            device.copy(rounds < 4, out=more)
        with g.if_(more):
            last = out * 0
        del before
    for value in (1.0, 2.0, 5.0):
        g.plan.tell(device.full(1000, value))
        assert set(out.numpy().tolist()) == {12 * value}
    del last
    _used_graph(g.plan, placement, 3)


def test_a_loop_at_its_limit_fails_the_message(device: an.Device, placement: Placement) -> None:
    x, more, other = device.zeros(4), _flag(device, 1), device.ones(4)
    with device.record() as g:
        most = g.scalar("most", 3.0)
        device.copy(x + 0, out=x)
        with g.while_(more, limit=5):
            device.copy(x + 1, out=x)
            device.elementwise.run("out = x < most", x=x[0], most=most, out=more)
    plan = g.plan
    for turn in range(3):
        for most in (9.0, 5.0):
            x.fill(0)
            more.fill(1)
            reply = plan.ask(most=most)
            if most == 5.0:
                reply.result(60)
                assert x.numpy().tolist() == [5.0] * 4
                continue
            with pytest.raises(an.LoopLimitReached, match="step 2 has run 5 times") as caught:
                reply.result(60)
            assert (caught.value.step, caught.value.limit, caught.value.lib) == (2, 5, "program")
            with pytest.raises(an.LoopLimitReached, match="step 2 has run 5 times"):
                (x + 1).numpy()
            assert other.numpy().tolist() == [1.0] * 4, f"turn {turn}"
    _used_graph(plan, placement, 5 if placement.cuda else 6)


def test_plans_with_control_flow_in_recordings(device: an.Device, placement: Placement) -> None:
    x, more, on = device.zeros(()), _flag(device), _flag(device)
    with device.record() as inner:
        given, most = inner.operand("x", x), inner.scalar("most", 3.0)
        more.fill(1)
        with inner.while_(more, limit=50):
            device.copy(given + 1, out=given)
            device.elementwise.run("out = x < most", x=given, most=most, out=more)
    with device.record() as outer:
        y, n = outer.operand("y", x), outer.scalar("n", 3.0)
        with outer.if_(on):
            inner.plan.tell(y, most=n)
            inner.plan.tell(y, most=30.0)
        with outer.else_():
            y.fill(n)
    plan = outer.plan
    assert [s.operation.partition(".")[0] for s in plan.steps].count("while") == 2
    for number, value in enumerate((0, 1, 1, 0, 1)):
        on.fill(value)
        y = device.zeros(())
        plan.tell(y, n=float(number))
        assert float(y) == (30 if value else number)
    _used_graph(plan, placement, 5)


def test_an_exception_inside_leaves_nothing(device: an.Device) -> None:
    x, flag = device.zeros(()), _flag(device, 1)

    def failing(g: an.Recording) -> None:
        with g.if_(flag):
            x.fill(1)
            raise KeyError("x")

    def failing_case(cases: an.RecordedCases) -> None:
        with cases[0]:
            x.fill(4)
        raise KeyError("z")

    with device.record() as g:
        x.fill(2)
        with pytest.raises(KeyError):
            failing(g)
        with g.if_(flag):
            x.fill(3)
        with pytest.raises(KeyError), g.else_():
            raise KeyError("y")
        with pytest.raises(KeyError), g.switch(flag, 2) as cases:
            failing_case(cases)
    assert [step.operation.partition(".")[0] for step in g.plan.steps] == ["memory", "if", "memory"]
    g.plan.tell()
    assert float(x) == 3


def test_what_a_branch_overwrites_is_read_after_it(device: an.Device) -> None:
    """Whether the branch runs is not known when the message is checked."""
    flag, x, out = _flag(device, 1), device.zeros(4), device.zeros(4)
    with device.record() as g:
        with g.if_(flag):
            x.fill(1)
            device.copy(x * 2, out=out)
        with g.if_(flag):
            device.copy(x + 1, out=out)
    g.plan.ask().result(60)
    poison(device.lane("p"), out)
    g.plan.ask().result(60)
    poison(device.lane("p"), x, text="the first cause")
    with pytest.raises(an.DependencyFailed, match="the first cause"):
        g.plan.ask().result(60)
    with pytest.raises(an.LibraryError, match="boom"):
        out.numpy()  # a branch may have written it or not, so that its poison stays


def test_drivers_without_conditional_nodes() -> None:
    with pytest.raises(an.Unsupported, match=r"CUDA 12\.4 on; this driver is for CUDA 12\.3") as caught:
        check_driver(CudaContext(Target("sm_90a"), facts={"driver_version": 12030}))
    assert (caught.value.rule, caught.value.lifted_by) == ("program.conditional_nodes", ("driver 12.4",))
    check_driver(CudaContext(Target("sm_90a"), facts={"driver_version": 12040}))


def test_late_failures_and_control_flow(device: an.Device, placement: Placement) -> None:
    """Each message has the verdicts of the steps that it has run, and of no other message."""
    flag, x, more = _flag(device, 1), device.put(np.eye(3)), _flag(device, 1)
    good, bad, indefinite = device.put(np.eye(3)), device.zeros((3, 3), "float64"), device.put(-np.eye(3))
    with device.record() as g:
        a, b = g.operand("a", x), g.operand("b", x)
        first = device.solver.inv(a)
        with g.if_(g.operand("flag", flag)):
            second = device.solver.cholesky(b)
    plan = g.plan
    off = _flag(device)
    plan.ask(good, good, flag).result(60)
    np.testing.assert_array_equal(first.numpy(), np.eye(3))
    np.testing.assert_array_equal(second.numpy(), np.eye(3))
    cases = (
        (good, good, flag, None), (bad, good, flag, an.SingularMatrix),
        (good, indefinite, flag, an.NotPositiveDefinite), (good, indefinite, off, None),
        (bad, indefinite, flag, an.SingularMatrix), (good, good, flag, None),
    )  # fmt: skip
    replies = [plan.ask(*case[:3]) for case in cases]  # nothing waits in between
    for number, (reply, case) in enumerate(zip(replies, cases, strict=True)):
        assert reply.wait(60)
        error = reply.exception()
        assert type(error) is (case[3] or type(None)), (number, error)
    if placement.cuda:
        assert plan.replays.launched == 0
        with device.record() as g, g.while_(more, limit=3):
            device.solver.inv(x)
            more.fill(0)
        with pytest.raises(an.Unsupported, match=r"a loop with .* \(solver\.") as caught:
            g.plan.wait()
        assert caught.value.rule == "program.late_failure_in_loop"


def test_refusals(device: an.Device) -> None:
    x, flag = device.zeros(3), _flag(device, 1)

    def refused(match: str, use: Any) -> None:
        with pytest.raises(an.InvalidRequest, match=match), device.record() as g:
            use(g)

    def unwritten(g: an.Recording) -> None:
        with g.while_(flag, limit=3):
            x.fill(2)

    def half_written(g: an.Recording) -> None:
        flags = device.zeros(2, dtype="bool")
        with g.while_(flags[0], limit=3):
            flags[1].fill(0)

    def late_else(g: an.Recording) -> None:
        with g.if_(flag):
            x.fill(2)
        x.fill(3)
        g.else_()

    def two_else(g: an.Recording) -> None:
        with g.if_(flag):
            x.fill(2)
        with g.else_():
            x.fill(3)
        g.else_()

    def no_case(g: an.Recording) -> None:
        with g.switch(flag, 2):
            x.fill(2)

    def twice(g: an.Recording) -> None:
        with g.switch(flag, 2) as cases:
            with cases[1]:
                x.fill(2)
            cases[1]

    def deep(g: an.Recording, depth: int = 0) -> None:
        with g.if_(flag):
            x.fill(2)
            deep(g, depth + 1)

    refused("no message in the body of this while_ writes its flag", unwritten)
    refused("no message in the body", half_written)
    refused("else_\\(\\) without if_", lambda g: g.else_())
    refused("else_\\(\\) without if_", late_else)
    refused("else_\\(\\) without if_", two_else)
    refused("of no case", no_case)
    refused("case 1 has a block already", twice)
    refused("case 2; allowed: 0 to 1", lambda g: g.switch(flag, 2).__enter__()[2])
    refused("n=0; allowed: integers from 1 to 1024", lambda g: g.switch(flag, 0))
    refused("limit=0; allowed: integers from 1 to 2147483647", lambda g: g.while_(flag, limit=0))
    refused("limit=2.5", lambda g: g.while_(flag, limit=2.5))
    refused("flag is a bool; allowed", lambda g: g.if_(True))
    refused("allowed: one element of bool", lambda g: g.if_(x))
    refused("allowed: one element of bool", lambda g: g.if_(x[0]))
    refused("blocks inside of 32", deep)
    with device.record() as g:
        x.fill(1)
        block = g.if_(flag)
    for use in (block.__enter__, lambda: g.if_(flag), lambda: g.while_(flag, limit=1), lambda: device.recording):
        with pytest.raises(an.InvalidRequest, match="recording"):
            use()
    with device.record() as g:
        assert device.recording is g
        x.fill(1)


def test_kernels_of_control_flow_are_set_in_place(device: an.Device, placement: Placement) -> None:
    """Also those in a block; where a flag has another address, all is captured again."""
    total, flag, other = device.zeros(8), device.ones((), dtype="int32"), device.zeros((), dtype="int32")
    with device.record() as g:
        x, n, inside = g.operand("x", total), g.scalar("n", 1.0), g.scalar("inside", 100.0)
        device.elementwise.run("out = x + n", x=x, n=n, out=x)
        with g.if_(g.operand("flag", flag)):
            device.elementwise.run("out = x + n", x=x, n=inside, out=x)
        device.elementwise.run("out = x * n", x=x, n=n, out=x)
    plan = g.plan
    x, want = device.zeros(8), 0.0
    for arguments, decides, patched in (
        ({}, flag, 0), ({}, flag, 0), ({"n": 2.0}, flag, 1), ({"n": 3.0}, flag, 2), ({"n": 3.0}, other, 2),
        ({"n": 4.0}, other, 3), ({"n": 4.0}, flag, 3), ({"n": 4.0, "inside": 7.0}, flag, 4), ({}, other, 4),
    ):  # fmt: skip
        plan.ask(x, decides, **arguments).result(60)
        n = arguments.get("n", 1.0)
        want = (want + n + (arguments.get("inside", 100.0) if decides is flag else 0)) * n
        assert set(x.numpy().tolist()) == {want}, arguments
        if placement.cuda:
            assert plan.replays.patched == patched, arguments
    _used_graph(plan, placement, 9)
    if placement.cuda:
        assert plan.replays.instantiated == 1
