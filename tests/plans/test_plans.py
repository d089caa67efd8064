"""Plans: the cache, building, sending, refusals."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import FULL, Gate, building_plan, eventually, failing_build, failing_plan, operand
from interrupts import at_each_check
from lending import in_use
from placements import Placement

import atomr_native as an
from atomr_native.libraries.elementwise.request import ElementwiseRequest
from atomr_native.plans import actor as library_actor
from atomr_native.plans.signature import Signature
from atomr_native.plans.spec import READ, WRITE, OperandSpec, PlanRequest

Make = Callable[..., an.System]


def noop(actor: Any, ref: an.GpuRef, number: int) -> an.Plan:
    """One of many plans that do nothing."""
    plan: an.Plan = actor._plan(an.PlanSpec("noop", (operand("x", ref, READ),), (), (("number", number),)))
    return plan


def fresh_plan(device: an.Device, numbers: Iterator[int]) -> an.Plan:
    """A plan that no actor keeps."""
    spec = an.PlanSpec("noop", (), (), (("number", next(numbers)),))
    return an.Plan.make(device._state, device.lane("fresh").lane, spec, Signature((), (), ()))


def test_the_same_specification_is_the_same_plan(device: an.Device) -> None:
    x, y = device.empty((3, 4)), device.empty((4, 5))
    plan = device.blas_lt.plan(x, y)
    assert device.blas_lt.plan(device.empty((3, 4)), y) is plan
    others = [
        device.blas_lt.plan(device.empty((4, 3)).T, y),
        device.blas_lt.plan(device.empty((2, 4)), y),
        device.blas_lt.plan(x, y, epilogue="relu"),
        device.blas_lt.plan(device.empty((3, 4), "float64"), device.empty((4, 5), "float64")),
    ]
    assert len({id(p) for p in [plan, *others]}) == 5
    assert len({p.spec for p in [plan, *others]}) == 5


def test_the_key_is_the_whole_specification_not_its_hash(device: an.Device) -> None:
    lane, ref = device.lane("a"), device.empty(2)

    class Colliding(int):
        def __hash__(self) -> int:
            return 7

    plans = [noop(lane, ref, Colliding(i)) for i in range(3)]
    assert len({id(p) for p in plans}) == 3
    assert noop(lane, ref, Colliding(1)) is plans[1]


def test_the_least_recently_used_plan_goes_first_and_stays_valid(
    device: an.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_actor, "_PLANS", 8)
    lane, ref = device.lane("lru"), device.put([1.0])
    first, second = noop(lane, ref, 0), noop(lane, ref, 1)
    for i in range(2, 8):
        noop(lane, ref, i)
    assert noop(lane, ref, 0) is first
    noop(lane, ref, 8)  # one too many: the second is the oldest
    assert noop(lane, ref, 0) is first
    assert noop(lane, ref, 1) is not second
    for _ in range(600):
        noop(lane, ref, 1000 + _).tell(ref)
    for plan in (first, second):
        plan.ask(ref).result(30)


def test_unloading_is_ordered_after_the_messages_that_name_the_plan(device: an.Device) -> None:
    lane, x = device.lane("unload"), device.put(np.zeros(4, "f4"))
    with Gate(lane):
        replies = []
        for i in range(300):
            plan = lane._plan(an.PlanSpec("noop", (operand("x", x, WRITE),), (), (("number", i),)))
            replies.append(plan.ask(x))
        del plan
        lane._plans.clear()
        gc.collect()
        device._state.plans.collect()
    an.gather(*replies, timeout=60)
    device._state.plans.collect()
    fresh = [noop(lane, x, 5000 + i) for i in range(300)]
    an.gather(*[plan.ask(x) for plan in fresh], timeout=60)


def test_an_interrupt_while_a_plan_is_made_leaves_no_record(device: an.Device) -> None:
    table, numbers, interrupts = device._state.plans, itertools.count(9000), 0
    made: list[an.Plan] = []  # so that no finalizer is interrupted

    def call() -> None:
        made.append(fresh_plan(device, numbers))

    for _ in at_each_check("", call):
        interrupts += 1
    assert interrupts
    made.clear()

    def kept() -> bool:
        gc.collect()
        table.collect()
        noops = [record.spec for record in table._records.values() if record.spec.op == "noop"]
        return any(dict(spec.attributes).get("number", 0) >= 9000 for spec in noops)

    eventually(lambda: not kept())


def test_a_number_is_not_used_again_while_an_interrupted_call_requests_its_plan(
    make_system: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make_system().device()
    table, numbers, lane = device._state.plans, itertools.count(), device.lane("fresh").lane
    submit, sent, goes_on = device._state.links.submit_build, threading.Event(), threading.Event()
    record = table.register(lane, an.PlanSpec("noop", (), (), (("dropped", 1),)))

    def submit_slowly(request: PlanRequest) -> object:
        answer = submit(request)
        if request.plan == record.index:
            sent.set()
            assert goes_on.wait(60)
        return answer

    monkeypatch.setattr(device._state.links, "submit_build", submit_slowly)
    rest = threading.Thread(target=table.start_build, args=(record,))
    rest.start()
    assert sent.wait(60)
    table.retire(record, 0)
    try:
        plans = [fresh_plan(device, numbers).wait(60) for _ in range(len(table._free) + 2)]
        assert record.index not in [plan.record.index for plan in plans]
    finally:
        goes_on.set()
        rest.join(60)

    def gone() -> bool:  # a thread of the device that collects at the same moment may hold the record
        table.collect()
        return table.record(record.index) is None

    eventually(gone)
    plans += [fresh_plan(device, numbers).wait(60) for _ in range(len(table._free) + 1)]
    assert record.index in [plan.record.index for plan in plans]


def test_an_interrupted_call_requests_no_plan_that_has_been_dropped(device: an.Device) -> None:
    """The number may be that of another plan by then."""
    table, numbers = device._state.plans, itertools.count(9500)
    record = table.register(device.lane("fresh").lane, an.PlanSpec("noop", (), (), (("dropped", 2),)))
    table.retire(record, 0)
    table.collect()
    assert table.record(record.index) is None
    table.start_build(record)
    plans = [fresh_plan(device, numbers).wait(60) for _ in range(len(table._free) + 1)]
    assert record.index in [plan.record.index for plan in plans]


def test_dropped_plans_are_unloaded(device: an.Device) -> None:
    lane, x = device.lane("dropped"), device.put([1.0])
    before = len(device._state.plans._records)
    for i in range(700):
        noop(lane, x, i).tell(x)
    lane.noop().ask().result(30)
    highest = max(device._state.plans._records)
    lane._plans.clear()
    gc.collect()

    def unloaded() -> bool:
        device._state.plans.collect()
        return len(device._state.plans._records) <= before + 1

    eventually(unloaded)
    kept = [noop(lane, x, i) for i in range(700)]
    assert max(device._state.plans._records) <= highest  # their numbers are used again
    kept[-1].ask(x).result(30)


@pytest.mark.parametrize("scalars", [(), ("lr",)])
def test_calls_that_are_wrong(device: an.Device, scalars: tuple[str, ...]) -> None:
    w, g = device.zeros(4), device.zeros(4)
    plan = device.elementwise.plan("w - lr * g", out=w, w=w, g=g, lr=0.1)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "missing"),
        ((w,), {}, "'g' is missing|is missing"),
        ((w, g, w), {}, "operands given"),
        ((w, g), {"w": w}, "twice"),
        ((w, g), {"q": w}, "'q' is no operand"),
        ((w, np.zeros(4)), {}, "ndarray"),
        ((w, None), {}, "NoneType"),
        ((w, device.zeros(5)), {}, r"float32\[5\].*float32\[4\]"),
        ((w, device.zeros(4, "float64")), {}, r"float64\[4\]"),
        ((w, device.zeros(8)[::2]), {}, "strides"),
        ((w, g), {"lr": "fast"}, "real number"),
        ((w, g), {"lr": None}, "real number"),
        ((w, g), {"lr": 1j}, "real number"),
    ]
    sent = device.stats()["actors"]["elementwise"]["sent"]
    for operands, named, hint in cases:
        for send in (plan.tell, plan.ask):
            with pytest.raises(an.InvalidRequest, match=hint):
                send(*operands, **named)
    assert device.stats()["actors"]["elementwise"]["sent"] == sent


def test_operands_by_position_or_name(device: an.Device) -> None:
    x, y = device.put(np.eye(2)), device.put(np.full((2, 2), 3.0))
    plan = device.blas_lt.plan(x, y)
    names = plan.names
    out = [device.empty((2, 2), "float64") for _ in range(3)]
    plan.tell(x, y, out=out[0])
    plan.tell(**dict(zip(names, (x, y, out[1]), strict=True)))
    plan.tell(x, y, out[2])
    for ref in out:
        assert (ref.numpy() == 3).all()


def test_scalars_of_a_call(device: an.Device) -> None:
    w, g = device.full(3, 10.0), device.full(3, 2.0)
    plan = device.elementwise.plan("w - lr * g", out=w, w=w, g=g, lr=0.5)
    plan.tell(w=w, g=g)
    assert w.numpy().tolist() == [9] * 3
    plan.tell(w=w, g=g, lr=2)
    plan.tell(w=w, g=g, lr=np.float32(0.5))
    assert w.numpy().tolist() == [4] * 3


def test_int_scalars_have_64_bits(device: an.Device) -> None:
    ref = device.zeros(2, "int64")
    for value in (2**63 - 1, -(2**63), -1):
        assert ref.fill(value).numpy().tolist() == [value] * 2


def test_a_scalar_without_default_must_be_named(device: an.Device) -> None:
    x = device.put([1.0])
    group = device.durable_group({"x": device.put([1.0], durable=True)})
    with pytest.raises(an.InvalidRequest, match="'sequence' is missing"):
        group._commit.tell(*group._refs)
    with pytest.raises(an.InvalidRequest, match="64 bits"):
        group.commit(2**63)
    with pytest.raises(an.InvalidRequest, match="64 bits"):
        group.commit("x")  # type: ignore[arg-type]
    assert group.commit(-(2**63)).result(30) == 1
    assert x.valid


def test_tell_returns_nothing_and_ask_a_reply(device: an.Device) -> None:
    x, out = device.put(np.eye(2)), device.empty((2, 2), "float64")
    plan = device.blas_lt.plan(x, x)
    assert plan.tell(x, x, out=out) is None
    reply = plan.ask(x, x, out=out)
    assert isinstance(reply, an.Reply)
    assert reply.result(30) is out
    assert device.lane("a").noop().ask().result(30) is None


def test_value_of_several_outputs(device: an.Device) -> None:
    m, w, g = (device.full(2, v) for v in (1.0, 2.0, 3.0))
    reply = device.elementwise.ask(
        ElementwiseRequest(program="m = 0.5 * m + g; w -= m", operands={"m": m, "w": w, "g": g})
    )
    assert reply.result(30) == (m, w)
    assert w.numpy().tolist() == [-1.5] * 2


# ---- building


def test_wait_and_timeout_of_a_build(device: an.Device, tmp_path: Path) -> None:
    ref, gate = device.put([1.0]), tmp_path / "gate"
    plan = building_plan(device.lane("a"), gate, ref)
    with pytest.raises(an.AskTimeout, match="not built within 0"):
        plan.wait(0)
    with pytest.raises(an.AskTimeout):
        plan.wait(0.01)
    gate.touch()
    assert plan.wait(30) is plan
    assert plan.wait(0) is plan


def test_the_first_send_waits_for_the_build(device: an.Device, tmp_path: Path) -> None:
    import threading

    ref, gate = device.put(np.ones(1, "u1")), tmp_path / "gate"
    device.put([2.0]).wait(30)  # whose plans would be built after the one that waits
    plan = building_plan(device.lane("a"), gate, ref)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(plan.ask(ref).result(30)))
    thread.start()
    device.lane("b").noop  # noqa: B018 - the device goes on meanwhile
    device.put([2.0]).wait(30)
    assert not done
    gate.touch()
    thread.join(30)
    assert done == [None]


@pytest.mark.parametrize("error", ["Unsupported", "InvalidRequest", "LibraryError", "ValueError", "MemoryError"])
def test_a_build_that_fails_fails_each_use_the_same_way(device: an.Device, error: str) -> None:
    out = device.put(np.ones(3, "f4"))
    plan = failing_build(device.lane("a"), out, error, "cannot be built")
    expected = getattr(an, error, an.LibraryError)
    seen = []
    for use in (plan.wait, lambda: plan.tell(out=out), lambda: plan.ask(out=out), plan.wait):
        with pytest.raises(expected, match="cannot be built") as caught:
            use()
        seen.append(caught.value)
    assert len({id(e) for e in seen}) == len(seen)
    assert all(len(e.__traceback__.tb_frame.f_code.co_name) for e in seen)
    assert out.numpy().tolist() == [1, 1, 1]


def test_a_failed_build_keeps_no_memory_of_its_callers(device: an.Device) -> None:
    lane, out = device.lane("a"), device.put(np.ones(3, "f4"))
    plan = failing_build(lane, out, "Unsupported", "no memory kept")
    gc.disable()
    try:

        def use() -> None:
            big = device.empty(1_000_000, "uint8")
            with pytest.raises(an.Unsupported):
                plan.wait()
            assert big.valid

        before = in_use(device)
        try:
            plan.wait()
        except an.Unsupported:
            big = device.empty(1_000_000, "uint8")
        del big
        assert in_use(device) == before
    finally:
        gc.enable()


def test_unknown_operation(device: an.Device) -> None:
    plan = device.lane("a")._plan(an.PlanSpec("quantum.fourier", ()))
    with pytest.raises(an.Unsupported, match=r"quantum\.fourier.*noop"):
        plan.wait()


def test_too_many_operands_or_scalars(device: an.Device) -> None:
    lane = device.lane("a")
    many = tuple(OperandSpec(f"x{i}", "uint8", (1,), (1,), READ) for i in range(241))
    with pytest.raises(an.InvalidRequest, match="241 operands"):
        lane._plan(an.PlanSpec("noop", many))
    refs = [device.put([1], dtype="uint8") for _ in range(240)]
    lane._plan(an.PlanSpec("noop", many[:240])).ask(*refs).result(30)


def test_repr(device: an.Device) -> None:
    plan = device.blas_lt.plan(device.empty((3, 4)), device.empty((4, 5)))
    assert "blas_lt.matmul" in repr(plan)
    assert "float32[3, 4]" in repr(plan)
    assert plan.device is device


def test_plans_cannot_be_pickled(device: an.Device) -> None:
    import pickle

    with pytest.raises(TypeError):
        pickle.dumps(device.lane("a").noop())


def test_a_plan_outlives_a_restart(make_system: Make, worker_process: Placement) -> None:
    device = make_system(standby="warm").device()
    lane, x = device.lane("a"), device.put([1.0], durable=True)
    plans = [noop(lane, x, i) for i in range(5)]
    failing = failing_plan(lane, x, error="ValueError", access=FULL)
    an.gather(*[p.ask(x) for p in plans])
    for generation in (2, 3):
        os.kill(device.worker_pid or 0, signal.SIGKILL)
        an.gather(*[p.ask(x) for p in reversed(plans)], timeout=30)
        assert device.generation == generation
        assert isinstance(failing.ask(out=x).wait(30), bool)
        x.clear_error()
        assert x.numpy() == [1]


def test_a_refused_send_changes_nothing(device: an.Device) -> None:
    lane, x, y = device.lane("refused"), device.put([1.0]), device.put([2.0])
    plan = lane._plan(an.PlanSpec("noop", (operand("x", x, WRITE), operand("y", y, WRITE))))
    x.wait()
    y.free()
    for _ in range(3):
        with pytest.raises(an.GpuRefStale):
            plan.ask(x, y)
    assert x.done()
    assert x.numpy() == [1]
    assert device.stats()["actors"]["refused"]["sent"] == 0
