"""Replies, errors, callbacks, gather; and what the failure of a writer does to its readers."""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import threading
import traceback
import weakref
from typing import Any

import numpy as np
import pytest
from actions import FULL, Gate, eventually, fail, failing_plan, operand, poison

import atomr_native as an
from atomr_native.plan_spec import READ, WRITE

# ---- results


def test_result_wait_and_done(device: an.Device) -> None:
    lane = device.lane("a")
    with Gate(lane) as gate:
        reply = lane.noop().ask()
        assert not reply.done()
        assert reply.wait(0) is False
        assert reply.wait(0.001) is False
        assert reply.wait(-1) is False
        for timeout in (0, 0.0, 0.001, -5):
            with pytest.raises(an.AskTimeout, match="within"):
                reply.result(timeout)
        with pytest.raises(an.InvalidRequest, match="not resolved"):
            reply.exception()
        assert "open" in repr(reply)
    assert reply.result(30) is None
    assert reply.result() is None
    assert reply.result(0) is None
    assert reply.wait(1e30)
    assert reply.done()
    assert reply.exception() is None
    assert gate.reply.result(0) is None
    assert "resolved" in repr(reply)
    assert reply.device is device


def test_a_wait_that_times_out_cancels_nothing(device: an.Device) -> None:
    x = device.put([1.0])
    with Gate(device.elementwise):
        reply = device.elementwise.ask(
            an.elementwise.ElementwiseRequest(program="x + 1", operands={"x": x}, out=(y := device.empty(1, "float64")))
        )
        with pytest.raises(an.AskTimeout):
            reply.result(0)
    assert reply.result(30) is y
    assert y.numpy() == [2]


def test_dropping_a_reply_cancels_nothing(device: an.Device) -> None:
    x = device.put([1.0])
    plan = device.elementwise.plan("x + 1", x=x, out=x)
    with Gate(device.elementwise):
        for _ in range(10):
            plan.ask(x=x) if "x" in plan.names else plan.ask(out=x)
    assert x.numpy() == [11]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("InvalidRequest", an.InvalidRequest), ("Unsupported", an.Unsupported), ("MemoryError", an.OutOfMemory),
        ("LibraryError", an.LibraryError), ("ValueError", an.LibraryError), ("SystemExit", an.LibraryError),
        ("KeyboardInterrupt", an.LibraryError),
    ],
)  # fmt: skip
def test_errors_of_operations_are_typed(device: an.Device, kind: str, expected: type[an.AtomrError]) -> None:
    reply = fail(device.lane("a"), device.empty(2), error=kind, text=f"because of {kind}")
    with pytest.raises(expected, match=f"because of {kind}") as caught:
        reply.result(30)
    assert type(caught.value) is expected
    if kind == "LibraryError":
        error: Any = caught.value
        assert (error.lib, error.status, error.name) == ("testlib", 7, "TEST_STATUS")
    elif kind == "ValueError":
        assert caught.value.name == "ValueError"  # type: ignore[attr-defined]
    assert device.lane("a").noop().ask().result(30) is None  # the lane lives


@pytest.mark.parametrize("text", ["", "x" * 5000, "ümläut € " * 200, "null \0 byte", "\ud800"])
def test_texts_of_errors_survive(device: an.Device, text: str) -> None:
    try:
        reply = fail(device.lane("a"), device.empty(2), error="InvalidRequest", text=text)
    except an.AtomrError:
        pytest.skip("not a text that a plan can carry")
    error = reply.wait(30) and reply.exception()
    assert isinstance(error, an.InvalidRequest)
    plain = text.split("\0")[0].encode("utf-8", "replace")[:800].decode(errors="ignore")
    assert plain[:-2] in str(error)


def test_each_raise_is_a_fresh_error_that_pins_no_frames(device: an.Device) -> None:
    reply = fail(device.lane("a"), device.empty(2))
    reply.wait(30)
    gc.disable()
    try:

        class Big:
            pass

        def use() -> weakref.ref[Big]:
            big = Big()
            with pytest.raises(an.LibraryError):
                reply.result()
            with contextlib.suppress(an.AtomrError):
                reply.result()
            return weakref.ref(big)

        seen = []
        for _ in range(2):
            try:
                big = Big()
                gone = weakref.ref(big)
                reply.result()
            except an.AtomrError as error:
                seen.append(len(traceback.extract_tb(error.__traceback__)))
            del big
            assert gone() is None
        assert seen[0] == seen[1]
        assert reply.exception() is not reply.exception()
    finally:
        gc.enable()


