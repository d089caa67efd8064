"""Benchmarks: statistics, rounds, one twin of each kind, the peers.  No test asserts a time."""

from __future__ import annotations

import importlib.util
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import scripts
from bench_case import IDLE, MACHINE, SMALL

from bench.harness import (
    Case,
    Effort,
    Setup,
    Unavailable,
    common,
    documents,
    harness,
    list_contenders,
    median,
    median_interval,
    peers,
    ratio_interval,
    rebuilt,
    report,
    run_case,
    twins,
)
from bench.harness.discovery import all_bars, all_cases

# ------------------------------------------------------------------------------------------ statistics


def test_median_of_odd_even_and_none() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [(6, 1, 0.96875), (10, 2, 0.978515625), (20, 6, 0.95861), (50, 18, 0.96716), (51, 19, 0.95110)],
)
def test_interval_has_the_tabulated_ranks(count: int, rank: int, coverage: float) -> None:
    values = [float(value) for value in range(1, count + 1)]
    random.Random(1).shuffle(values)
    interval = median_interval(values)
    assert (interval.low, interval.high) == (rank, count + 1 - rank)
    assert interval.coverage == pytest.approx(coverage, abs=2e-4)
    assert interval.count == count


def test_interval_of_few_values_is_the_range_and_admits_it() -> None:
    interval = median_interval([5.0, 1.0, 3.0])
    assert (interval.median, interval.low, interval.high, interval.coverage) == (3.0, 1.0, 5.0, 0.75)
    assert median_interval([2.0]).coverage == 0.0


def test_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(2)
    inside = 0
    for _ in range(500):
        interval = median_interval([rng.expovariate(1.0) for _ in range(51)])
        inside += interval.low <= 0.6931471805599453 <= interval.high
    assert inside / 500 > 0.91


def test_ratio_pairs_rounds() -> None:
    interval = ratio_interval([2.0, 40.0, 6.0, None], [1.0, 20.0, 3.0, 4.0])
    assert interval is not None
    assert (interval.median, interval.low, interval.high, interval.count) == (2.0, 2.0, 2.0, 3)
    assert ratio_interval([None], [1.0]) is None
    with pytest.raises(ValueError, match="cannot pair"):
        ratio_interval([1.0], [1.0, 2.0])


# ------------------------------------------------------------------------------------------ rounds


def test_rounds_keep_samples_in_step_and_report_what_did_not_run() -> None:
    steps: list[tuple[int, int]] = []
    result = run_case(SMALL, Effort.QUICK, random.Random(3), progress=lambda *step: steps.append(step))
    by_name = {series.name: series for series in result.series}
    assert by_name["atomr process"].samples == [1.0] * 7
    assert by_name["phased: second"].samples == [2.0] * 7
    assert "phased" not in by_name
    assert (by_name["missing"].status, by_name["missing"].reason) == ("skipped", "not installed")
    assert (by_name["broken"].status, by_name["broken"].reason) == ("failed", "ZeroDivisionError: no")
    assert by_name["later"].status == "failed"
    assert by_name["later"].summary() is None
    assert steps[-1] == (7, 7)
    first, second = result.ratios
    assert first[2] is not None
    assert first[2].median == 0.5
    assert second[2] is None


def test_rates_and_geometric_means_are_shown() -> None:
    def build(setup: Setup) -> None:
        """Some products."""
        for name, us, flops, remark in (("small", 2.0, 4e6, ""), ("large", 8.0, 64e6, "in steps")):
            with setup.attempt(name):
                setup.add(name, lambda us=us: us, flops=flops, remark=remark)
        with setup.attempt("absent", kind="peer"):
            raise Unavailable("not installed")
        setup.mean("both", ["small", "large"], remark="of 2")
        setup.mean("all", ["small", "absent"], "peer")
        setup.best("best", ["large", "absent", "small"])
        setup.best("none", ["absent"])
        setup.mean("of both", ["best", "large"])
        setup.ratio("both", "small")

    result = run_case(Case("products", "Products", build), Effort.QUICK, random.Random(1))
    by_name = {series.name: series for series in result.series}
    assert by_name["both"].samples == pytest.approx([4.0] * 7)
    assert by_name["both"].members == ("small", "large")
    assert (by_name["all"].status, by_name["all"].reason) == ("skipped", "no figure of absent")
    assert by_name["best"].samples == [2.0] * 7
    assert by_name["none"].status == "skipped"
    assert by_name["of both"].samples == pytest.approx([4.0] * 7)
    page = report.markdown([documents.document([result], MACHINE, IDLE, Effort.QUICK, seed=1, forced=False)], ())
    assert "| contender | us | interval | TFLOP/s | rounds, or why not |" in page
    assert "| large | 8.00 | 8.00 to 8.00 | 8.00 | 7; in steps |" in page
    assert "| both | 4.00 | 4.00 to 4.00 | 4.00 | 7; of 2 |" in page
    assert "| both / small | 2.00 | 2.00 to 2.00 |  | 7 |" in page


