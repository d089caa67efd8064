"""Steps of recorded plans that touch different memory run side by side on CUDA, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from placements import Placement

import atomr_native as an
from atomr_native.builders.context import Built
from atomr_native.libraries.program.attributes import ControlAttributes, ProgramAttributes, StepAttributes
from atomr_native.libraries.program.branches import assign
from atomr_native.plans.spec import NestedSpec, PlanSpec


def _array(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Return small integers, whose sums and products are exact in any order."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype("float32")


def _side_by_side(plan: an.RecordedPlan) -> int:
    """Return how many steps may run side by side, as the plan's notes say."""
    found = [note for note in plan.notes if "side by side" in note]
    return int(found[0].split()[2]) if found else 1


def test_independent_chains_are_branches(device: an.Device, placement: Placement) -> None:
    weights = [device.put(_array((8, 8), i)) for i in range(4)]
    outs, eager = ([device.zeros((8, 8)) for _ in range(4)] for _ in range(2))

    def messages(x: an.GpuRef, into: list[an.GpuRef], total: an.GpuRef) -> None:
        for w, out in zip(weights, into, strict=True):
            h = device.blas_lt.matmul(x, w, epilogue="relu")
            h = device.elementwise.run("out = h * 2 - 1", h=h)
            device.blas_lt.matmul(h, w, out=out)
        device.elementwise.run(
            "out = t + a + 3 * b - c * d", t=total, a=into[0], b=into[1], c=into[2], d=into[3], out=total
        )

    total, eager_total = device.zeros((8, 8)), device.zeros((8, 8))
    with device.record() as g:
        messages(g.operand("x", weights[0]), outs, total)
    plan = g.plan
    assert [step.after for step in plan.steps[::3]] == [(), (), (), (), (2, 5, 8, 11)]
    assert f"step{11} -> step{12};" in plan.dot()
    assert plan.nbytes == 4 * 2 * 256, "each branch has temporaries of its own"
    assert _side_by_side(plan) == (4 if placement.cuda else 1)
    for turn in range(12):  # the driver of the tests runs them in another order each time
        x = device.put(_array((8, 8), 10 + turn))
        plan.tell(x)
        messages(x, eager, eager_total)
        np.testing.assert_array_equal(total.numpy(), eager_total.numpy())
    if placement.cuda:
        assert (plan.replays.stepwise, plan.replays.launched, plan.replays.instantiated) == (1, 11, 1)


def test_steps_that_touch_the_same_memory_are_in_order(device: an.Device) -> None:
    """Read after write, write after read, write after write: of parameters, bound arrays, temporaries and views."""
    bound, other = device.zeros(64), device.zeros(64)

    def messages(x: an.GpuRef, y: an.GpuRef) -> None:
        for number in range(4):
            t = x * 2 + number
            device.copy(t[:32], out=bound[32:])
            device.elementwise.run("out = b - o", b=bound, o=other, out=y)
            device.copy(bound + y, out=other)
            bound[:32].fill(number)
            device.elementwise.run("out = x + 1", x=x, out=x)
            u = t * y
            device.copy(u[32:], out=other[:32])

    def given() -> tuple[an.GpuRef, an.GpuRef]:
        return device.put(_array((64,), 1)), device.put(_array((64,), 2))

    x, y = given()
    with device.record() as g:
        messages(g.operand("x", x), g.operand("y", y))
    found = []
    for use in [messages] + [g.plan.tell] * 10:
        bound.fill(0)
        other.fill(0)
        x, y = given()
        use(x, y)
        found.append([one.numpy() for one in (x, y, bound, other)])
    for one in found[1:]:
        for got, expected in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(got, expected)