def every_error() -> list[an.AtomrError]:
    cause = an.LibraryError("lib", 3, "NAME", "op", "detail")
    return [
        an.AtomrError("text"), an.InvalidRequest("text"), an.Unsupported("text"), an.PlanQuarantined("text"),
        an.NoCudaArrayInterface("text"), an.GpuRefStale("text", "freed"), an.OutOfMemory("text", 1, 2, 3, 4), cause,
        an.DeviceFault("text", (an.Suspect("actor", 4, "op"),), True), an.DeviceLost("text"),
        an.MailboxFull("text", "actor", 32), an.AskTimeout("text"), an.DependencyFailed("text", cause),
        an.UnhandledMessage("text"), an.NoReply("text"),
        an.ActorStopped("text"),
    ]  # fmt: skip


@pytest.mark.parametrize("error", every_error(), ids=lambda e: type(e).__name__)
def test_every_error_can_be_pickled(error: an.AtomrError) -> None:
    try:
        raise error
    except an.AtomrError as raised:
        caught = raised
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(caught, protocol))
        assert type(found) is type(error)
        assert str(found) == str(error)
        assert found.args == error.args
        assert found.__traceback__ is None
        mine, theirs = dict(error.__dict__), dict(found.__dict__)
        if isinstance(error, an.DependencyFailed):
            assert str(mine.pop("cause")) == str(theirs.pop("cause"))
        assert mine == theirs


def test_every_public_error_is_in_that_list() -> None:
    public = {getattr(an, name) for name in an.__all__}
    errors = {cls for cls in public if isinstance(cls, type) and issubclass(cls, an.AtomrError)}
    assert errors == {type(error) for error in every_error()}


@pytest.mark.parametrize(
    ("error", "base"),
    [(an.InvalidRequest, ValueError), (an.OutOfMemory, MemoryError), (an.AskTimeout, TimeoutError),
     (an.PlanQuarantined, an.Unsupported)],
)  # fmt: skip
def test_errors_are_what_python_would_raise_too(error: type[Exception], base: type[Exception]) -> None:
    assert issubclass(error, base)
    assert issubclass(error, an.AtomrError)


def test_errors_of_messages_can_be_pickled(device: an.Device) -> None:
    bad = poison(device.lane("a"), device.empty(2))
    reader = device.lane("b")._plan(an.PlanSpec("noop", (operand("x", bad, READ),))).ask(bad)
    reader.wait(30)
    error = pickle.loads(pickle.dumps(reader.exception()))
    assert isinstance(error, an.DependencyFailed)
    assert isinstance(error.cause, an.LibraryError)
    assert "boom" in str(error)


def test_replies_cannot_be_pickled_or_copied(device: an.Device) -> None:
    import copy

    reply = device.lane("a").noop().ask()
    for use in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            use(reply)
    reply.result(30)


def test_replies_in_garbage_cycles_are_safe(device: an.Device) -> None:
    lane = device.lane("cycles")
    with Gate(lane):
        for _ in range(50):
            cycle: list[Any] = [lane.noop().ask(), fail(lane, device.empty(4)), device.empty(4)]
            cycle.append(cycle)
        del cycle
        gc.collect()
        junk = [bytearray(200) for _ in range(1000)]  # where freed replies were
        last = lane.noop().ask()
    last.result(30)
    lane.noop().ask().result(30)
    del junk


# ---- callbacks


def test_callbacks_run_once_in_order_of_resolution(device: an.Device) -> None:
    lane, seen = device.lane("a"), []
    with Gate(lane):
        replies = [lane.noop().ask() for _ in range(20)]
        for i in reversed(range(20)):
            replies[i].add_done_callback(lambda reply, i=i: seen.append((i, reply is replies[i], reply.done())))
        assert seen == []
    replies[-1].result(30)
    eventually(lambda: len(seen) == 20)
    assert seen == [(i, True, True) for i in range(20)]


