"""The benchmark harness: statistics, rounds, documents, one twin of each kind, the peers.  No test asserts a time."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import scripts

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench import harness, machine, peers, rebuilt, report, twins  # noqa: E402
from bench.__main__ import main  # noqa: E402
from bench.bars import BARS, Bar, judge  # noqa: E402
from bench.cases import all_cases  # noqa: E402
from bench.harness import (  # noqa: E402
    Case,
    Effort,
    Setup,
    Unavailable,
    list_contenders,
    median,
    median_interval,
    ratio_interval,
    run_case,
)

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


def _small(setup: Setup) -> None:
    """Three that work, one that is missing, one that cannot start, one that breaks later."""
    order: list[str] = []
    for name, value in (("atomr process", 1.0), ("twin", 2.0)):
        with setup.attempt(name):
            setup.add(name, lambda value=value, name=name: order.append(name) or value)
    with setup.attempt("phased"):
        setup.add("phased", lambda: {"first": 1.0, "second": 2.0})
    with setup.attempt("missing", kind="peer"):
        raise Unavailable("not installed")
    with setup.attempt("broken"):
        raise ZeroDivisionError("no")
    with setup.attempt("later"):
        calls = iter([1.0, 1.0])
        setup.add("later", lambda: next(calls) if True else 0.0)
    setup.ratio("atomr process", "twin")
    setup.ratio("atomr process", "missing")


SMALL = Case("ask", "A small case", _small)


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
        setup.mean("both", ["small", "large"])
        setup.mean("all", ["small", "absent"], "peer")
        setup.ratio("both", "small")

    result = run_case(Case("products", "Products", build), Effort.QUICK, random.Random(1))
    by_name = {series.name: series for series in result.series}
    assert by_name["both"].samples == pytest.approx([4.0] * 7)
    assert (by_name["all"].status, by_name["all"].reason) == ("skipped", "no figure of absent")
    page = report.markdown([report.document([result], MACHINE, IDLE, Effort.QUICK, seed=1, forced=False)])
    assert "| contender | us | 95 % interval | TFLOP/s | rounds, or why not |" in page
    assert "| large | 8.00 | 8.00 to 8.00 | 8.00 | 7; in steps |" in page
    assert "| both | 4.00 | 4.00 to 4.00 | 4.00 | 7 |" in page
    assert "| both / small | 2.00 | 2.00 to 2.00 |  | 7 |" in page


def test_two_contenders_cannot_share_a_name() -> None:
    setup = Setup(Effort.TINY)
    with setup.attempt("a"):
        pass
    with pytest.raises(ValueError, match="'a'"), setup.attempt("a"):
        pass


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


# ------------------------------------------------------------------------------------------ documents


def _document() -> dict[str, object]:
    result = run_case(SMALL, Effort.QUICK, random.Random(4))
    return report.document([result], MACHINE, IDLE, Effort.QUICK, seed=4, forced=False)


def test_document_survives_json_and_its_check() -> None:
    value = json.loads(json.dumps(_document()))
    assert report.check(value) is value
    (case,) = value["cases"]
    assert case["contenders"][0]["summary"]["count"] == 7
    states = {bar["work"]: bar["state"] for bar in value["bars"]}
    assert states == {"no-op ask, spinning, process": "met", "no-op ask, spinning, thread": "not measured"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("schema", 0, "schema 0"), ("machine", {}, r"machine\.date"), ("cases", None, r"document\.cases")],
)
def test_check_names_what_is_wrong(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        report.check({**_document(), key: value})


def test_path_names_date_kind_and_commit_only() -> None:
    assert report.default_path(MACHINE).name == "2026-01-02-some-e5-v3-2c-0123456789.json"
    assert report.default_path({**MACHINE, "commit": None, "dirty": True}).name.endswith("nocommit-dirty.json")


def test_description_of_this_machine_has_the_schema() -> None:
    value = _document()
    value["machine"] = machine.describe()
    report.check(value)
    assert str(ROOT) not in json.dumps(value["machine"])


def test_verdicts_are_honest_about_the_spread() -> None:
    def case(low: float, middle: float, high: float) -> list[dict[str, object]]:
        summary = {"median": middle, "low": low, "high": high, "count": 51, "coverage": 0.95}
        return [{"name": "c", "contenders": [{"name": "s", "summary": summary}], "ratios": []}]

    bar = (Bar("work", "c", "s", 1.0, "us"),)
    verdicts = [judge(case(*figures), bar)[0] for figures in ((0.8, 0.9, 1.0), (0.8, 0.9, 1.1), (0.9, 1.1, 1.2))]
    assert [(verdict.state, verdict.sure) for verdict in verdicts] == [("met", True), ("met", False), ("missed", False)]
    assert judge([], bar) == []


def test_render_replaces_only_what_is_between_the_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, page = tmp_path / "result.json", tmp_path / "performance.md"
    source.write_text(json.dumps(_document()))
    page.write_text(f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n")
    assert main(["render", str(source), "--write", str(page)]) == 0
    once = page.read_text()
    assert "old" not in once
    assert once.startswith("# Title\n")
    assert once.endswith("\nafter\n")
    assert "Quick runs, whose figures prove nothing: all" in once
    assert "## host: Some(R) CPU E5 v3 @ 2.30GHz, 2 cores" in once
    assert main(["render", str(source), "--write", str(page)]) == 0
    assert page.read_text() == once
    assert main(["render", str(source)]) == 0
    assert "| atomr process | 1.00 |" in capsys.readouterr().out


def _gpu_document(**changes: object) -> dict[str, object]:
    described = {**MACHINE, "date": "2026-02-03T00:00:00Z", "device": machine.describe_gpu("cuda:0", FACTS)}
    case = Case("gpu_alloc", "Allocate", _small)
    result = run_case(case, Effort.FULL, random.Random(4), rounds=7)
    return report.document([result], {**described, **changes}, IDLE, Effort.FULL, seed=4, forced=False)


def test_a_page_shows_several_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    files[0].write_text(report.dumps(_gpu_document()))
    files[1].write_text(report.dumps(_document()))
    assert main(["render", *map(str, files)]) == 0
    page = capsys.readouterr().out
    assert page.index("## cuda:0: Some GPU 5000") < page.index("## host: Some(R)")
    assert "Some GPU 5000 (01234567), 3.0 GiB, 7 multiprocessors, compute capability 9.0, CUDA 13.2;" in page
    assert FACTS["uuid"] not in page
    hosts_first = [report.load(files[1]), report.load(files[0])]
    assert report.load_all(tmp_path) == hosts_first
    (tmp_path / "c.json").write_text("{}")
    assert main(["render", str(tmp_path / "c.json")]) == 2
    assert "c.json: document.schema" in capsys.readouterr().err


def test_a_result_file_has_a_line_for_each_series(tmp_path: Path) -> None:
    value = _document()
    text = report.dumps(value)
    assert json.loads(text) == json.loads(json.dumps(value))
    assert '"samples": [ 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0 ]' in text


def test_runs_of_one_machine_can_be_merged() -> None:
    old = json.loads(json.dumps(_document()))
    for case in old["cases"]:
        del case["measured"]  # as results of the first version
    fresh = run_case(Case("await", "Another", _small), Effort.QUICK, random.Random(4))
    again = run_case(SMALL, Effort.QUICK, random.Random(4))
    later = {**MACHINE, "date": "2026-03-04T00:00:00Z", "commit": "fedcba9876543210"}
    both = report.document([fresh, again], later, IDLE, Effort.FULL, seed=1, forced=False)
    one = report.document([fresh], later, IDLE, Effort.FULL, seed=1, forced=False)
    merged = report.check(report.merge(old, one))
    assert [(case["name"], case["measured"]["date"]) for case in merged["cases"]] == [
        ("ask", MACHINE["date"]),
        ("await", later["date"]),
    ]
    assert {bar["work"] for bar in merged["bars"]} >= {"no-op ask, spinning, process", "await, process"}
    page = report.markdown([merged])
    assert f"Measured {MACHINE['date']}, commit 0123456789." in page
    assert "prove nothing: ask." in page
    assert [case["measured"]["date"] for case in report.merge(old, both)["cases"]] == [later["date"]] * 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("cores", 64, "cores is 64"), ("device", None, "device name is None"), ("cpu", "Other", "cpu is 'Other'")],
)
def test_runs_of_different_machines_cannot_be_merged(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        report.merge(_gpu_document(**{key: value}), _gpu_document())


def test_another_gpu_of_the_same_kind_is_named_where_it_was_used() -> None:
    other = machine.describe_gpu("cuda:0", {**FACTS, "uuid": "f" * 32})
    old = _gpu_document(device=other, date="2026-02-01T00:00:00Z")
    new = {**_gpu_document(), "cases": [{**_gpu_document()["cases"][0], "name": "gpu_tell"}]}
    assert "commit 0123456789, GPU ffffffff." in report.markdown([report.merge(old, new)])


def test_what_is_committed_can_be_rendered() -> None:
    values = report.load_all()
    assert report.BEGIN in report.markdown(values)
    for value in values:
        assert str(ROOT) not in json.dumps(value)


# ------------------------------------------------------------------------------------------ machine and command line


def test_a_gpu_is_described_by_what_it_and_its_driver_say(monkeypatch: pytest.MonkeyPatch) -> None:
    other, this = "GPU-11111111-1111-1111-1111-111111111111", "GPU-01234567-89ab-cdef-0123-456789abcdef"
    told = f"{other}, 1, 1, 1\n{this}, 580.1, 1980, 700.00"
    monkeypatch.setattr(machine, "_command", lambda *_: told)
    found = machine.describe_gpu("cuda:0", FACTS)
    assert (found["driver"], found["max_clock_mhz"], found["power_limit_w"]) == ("580.1", "1980", "700.00")
    assert (found["uuid"], found["cuda"], found["compute_capability"]) == ("01234567", "13.2", "9.0")
    assert machine.host_kind({**MACHINE, "device": found}) == "some-gpu-5000"
    assert machine.measure_load(0.01, FACTS["uuid"]).gpu is None  # "580.1" is no percentage
    monkeypatch.setattr(machine, "_command", lambda *_: told.replace("580.1", "93"))
    assert "the GPU is 93 % busy" in str(machine.refusal(machine.Load(0.0, 0.0, 0.0, 0.0, 2, 93)))
    assert machine.measure_load(0.01, FACTS["uuid"]).gpu == 93
    assert machine.describe_gpu("cuda:0", {**FACTS, "uuid": this})["uuid"] == "01234567"
    monkeypatch.setattr(machine, "_command", lambda *_: None)
    assert machine.describe_gpu("cuda:0", FACTS)["driver"] is None


def test_a_commit_can_be_named_where_there_is_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_command", lambda *_: None)
    assert machine.describe("abc")["commit"] == "abc"
    monkeypatch.setattr(machine, "_git", lambda: {"commit": "def", "dirty": False})
    assert machine.describe("abc")["commit"] == "def"


def test_a_loaded_machine_is_refused_with_the_reason() -> None:
    assert machine.refusal(IDLE) is None
    assert "0.50 of a core" in str(machine.refusal(machine.Load(0.0, 0.0, 0.5, 0.0, 2)))
    assert "hypervisor" in str(machine.refusal(machine.Load(0.0, 0.0, 0.0, 0.2, 2)))
    assert "load average" in str(machine.refusal(machine.Load(5.0, 1.0, 0.0, 0.0, 2)))


def test_main_stops_on_a_loaded_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "measure_load", lambda **_: machine.Load(9.0, 9.0, 1.5, 0.0, 2))
    assert main(["ask"]) == 2
    assert "--force" in capsys.readouterr().err


def test_main_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert main(["--rounds", "5", "ask"]) == 2
    assert "at least 50" in capsys.readouterr().err
    assert main(["--device", "tpu:0"]) == 2
    assert "--device tpu:0" in capsys.readouterr().err
    assert main(["--budget", "0"]) == 2
    assert "--budget 0" in capsys.readouterr().err
    assert main(["gpu_ask"]) == 2
    assert "no case gpu_ask on host" in capsys.readouterr().err


def test_main_refuses_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda:999", "--quick", "--force"]) == 2
    assert "device 'cuda:999'" in capsys.readouterr().err


def test_each_device_has_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    host = capsys.readouterr().out
    assert main(["--list", "--device", "cuda:0"]) == 0
    gpu = capsys.readouterr().out
    assert "ask: Native no-op ask" in host
    assert "gpu_" not in host
    assert all(line.startswith(("gpu_", "  ")) for line in gpu.splitlines())
    assert main(["--list", "--device", "cuda:0", "ask"]) == 0  # by name, on either


def test_a_failed_case_leaves_the_others_in_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def bad(setup: Setup) -> None:
        """Cannot be built."""
        raise OSError("no")

    cases = {"bad": Case("bad", "Bad", bad), "ask": Case("ask", "Two peers", _two_peers)}
    monkeypatch.setattr("bench.__main__.all_cases", lambda: cases)
    monkeypatch.setattr(machine, "measure_load", lambda **_: IDLE)
    target = tmp_path / "result.json"
    assert main(["--quick", "--rounds", "2", "--json", str(target)]) == 1
    assert "failed: bad: OSError: no" in capsys.readouterr().out
    assert [case["name"] for case in report.load(target)["cases"]] == ["bad", "ask"]
    assert main(["--quick", "--rounds", "1", "--merge", str(target), "ask"]) == 0
    merged = report.load(target)
    assert [len(case["contenders"][0]["samples"]) for case in merged["cases"]] == [0, 1]
    other = {**merged, "machine": {**merged["machine"], "cores": 1000}}
    target.write_text(report.dumps(other))
    assert main(["--quick", "--merge", str(target), "ask"]) == 2
    assert "cores is 1000" in capsys.readouterr().err


def test_every_bar_and_ratio_names_contenders_that_exist() -> None:
    cases = all_cases()
    names = {name: list_contenders(case) for name, case in cases.items()}
    for bar in BARS:
        for series in filter(None, (bar.series, bar.under)):
            assert series.partition(": ")[0] in names[bar.case], f"{bar.work}: {series}"
    for name, case in cases.items():
        setup = Setup(Effort.TINY, dry=True)
        case.build(setup)
        for series in {name for pair in setup.ratios for name in pair}:
            assert {series, series.partition(": ")[0]} & set(names[name]), name
        assert case.build.__doc__, name


def test_a_tiny_run_of_a_case_ends_in_a_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.all_cases", lambda: {"ask": Case("ask", "Two peers", _two_peers)})
    monkeypatch.setattr(machine, "measure_load", lambda **_: IDLE)
    target = tmp_path / "deep" / "result.json"
    assert main(["--quick", "--rounds", "2", "--json", str(target)]) == 0
    value = report.check(json.loads(target.read_text()))
    assert [series["status"] for series in value["cases"][0]["contenders"]] == ["ok", "ok"]
    assert "Two peers" in capsys.readouterr().out


def _two_peers(setup: Setup) -> None:
    """A queue and a constant."""
    with setup.attempt("queue", kind="peer"):
        actor = setup.enter(peers.queue_actor())
        setup.add("queue", lambda: actor.ask() or 1.0)
    with setup.attempt("constant"):
        setup.add("constant", lambda: 1.0)


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
        from bench import peers
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
