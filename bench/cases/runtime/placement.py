"""Process placement beside thread placement: the price of isolation."""

from __future__ import annotations

from bench.cases.runtime.batch import batched
from bench.cases.runtime.tell import matmul_tell
from bench.harness import Bar, Case, Setup
from bench.harness.common import asks, burst, device, noop, timed, waiter

__all__ = ["BARS", "CASES"]

WORKS = ("ask", "batch of 100", "planned tell")


def build(setup: Setup) -> None:
    """The same three measurements in both placements, in the same rounds; the ratios are the result.

    A no-op ask (10 000 a sample), batches of 100 no-ops (10 000 messages), and the cost of a planned tell with three
    handles (10 000).  In thread placement the host device's matmul shares the interpreter with the sender.
    """
    count = setup.count(10_000)
    for place in ("process", "thread"):
        name = f"{place}, ask"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, timed(asks(plan.ask), count))
        name = f"{place}, batch of 100"
        with setup.attempt(name):
            plan = noop(device(setup, place))
            setup.add(name, batched(plan.tell, waiter(plan.ask), 100, max(1, count // 100)))
        name = f"{place}, planned tell"
        with setup.attempt(name):
            body, _, _, drain = matmul_tell(device(setup, place))
            setup.add(name, burst(body, drain, count))
    for work in WORKS:
        setup.ratio(f"process, {work}", f"thread, {work}")


BARS = (
    *(
        Bar("process over thread", "placement", f"process, {work}", 1.10, "x", under=f"thread, {work}", part=work)
        for work in WORKS
    ),
)
CASES = (Case("placement", "Process over thread placement", build),)
