"""The call behind an asynchronous error: its operation, its operands, its place in the program; blocking sends."""

from __future__ import annotations

import gc
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from actions import fail, failing_plan, poison
from crash import PATIENT, filled, send
from placements import Placement

import atomr_native as an
from atomr_native.plans.spec import READ

Make = Callable[..., an.System]


def only(error: an.AtomrError | None) -> an.MessageCall:
    """The call of an error, which is in its text once, too."""
    assert error is not None
    assert error.call is not None
    assert str(error).count(f"[{error.call}]") == 1
    assert error.message == str(error)
    return error.call


def test_an_error_names_its_operation_and_operands(device: an.Device) -> None:
    lane, x = device.lane("calls"), device.empty((2, 3), "float64")
    first = fail(lane, x, text="first line\nsecond line")
    assert first.wait(30)
    call = only(first.exception())
    assert call == an.MessageCall(device.name, "calls", first.ticket, "test.fail", (("out", "float64", (2, 3)),))
    text = str(first.exception())
    assert f"[message {first.ticket} of 'calls': test.fail(out: float64[2, 3])]\nsecond line" in text
    copy = pickle.loads(pickle.dumps(first.exception()))
    assert copy.call == call
    assert str(copy) == text


def test_a_reader_names_its_own_call_and_that_of_the_cause(device: an.Device) -> None:
    x = poison(device.lane("writer"), device.empty(4))
    reader = device.elementwise.ask(an.ElementwiseRequest(program="x + y", operands={"x": x, "y": device.full(4, 2)}))
    assert reader.wait(30)
    error = reader.exception()
    assert isinstance(error, an.DependencyFailed)
    assert error.call is not None
    assert error.call.actor == "elementwise"
    assert [name for name, _, _ in error.call.operands] == ["x", "y", "out"]
    assert only(error.cause).actor == "writer"
    assert str(error).endswith(f"[{error.call}]")
    with pytest.raises(an.LibraryError) as raised:  # reading the array itself
        x.numpy()
    assert only(raised.value) == error.cause.call
    del raised


def test_a_dead_letter_names_its_call(device: an.Device) -> None:
    x = device.empty(5)
    failing_plan(device.lane("dead"), x).tell(out=x)
    device.lane("dead").noop().ask().result(30)
    letter = next(letter for letter in device.system.dead_letters if letter.actor == "dead")
    assert only(letter.error).operands == (("out", "float32", (5,)),)


def test_a_plan_without_a_holder_is_named_and_not_the_next_with_its_number(device: an.Device) -> None:
    lane = device.lane("gone")
    reply = fail(lane, device.empty(7))
    assert reply.wait(30)
    lane._plans.clear()
    gc.collect()
    device._state.plans.collect()
    for n in range(1, 4):  # other plans of the lane take the number
        lane._plan(an.PlanSpec("noop", (), (), (("n", n),))).ask().result(30)
    assert only(reply.exception()).operands == (("out", "float32", (7,)),)


def test_many_operands_are_counted(device: an.Device) -> None:
    call = an.MessageCall("host", "a", 1, "op", tuple((f"x{i}", "int8", ()) for i in range(11)))
    assert str(call).endswith("x7: int8[], and 3 more)")


def test_the_messages_that_a_death_catches_are_named(make_system: Make, worker_process: Placement) -> None:
    device = make_system(**PATIENT).device()
    x = filled(device, 1.5)
    reply = send(device.lane("a"), x, how="exit", access=READ)
    assert reply.wait(60)
    error = reply.exception()
    assert isinstance(error, an.DeviceFault)
    assert only(error).operation == "test.crash"
    assert only(error).operands[0][1:] == ("float64", (64,))
    assert [(s.actor, s.ticket, s.operation) for s in error.suspects] == [("a", 1, "test.crash")]


# ---- the place in the program


def test_debug_names_the_line_of_the_send(make_system: Make, placement: Placement) -> None:
    device = make_system(debug=True).device()
    lane, x = device.lane("a"), device.empty(2)
    plan = failing_plan(lane, x)
    frame = inspect.currentframe()
    assert frame is not None
    reply, line = plan.ask(out=x), frame.f_lineno
    for _ in range(2):
        assert reply.wait(30)
        call = only(reply.exception())
        assert (call.file, call.line) == (__file__, line)
        assert f"sent at {__file__}:{line}]" in str(reply.exception())
    with pytest.raises(an.LibraryError, match=f"{__file__}:{line}]"):
        x.numpy()


def test_without_debug_no_place_is_named(device: an.Device) -> None:
    reply = fail(device.lane("a"), device.empty(2))
    assert reply.wait(30)
    call = only(reply.exception())
    assert (call.file, call.line) == (None, None)


def test_the_environment_asks_for_the_line(make_system: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_DEBUG", "1")
    system = make_system()
    assert not system.config.debug  # kernels are as they were
    device = system.device("host")
    reply = fail(device.lane("a"), device.empty(2))
    assert reply.wait(30)
    assert only(reply.exception()).file is not None


@pytest.mark.parametrize("variable", ["ATOMR_NATIVE_DEBUG", "ATOMR_NATIVE_BLOCKING"])
def test_other_values_of_the_environment_are_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "yes")
    with pytest.raises(an.InvalidRequest, match=f"{variable}='yes'; allowed: 0, 1"):
        an.System()


# ---- blocking


def test_a_blocking_send_raises_at_the_call(make_system: Make, placement: Placement) -> None:
    system = make_system(blocking=True)
    device = system.device()
    lane, x = device.lane("a"), device.empty(2)
    plan = failing_plan(lane, x)
    sends: list[Callable[[], Any]] = [
        lambda: plan.tell(out=x), lambda: plan.ask(out=x), lambda: plan.offer(out=x),
    ]  # fmt: skip
    for use in sends:
        with pytest.raises(an.LibraryError, match="boom"):
            use()
    with pytest.raises(an.DependencyFailed, match="boom"):  # an immediate call
        device.elementwise.run("x + 1", x=x)
    with pytest.raises(an.LibraryError, match="boom"):  # a copy names the cause, as without blocking
        x.numpy()
    assert len(system.dead_letters) == 0
    x.clear_error()
    y = device.elementwise.run("0 * x + 3", x=device.full(2, 1))
    assert y.numpy().tolist() == [3, 3]


def test_a_blocking_send_has_finished(make_system: Make, placement: Placement) -> None:
    device = make_system(blocking=True).device()
    plan = device.lane("a").noop()
    for _ in range(20):
        assert plan.ask().done()
    assert plan.tell() is None


def test_blocking_is_off_unless_the_environment_says_so(make_system: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMR_NATIVE_BLOCKING", "0")
    assert not make_system().config.blocking
    monkeypatch.setenv("ATOMR_NATIVE_BLOCKING", "1")
    device = make_system().device("host")
    x = device.empty(2)
    plan = failing_plan(device.lane("a"), x)
    with pytest.raises(an.LibraryError):
        plan.tell(out=x)
    with pytest.raises(an.InvalidRequest, match="blocking"):
        make_system(blocking=1)


@pytest.mark.parametrize("name", ["tell", "ask", "offer"])
def test_methods_of_plans_take_plans_alone(name: str) -> None:
    method = getattr(an.Plan, name)
    with pytest.raises(TypeError, match="a method of plans is called with 'int' for its plan"):
        method(3)
    with pytest.raises(TypeError, match="needs an argument"):
        method()
    assert "Send" in method.__doc__
    assert list(inspect.signature(method).parameters) == ["self", "operands", "out", "named"]
