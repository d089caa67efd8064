"""The table of a device's plans: what it takes from a worker, which is untrusted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from atomr_native.plans.spec import PlanSpec
from atomr_native.plans.table import PlanRecord, PlanTable

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.mark.parametrize(
    ("done", "total", "passed"),
    [
        (0, 0, True), (2, 5, True), (5, 5, True), (6, 5, False), (-1, 5, False), (0, -1, False), (True, 5, False),
        (0, 2**20, True), (0, 2**20 + 1, False), (2.0, 5, False), (None, 5, False), (0, "5", False),
    ],
)  # fmt: skip
def test_progress_is_passed_on_within_its_range(done: object, total: object, passed: bool) -> None:
    table = PlanTable(cast("Any", SimpleNamespace(name="cuda:0")))
    spec = PlanSpec("op", ())
    table._records[7] = PlanRecord(7, 0, spec)
    seen: list[tuple[int, int, str]] = []
    table.watchers[spec] = lambda *step: seen.append(step)
    table.progressed({"plan": 7, "done": done, "total": total, "text": "half"})
    assert seen == ([(done, total, "half")] if passed else [])
    table.progressed({"plan": 8, "done": 0, "total": 1})
    table.progressed({"plan": "7", "done": 0, "total": 1})
    assert len(seen) == passed
