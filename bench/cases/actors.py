"""Actors written in Python: ask, tell and await, beside other libraries' actors in threads of one process."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench import peers
from bench.cases._common import asks, awaited, burst, repeat, rested, timed, waiter
from bench.harness import Case, Setup, Unavailable

__all__ = ["CASES"]

_PEERS = (("queue.SimpleQueue + Future", peers.queue_actor), ("Pykka", peers.pykka_actor))


@contextmanager
def _idle(*, asynchronous: bool = False) -> Iterator[Any]:
    """The smallest actor, without a bound on its mailbox, in a System without devices."""
    try:
        an = importlib.import_module("atomr_native")
    except ImportError as error:
        raise Unavailable(f"atomr_native does not import: {error}") from error

    class Idle(an.Actor):  # type: ignore[misc,name-defined]
        def receive(self, message: object) -> None:
            """Do nothing."""

    class IdleAsync(an.Actor):  # type: ignore[misc,name-defined]
        async def receive(self, message: object) -> None:
            """Do nothing."""

    with an.System() as system:
        ref = system.spawn(IdleAsync if asynchronous else Idle, mailbox=an.Mailbox(None))
        ref.ask("ready").result(60)
        yield ref


def ask(setup: Setup) -> None:
    """Ask an actor that does nothing, wait for the answer, again at once: ``ref.ask(message).result()``.

    2000 a sample for atomr, 500 for the peers and for the actor whose `receive` is a coroutine function.
    """
    many, few = setup.count(2000), setup.count(500)
    for name, asynchronous, count in (("atomr", False, many), ("atomr, async receive", True, few)):
        with setup.attempt(name):
            ref = setup.enter(_idle(asynchronous=asynchronous))
            setup.add(name, timed(asks(lambda ref=ref: ref.ask("ask")), count))
    for name, make in _PEERS:
        with setup.attempt(name, kind="peer"):
            setup.add(name, timed(repeat(setup.enter(make()).ask), few))
    setup.ratio("atomr", "Pykka")
    setup.ratio("atomr", "queue.SimpleQueue + Future")


def parked(setup: Setup) -> None:
    """One ask after 1 ms of rest, when the actor has parked; each is timed alone, the median of 50 is one sample."""
    count = setup.count(50)
    with setup.attempt("atomr"):
        ref = setup.enter(_idle())
        setup.add("atomr", rested(waiter(lambda: ref.ask("ask")), count))
    for name, make in _PEERS:
        with setup.attempt(name, kind="peer"):
            setup.add(name, rested(setup.enter(make()).ask, count))
    setup.ratio("atomr", "Pykka")


def tell(setup: Setup) -> None:
    """Cost to the caller of telling an actor, 2000 a sample into a mailbox without a bound; draining is outside."""
    count = setup.count(2000)
    with setup.attempt("atomr"):
        ref = setup.enter(_idle())
        setup.add("atomr", burst(repeat(lambda: ref.tell("tell")), waiter(lambda: ref.ask("ask")), count))
    for name, make in _PEERS:
        with setup.attempt(name, kind="peer"):
            actor = setup.enter(make())
            setup.add(name, burst(repeat(actor.tell), actor.ask, count))
    setup.ratio("atomr", "Pykka")


def await_(setup: Setup) -> None:
    """Latency of ``await ref.ask(message)``, one after the other in one coroutine; 500 a sample."""
    count = setup.count(500)
    with setup.attempt("atomr"):
        ref = setup.enter(_idle())
        loop = setup.shared("loop", peers.event_loop)
        setup.add("atomr", awaited(loop, lambda: ref.ask("ask"), count))
    with setup.attempt("xoscar, same process", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        setup.add("xoscar, same process", awaited(loop, setup.enter(peers.xoscar_actor(loop)).ask, count))
    with setup.attempt("asyncio run_in_executor", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        setup.add("asyncio run_in_executor", awaited(loop, setup.enter(peers.executor_ask(loop)).ask, count))


CASES = (
    Case("actor_ask", "Ask a Python actor", ask),
    Case("actor_ask_parked", "Ask a Python actor, parked", parked),
    Case("actor_tell", "Tell a Python actor", tell),
    Case("actor_await", "Await a Python actor", await_),
)
