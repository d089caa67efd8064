"""A small case of benchmarks, and the machine, load and result file that tests give it."""

from __future__ import annotations

import random

from bench.harness import Case, Effort, Setup, Unavailable, documents, machine, run_case

MACHINE = {
    "date": "2026-01-02T03:04:05Z",
    "devices": ["host"],
    "cpu": "Some(R) CPU E5 v3 @ 2.30GHz",
    "cores": 2,
    "kernel": "6.1",
    "python": "3.11.0",
    "libraries": {"numpy": "2.0"},
    "commit": "0123456789abcdef",
    "dirty": False,
}
FACTS = {
    "name": "Some GPU 5000",
    "uuid": "0123456789abcdef0123456789abcdef",
    "compute_capability": (9, 0),
    "multiprocessors": 7,
    "driver_version": 13020,
    "total_memory": 3 << 30,
}
IDLE = machine.Load(0.0, 0.0, 0.0, 0.0, 2)


def small(setup: Setup) -> None:
    """Three that work, one that is missing, one that cannot start, one that breaks later."""
    for name, value in (("atomr process", 1.0), ("twin", 2.0)):
        with setup.attempt(name):
            setup.add(name, lambda value=value: value)
    with setup.attempt("phased"):
        setup.add("phased", lambda: {"first": 1.0, "second": 2.0})
    with setup.attempt("missing", kind="peer"):
        raise Unavailable("not installed")
    with setup.attempt("broken"):
        raise ZeroDivisionError("no")
    with setup.attempt("later"):
        calls = iter([1.0, 1.0])
        setup.add("later", lambda: next(calls))
    setup.ratio("atomr process", "twin")
    setup.ratio("atomr process", "missing")


SMALL = Case("ask", "A small case", small)


def document() -> dict[str, object]:
    """Return the content of a result file."""
    result = run_case(SMALL, Effort.QUICK, random.Random(4))
    return documents.document([result], MACHINE, IDLE, Effort.QUICK, seed=4, forced=False)
