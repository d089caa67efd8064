"""Bounded mailboxes of actors: what senders meet when they are full, and that nobody deadlocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.testing import Deterministic, Probe


class Echo(an.Actor):
    def receive(self, message: Any) -> Any:
        return message


class Gated(an.Actor):
    """Waits for its gate at each message, and keeps them."""

    def __init__(self, gate: threading.Event, seen: list[Any]) -> None:
        self.gate, self.seen = gate, seen

    def receive(self, message: Any) -> Any:
        self.gate.wait(30)
        self.seen.append(message)
        return message


@pytest.fixture
def system(nothing_left: None) -> Iterator[an.System]:
    with an.System(timeout=0.05) as made:
        yield made


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    made = threading.Event()
    yield made
    made.set()


def fill(ref: an.ActorRef, number: int) -> None:
    """Have one message at work and `number` waiting."""
    ref.tell("at work")
    eventually(lambda: ref.stats()["processed"] == 1)
    for i in range(number):
        ref.tell(i)


def test_rejecting(system: an.System, gate: threading.Event) -> None:
    seen: list[Any] = []
    ref = system.spawn(Gated, gate, seen, name="full", mailbox=an.Mailbox(2, "reject"))
    fill(ref, 2)
    with pytest.raises(an.MailboxFull, match=r"/full is full \(2 messages\)") as caught:
        ref.tell("more")
    assert caught.value.actor == "/full"
    assert caught.value.capacity == 2
    assert ref.try_tell("more") is False
    answer = ref.ask("more")
    with pytest.raises(an.MailboxFull):
        answer.result(0)
    assert not system.dead_letters  # each sender knows
    gate.set()
    ref.stop()
    assert ref.join(10)
    assert seen == ["at work", 0, 1]


def test_blocking_until_the_timeout(system: an.System, gate: threading.Event) -> None:
    ref = system.spawn(Gated, gate, [], mailbox=an.Mailbox(2))
    fill(ref, 2)
    with pytest.raises(an.MailboxFull, match=r"no room within 0\.05 s"):
        ref.tell("more")
    with pytest.raises(an.MailboxFull):
        ref.ask("more").result(0)


def test_back_pressure_reaches_the_producer(nothing_left: None) -> None:
    seen: list[int] = []
    gate = threading.Event()
    with an.System(timeout=None) as system:
        ref = system.spawn(Gated, gate, seen, mailbox=an.Mailbox(4))
        sent: list[int] = []

        def produce() -> None:
            for i in range(100):
                ref.tell(i)
                sent.append(i)

        thread = threading.Thread(target=produce)
        thread.start()
        eventually(lambda: len(sent) == 5)  # one at work, four waiting
        thread.join(0.1)
        assert len(sent) == 5
        gate.set()
        thread.join(30)
        assert len(sent) == 100
    assert seen == list(range(100))


def test_a_producer_that_waits_learns_of_the_end(nothing_left: None, gate: threading.Event) -> None:
    with an.System(timeout=None) as system:
        ref = system.spawn(Gated, gate, [], mailbox=an.Mailbox(1))
        fill(ref, 1)
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(ref.tell("x"))),
            threading.Thread(target=lambda: results.append(ref.ask("x").exception())),
        ]
        for thread in threads:
            thread.start()
        threads[0].join(0.05)
        ref.kill()
        for thread in threads:
            thread.join(30)
        assert {type(result) for result in results} == {bool, an.ActorStopped}
        gate.set()


def test_a_coroutine_that_waits_learns_of_the_end(nothing_left: None, gate: threading.Event) -> None:
    async def main(system: an.System) -> None:
        ref = system.spawn(Gated, gate, [], mailbox=an.Mailbox(1))
        fill(ref, 1)
        told, asked = asyncio.ensure_future(ref.tell_async("x")), asyncio.ensure_future(ref.ask_async("x"))
        while len(ref.cell.rooms) < 2:
            await asyncio.sleep(0.001)
        ref.kill()  # it is still at its message
        assert not await asyncio.wait_for(told, 10)
        with pytest.raises(an.ActorStopped):
            await asyncio.wait_for(asked, 10)

    with an.System(timeout=None) as system:
        asyncio.run(main(system))
        gate.set()


def test_dropping_the_oldest(system: an.System, gate: threading.Event) -> None:
    seen: list[Any] = []
    ref = system.spawn(Gated, gate, seen, name="ring", mailbox=an.Mailbox(3, "drop_oldest"))
    ref.tell("at work")
    eventually(lambda: ref.stats()["processed"] == 1)
    asked = ref.ask("asked")
    for i in range(5):
        assert ref.tell(i)
    with pytest.raises(an.MailboxFull, match="its oldest"):
        asked.result(0)
    assert [letter.text for letter in system.dead_letters] == ["0", "1"]
    gate.set()
    ref.stop()
    assert ref.join(10)
    assert seen == ["at work", 2, 3, 4]


@pytest.mark.parametrize("overflow", ["block", "reject"])
def test_a_full_mailbox_neither_blocks_nor_kills_an_actor(
    system: an.System, gate: threading.Event, overflow: Any
) -> None:
    class Sender(an.Actor):
        def __init__(self, to: an.ActorRef) -> None:
            self.to = to

        def receive(self, message: Any) -> Any:
            answer = self.to.ask(message)
            return self.to.tell(message), self.to.try_tell(message), type(answer.exception())

    ref = system.spawn(Gated, gate, [], name="full", mailbox=an.Mailbox(1, overflow))
    fill(ref, 1)
    sender = system.spawn(Sender, ref, name="sender")
    assert sender.ask("x").result(10) == (False, False, an.MailboxFull)
    assert sender.stats()["failed"] == 0
    (letter,) = system.dead_letters
    assert (letter.actor, letter.sender) == ("/full", "/sender")
    assert isinstance(letter.error, an.MailboxFull)


def test_two_actors_that_flood_each_other_do_not_deadlock(system: an.System) -> None:
    class Flood(an.Actor):
        other: an.ActorRef

        def receive(self, message: Any) -> Any:
            if isinstance(message, an.ActorRef):
                self.other = message
            elif message > 0:
                for _ in range(3):
                    self.other.tell(message - 1)
            return message

    a = system.spawn(Flood, mailbox=an.Mailbox(2))
    b = system.spawn(Flood, mailbox=an.Mailbox(2))
    a.ask(b).result(10)
    b.ask(a).result(10)
    a.tell(12)
    b.tell(12)
    for ref in (a, b):
        eventually(lambda ref=ref: ref.stats()["mailbox"] == 0)
        assert ref.stats()["failed"] == 0


def test_system_messages_overtake_a_full_mailbox(system: an.System, gate: threading.Event) -> None:
    ref = system.spawn(Gated, gate, [], mailbox=an.Mailbox(2))
    fill(ref, 2)
    watcher = Probe(system)
    watcher.watch(ref)
    ref.kill()
    gate.set()
    watcher.expect_terminated(ref)


def test_coroutines_await_room(nothing_left: None) -> None:
    seen: list[Any] = []
    gate = threading.Event()
    with an.System(timeout=30) as system:
        ref = system.spawn(Gated, gate, seen, mailbox=an.Mailbox(2))
        ticks = 0

        async def produce(first: int) -> list[Any]:
            for i in range(first, first + 20):
                assert await ref.tell_async(i)
            return [await ref.ask_async(f"asked {first}")]

        async def main() -> list[Any]:
            nonlocal ticks
            tasks = [asyncio.ensure_future(produce(first)) for first in (0, 100)]
            for _ in range(5):
                await asyncio.sleep(0.01)
                ticks += 1
            gate.set()
            return [value for values in await asyncio.gather(*tasks) for value in values]

        assert sorted(asyncio.run(main())) == ["asked 0", "asked 100"]
        assert ticks == 5  # the loop was not blocked
    numbers = [m for m in seen if isinstance(m, int)]
    assert [m for m in numbers if m < 100] == list(range(20))
    assert [m for m in numbers if m >= 100] == list(range(100, 120))


def test_coroutines_that_find_no_room(system: an.System, gate: threading.Event) -> None:
    ref = system.spawn(Gated, gate, [], mailbox=an.Mailbox(1))
    fill(ref, 1)

    async def main() -> None:
        with pytest.raises(an.MailboxFull, match=r"no room within|is full"):
            await ref.tell_async("x")
        with pytest.raises(an.MailboxFull):
            await ref.ask_async("x")
        with pytest.raises(an.MailboxFull):
            ref.tell("an event loop is not blocked")
        ref.kill()
        assert await ref.tell_async("x") is False
        with pytest.raises(an.ActorStopped):
            await ref.ask_async("x")

    asyncio.run(main())


def test_mailboxes_of_the_system() -> None:
    with Deterministic(mailbox_size=64, mailbox="reject") as sim:
        ref = sim.system.spawn(Echo)
        assert ref.stats()["capacity"] == 64
        for i in range(64):
            ref.tell(i)
        with pytest.raises(an.MailboxFull):
            ref.tell(64)
        assert sim.system.spawn(Echo, mailbox=an.Mailbox(None)).stats()["capacity"] is None
    for options in ({"capacity": 0}, {"capacity": 1.5}, {"capacity": True}, {"overflow": "explode"}):
        with pytest.raises(an.InvalidRequest):
            an.Mailbox(**options)  # type: ignore[arg-type]


def test_a_stepped_sender_makes_room_itself() -> None:
    with Deterministic() as sim:
        ref = sim.system.spawn(Echo, mailbox=an.Mailbox(2))
        for i in range(20):
            ref.tell(i)
        assert ref.ask(3).result() == 3
