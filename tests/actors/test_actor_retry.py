"""Messages to actors that are sent again when the death of a device's worker is why they have failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from actions import eventually

import atomr_native as an
from atomr_native.patterns import Batcher, Cascade, FairShare, ForTenant, Mixture

pytestmark = [pytest.mark.plain, pytest.mark.alike]


class Flaky(an.Actor):
    """Fails with an error, a number of times in all, and then gives what a function makes of its message."""

    supervision = an.OneForOne({Exception: "resume"})

    def __init__(
        self, failures: int, make: Callable[[Any], Any] = lambda message: message, error: Exception | None = None
    ) -> None:
        self.failures, self.make = failures, make
        self.error = an.DeviceFault("the worker died") if error is None else error
        self.seen: list[Any] = []

    def receive(self, message: Any) -> Any:
        if message == "seen":
            return self.seen
        self.seen.append(message)
        if self.failures:
            self.failures -= 1
            return self.context.fail(self.error)
        return self.make(message)


class Gated(Flaky):
    """Waits before it handles a message."""

    gate = threading.Event()

    def receive(self, message: Any) -> Any:
        self.gate.wait(30)
        return super().receive(message)


def test_an_ask_is_sent_again(system: an.System) -> None:
    ref = system.spawn(Flaky, 2)
    assert ref.ask("a", retry=2).result(30) == "a"
    assert ref.ask("seen").result(30) == ["a", "a", "a"]


@pytest.mark.parametrize("retry", [0, 1])
def test_the_number_is_bounded(system: an.System, retry: int) -> None:
    ref = system.spawn(Flaky, 2)
    with pytest.raises(an.DeviceFault):
        ref.ask("a", retry=retry).result(30)
    assert ref.ask("seen").result(30) == ["a"] * (1 + retry)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), an.DeviceFault("gone", restarted=False), an.GpuRefStale("x", "freed"), an.DeviceLost("x")],
)
def test_other_errors_are_not(system: an.System, error: Exception) -> None:
    ref = system.spawn(Flaky, 1, error=error)
    with pytest.raises(type(error)):
        ref.ask("a", retry=5).result(30)
    assert ref.ask("seen").result(30) == ["a"]


def test_it_has_its_place_in_a_full_mailbox(system: an.System) -> None:
    ref = system.spawn(Gated, 1, mailbox=an.Mailbox(1, "reject"))
    Gated.gate.clear()
    first = ref.ask("a", 30, retry=1)
    eventually(lambda: ref.stats()["mailbox"] == 0)  # it is being handled
    second = ref.ask("b", 30)
    with pytest.raises(an.MailboxFull):
        ref.ask("c").result(30)
    Gated.gate.set()
    assert an.gather(first, second) == ["a", "b"]
    assert ref.ask("seen").result(30) == ["a", "b", "a"]


def test_awaited(system: an.System) -> None:
    ref = system.spawn(Flaky, 1)
    assert asyncio.run(ref.ask_async("a", 30, retry=1)) == "a"
    other = system.spawn(Flaky, 1)
    with pytest.raises(an.DeviceFault):
        asyncio.run(other.ask_async("a", 30))


def test_pools(system: an.System) -> None:
    pool = system.pool(Flaky, 1, size=3)
    assert pool.ask("a", 30, retry=3).result() == "a"
    everybody = system.pool(Flaky, 1, size=2, routing="broadcast")
    assert everybody.ask("b", 30, retry=1).result() == ["b", "b"]


def test_pipelines(system: an.System) -> None:
    stages = [system.spawn(Flaky, 1, lambda x: x + 1), system.spawn(Flaky, 2, lambda x: 10 * x)]
    assert an.Pipeline(stages, retry=2).submit(1).result(30) == 20
    with pytest.raises(an.DeviceFault):
        an.Pipeline([system.spawn(Flaky, 1)]).submit(1).result(30)


def test_patterns(system: an.System) -> None:
    batcher = system.spawn(Batcher, system.spawn(Flaky, 1), max_size=2, retry=1)
    assert an.gather(batcher.ask(1), batcher.ask(2), timeout=30) == [1, 2]
    left = iter([True, False])

    def function(items: list[Any]) -> list[Any]:
        if next(left, False):
            raise an.DeviceFault("the worker died")
        return items

    assert system.spawn(Batcher, function, max_size=1, retry=1).ask(3).result(30) == 3
    cascade = system.spawn(Cascade, [system.spawn(Flaky, 1, lambda x: (x, 1.0))], retry=1)
    assert cascade.ask(4).result(30).value == 4
    mixture = system.spawn(Mixture, [system.spawn(Flaky, 1)], lambda _: [1.0], top_k=1, retry=1)
    assert mixture.ask(5.0).result(30) == 5
    share = system.spawn(FairShare, system.spawn(Flaky, 1), {"t": 1.0}, retry=1)
    assert share.ask(ForTenant("t", 6)).result(30) == 6


@pytest.mark.parametrize("retry", [-1, 1.5, "2"])
def test_other_numbers_are_refused(system: an.System, retry: Any) -> None:
    ref = system.spawn(Flaky, 0)
    for use in (
        lambda: ref.ask("a", retry=retry), lambda: system.pool(Flaky, 0, size=1).ask("a", retry=retry),
        lambda: an.Pipeline([ref], retry=retry), lambda: asyncio.run(ref.ask_async("a", retry=retry)),
    ):  # fmt: skip
        with pytest.raises(an.InvalidRequest, match="retry="):
            use()
