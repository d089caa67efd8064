"""Messages of elementwise programs, reductions and sorting, for the test that records every operation."""

from __future__ import annotations

from recorded_cases import Case, case, namespace, places

CASES: dict[str, Case] = {
    "elementwise": case(
        lambda d, _, x, row, s: d.elementwise.run("maximum(x, 0) + b * s", x=x, b=row, s=s), "x row", s=(2.0, 0.25)
    ),
    "reduce": case(lambda d, _, x: d.elementwise.reduce("sum", x, axis=0), "x"),
    "cross entropy": case(lambda d, labels, x: d.elementwise.softmax_cross_entropy(x, labels), "x", places),
    "take": case(lambda _, places, x: x.take(places, axis=0), "x", places),
    "sequence": case(lambda d, _, row: d.arange(8, dtype="float32") + row, "row"),
    "sort": case(lambda _, xp, x: xp.sort(x), "x", namespace),
    "scan": case(lambda _, xp, x: xp.cumulative_sum(x, axis=0), "x", namespace),
    "search": case(lambda _, xp, row, other: xp.searchsorted(xp.sort(row), other), "row other", namespace),
}  # fmt: skip
