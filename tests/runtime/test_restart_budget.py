"""Pauses between restarts, and their budget, by a clock of the test's own: nothing waits, and no worker runs."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock

from atomr_native.errors import AtomrError, DeviceLost
from atomr_native.runtime import restart

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(restart, "time", made)
    return made


class Restarts:
    """A starter whose workers fail as often as the test says."""

    def __init__(self, clock: Clock, *, max_restarts: int, within: float) -> None:
        self._clock = clock
        config = SimpleNamespace(max_restarts=max_restarts, within=within)
        owner: Any = SimpleNamespace(core=None, config=config, name="host", facts={"uuid": ""})
        self._starter = restart.Starter(owner, None, threading.Condition())
        self._starter.bring_up = self._bring_up  # type: ignore[method-assign]
        self._starter.open = lambda link: None  # type: ignore[method-assign]
        self.failures = 0
        self.refilled = 0
        self.starts: list[float] = []

    def _bring_up(self, *_: Any) -> Any:
        self.starts.append(self._clock.now)
        if self.failures:
            self.failures -= 1
            raise AtomrError("it does not start")

    def refill(self, _: str) -> None:
        self.refilled += 1

    def pauses(self, failures: int) -> list[float]:
        """Restart once, after so many failures; returns the pauses before each try."""
        self.failures, self.starts = failures, [self._clock.now]
        self._starter.restart(self, {}, "it crashed", {})  # type: ignore[arg-type]
        return [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]


def test_pauses_double(clock: Clock) -> None:
    restarts = Restarts(clock, max_restarts=20, within=1000.0)
    first, *others = restarts.pauses(failures=10)
    assert first == 0.0
    for i, pause in enumerate(others):
        expected = min(0.05 * 2**i, 5.0)
        assert 0.8 * expected <= pause <= 1.2 * expected + 0.02
    assert restarts.refilled == 10


def test_a_budget_counts_recent_restarts(clock: Clock) -> None:
    restarts = Restarts(clock, max_restarts=3, within=60.0)
    for _ in range(10):
        assert restarts.pauses(failures=0) == [0.0]  # the first within a minute
        clock.now += 61.0
    for _ in range(3):
        restarts.pauses(failures=0)
    with pytest.raises(DeviceLost, match=r"died 4 times within 60 s \(last: it crashed\); its restart budget is 3"):
        restarts.pauses(failures=0)
    clock.now += 61.0
    with pytest.raises(DeviceLost, match=r"died 4 times within 60 s \(last: restart failed: it does not start\)"):
        restarts.pauses(failures=9)