def test_callback_of_a_resolved_reply_runs_at_once(device: an.Device) -> None:
    reply = device.lane("a").noop().ask()
    reply.result(30)
    seen: list[Any] = []
    reply.add_done_callback(lambda r: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


def test_callback_of_a_failed_message_sees_the_error(device: an.Device) -> None:
    lane, seen = device.lane("a"), []
    with Gate(lane):
        fail(lane, device.empty(2)).add_done_callback(lambda reply: seen.append(type(reply.exception())))
    eventually(lambda: seen)
    assert seen == [an.LibraryError]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_exceptions_in_callbacks_are_logged_and_harm_nobody(
    device: an.Device, error: type[BaseException], caplog: Any
) -> None:
    lane, seen = device.lane("a"), []

    def bad(reply: an.Reply) -> None:
        raise error("from a callback")

    with Gate(lane):
        replies = [lane.noop().ask() for _ in range(3)]
        for reply in replies:
            reply.add_done_callback(bad)
            reply.add_done_callback(lambda r: seen.append(r))
    eventually(lambda: len(seen) == 3)
    assert caplog.text.count("from a callback") >= 3
    with Gate(lane):  # the thread that calls back is alive
        lane.noop().ask().add_done_callback(seen.append)
    eventually(lambda: len(seen) == 4)


@pytest.mark.parametrize("callback", [None, "no", 3])
def test_what_cannot_be_a_callback(device: an.Device, callback: Any) -> None:
    with pytest.raises(an.InvalidRequest, match="callable"):
        device.lane("a").noop().ask().add_done_callback(callback)


def test_a_callback_may_send(device: an.Device) -> None:
    lane, x = device.lane("a"), device.put([1.0])
    plan = device.elementwise.plan("x + 1", x=x, out=x).wait()
    rounds: list[int] = []

    def again(reply: an.Reply) -> None:
        rounds.append(1)
        if len(rounds) < 10:
            plan.ask(*([x] if plan.names else [])).add_done_callback(again)

    lane.noop().ask().add_done_callback(again)
    eventually(lambda: len(rounds) == 10)
    assert x.numpy() == [10]


# ---- gather


def test_gather_gives_values_in_order(device: an.Device) -> None:
    x = device.put(np.eye(2))
    out = device.empty((2, 2), "float64")
    reply = device.blas_lt.plan(x, x).ask(x, x, out=out)
    values = an.gather(device.lane("a").noop().ask(), x, reply, timeout=30)
    assert values[0] is None
    assert values[1] is x
    assert values[2] is out
    assert an.gather() == []
    assert an.gather(timeout=0) == []


def test_gather_times_out_for_all_together(device: an.Device) -> None:
    lane = device.lane("a")
    with Gate(lane):
        replies = [lane.noop().ask() for _ in range(5)]
        for timeout in (0, 0.01):
            with pytest.raises(an.AskTimeout, match="go on"):
                an.gather(*replies, timeout=timeout)
    assert an.gather(*replies) == [None] * 5
    assert an.gather(*replies, timeout=0) == [None] * 5


def test_gather_raises_the_first_in_order_after_all_are_resolved(device: an.Device) -> None:
    a, b = device.lane("a"), device.lane("b")
    out = [device.empty(2) for _ in range(3)]
    with Gate(a):
        late = fail(a, out[0], text="sent first")
        early = fail(b, out[1], text="failed first")
        early.wait(30)
        last = a.noop().ask()
    with pytest.raises(an.LibraryError, match="sent first"):
        an.gather(late, early, last)
    assert last.done()
    with pytest.raises(an.LibraryError, match="failed first"):
        an.gather(out[2], early, out[0])


@pytest.mark.parametrize("wrong", [None, 3, np.zeros(2), threading.Event(), [1]])
def test_what_cannot_be_gathered(device: an.Device, wrong: Any) -> None:
    with pytest.raises(an.InvalidRequest, match=type(wrong).__name__):
        an.gather(device.lane("a").noop().ask(), wrong)


# ---- failure of a writer


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