def test_imports_that_share_bytes_are_one_array_to_steps(make_system: Callable[..., an.System]) -> None:
    device = make_system(isolation="thread", standby="off").device("host")
    memory = np.zeros(170)
    parts = [device.asarray(memory[i : i + 60], copy=False) for i in (100, 50, 0)]
    apart, own = device.asarray(np.zeros(60), copy=False), device.zeros(60, "float64")
    assert len({part.allocation.slot for part in parts}) == 3
    with device.record() as g:
        for ref in (*parts, apart, own):
            device.elementwise.run("a * 2 + 1", a=ref, out=ref)
        device.copy(parts[2][:2], out=own[:2])
    assert [step.after for step in g.plan.steps] == [(), (0,), (1,), (), (), (2, 4)]
    g.plan.ask().result(60)
    assert (memory[[0, 55, 70, 105, 115]] == [1, 3, 1, 3, 1]).all()
    assert own.numpy()[0] == 1


def test_steps_of_libraries_share_no_workspace_at_once(device: an.Device, placement: Placement) -> None:
    """Reductions have their partial results in workspaces; products of cuBLAS in one of its handle's."""
    arrays = [device.put(_array((200, 300), i)) for i in range(6)]
    outs = [device.zeros(()) for _ in arrays]
    products = [device.zeros((8, 8)) for _ in range(3)]
    with device.record() as g:
        for x, out in zip(arrays, outs, strict=True):
            device.copy(x.sum(), out=out)
        for x, out in zip(arrays, products, strict=False):
            device.copy(device.blas.gemm(x[:8, :8], x[8:16, :8]), out=out)
    plan = g.plan
    for _ in range(6):
        for out in outs:
            out.fill(-1)
        plan.tell()
        for seed, out in enumerate(outs):
            assert float(out) == float(_array((200, 300), seed).sum())
        for seed, out in enumerate(products):
            x = _array((200, 300), seed)
            np.testing.assert_array_equal(out.numpy(), x[:8, :8] @ x[8:16, :8])
    if placement.cuda:
        assert plan.replays.launched == 5


def test_large_temporaries_share_bytes_rather_than_run_side_by_side(device: an.Device) -> None:
    size = 2 << 20  # elements: 8 MiB
    x, outs = device.empty(size), [device.zeros(()) for _ in range(6)]
    with device.record() as g:
        for number, out in enumerate(outs):
            device.copy((x * number).sum(), out=out)
    steps = g.plan.steps
    assert 8 << 20 <= g.plan.nbytes < 9 << 20
    for number in range(3, len(steps), 3):  # its temporary takes over the bytes of that before
        assert number - 2 in steps[number].after


def test_parts_of_the_workspace() -> None:
    """Steps that may run side by side have other parts, up to four; those of a library's handle run one by one."""
    spec = NestedSpec(PlanSpec("noop", (), ()))
    operand = ((0, 0),)

    def assigned(after: list[tuple[int, ...]], run: Any, limit: int = 1 << 20) -> tuple[Any, ...]:
        steps = tuple(StepAttributes(0, operand, (), one) for one in after)
        found = assign(ProgramAttributes((spec,), steps), [Built(run, 1000)], limit)
        return found.offsets, found.after, found.nbytes

    apart = "copy"
    assert assigned([(), (), (0,), ()], apart) == ([0, 1024, 0, 2048], [(), (), (0,), ()], 3 * 1024)
    assert assigned([()] * 6, apart) == ([0, 1024, 2048, 3072, 0, 1024], [(), (), (), (), (0,), (1,)], 4096)
    assert assigned([(), ()], apart, limit=2000) == ([0, 0], [(), (0,)], 1024)
    assert assigned([(), (), ()], object()) == ([0, 0, 0], [(), (0,), (1,)], 1024)
    assert assigned([(), (0,), (0, 1), (0, 1, 2), (0,)], apart)[1] == [(), (0,), (1,), (2,), (0,)], "only the last ones"
    assert assigned([(), (), (0, 1), (0, 1, 2)], apart)[1] == [(), (), (0, 1), (2,)], "all that are side by side"
    body = ControlAttributes("if", (0, 0), "bool", (2,), 0, ())
    steps = (StepAttributes(0, operand, (), ()), body, *(StepAttributes(0, operand, (), ()),) * 3)
    found = assign(ProgramAttributes((spec,), steps), [Built(apart, 1000)], 1 << 20)
    assert found.after == [(), (0,), (), (), (1,)], "control flow has all parts"
    assert found.offsets[2:4] == [0, 1024]