def test_two_contenders_cannot_share_a_name() -> None:
    setup = Setup(Effort.TINY)
    with setup.attempt("a"):
        pass
    with pytest.raises(ValueError, match="'a'"), setup.attempt("a"):
        pass


def test_what_adds_nothing_is_shown_only_where_it_failed() -> None:
    setup = Setup(Effort.TINY)
    with setup.attempt("found"):
        pass
    with setup.attempt("not found"):
        raise OSError("no such file")
    assert {name: series.status for name, series in setup.series.items()} == {"not found": "failed"}


def test_a_case_that_cannot_be_built_or_ended_is_a_failed_row(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def thing() -> Iterator[None]:
        yield
        raise OSError("will not close")

    def ends_badly(setup: Setup) -> None:
        setup.enter(thing())
        with setup.attempt("good"):
            setup.add("good", lambda: 1.0)

    def begins_badly(setup: Setup) -> None:
        raise OSError("will not open")

    found = run_case(Case("a", "A", ends_badly), Effort.QUICK, random.Random(1))
    assert {s.name: (s.status, s.reason) for s in found.series} == {
        "good": ("ok", ""),
        "a": ("failed", "OSError: will not close"),
    }
    assert found.series[0].samples == [1.0] * 7
    (series,) = run_case(Case("b", "B", begins_badly), Effort.QUICK, random.Random(1)).series
    assert (series.name, series.status, series.reason) == ("b", "failed", "OSError: will not open")


def test_the_best_of_two_placements_is_kept() -> None:
    before = os.sched_getaffinity(0)
    made: list[set[int]] = []

    @contextmanager
    def actor() -> Iterator[float]:
        made.append(os.sched_getaffinity(0))
        yield float(len(made))

    def sample(number: float) -> Callable[[], float]:
        return lambda: 10.0 * number + len(os.sched_getaffinity(0)) / 1e6

    setup = Setup(Effort.TINY)
    with setup.stack:
        common.add_best(setup, "a", actor, sample, "peer")
        common.add_best(setup, "b", actor, lambda number: lambda: -number, "peer")
        assert [body() for _, body in setup.contenders] == [10.0 + len(before) / 1e6, -4.0]
    assert made == [before, {min(before)}] * 2
    assert os.sched_getaffinity(0) == before


def test_rounds_of_a_case_and_of_the_command_line() -> None:
    def build(setup: Setup) -> None:
        with setup.attempt("a"):
            setup.add("a", lambda: 1.0)

    def count(case: Case, effort: Effort, rounds: int | None = None, seconds: float = 1e9) -> int:
        (series,) = run_case(case, effort, random.Random(1), rounds=rounds, seconds=seconds).series
        return len(series.samples)

    usual, few = Case("a", "A", build), Case("b", "B", build, rounds=15)
    assert [count(usual, Effort.FULL), count(few, Effort.FULL), count(few, Effort.QUICK)] == [51, 15, 7]
    assert [count(usual, Effort.FULL, 60), count(few, Effort.FULL, 60), count(few, Effort.QUICK, 2)] == [60, 15, 2]
    assert count(usual, Effort.FULL, seconds=0.0) == 3
    assert count(usual, Effort.FULL, 2, seconds=0.0) == 2


def test_a_sample_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(setup: Setup) -> None:
        with setup.attempt("stuck"):
            setup.add("stuck", lambda: time.sleep(100.0) or 1.0)
        with setup.attempt("good"):
            setup.add("good", lambda: 1.0)

    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.5)
    stuck, good = run_case(Case("a", "A", build), Effort.TINY, random.Random(1)).series
    assert stuck.status == "failed"
    assert stuck.reason.startswith("TimeoutError: this took too long")
    assert good.samples == [1.0, 1.0]


