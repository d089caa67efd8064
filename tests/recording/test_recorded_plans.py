"""Recorded plans give the results of their messages, sent one by one, on every kind of device."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from placements import Placement

import atomr_native as an


def _array(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Return small integers, whose sums and products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def _used_graph(plan: an.RecordedPlan, placement: Placement, messages: int) -> None:
    """Check that all messages but the first were launches of a graph, on a CUDA device."""
    if placement.cuda:
        found = plan.replays
        assert (found.stepwise, found.launched) == (1, messages - 1), plan.notes


def test_replays_equal_the_messages(device: an.Device, placement: Placement) -> None:
    w, b = device.put(_array((8, 8), 1)), device.put(_array((8,), 2))

    @device.graph
    def step(x: an.GpuRef, out: an.GpuRef, *, rate: float) -> None:
        h = device.blas_lt.matmul(x, w, bias=b, epilogue="bias")
        h = h * 2 + x
        device.elementwise.run("out = h * rate", h=h, rate=rate, out=out)

    x, out, eager = device.put(_array((8, 8), 3)), device.zeros((8, 8)), device.zeros((8, 8))
    plan = step.plan(x, out, rate=0.5)
    assert not out.numpy().any(), "recording has run something"
    assert [one.operation.partition(".")[0] for one in plan.steps] == ["blas_lt"] + ["elementwise"] * 3
    for number, rate in enumerate((0.5, 2.0, 2.0, -1.0)):
        given = device.put(_array((8, 8), 10 + number))
        step(given, eager, rate=rate)
        plan.tell(given, out=out, rate=rate)
        np.testing.assert_array_equal(out.numpy(), eager.numpy())
    assert plan.ask(x, out).result(60) is out
    _used_graph(plan, placement, 5)


def test_numbers_have_the_values_of_the_recording_as_defaults(device: an.Device) -> None:
    a = device.zeros(3)
    with device.record() as recording:
        x = recording.operand("x", a)
        x.fill(recording.scalar("value", 7.0))
    recording.plan.tell(a)
    assert a.numpy().tolist() == [7.0] * 3
    recording.plan.tell(x=a, value=1)
    assert a.numpy().tolist() == [1.0] * 3


def test_one_number_in_words_of_two_kinds(device: an.Device) -> None:
    a, b = device.zeros(3, "int32"), device.zeros(3)
    with device.record() as recording:
        n = recording.scalar("n", 3)
        a.fill(n)
        b.fill(n)
    for number in (None, 5):
        recording.plan.tell(**({} if number is None else {"n": number}))
        assert a.numpy().tolist() == b.numpy().tolist() == [number or 3] * 3
    with pytest.raises(an.UnknownOption, match="'m' is no operand or option of this plan; allowed: n, out, retry"):
        recording.plan.tell(m=1)


def test_bound_arrays_keep_their_views(device: an.Device) -> None:
    whole = device.put(_array((4, 6), 1))
    got = device.zeros((3, 4))
    with device.record() as recording:
        out = recording.operand("out", got)
        device.copy(whole[:, 1:4].T, out=out)
        whole[0].fill(5)
    kept = whole.numpy()
    del whole
    gc.collect()
    recording.plan.tell(out=got)
    np.testing.assert_array_equal(got.numpy(), kept[:, 1:4].T)
    recording.plan.tell(out=got)
    kept[0] = 5
    np.testing.assert_array_equal(got.numpy(), kept[:, 1:4].T)


def test_replays_are_ordered_by_data_with_all_other_messages(device: an.Device) -> None:
    total = device.zeros(1000)

    @device.graph
    def add(x: an.GpuRef) -> None:
        device.copy(total + x, out=total)

    plan = add.plan(device.zeros(1000))
    expected = 0.0
    for number in range(20):  # nothing waits in between
        plan.tell(device.full(1000, number))
        device.copy(total * 2, out=total)
        expected = 2 * (expected + number)
    assert set(total.numpy().tolist()) == {expected}


def test_temporaries_share_memory_and_belong_to_the_plan(device: an.Device) -> None:
    @device.graph
    def chain(x: an.GpuRef, out: an.GpuRef) -> None:
        for _ in range(6):
            x = x + 1
        device.copy(x, out=out)

    x, out = device.zeros(1000), device.zeros(1000)
    out.wait()
    before = device.stats()["memory"]["pools"]["volatile"]["in_use"]
    plan = chain.plan(x, out)
    assert plan.nbytes == 2 * 4096  # two of six live at a time
    assert device.stats()["memory"]["pools"]["volatile"]["in_use"] - before == plan.nbytes
    plan.tell(x, out=out)
    assert set(out.numpy().tolist()) == {6.0}
    plan.__dict__["cycle"] = plan
    del plan
    gc.collect()
    assert device.stats()["memory"]["pools"]["volatile"]["in_use"] == before


def test_results_exist_from_the_first_replay_on(device: an.Device) -> None:
    given = device.ones(4)
    with device.record() as recording:
        y = recording.operand("x", given) + 1
    for use in (y.numpy, lambda: device.copy(y), lambda: y + 1, y.wait):
        with pytest.raises(an.InvalidRequest, match="inside a recording"):
            use()
    assert not y.valid
    recording.plan.tell(given)
    assert y.valid
    assert (y + 1).numpy().tolist() == [3.0] * 4
    recording.plan.tell(y + 0)
    assert y.numpy().tolist() == [3.0] * 4


def test_other_threads_are_not_recorded(device: an.Device) -> None:
    mine = device.zeros(4)
    results: list[float] = []

    def elsewhere() -> None:
        results.extend((mine + 1).numpy().tolist())

    with device.record() as recording:
        x = recording.operand("x", mine)
        x.fill(3)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(60)
    assert results == [1.0] * 4
    assert len(recording.plan.steps) == 1


@pytest.mark.fake_only(replays=[300])
@pytest.mark.parametrize("replays", [300, pytest.param(10_000, marks=pytest.mark.gpu)])
def test_many_replays_beside_another_thread(device: an.Device, placement: Placement, replays: int) -> None:
    total = device.zeros(8)
    stop = threading.Event()

    @device.graph
    def add(x: an.GpuRef) -> None:
        device.copy(total + x, out=total)

    def busy() -> None:
        other = device.zeros(8)
        while not stop.is_set():
            other = other + 1
            other.wait()

    plan = add.plan(total * 1)
    x = device.ones(8)
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(replays):
            plan.tell(x)
        assert set(total.numpy().tolist()) == {float(replays)}
    finally:
        stop.set()
        thread.join(60)
    _used_graph(plan, placement, replays)


def test_a_bound_array_is_replaced(device: an.Device) -> None:
    w, other = device.full(4, 2.0), device.full(8, 5.0)
    out = device.zeros(4)

    @device.graph
    def scaled(out: an.GpuRef) -> None:
        device.copy(w * 3, out=out)

    plan = scaled.plan(out)
    plan.tell(out=out)
    assert out.numpy().tolist() == [6.0] * 4
    assert plan.bind(w, other[2:6]) is plan
    plan.tell(out=out)
    assert out.numpy().tolist() == [15.0] * 4
    for old, new, match in (
        (w, out, "not bound"), (other[2:6], device.zeros(5), "same layout"), (other[:2], out[:2], "has bytes"),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match=match):
            plan.bind(old, new)


def test_a_bound_array_is_not_replaced_by_memory_of_another(device: an.Device) -> None:
    """The recording has no order for their steps, which a GPU may run side by side."""
    w, x, y, out = (device.full(4, float(i)) for i in range(1, 5))
    with device.record() as g:
        device.elementwise.run("a + 1", a=w, out=w)
        device.elementwise.run("a * b", a=x, b=y, out=out)
    plan = g.plan
    assert [step.after for step in plan.steps] == [(), ()]
    for old, new in ((x, w), (w, y), (x, out), (out, w)):
        with pytest.raises(an.InvalidRequest, match="new shares memory with another bound array"):
            plan.bind(old, new)
    plan.bind(w, w)
    plan.bind(y, x)  # both are only read
    plan.tell()
    assert (w.numpy().tolist(), out.numpy().tolist()) == ([2.0] * 4, [4.0] * 4)
    halves = device.zeros(8)
    plan.bind(w, halves[:4]).bind(out, halves[4:])  # parts of one array, which no step shares
    plan.tell()
    assert halves.numpy().tolist() == [1.0] * 4 + [4.0] * 4


def test_recorded_plans_in_recordings(device: an.Device, placement: Placement) -> None:
    w, total = device.put(_array((8, 8), 1)), device.zeros((8, 8))

    @device.graph
    def layer(x: an.GpuRef, out: an.GpuRef, *, rate: float) -> None:
        h = device.blas_lt.matmul(x, w) + 1
        device.elementwise.run("out = h * rate", h=h, rate=rate, out=out)
        device.copy(h[2:4], out=total[2:4])

    x, out = device.put(_array((8, 8), 2)), device.zeros((8, 8))
    inner = layer.plan(x, out, rate=1.0)

    @device.graph
    def twice(x: an.GpuRef, out: an.GpuRef, *, rate: float) -> None:
        between = device.empty((8, 8))
        inner.tell(x, out=between, rate=rate)
        inner.tell(between, out=out)
        device.copy(total + out, out=total)

    once = twice.plan(x, out, rate=0.5)

    @device.graph
    def four_times(x: an.GpuRef, out: an.GpuRef, *, rate: float) -> None:
        between = device.empty((8, 8))
        once.tell(x, out=between, rate=rate)
        once.tell(between, out=out, rate=rate)

    outer = four_times.plan(x, out, rate=0.5)
    assert len(outer.steps) == 2 * len(once.steps) == 4 * len(inner.steps) + 4
    del inner, once
    gc.collect()
    for rate in (0.5, 0.25, 0.25):
        total.fill(0)
        inner = layer.plan(x, out, rate=1.0)
        once = twice.plan(x, out, rate=1.0)
        four_times(x, out, rate=rate)
        expected, sums = out.numpy(), total.numpy()
        total.fill(0)
        outer.tell(x, out=out, rate=rate)
        np.testing.assert_array_equal(out.numpy(), expected)
        np.testing.assert_array_equal(total.numpy(), sums)
    _used_graph(outer, placement, 3)


def test_results_of_a_recorded_plan_exist_from_the_first_message_of_one_that_holds_it(device: an.Device) -> None:
    given, out = device.ones(4), device.zeros(4)
    with device.record() as inner:
        y = inner.operand("x", given) + 1
    with pytest.raises(an.InvalidRequest, match="made inside a recording"), device.record():
        device.copy(y, out=out)
    with device.record() as outer:
        inner.plan.tell(outer.operand("x", given))
        device.copy(y * 3, out=out)
        inner.plan.tell(out)
    with device.record() as outermost:
        outer.plan.tell(outermost.operand("x", given))
    assert not y.valid
    outermost.plan.tell(given)
    assert out.numpy().tolist() == [6.0] * 4
    assert y.numpy().tolist() == [7.0] * 4
    for recording in (inner, outer):
        recording.plan.tell(device.zeros(4))
    assert y.numpy().tolist() == [4.0] * 4


def test_the_steps_as_a_graph(device: an.Device) -> None:
    a, b = device.zeros(4), device.zeros(4)
    with device.record() as recording:
        x, y = recording.operand("x", a), recording.operand("y", b)
        x.fill(1)
        y.fill(2)
        device.copy(x + y, out=x)
    assert [step.after for step in recording.plan.steps] == [(), (), (0, 1), (0, 2)]
    assert recording.plan.steps[0].operands == ("x",)
    with device.record() as later:
        x = later.operand("x", a)
        device.copy(x, out=b)
        x.fill(3)  # when it has been read
    assert [step.after for step in later.plan.steps] == [(), (0,)]
    assert recording.plan.dot().splitlines()[0] == "digraph program {"
    assert "  step2 -> step3;" in recording.plan.dot()


def test_a_long_program(device: an.Device, placement: Placement) -> None:
    a = device.zeros(4)
    with device.record() as recording:
        x = recording.operand("x", a)
        for number in range(200):
            device.elementwise.run("out = x + n", x=x, n=float(number % 7), out=x)
    for _ in range(3):
        recording.plan.tell(x=a)
    assert set(a.numpy().tolist()) == {3.0 * sum(number % 7 for number in range(200))}
    _used_graph(recording.plan, placement, 3)


def test_failures_that_arrive_late_belong_to_their_replay(device: an.Device) -> None:
    good, bad = np.eye(3) * 2, np.zeros((3, 3))
    a, b, x = device.put(good), device.put(np.ones(3)), device.zeros(3, "float64")
    with device.record() as recording:
        device.solver.solve(recording.operand("a", a), b, out=recording.operand("x", x))
    plan = recording.plan
    arrays = [device.put(bad if i == 3 else good) for i in range(6)]
    outs = [device.zeros(3, "float64") for _ in arrays]
    replies = [plan.ask(array, out) for array, out in zip(arrays, outs, strict=True)]
    for i, reply in enumerate(replies):
        error = reply.exception() if reply.wait(60) else None
        assert isinstance(error, an.SingularMatrix) is (i == 3), (i, error)
    assert outs[5].numpy().tolist() == [0.5] * 3
    if device.kind == "cuda":
        assert any("reports failures by a word that differs for each message" in note for note in plan.notes)
        assert plan.replays.launched == 0


def test_decompositions_are_replayed(device: an.Device) -> None:
    """Also what is several messages, with their new arrays, of which several may fail late."""
    rng = np.random.default_rng(0)
    first, second, b = (device.put(rng.standard_normal((4, n))) for n in (3, 3, 2))
    with device.record() as recording:
        a = recording.operand("a", first)
        found = device.solver.lstsq(a, b)
    for array in (first, second):
        recording.plan.ask(array).result(60)
        x = np.linalg.lstsq(array.numpy(), b.numpy(), rcond=None)[0]
        np.testing.assert_allclose(found.x.numpy(), x, rtol=1e-10, atol=1e-10)
        assert found.rank.numpy() == 3
    with device.record() as recording:
        values = [device.solver.svdvals(array) for array in (first, second)]
    recording.plan.ask().result(60)
    for found_values, array in zip(values, (first, second), strict=True):
        want = np.linalg.svd(array.numpy(), compute_uv=False)
        np.testing.assert_allclose(found_values.numpy(), want, rtol=1e-10)
    with device.record() as recording:
        for _ in range(16):
            device.solver.svdvals(first)
    if device.kind == "cuda":
        with pytest.raises(an.Unsupported, match=r"16 messages that fail only when .*; allowed on a GPU: 15"):
            recording.plan.wait(60)
    else:
        recording.plan.ask().result(60)
