"""Interleaved rounds, order statistics and the objects that a case is made of.

A case has contenders.  In every round each contender is sampled once, in a freshly shuffled order, so that a
change of clock speed or of load meets all of them alike.  Ratios are taken within a round and only then
summarised.  Summaries are medians with a distribution-free interval from order statistics.
"""

from __future__ import annotations

import gc
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from bench.harness import machine, twins
from bench.harness.unavailable import Unavailable, describe

__all__ = [
    "Case",
    "CaseResult",
    "Effort",
    "Interval",
    "Kind",
    "Sample",
    "Series",
    "Setup",
    "list_contenders",
    "median",
    "median_interval",
    "ratio_interval",
    "run_case",
]

Kind = Literal["atomr", "twin", "peer"]
Status = Literal["ok", "skipped", "failed"]
Sample = Callable[[], "float | Mapping[str, float]"]
T = TypeVar("T")

CONFIDENCE = 0.95
FULL_ROUNDS = 51
FEWEST = 3  # rounds, also where the time is used up: a median and how far it strays
SAMPLE_SECONDS = 60.0
BUILD_SECONDS = 90.0  # of whatever a contender needs


class Effort(Enum):
    """How much is measured: rounds and the share of each case's full operation count."""

    FULL = (FULL_ROUNDS, 1.0)
    QUICK = (7, 0.1)
    TINY = (2, 0.002)

    @property
    def rounds(self) -> int:
        """Rounds to run."""
        return self.value[0]

    def count(self, full: int) -> int:
        """Operations per sample for a case that asks for `full` of them; at least 1."""
        return max(1, round(full * self.value[1]))


# ---------------------------------------------------------------------------------------------- statistics


@dataclass(frozen=True)
class Interval:
    """A median and an interval that covers the true one with probability `coverage`."""

    median: float
    low: float
    high: float
    coverage: float
    count: int