def test_every_bar_and_ratio_names_contenders_that_exist() -> None:
    cases = all_cases()
    names = {name: list_contenders(case) for name, case in cases.items()}
    for bar in all_bars():
        if bar.case.startswith("copies, "):  # a program of its own: test_bench_copies.py
            continue
        for series in filter(None, (bar.series, bar.under)):
            assert series.partition(": ")[0] in names[bar.case], f"{bar.name}: {series}"
    for name, case in cases.items():
        setup = Setup(Effort.TINY, dry=True)
        case.build(setup)
        for series in {name for pair in setup.ratios for name in pair}:
            assert {series, series.partition(": ")[0]} & set(names[name]), name
        assert case.build.__doc__, name


# ------------------------------------------------------------------------------------------ twins and peers


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("pingpong", ["--count", "20", "--warm-ms", "0", "--spin-us", "5"]),
        ("pingpong", ["--count", "20", "--warm-ms", "0", "--spin-us", "0", "--place", "processes", "--pin", "0"]),
        ("pingpong", ["--count", "2", "--warm-ms", "0", "--spin-us", "5", "--rest-us", "100"]),
        ("enqueue", ["--count", "20", "--warm-ms", "0", "--spin-us", "5"]),
        ("batch", ["--count", "64", "--warm-ms", "0", "--spin-us", "5", "--batch", "8", "--lanes", "4"]),
        ("alloc", ["--count", "20"]),
        ("memfd", ["--count", "2", "--bytes", "65536"]),
        ("respawn", ["--count", "2"]),
    ],
)
def test_twins_build_and_print_their_line(program: str, arguments: list[str]) -> None:
    try:
        binary = twins.build(program)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert twins.run(binary, arguments) > 0.0


def test_twins_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="no twin 'nonsense'"):
        twins.build("nonsense")
    try:
        binary = twins.build("pingpong")
    except Unavailable as reason:
        pytest.skip(str(reason))
    with pytest.raises(RuntimeError, match="--place: expected threads or processes"):
        twins.run(binary, ["--place", "nowhere"])
    with pytest.raises(RuntimeError, match="--count: expected at least 1"):
        twins.run(binary, ["--count", "0"])


@pytest.mark.parametrize("make", [peers.queue_actor, peers.pipe_actor, peers.pykka_actor])
def test_blocking_peers_answer(make: object) -> None:
    try:
        with make() as actor:  # type: ignore[operator]
            for _ in range(3):
                actor.tell()
                actor.ask()
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_an_executor_answers() -> None:
    async def twice(ask: Callable[[], Awaitable[object]]) -> list[object]:
        return [await ask(), await ask()]

    with peers.event_loop() as loop, peers.executor_ask(loop) as actor:
        assert loop.run_until_complete(twice(actor.ask)) == [None, None]
        loop.run_until_complete(twice(actor.tell))


def test_xoscar_answers() -> None:
    """In a process of its own: it changes how all exceptions of its process are pickled."""
    if importlib.util.find_spec("xoscar") is None:
        pytest.skip("xoscar is not installed")
    scripts.run(
        """
        import warnings
        warnings.simplefilter("ignore")
        from bench.harness import peers
        async def twice(ask):
            return [await ask(), await ask()]
        with peers.event_loop() as loop, peers.xoscar_actor(loop) as actor:
            assert loop.run_until_complete(twice(actor.ask)) == [None, None]
            loop.run_until_complete(twice(actor.tell))
        """
    )


def test_builds_of_actors_leave_out_what_they_say() -> None:
    texts = {build: rebuilt.source(build) for build in rebuilt.LEFT_OUT}
    assert len(texts["as it is"]) > len(texts["without counters"]) > len(texts["without counters and hooks"])
    assert "self.processed += 1" not in texts["without counters"]
    assert "handle_marked(<Envelope>found)" not in texts["without counters and hooks"]
