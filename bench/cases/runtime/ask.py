"""Native no-op ask: the round trip that the runtime itself costs."""

from __future__ import annotations

from bench.harness import Bar, Case, Setup, peers
from bench.harness.common import PLACES, SPIN_US, add_best, asks, burst, device, noop, repeat, rested, timed, waiter

__all__ = ["BARS", "CASES"]


def spinning(setup: Setup) -> None:
    """Send a no-op, wait for its reply, again at once: both sides still spin when the message comes.

    ``plan.ask().result()``, 10 000 a sample for atomr and C, 1000 for the peers. Peers in threads of this process are
    at their best: in every round, the faster of threads where the system puts them, and of all threads on one CPU.
    """
    count, few = setup.count(10_000), setup.count(1000)
    for place in PLACES:
        name = f"atomr {place}"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, timed(asks(plan.ask), count))
    for place in ("threads", "processes"):
        setup.twin(f"C {place}, spin", "pingpong", "--place", place, "--count", count)
    setup.twin("C threads, futex", "pingpong", "--spin-us", 0, "--pin", 0, "--count", few)
    with setup.attempt("multiprocessing.Pipe", kind="peer"):
        setup.add("multiprocessing.Pipe", timed(repeat(setup.enter(peers.pipe_actor()).ask), few))
    for name, make in (("queue.SimpleQueue + Future", peers.queue_actor), ("Pykka", peers.pykka_actor)):
        add_best(setup, name, make, lambda actor: timed(repeat(actor.ask), few), "peer")
    for place, twin in (("process", "C processes, spin"), ("thread", "C threads, spin")):
        setup.ratio(f"atomr {place}", twin)
    setup.ratio("atomr process", "Pykka")


def parked(setup: Setup) -> None:
    """One no-op ask after 1 ms of rest, when lane and completer have parked: both wake-ups are included.

    Each is timed alone; the median of 50 is one sample. The C twins: with the library's own spin budget and pinned to
    two CPUs; and parking at once, placed by the system. Where the system wakes the
    lane on the waiter's own CPU, a waiter that spins keeps the lane from running.
    """
    count = setup.count(50)
    for place in PLACES:
        name = f"atomr {place}"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, rested(waiter(plan.ask), count))
    base = ("--rest-us", 1000, "--count", count)
    for place in ("threads", "processes"):
        setup.twin(
            f"C {place}, spin {SPIN_US} us, pinned apart",
            "pingpong",
            "--place",
            place,
            "--spin-us",
            SPIN_US,
            *base,
        )
    setup.twin("C threads, park at once, not pinned", "pingpong", "--spin-us", 0, "--pin", 0, *base)
    for name, make in (
        ("queue.SimpleQueue + Future", peers.queue_actor),
        ("multiprocessing.Pipe", peers.pipe_actor),
        ("Pykka", peers.pykka_actor),
    ):
        with setup.attempt(name, kind="peer"):
            setup.add(name, rested(setup.enter(make()).ask, count))
    setup.ratio("atomr process", f"C processes, spin {SPIN_US} us, pinned apart")
    setup.ratio("atomr thread", f"C threads, spin {SPIN_US} us, pinned apart")


def ray(setup: Setup) -> None:
    """Ray beside a no-op ask and tell; apart from the other peers, because Ray's daemons use CPU all the time."""
    few = setup.count(500)
    with setup.attempt("Ray ask", kind="peer"):
        actor = setup.shared("ray", peers.ray_actor)
        setup.add("Ray ask", timed(repeat(actor.ask), few))
    with setup.attempt("Ray tell", kind="peer"):
        actor = setup.shared("ray", peers.ray_actor)
        setup.add("Ray tell", burst(repeat(actor.tell), actor.ask, few))
    with setup.attempt("atomr process ask"):
        plan = noop(device(setup, "process"))
        setup.add("atomr process ask", timed(asks(plan.ask), setup.count(10_000)))
    setup.ratio("atomr process ask", "Ray ask")


BARS = (
    *(Bar("no-op ask, spinning", "ask", f"atomr {p}", 1.0, "us", part=p) for p in PLACES),
    *(Bar("no-op ask, parked", "ask_parked", f"atomr {p}", 20.0, "us", part=p) for p in PLACES),
)
CASES = (
    Case("ask", "Native no-op ask, spinning", spinning),
    Case("ask_parked", "Native no-op ask, parked", parked),
    Case("ask_ray", "Native no-op ask beside Ray", ray),
)