def median(values: Sequence[float]) -> float:
    """Middle value, or the mean of the two middle ones.

    Raises
    ------
    ValueError
        `values` is empty.
    """
    if not values:
        raise ValueError("the median of no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median with its order-statistics interval.

    The interval runs from the k-th smallest to the k-th largest value, with the largest k whose binomial coverage
    is at least `confidence`.  It assumes nothing about the distribution.  With fewer than 6 values no such k exists:
    the interval is then the whole range and `coverage` says how little that proves.
    """
    middle = median(values)
    ordered = sorted(values)
    count = len(ordered)
    rank, tail, cumulative = 1, 1.0 / 2**count, 1.0 / 2**count
    coverage = 1.0 - 2.0 * tail
    for k in range(2, count // 2 + 1):
        cumulative += math.comb(count, k - 1) / 2**count
        if 1.0 - 2.0 * cumulative < confidence:
            break
        rank, coverage = k, 1.0 - 2.0 * cumulative
    return Interval(middle, ordered[rank - 1], ordered[count - rank], max(coverage, 0.0), count)


def ratio_interval(
    over: Sequence[float | None],
    under: Sequence[float | None],
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Median of the per-round ratios ``over[i] / under[i]``; None when no round has both.

    Raises
    ------
    ValueError
        The two have different numbers of rounds, so that they cannot be paired.
    """
    if len(over) != len(under):
        raise ValueError(f"cannot pair {len(over)} rounds with {len(under)}")
    ratios = [a / b for a, b in zip(over, under, strict=True) if a is not None and b]
    return median_interval(ratios, confidence) if ratios else None


# ---------------------------------------------------------------------------------------------- cases


@dataclass
class Series:
    """The samples of one contender, one a round, in the unit of its case; None where a round gave none.

    `flops` is what an operation computes, 0 where nobody asks; `remark` is shown beside the figures; `members` are the
    series whose geometric mean it is.
    """

    name: str
    kind: Kind
    status: Status = "ok"
    reason: str = ""
    samples: list[float | None] = field(default_factory=list)
    flops: float = 0.0
    remark: str = ""
    members: tuple[str, ...] = ()

    def summary(self) -> Interval | None:
        """Median and interval; None without samples or after a failure."""
        present = [value for value in self.samples if value is not None]
        return median_interval(present) if present and self.status == "ok" else None


@dataclass(frozen=True)
class Case:
    """One group of rows that belong together.

    Attributes
    ----------
    name
        What the command line calls it.
    title
        Heading of its table.
    build
        Adds the contenders to a `Setup`; its docstring says what the figures include.
    unit
        Of every sample: ``us`` or ``ms`` per operation, or ``MiB``.
    rounds
        Rounds at full effort where one takes seconds, or where the figures hardly vary (0: the default).
    devices
        Kinds of device that it can run on.  A run without names takes the cases whose first kind is its device's.
    share
        Of a run's time, if that is limited, in relation to the other cases.
    """

    name: str
    title: str
    build: Callable[[Setup], None]
    unit: Literal["us", "ms", "MiB"] = "us"
    rounds: int = 0
    devices: tuple[str, ...] = ("host", "cuda")
    share: float = 1.0


@dataclass
class CaseResult:
    """What a case gave: series, ratios as (over, under, interval) and the load beside it."""

    case: Case
    series: list[Series]
    ratios: list[tuple[str, str, Interval | None]]
    other_cpu: float
    seconds: float


class Setup:
    """What a case's `build` function works on: it adds contenders, and owns what they need until the case ends.

    With `dry`, nothing is opened or started: every contender is registered by name only.
    """

    def __init__(self, effort: Effort, *, device: str = "host", dry: bool = False) -> None:
        self.effort = effort
        self.device = device
        self.dry = dry
        self.contenders: list[tuple[str, Sample]] = []
        self.series: dict[str, Series] = {}
        self.ratios: list[tuple[str, str]] = []
        self.bests: dict[str, tuple[str, ...]] = {}
        self.stack = ExitStack()
        self._shared: dict[object, Any] = {}
        self._names: set[str] = set()

    def count(self, full: int) -> int:
        """Operations per sample at this effort."""
        return self.effort.count(full)

    def enter(self, resource: AbstractContextManager[T]) -> T:
        """Enter a resource that lives until the case ends."""
        self.need()
        return self.stack.enter_context(resource)

    def shared(self, key: object, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Like `enter`, but made once per key and case."""
        self.need()
        if key not in self._shared:
            self._shared[key] = self.enter(make())
        value: T = self._shared[key]
        return value

    def need(self) -> None:
        """End this contender here in a dry run."""
        if self.dry:
            raise Unavailable("dry run")

    @contextmanager
    def attempt(self, name: str, kind: Kind = "atomr") -> Iterator[None]:
        """Prepare one contender: `Unavailable` skips it, any other exception marks it as failed.

        What adds none, such as a step that several contenders need, is in the table only when it was not possible.
        """
        if name in self._names:
            raise ValueError(f"two contenders are called {name!r}")
        self._names.add(name)
        series = self.series[name] = Series(name, kind)
        try:
            yield
        except Unavailable as reason:
            series.status, series.reason = "skipped", str(reason)
        except Exception as error:
            series.status, series.reason = "failed", describe(error)
        else:
            if not series.members and all(added != name for added, _ in self.contenders):
                del self.series[name]

    def add(self, name: str, sample: Sample, *, flops: float = 0.0, remark: str = "") -> None:
        """Give the contender `name` its sampling function; call it inside ``attempt(name)``.

        A sample is a time per operation in the case's unit, or a mapping of phases to such times, each of which becomes
        a series ``name: phase``.  With `flops`, what an operation computes, rates are shown, too.
        """
        self.contenders.append((name, sample))
        self.series[name].flops, self.series[name].remark = flops, remark

    def mean(self, name: str, members: Sequence[str], kind: Kind = "atomr", *, remark: str = "") -> None:
        """Add the geometric mean of series, taken in every round; without a figure of one of them, there is none."""
        with self.attempt(name, kind):
            self.series[name].members = tuple(members)
            self.series[name].remark = remark

    def best(self, name: str, members: Sequence[str], kind: Kind = "peer") -> None:
        """Add the least of series in every round, of those that have a figure: the best of several libraries."""
        self.series[name] = Series(name, kind, remark=f"the least of {len(members)}")
        self.bests[name] = tuple(members)

    def twin(self, name: str, program: str, *arguments: str | int, scale: float = 1.0) -> None:
        """Add a C twin: one run of the program is one sample; `scale` converts its microseconds."""
        with self.attempt(name, kind="twin"):
            self.need()
            binary = twins.build(program)
            words = [str(word) for word in arguments]
            self.add(name, lambda: twins.run(binary, words) * scale)

    def ratio(self, over: str, under: str) -> None:
        """Ask for the per-round ratio of two series."""
        self.ratios.append((over, under))


# ---------------------------------------------------------------------------------------------- running


def list_contenders(case: Case) -> list[str]:
    """Names of a case's contenders; starts nothing."""
    setup = Setup(Effort.TINY, dry=True)
    with setup.stack:
        case.build(setup)
    return list(setup.series)


def run_case(
    case: Case,
    effort: Effort,
    rng: random.Random,
    *,
    device: str = "host",
    rounds: int | None = None,
    seconds: float = math.inf,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> CaseResult:
    """Build a case, warm each contender up once, and run the rounds.

    Garbage is collected before each round and the collector stays on, as it is for users; what exists before the first
    round is left out of it.  A contender that raises, or that takes more than a minute for a sample, is marked as
    failed and leaves the later rounds; the others go on.  After `seconds`, and
    `FEWEST` rounds, no further round begins.  A case that cannot be built, or ended, gets a failed series of its own
    name.
    """
    full = case.rounds if case.rounds and effort is Effort.FULL else effort.rounds
    rounds = full if rounds is None else min(rounds, case.rounds) if case.rounds else rounds
    began = time.monotonic()
    setup = Setup(effort, device=device)
    done, other = 0, 0.0
    try:
        with setup.stack, _time_limit():
            _set_alarm(BUILD_SECONDS)
            case.build(setup)
            _set_alarm(0.0)
            before = machine.CpuTimes.now()
            for done in _rounds(setup, rounds, rng):
                progress(done, rounds)
                if done >= FEWEST and time.monotonic() - began > seconds:
                    break
            other = machine.other_cpu(before, machine.CpuTimes.now())
    except Exception as error:
        setup.series[case.name] = Series(case.name, "atomr", "failed", describe(error))
    return _result(case, setup, done, other, time.monotonic() - began)


def _rounds(setup: Setup, rounds: int, rng: random.Random) -> Iterator[int]:
    """Sample everybody, once a round; yields how many rounds there have been."""
    series = setup.series
    active = [pair for pair in setup.contenders if series[pair[0]].status == "ok"]
    gc.collect()
    gc.freeze()  # else each collection walks through the whole of torch
    try:
        for done in range(-1, rounds):  # round -1 warms up and is not kept
            gc.collect()
            rng.shuffle(active)
            for pair in list(active):
                name, sample = pair
                _set_alarm(SAMPLE_SECONDS)
                try:
                    value = sample()
                except Exception as error:
                    series[name].status = "failed"
                    series[name].reason = f"{describe(error)} (round {done + 1} of {rounds})"
                    active.remove(pair)
                    continue
                finally:
                    _set_alarm(0.0)
                if done >= 0:
                    _keep(series, name, value, done)
            yield done + 1
    finally:
        gc.unfreeze()


@contextmanager
def _time_limit() -> Iterator[None]:
    """Let `_set_alarm` raise in this thread, where that is possible."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError("this took too long")

    left = signal.getitimer(signal.ITIMER_REAL)[0]
    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        _set_alarm(0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)


def _set_alarm(seconds: float) -> None:
    """Ring in so many seconds, and again; 0: not any more."""
    if threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)


def _keep(series: dict[str, Series], name: str, value: float | Mapping[str, float], at: int) -> None:
    parent = series[name]
    if isinstance(value, Mapping):
        for phase, figure in value.items():
            key = f"{name}: {phase}"
            if key not in series:
                series[key] = Series(key, parent.kind)
            _put(series[key], figure, at)
    else:
        _put(parent, value, at)


def _put(series: Series, value: float, at: int) -> None:
    series.samples.extend([None] * (at - len(series.samples)))
    series.samples.append(float(value))


def _mean(mean: Series, members: Sequence[Series]) -> None:
    missing = [series.name for series in members if series.status != "ok"]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        mean.status, mean.reason = "skipped", f"no figure of {missing[0]}{more}"
        return

    def geometric(values: Sequence[float | None]) -> float | None:
        present = [value for value in values if value]
        return math.exp(sum(map(math.log, present)) / len(present)) if len(present) == len(values) else None

    mean.samples = [geometric(values) for values in zip(*(series.samples for series in members), strict=True)]
    mean.flops = geometric([series.flops for series in members]) or 0.0


def _best(best: Series, members: Sequence[Series]) -> None:
    measured = [series.samples for series in members if series.status == "ok" and series.samples]
    if not measured:
        best.status, best.reason = "skipped", f"no figure of {members[0].name} and others"
        return
    best.samples = [min((value for value in values if value), default=None) for values in zip_longest(*measured)]


def _result(case: Case, setup: Setup, rounds: int, other: float, seconds: float) -> CaseResult:
    for name, members in setup.bests.items():
        _best(setup.series[name], [setup.series[member] for member in members])
    for series in setup.series.values():
        if series.members:
            _mean(series, [setup.series[member] for member in series.members])
    phased = {key.rpartition(": ")[0] for key in setup.series if key.rpartition(": ")[0] in setup.series}
    kept = []
    for series in setup.series.values():
        if series.name in phased and series.status == "ok" and not series.samples:
            continue  # only its phases carry figures
        if series.samples:
            series.samples.extend([None] * (rounds - len(series.samples)))
        kept.append(series)
    good = {series.name: series for series in kept if series.status == "ok" and series.samples}
    ratios = [
        (
            over,
            under,
            ratio_interval(good[over].samples, good[under].samples) if over in good and under in good else None,
        )
        for over, under in setup.ratios
    ]
    return CaseResult(case, kept, ratios, other, seconds)
