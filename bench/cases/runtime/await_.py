"""Awaiting a reply on an asyncio loop."""

from __future__ import annotations

from bench.harness import Bar, Case, Setup, peers
from bench.harness.common import PLACES, awaited, device, noop

__all__ = ["BARS", "CASES"]


def build(setup: Setup) -> None:
    """Latency of ``await plan.ask()`` for a native no-op, one after the other in one coroutine; 500 a sample.

    The standard asyncio loop.  Included: the send, the completion, waking the loop and resuming the coroutine.
    """
    count = setup.count(500)
    for place in PLACES:
        name = f"atomr {place}"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            loop = setup.shared("loop", peers.event_loop)
            setup.add(name, awaited(loop, plan.ask, count))
    with setup.attempt("xoscar, same process", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        ask = setup.enter(peers.xoscar_actor(loop)).ask
        setup.add("xoscar, same process", awaited(loop, ask, count))
    with setup.attempt("asyncio run_in_executor", kind="peer"):
        loop = setup.shared("loop", peers.event_loop)
        ask = setup.enter(peers.executor_ask(loop)).ask
        setup.add("asyncio run_in_executor", awaited(loop, ask, count))
    setup.ratio("atomr process", "xoscar, same process")


BARS = (*(Bar("await", "await", f"atomr {p}", 40.0, "us", part=p) for p in PLACES),)
CASES = (Case("await", "await plan.ask()", build),)
