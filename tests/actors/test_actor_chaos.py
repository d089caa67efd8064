"""Actors in threads that fail, restart, stop and are killed at random: every message is accounted for, once."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from actions import eventually
from leaks import Baseline

import atomr_native as an

instances = itertools.count()  # no two behave alike, or one that cannot be constructed would never be
SENDERS = 3
MESSAGES = 400


class Fragile(an.Actor):
    def __init__(self, seen: list[Any], rate: float) -> None:
        self.seen, self.rate = seen, rate
        self.random = random.Random(next(instances))
        if self.random.random() < rate / 4:
            raise OSError("in the constructor")

    def receive(self, message: Any) -> Any:
        self.seen.append(message)
        if self.random.random() < self.rate:
            raise ValueError("at random")
        if self.random.random() < 0.01:
            self.context.stash()
            self.context.unstash_all()
            self.seen.pop()  # it comes again
            return None
        return message


class FragileAsync(Fragile):
    reentrant = 2

    async def receive(self, message: Any) -> Any:
        self.seen.append(message)
        if self.random.random() < 0.2:
            await asyncio.sleep(0)
        if self.random.random() < self.rate:
            raise ValueError("at random")
        return message


class Boss(an.Actor):
    supervision = an.AllForOne({OSError: "escalate"}, max_restarts=None, backoff=0.0)

    def __init__(self, kind: type[Fragile], seen: list[Any], refs: list[an.ActorRef]) -> None:
        for _ in range(2):
            refs.append(self.context.spawn(kind, seen, 0.02, mailbox=an.Mailbox(32)))

    def receive(self, message: Any) -> None: ...


@pytest.mark.parametrize("kind", [Fragile, FragileAsync])
@pytest.mark.parametrize("seed", range(3))
def test_every_message_is_accounted_for(kind: type[Fragile], seed: int) -> None:
    seen: list[Any] = []
    letters: list[Any] = []
    sent: list[Any] = []
    asked: list[tuple[Any, an.Answer]] = []
    refs: list[an.ActorRef] = []
    with an.System(timeout=None, seed=seed) as system:
        system.dead_letters.subscribe(lambda letter: letters.append(letter.message))
        strategy = an.OneForOne({KeyError: "stop"}, max_restarts=None, backoff=0.0)
        for _ in range(3):
            refs.append(system.spawn(kind, seen, 0.05, supervision=strategy, mailbox=an.Mailbox(16)))
        system.spawn(Boss, kind, seen, refs, supervision=an.OneForOne(max_restarts=None, backoff=0.0))

        def send(sender: int) -> None:
            chance = random.Random((seed, sender).__hash__())
            for i in range(MESSAGES):
                ref = chance.choice(refs)
                message = (sender, i)
                sent.append(message)
                if chance.random() < 0.5:
                    asked.append((message, ref.ask(message)))
                else:
                    ref.tell(message)
                if chance.random() < 0.005:
                    chance.choice([ref.stop, ref.kill])()
                    refs.append(system.spawn(kind, seen, 0.05, supervision=strategy, mailbox=an.Mailbox(16)))

        threads = [threading.Thread(target=send, args=(i,)) for i in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        system.close(30)
    refused = 0
    for message, answer in asked:
        assert answer.done()
        error = answer.exception()
        if error is None:
            assert answer.result(0) == message
        elif isinstance(error, an.ActorStopped):
            refused += 1
        else:
            assert isinstance(error, ValueError)
    times = Counter(seen)
    assert max(times.values()) == 1
    stopped = {message for message, answer in asked if isinstance(answer.exception(), an.ActorStopped)}
    assert not stopped & set(letters)
    # What no actor has seen was refused to who asked, or is a dead letter; nothing is missing.  A coroutine that was
    # cancelled has seen its message, and its asker was told.
    assert set(sent) == set(seen) | set(letters) | stopped
    assert not set(letters) & set(seen)


class Ticking(an.Actor):
    """Has timers, watches another, fails now and then, all with a mailbox that is always full."""

    def __init__(self, notes: Counter[str], watched: an.ActorRef) -> None:
        self.notes = notes
        if not notes["made"]:  # a watch outlives a restart
            self.context.watch(watched)
        notes["made"] += 1
        self.context.timers.start_periodic(0.0005, "tick")

    def receive(self, message: Any) -> Any:
        self.notes[message if isinstance(message, str) else type(message).__name__] += 1
        if isinstance(message, tuple) and message[1] % 97 == 96:
            raise ValueError("now and then")
        return message


def test_a_mailbox_that_drops_its_oldest_loses_neither_answers_nor_what_the_library_sends() -> None:
    notes: Counter[str] = Counter()
    letters: list[Any] = []
    asked: list[tuple[Any, an.Answer]] = []
    with an.System() as system:
        system.dead_letters.subscribe(lambda letter: letters.append(letter.message))
        watched = system.spawn(Fragile, [], 0.0)
        ref = system.spawn(
            Ticking, notes, watched, name="ticking", mailbox=an.Mailbox(4, "drop_oldest"),
            supervision=an.OneForOne(max_restarts=None, backoff=0),
        )  # fmt: skip
        ref.started.result(10)

        def send(sender: int) -> None:
            for i in range(MESSAGES):
                if i % 2:
                    assert ref.tell((sender, i))
                else:
                    asked.append(((sender, i), ref.ask((sender, i))))
                if (sender, i) == (0, MESSAGES // 2):
                    watched.kill()

        threads = [threading.Thread(target=send, args=(i,)) for i in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        eventually(lambda: ref.stats()["mailbox"] == 0 and notes["Terminated"])
        eventually(lambda ticks=notes["tick"]: notes["tick"] > ticks)
    dropped = 0
    for message, answer in asked:
        error = answer.exception()
        dropped += isinstance(error, an.MailboxFull)
        assert answer.result(0) == message if error is None else isinstance(error, ValueError | an.MailboxFull)
    assert notes["Terminated"] == 1
    assert notes["tuple"] + dropped + len(letters) == SENDERS * MESSAGES


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = Baseline()
    yield
    before.check()
