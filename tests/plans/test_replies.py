"""Replies, errors, callbacks, gather."""

from __future__ import annotations

import contextlib
import gc
import pickle
import threading
import traceback
import weakref
from typing import Any

import numpy as np
import pytest
from actions import Gate, eventually, fail, operand, poison

import atomr_native as an
from atomr_native.libraries.elementwise.request import ElementwiseRequest
from atomr_native.plans.spec import READ

# ---- results


def test_result_wait_and_done(device: an.Device) -> None:
    lane = device.lane("a")
    with Gate(lane) as gate:
        reply = lane.noop().ask()
        assert not reply.done()
        assert reply.wait(0) is False
        assert reply.wait(0.001) is False
        for timeout in (0, 0.0, 0.001):
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
            ElementwiseRequest(program="x + 1", operands={"x": x}, out=(y := device.empty(1, "float64")))
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
        an.AtomrError("text"), an.InvalidRequest("text"), an.UnknownOption("text", "a", None, ("b",)),
        an.Unsupported("text"), an.PlanQuarantined("text"),
        an.InvalidAxis("text"), an.NoArrayOperator("text"), an.NoCudaArrayInterface("text"),
        an.GpuRefStale("text", "freed"), an.OutOfMemory("text", requested=1), cause,
        an.DeviceFault("text", (an.Suspect("actor", 4, "op"),), True), an.DeviceLost("text"),
        an.NodeLost("text", "node1", True),
        an.MailboxFull("text", "actor", 32), an.AskTimeout("text"), an.DependencyFailed("text", cause),
        an.UnhandledMessage("text"), an.NoReply("text"), an.NestedCall("text"),
        an.ActorStopped("text"), an.FactorizationError("solver.x", (3,), 2, 1), an.SingularMatrix("solver.x", (), 2, 1),
        an.NotPositiveDefinite("solver.x", (1, 2), 2, 4), an.NotConverged("solver.x", (1,), 2, 1),
        an.LoopLimitReached(3, 100),
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
            with pytest.raises(an.AskTimeout, match="the messages continue"):
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


def test_gather_raises_the_error_of_a_handle(device: an.Device) -> None:
    good, bad = device.put([1.0]), device.empty(2)
    fail(device.lane("a"), bad, text="no value")
    with pytest.raises(an.LibraryError, match="no value"):
        an.gather(good, bad)


@pytest.mark.parametrize("wrong", [None, 3, np.zeros(2), threading.Event(), [1]])
def test_what_cannot_be_gathered(device: an.Device, wrong: Any) -> None:
    with pytest.raises(an.InvalidRequest, match=type(wrong).__name__):
        an.gather(device.lane("a").noop().ask(), wrong)
