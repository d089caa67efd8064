"""What the failure of a writer does to its readers, and what ends that."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from actions import FULL, Gate, fail, failing_plan, operand, poison

import atomr_native as an
from atomr_native.plans.spec import READ, WRITE


def read(lane: Any, ref: an.GpuRef) -> Any:
    return lane._plan(an.PlanSpec("noop", (operand("x", ref, READ),))).ask(ref)


def overwrite(lane: Any, ref: an.GpuRef, access: int = FULL) -> Any:
    return lane._plan(an.PlanSpec("noop", (operand("x", ref, access),))).ask(ref)


def chain(device: an.Device, *refs: an.GpuRef) -> list[Any]:
    """Messages on lanes of their own, each reading one array and writing the next."""
    replies = []
    for i, (x, y) in enumerate(itertools.pairwise(refs)):
        plan = device.lane(f"chain{i}")._plan(an.PlanSpec("noop", (operand("x", x, READ), operand("y", y, FULL))))
        replies.append(plan.ask(x, y))
    return replies


def test_readers_get_the_first_cause_however_far(device: an.Device) -> None:
    lane = device.lane("a")
    refs = [device.full((4,), i) for i in range(6)]
    first = fail(lane, refs[0], text="the very first")
    replies = chain(device, *refs)
    assert first.wait(30)  # those on other lanes may be answered before
    for reply in replies:
        assert reply.wait(30)
        error = reply.exception()
        assert isinstance(error, an.DependencyFailed)
        assert isinstance(error.cause, an.LibraryError)
        assert "the very first" in str(error)
        assert str(error.cause) == str(first.exception())
        assert f"message {first.ticket} of 'a'" in str(error)
        with pytest.raises(an.DependencyFailed):
            reply.result()
    for ref in refs:
        with pytest.raises(an.LibraryError, match="the very first"):
            ref.numpy()


def test_a_second_failure_does_not_hide_the_first(device: an.Device) -> None:
    lane, x = device.lane("a"), device.empty(4)
    poison(lane, x, text="first")
    poison(lane, x, text="second", access=WRITE)
    with pytest.raises(an.LibraryError, match="first"):
        x.numpy()


def test_poison_reaches_across_views(device: an.Device) -> None:
    x = device.zeros((4, 4))
    poison(device.lane("a"), x[0])
    with pytest.raises(an.LibraryError, match="boom"):
        x[3].numpy()


def test_a_full_overwrite_lifts_poison(device: an.Device) -> None:
    for lift in (
        lambda x: x.fill(7),
        lambda x: device.put(np.full((2, 3), 7.0, "f4"), out=x),
        lambda x: device.copy(device.full((2, 3), 7), x),
        lambda x: device.elementwise.run("a + 3", a=device.full((2, 3), 4), out=x),
        lambda x: device.blas_lt.matmul(device.full((2, 1), 7), device.full((1, 3), 1), out=x),
    ):
        x = poison(device.lane("a"), device.empty((2, 3)))
        lift(x)
        assert x.numpy().tolist() == [[7] * 3] * 2


def test_a_partial_overwrite_keeps_poison(device: an.Device) -> None:
    x = poison(device.lane("a"), device.empty((4, 4)))
    x[:3].fill(1)
    device.put(np.ones((4, 2)), out=x[:, ::2])
    x.reshape(-1)[:15].fill(2)
    with pytest.raises(an.LibraryError, match="boom"):
        x[0, 0].numpy()
    with pytest.raises(an.LibraryError, match="boom"):
        x.numpy()
    x.reshape(16).fill(3)
    assert x.numpy().tolist() == [[3] * 4] * 4


def test_an_update_in_place_does_not_lift_poison(device: an.Device) -> None:
    x = poison(device.lane("a"), device.empty(4))
    reply = overwrite(device.lane("b"), x, READ | WRITE)
    with pytest.raises(an.DependencyFailed, match="boom"):
        reply.result(30)
    reply = overwrite(device.lane("b"), x, WRITE)
    reply.result(30)
    with pytest.raises(an.LibraryError, match="boom"):
        x.numpy()


def test_a_failed_overwrite_does_not_lift_poison(device: an.Device) -> None:
    x = poison(device.lane("a"), device.empty(4), text="first")
    poison(device.lane("a"), x, text="second")
    with pytest.raises(an.LibraryError, match="first"):
        x.numpy()


def test_clear_error_accepts_the_bytes(device: an.Device) -> None:
    x = device.put(np.arange(4, dtype="f4"))
    poison(device.lane("a"), x, touch=True)
    assert x.clear_error() is x
    assert x.numpy().tobytes() == b"\xee" * 16
    y = device.put(np.arange(4, dtype="f4"))
    poison(device.lane("a"), y[1:])
    y[2:].clear_error()
    assert y.numpy().tolist() == [0, 1, 2, 3]
    assert device.empty(0).clear_error().size == 0


def test_clear_error_is_in_order_with_messages(device: an.Device) -> None:
    lane, x = device.lane("a"), device.put(np.ones(4, "f4"))
    plan = failing_plan(lane, x)
    with Gate(lane):
        plan.tell(out=x)
        before = read(device.lane("b"), x)
        x.clear_error()
        after = read(device.lane("b"), x)
        plan.tell(out=x)
        again = read(device.lane("b"), x)
    assert [reply.wait(30) and type(reply.exception()) for reply in (before, after, again)] == [
        an.DependencyFailed, type(None), an.DependencyFailed,
    ]  # fmt: skip


def test_what_is_not_launched_leaves_the_bytes_untouched(device: an.Device) -> None:
    bad, y = poison(device.lane("a"), device.empty(4)), device.put(np.arange(4, dtype="f4"))
    plan = device.lane("b")._plan(
        an.PlanSpec(
            "test.fail",
            (operand("x", bad, READ), operand("y", y, FULL)),
            (),
            (("error", "ValueError"), ("touch", True)),
        )
    )
    with pytest.raises(an.DependencyFailed, match="boom"):
        plan.ask(bad, y).result(30)
    with pytest.raises(an.LibraryError, match="boom"):
        y.numpy()
    assert y.clear_error().numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("error", ["OversizedStatus", "RuleMissing", "SystemExit"])
def test_no_error_of_a_run_is_a_success(device: an.Device, error: str) -> None:
    x = device.empty(4)
    with pytest.raises(an.LibraryError) as raised:
        failing_plan(device.lane("a"), x, error=error).ask(x).result(30)
    assert raised.value.status == 0
    with pytest.raises(an.LibraryError):
        x.numpy()


def test_what_only_reads_poisons_nothing(device: an.Device) -> None:
    x, y = device.put([1.0]), device.put([2.0])
    plan = device.lane("a")._plan(an.PlanSpec("test.fail", (operand("x", x, READ),), (), (("error", "ValueError"),)))
    assert plan.ask(x).wait(30)
    assert an.gather(x, y) == [x, y]


def test_poison_ends_with_the_allocation(device: an.Device) -> None:
    lane = device.lane("a")
    for _ in range(1500):  # more than any table of it holds
        poisoned = device.empty(16)
        failing_plan(lane, poisoned).tell(out=poisoned)
        del poisoned
    lane.noop().ask().result(60)
    fresh = [device.empty(16) for _ in range(1500)]
    an.gather(*fresh, timeout=60)


def test_a_failed_message_of_the_library_has_all_of_this(device: an.Device) -> None:
    logits, labels = device.put(np.zeros((2, 3), "f4")), device.put(np.array([0, 7]))
    loss, grad = device.elementwise.softmax_cross_entropy(logits, labels)
    if device.name != "host":  # a kernel reads the labels when the message is long sent, and has no errors
        assert np.isnan(loss.numpy())
        assert np.isnan(grad.numpy()).any(1).tolist() == [False, True]
        return
    with pytest.raises(an.InvalidRequest, match="label 7"):
        loss.numpy()
    with pytest.raises(an.InvalidRequest, match="label 7"):
        grad.wait()
    later = device.elementwise.run("g * 2", g=grad)
    with pytest.raises(an.InvalidRequest, match="label 7"):
        later.numpy()
