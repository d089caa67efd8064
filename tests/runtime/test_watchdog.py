"""What the watchdog ends, and whom it names, by a clock of the test's own: nothing waits, and no worker runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock

from atomr_native.runtime import watchdog
from atomr_native.runtime.deaths import Death
from atomr_native.runtime.supervisor import Supervisor

pytestmark = [pytest.mark.plain, pytest.mark.alike]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(watchdog, "time", made)
    return made


class Worker:
    """What a watchdog sees of a worker with the lanes 'a' and 'b'."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pid = None
        self.client = self
        self.control_busy = False
        self.lane_names = {3: "a", 5: "b"}
        self.stats = {lane: {"completed": 0, "claimed": 0, "started_ns": 1} for lane in self.lane_names}
        self.waits_for: dict[int, list[tuple[int, int]]] = {}
        self.answers = True
        self.asked = 0
        self.watchdog = watchdog.Watchdog("host", self, 2.0)  # type: ignore[arg-type]

    def watch(self) -> None:
        """Have lanes note the progress of each message."""

    def lane_stats(self, lane: int) -> dict[str, int]:
        return self.stats[lane]

    def dependencies(self, lane: int, _: int) -> list[tuple[int, int]]:
        return self.waits_for.get(lane, [])

    def submit(self, *_: Any, timeout: float) -> Any:
        assert timeout == 0.0
        self.asked += 1
        return self

    def done(self) -> bool:
        return self.answers

    def after(self, seconds: float) -> str | None:
        """Let time pass; returns the reason to end the worker."""
        for _ in range(round(10 * seconds)):
            self._clock.sleep(0.1)
            if reason := self.watchdog.check(self):  # type: ignore[arg-type]
                return reason
        return None


@pytest.fixture
def worker(clock: Clock) -> Worker:
    return Worker(clock)


def test_a_message_that_runs_too_long(worker: Worker) -> None:
    assert worker.after(10.0) is None
    worker.stats[5].update(completed=6, claimed=7)
    assert worker.after(1.9) is None
    worker.stats[5].update(completed=7, claimed=9)
    assert worker.after(1.9) is None  # each for itself
    assert worker.after(1.0) == "message 8 of 'b' ran for more than 2 s"
    assert worker.watchdog.culprit == (5, 8)
    worker.watchdog.reset()
    assert worker.watchdog.culprit is None
    assert worker.after(1.9) is None


def test_what_waits_does_not_run(worker: Worker) -> None:
    worker.stats[3].update(claimed=1)
    worker.waits_for[3] = [(5, 2)]  # of another lane, which is idle
    assert worker.after(10.0) is None
    worker.stats[5].update(completed=2, claimed=2)
    assert worker.after(1.9) is None
    worker.stats[3].update(started_ns=0)  # a message of several ranks, until all have come to it
    assert worker.after(10.0) is None
    worker.stats[3].update(started_ns=7)
    assert worker.after(1.9) is None
    assert worker.after(1.0) == "message 1 of 'a' ran for more than 2 s"


def test_what_was_launched_runs_while_the_next_message_waits_for_ranks(worker: Worker) -> None:
    worker.stats[3].update(claimed=2, started_ns=0)
    assert worker.after(1.9) is None
    assert worker.after(1.0) == "message 1 of 'a' ran for more than 2 s"


def test_control_work_stops_the_clock(worker: Worker) -> None:
    worker.stats[3].update(claimed=1)
    assert worker.after(1.5) is None
    worker.control_busy = True
    assert worker.after(10.0) is None
    worker.control_busy = False
    assert worker.after(0.4) is None
    assert worker.after(1.0) == "message 1 of 'a' ran for more than 2 s"


def test_answers_are_not_asked_for_at_once(worker: Worker) -> None:
    """Each answer wakes the supervisor, which checks again."""
    for _ in range(100):
        worker.after(0.1)
    assert 10 / worker.watchdog.tick <= worker.asked <= 10 / worker.watchdog.tick * 2


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_that_does_not_answer(worker: Worker, busy: bool) -> None:
    limit = 60.0 if busy else 5.0
    worker.control_busy = busy
    assert worker.after(limit + 10.0) is None
    worker.answers = False
    assert worker.after(limit - 0.5) is None
    assert worker.after(1.0) == f"it did not answer for more than {limit:g} s"
    assert worker.watchdog.culprit is None


def test_the_message_that_ran_too_long_is_the_first_suspect_and_the_only_culprit() -> None:
    accused: list[list[int]] = []
    plans = SimpleNamespace(
        record=lambda index: SimpleNamespace(index=index, spec=SimpleNamespace(op=f"op{index}")),
        accuse=lambda records, **_: accused.append([record.index for record in records]) or "quarantined",
        forget_builds=lambda: None,
    )
    claimed = [(3, 1, 10), (5, 8, 11), (6, 2, 12)]
    for culprit, ended, order, expected in (
        ((5, 8), "a message ran too long", ["op11", "op10", "op12"], [11]),
        ((5, 9), "a message ran too long", ["op10", "op11", "op12"], []),
        (None, None, ["op10", "op11", "op12"], [10, 11, 12]),
    ):
        supervisor: Any = SimpleNamespace(
            _owner=SimpleNamespace(plans=plans, lane_name=str), _watchdog=SimpleNamespace(culprit=culprit),
            _ended=ended, demanded=False,
        )  # fmt: skip
        suspects, verdict = Supervisor._blame(supervisor, claimed, Death("", foreign=ended is not None))
        assert [suspect.operation for suspect in suspects] == order
        assert (accused.pop(), verdict) == (expected, "quarantined")
