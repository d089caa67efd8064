"""Full mailboxes: blocking, rejecting, timeouts, signals, many senders."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actions import Gate, building_plan, eventually, operand
from crowds import alongside
from placements import Placement

import atomr_native as an
from atomr_native.plans.spec import READ

Make = Callable[..., an.System]


def fill_up(plan: an.Plan) -> list[an.Reply]:
    """Send until there is no room."""
    replies = []
    while (reply := plan.offer()) is not None:
        replies.append(reply)
    return replies


@pytest.mark.timeout(60)  # a wait would not end
def test_reject_says_whose_mailbox_and_how_large(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, mailbox="reject", mailbox_size=50, timeout=None).device()
    lane = device.lane("small")
    plan = lane.noop().wait()
    with Gate(lane):
        replies = []
        with pytest.raises(an.MailboxFull, match="nothing was sent") as caught:  # noqa: PT012
            for _ in range(1000):
                replies.append(plan.ask())
        assert (caught.value.actor, caught.value.capacity) == ("small", 64)
        assert len(replies) == 63
        with pytest.raises(an.MailboxFull):
            plan.tell()
        device.lane("other").noop().ask().result(30)  # has a mailbox of its own
    an.gather(*replies, timeout=30)
    plan.ask().result(30)
    assert device.stats()["actors"]["small"]["sent"] == 65


@pytest.mark.parametrize("timeout", [0, 0.0, 0.02])
def test_block_gives_up_after_the_timeout(make_system: Make, isolation: str, timeout: float) -> None:
    device = make_system(isolation=isolation, mailbox_size=32, timeout=timeout).device()
    lane = device.lane("a")
    plan = lane.noop().wait()
    with Gate(lane):
        replies = fill_up(plan)
        assert len(replies) == 31
        began = time.monotonic()
        with pytest.raises(an.MailboxFull, match=f"within {timeout:g} s"):
            plan.tell()
        assert time.monotonic() - began >= timeout
    an.gather(*replies, timeout=30)
    assert device.stats()["actors"]["a"]["sent"] == 32


def test_a_refused_message_stamps_nothing(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, mailbox="reject", mailbox_size=32).device()
    x, lane = device.put([1.0]), device.lane("a")
    x.wait()
    plan = lane._plan(an.PlanSpec("noop", (operand("x", x, READ | 2),))).wait()
    with Gate(lane):
        fill_up(lane.noop().wait())
        for _ in range(10):
            with pytest.raises(an.MailboxFull):
                plan.ask(x)
        assert x.done()
        assert x.numpy() == [1]  # waits for nothing of that lane


@pytest.mark.parametrize("timeout", [30.0, None])
def test_senders_block_until_there_is_room_and_nothing_is_lost(
    make_system: Make, isolation: str, timeout: float | None
) -> None:
    device = make_system(isolation=isolation, mailbox_size=32, timeout=timeout).device()
    n, each = 4, 150
    counts = [device.zeros(1, "int64") for _ in range(n)]
    total = device.zeros(1, "int64")
    plan = device.elementwise.plan("x = x + 1; t = t + 1", x=total, t=counts[0]).wait()

    def send(mine: an.GpuRef) -> None:
        for _ in range(each):
            plan.tell(x=mine, t=total)

    gate = Gate(device.elementwise)
    with alongside(send, counts):
        eventually(lambda: device.stats()["actors"]["elementwise"]["cells_in_use"] >= 32)
        gate.open()
    assert total.numpy() == [n * each]
    assert [int(ref.numpy()[0]) for ref in counts] == [each] * n
    assert device.stats()["actors"]["elementwise"]["sent"] == n * each + 1


def test_messages_of_many_cells_wrap_around_a_small_ring(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, mailbox_size=32).device()
    refs = [device.put([i], dtype="uint8") for i in range(240)]
    lane = device.lane("a")
    for n in (240, 1, 100, 30, 239, 7):
        operands = tuple(operand(f"x{i}", refs[i], READ) for i in range(n))
        plan = lane._plan(an.PlanSpec("noop", operands))
        an.gather(*[plan.ask(*refs[:n]) for _ in range(5)], timeout=30)


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def signals(handler: Callable[[int, object], None], *delays: float) -> Iterator[None]:
    """Send this thread a signal after each of some delays in seconds, until the block ends."""
    old, done = signal.signal(signal.SIGUSR1, handler), threading.Event()
    me = threading.get_ident()

    def send() -> None:
        for delay in delays:
            if done.wait(delay):
                return
            signal.pthread_kill(me, signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGUSR1, old)


@pytest.mark.fake_only(what=["get"])  # the parent waits, and it waits for all alike
@pytest.mark.parametrize("what", ["send", "result", "wait", "get", "gather", "plan"])
def test_signals_are_served_while_blocked(make_system: Make, isolation: str, what: str, tmp_path: Path) -> None:
    device = make_system(isolation=isolation, mailbox_size=32, timeout=None).device()
    lane, x = device.lane("a"), device.put(np.ones(1, "u1"))
    plan = lane.noop().wait()

    def handler(number: int, frame: object) -> None:
        raise Interrupted

    with Gate(lane), Gate(device._memory):
        unbuilt = building_plan(device.lane("b"), tmp_path / "gate", x)
        replies = fill_up(plan)
        blocked: dict[str, Callable[[], object]] = {
            "send": plan.tell,
            "result": replies[-1].result,
            "wait": replies[-1].wait,
            "get": x.numpy,
            "gather": lambda: an.gather(*replies),
            "plan": unbuilt.wait,
        }
        with signals(handler, 0.05), pytest.raises(Interrupted):
            blocked[what]()
        (tmp_path / "gate").touch()
    an.gather(*replies, timeout=30)
    plan.ask().result(30)


def test_signals_do_not_stretch_a_timeout(make_system: Make, isolation: str) -> None:
    device = make_system(isolation=isolation, mailbox_size=32, timeout=0.1).device()
    lane = device.lane("a")
    plan, seen = lane.noop().wait(), []
    with Gate(lane), signals(lambda number, frame: seen.append(1), *[0.01] * 1000):
        replies = fill_up(plan)
        with pytest.raises(an.MailboxFull):
            plan.tell()
        with pytest.raises(an.AskTimeout):
            replies[-1].result(0.1)
    assert seen
    an.gather(*replies, timeout=30)


@pytest.mark.parametrize("timeout", [30.0, None])
def test_blocked_senders_hear_of_the_end(make_system: Make, isolation: str, timeout: float | None) -> None:
    system = make_system(isolation=isolation, mailbox_size=32, timeout=timeout)
    device = system.device()
    lane = device.lane("a")
    plan, errors = lane.noop().wait(), []

    def send() -> None:
        try:
            while True:
                plan.tell()
        except an.AtomrError as error:
            errors.append(type(error))

    gate = Gate(lane)
    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: device.stats()["actors"]["a"]["cells_in_use"] >= 32)
    system.close(0.01)
    for thread in threads:
        thread.join(30)
    gate.open()
    assert errors == [an.ActorStopped] * 3


def test_a_sender_that_blocks_goes_on_after_a_restart(make_system: Make, worker_process: Placement) -> None:
    device = make_system(mailbox_size=32).device()
    lane = device.lane("a")
    x = device.put(np.ones(1), durable=True)
    first = lane._plan(an.PlanSpec("noop", (operand("x", x, READ),))).wait()
    x.wait()
    gate = Gate(lane)
    replies = []
    while (reply := first.offer(x)) is not None:
        replies.append(reply)
    more: list[Any] = []
    thread = threading.Thread(target=lambda: more.extend(first.ask(x) for _ in range(100)))
    thread.start()
    eventually(lambda: device.stats()["actors"]["a"]["claimed"] == 1)
    os.kill(device.worker_pid or 0, signal.SIGKILL)
    thread.join(60)
    assert isinstance(gate.reply.wait(30) and gate.reply.exception(), an.DeviceFault)
    assert an.gather(*replies, *more, timeout=60) == [None] * (len(replies) + 100)
