"""Actors written in Python: ask, tell and await, beside other libraries' actors in threads of one process."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases.actors._idle import idle, measures
from bench.harness import Bar, Case, Setup, peers, rebuilt
from bench.harness.common import add_best, asks, awaited, burst, repeat, rested, timed, waiter

__all__ = ["BARS", "CASES"]

#: Program that measures an idle actor in a process of its own.
SERVER = "bench.cases.actors._idle"
_PEERS = (("queue.SimpleQueue + Future", peers.queue_actor), ("Pykka", peers.pykka_actor))


def _asking(count: int, ref: Any) -> Callable[[], float]:
    return timed(asks(lambda: ref.ask("ask")), count)


def ask(setup: Setup) -> None:
    """Ask an actor that does nothing, wait for the answer, again at once: ``ref.ask(message).result()``.

    2000 a sample for atomr, 500 for the peers and for the actor whose `receive` is a coroutine function. Each at its
    best: in every round, the faster of threads where the system puts them, and of all threads on one CPU.
    """
    many, few = setup.count(2000), setup.count(500)
    for name, asynchronous, count in (("atomr", False, many), ("atomr, async receive", True, few)):
        add_best(setup, name, partial(idle, asynchronous=asynchronous), partial(_asking, count))
    for name, make in _PEERS:
        add_best(setup, name, make, lambda actor: timed(repeat(actor.ask), few), "peer")
    setup.ratio("atomr", "Pykka")
    setup.ratio("atomr", "queue.SimpleQueue + Future")


def parked(setup: Setup) -> None:
    """One ask after 1 ms of rest, when the actor has parked; each is timed alone, the median of 50 is one sample."""
    count = setup.count(50)
    with setup.attempt("atomr"):
        ref = setup.enter(idle())
        setup.add("atomr", rested(waiter(lambda: ref.ask("ask")), count))
    for name, make in _PEERS:
        with setup.attempt(name, kind="peer"):
            setup.add(name, rested(setup.enter(make()).ask, count))
    setup.ratio("atomr", "Pykka")


def tell(setup: Setup) -> None:
    """Cost to the caller of telling an actor, 2000 a sample into a mailbox without a bound; draining is outside."""
    count = setup.count(2000)
    with setup.attempt("atomr"):
        ref = setup.enter(idle())
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
        ref = setup.enter(idle())
        loop = setup.shared("loop", peers.event_loop)
        setup.add("atomr", awaited(loop, lambda: ref.ask("ask"), count))
    with setup.attempt("xoscar, same process", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        setup.add("xoscar, same process", awaited(loop, setup.enter(peers.xoscar_actor(loop)).ask, count))
    with setup.attempt("asyncio run_in_executor", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        setup.add("asyncio run_in_executor", awaited(loop, setup.enter(peers.executor_ask(loop)).ask, count))


def await_tell(setup: Setup) -> None:
    """Cost of ``await ref.tell_async(message)`` to the caller, which waits only for room; 500 a sample."""
    count = setup.count(500)
    with setup.attempt("atomr"):
        ref = setup.enter(idle())
        loop = setup.shared("loop", peers.event_loop)
        setup.add("atomr", awaited(loop, lambda: ref.tell_async("tell"), count))
    with setup.attempt("xoscar, same process", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        setup.add("xoscar, same process", awaited(loop, setup.enter(peers.xoscar_actor(loop)).tell, count))
    setup.ratio("atomr", "xoscar, same process")


def ray(setup: Setup) -> None:
    """A Python actor beside Ray's, in a process of its own; apart from the others, since Ray's daemons use CPU."""
    few = setup.count(500)
    with setup.attempt("Ray ask", kind="peer"):
        setup.add("Ray ask", timed(repeat(setup.shared("ray", peers.ray_actor).ask), few))
    with setup.attempt("Ray tell", kind="peer"):
        actor = setup.shared("ray", peers.ray_actor)
        setup.add("Ray tell", burst(repeat(actor.tell), actor.ask, few))
    for number, name in enumerate(("atomr ask", "atomr tell")):
        with setup.attempt(name):
            setup.add(name, measures(setup.shared("idle", idle))[number](setup.count(2000)))
    setup.ratio("atomr ask", "Ray ask")
    setup.ratio("atomr tell", "Ray tell")


def tracing(setup: Setup) -> None:
    """What looking costs: 5000 asks, or 20 000 tells into a mailbox without a bound, a sample.

    "off" is the package as it is: it counts, and no trace runs.  "trace running" records each message; beginning and
    writing the trace are outside.  The others are processes of their own that differ in the module of actors only,
    which all of them compile in the same way: as it is, twice, whose ratio says what the method can tell apart; without
    counters; and also without the two comparisons that look for a trace.
    """
    for number, (what, full) in enumerate((("ask", 5000), ("tell", 20_000))):
        count = setup.count(full)
        with setup.attempt(f"{what}, off"):
            setup.add(f"{what}, off", measures(setup.shared("idle", idle))[number](count))
        with setup.attempt(f"{what}, trace running"):
            ref = setup.shared("idle", idle)
            setup.add(f"{what}, trace running", _traced(ref, measures(ref)[number](count)))
        for name, build in (
            ("as it is", "as it is"),
            ("as it is, again", "as it is"),
            ("without counters", "without counters"),
            ("without counters and hooks", "without counters and hooks"),
        ):
            with setup.attempt(f"{what}, {name}"):
                process = setup.shared(name, lambda build=build: rebuilt.remote(build, SERVER))  # type: ignore[misc]
                setup.add(f"{what}, {name}", process.sample(what, count))
        setup.ratio(f"{what}, trace running", f"{what}, off")
        setup.ratio(f"{what}, as it is, again", f"{what}, as it is")
        setup.ratio(f"{what}, as it is", f"{what}, without counters")
        setup.ratio(f"{what}, without counters", f"{what}, without counters and hooks")


def _traced(ref: Any, sample: Callable[[], float]) -> Callable[[], float]:
    def traced() -> float:
        trace = importlib.import_module("atomr_native").observe.trace
        with tempfile.TemporaryDirectory() as folder, trace(Path(folder) / "trace.json", ref.system):
            return sample()

    return traced


BARS = (
    Bar("ask of a Python actor over Pykka's", "actor_ask", "atomr", 0.333, "x", under="Pykka"),
    *(
        Bar(
            "counters of a Python actor",
            "actor_tracing",
            f"{what}, as it is",
            1.02,
            "x",
            under=f"{what}, without counters",
            part=what,
        )
        for what in ("ask", "tell")
    ),
)
CASES = (
    Case("actor_ask", "Ask a Python actor", ask),
    Case("actor_ask_parked", "Ask a Python actor, parked", parked),
    Case("actor_tell", "Tell a Python actor", tell),
    Case("actor_await", "Await a Python actor", await_),
    Case("actor_tell_await", "Tell a Python actor from a coroutine", await_tell),
    Case("actor_ray", "A Python actor beside Ray's", ray),
    Case("actor_tracing", "What counters and traces cost a Python actor", tracing),
)
