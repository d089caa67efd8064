"""Result files of benchmarks, the pages made of them, and how machines are described and refused."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from bench_case import FACTS, IDLE, MACHINE, SMALL, document, small
from scripts import ROOT

from bench.__main__ import main
from bench.harness import Case, Effort, Interval, documents, machine, median_interval, ratio_interval, report, run_case
from bench.harness.bars import Bar, judge
from bench.harness.discovery import all_bars


def test_document_survives_json_and_its_check() -> None:
    value = json.loads(json.dumps(document()))
    assert documents.check(value) is value
    (case,) = value["cases"]
    assert case["contenders"][0]["summary"]["count"] == 7
    states = {verdict.bar.name: verdict.state for verdict in judge(value["cases"], all_bars())}
    assert states == {"no-op ask, spinning, process": "met", "no-op ask, spinning, thread": "not measured"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("schema", 0, "schema 0"), ("machine", {}, r"machine\.date"), ("cases", None, r"document\.cases")],
)
def test_check_names_what_is_wrong(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        documents.check({**document(), key: value})


def test_path_names_date_kind_and_commit_only() -> None:
    assert documents.default_path(MACHINE).name == "2026-01-02-some-e5-v3-2c-0123456789.json"
    assert documents.default_path({**MACHINE, "commit": None, "dirty": True}).name.endswith("nocommit-dirty.json")


def test_description_of_this_machine_has_the_schema() -> None:
    value = document()
    value["machine"] = machine.describe()
    documents.check(value)
    assert str(ROOT) not in json.dumps(value["machine"])


def test_verdicts_are_honest_about_the_spread() -> None:
    def case(low: float, middle: float, high: float) -> list[dict[str, object]]:
        summary = {"median": middle, "low": low, "high": high, "count": 51, "coverage": 0.95}
        return [{"name": "c", "contenders": [{"name": "s", "summary": summary}], "ratios": []}]

    bar = (Bar("work", "c", "s", 1.0, "us"),)
    verdicts = [judge(case(*figures), bar)[0] for figures in ((0.8, 0.9, 1.0), (0.8, 0.9, 1.1), (0.9, 1.1, 1.2))]
    assert [(verdict.state, verdict.sure) for verdict in verdicts] == [("met", True), ("met", False), ("missed", False)]
    assert judge([], bar) == []


def test_a_bar_may_limit_a_difference() -> None:
    summaries = [
        {
            "name": name,
            "summary": {"median": middle, "low": middle - 1, "high": middle + 2, "count": 51, "coverage": 0.95},
        }
        for name, middle in (("ours", 30.0), ("theirs", 20.0))
    ]
    cases = [{"name": "c", "contenders": summaries, "ratios": []}]
    verdicts = [
        judge(cases, [Bar("work", "c", "ours", limit, "ms", beyond="theirs")])[0] for limit in (13.0, 11.0, 6.0)
    ]
    assert [(verdict.state, verdict.sure) for verdict in verdicts] == [("met", True), ("met", False), ("missed", True)]
    assert (verdicts[0].median, verdicts[0].low, verdicts[0].high) == (10.0, 7.0, 13.0)
    (missing,) = judge(cases, [Bar("work", "c", "ours", 1.0, "ms", beyond="nobody")])
    assert missing.state == "not measured"


def test_render_replaces_only_what_is_between_the_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, page = tmp_path / "result.json", tmp_path / "performance.md"
    documents.write(source, document())
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
    case = Case("gpu_alloc", "Allocate", small)
    result = run_case(case, Effort.FULL, random.Random(4), rounds=7)
    return documents.document([result], {**described, **changes}, IDLE, Effort.FULL, seed=4, forced=False)


def test_a_page_shows_several_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    documents.write(files[0], _gpu_document())
    documents.write(files[1], document())
    assert main(["render", *map(str, files)]) == 0
    page = capsys.readouterr().out
    assert page.index("## cuda:0: Some GPU 5000") < page.index("## host: Some(R)")
    assert "Some GPU 5000 (01234567), 3.0 GiB, 7 multiprocessors, compute capability 9.0, CUDA 13.2;" in page
    assert FACTS["uuid"] not in page
    hosts_first = [documents.load(files[1]), documents.load(files[0])]
    assert documents.load_all(tmp_path) == hosts_first
    (tmp_path / "c.json").write_text("{}")
    assert main(["render", str(tmp_path / "c.json")]) == 2
    assert "c.json: document.schema" in capsys.readouterr().err


def test_a_result_has_a_line_for_each_series_and_its_samples_beside_it(tmp_path: Path) -> None:
    value, path = document(), tmp_path / "a.json"
    documents.write(path, value)
    text = path.read_text()
    assert "samples" not in text
    assert text.count('{"name": ') == len(value["cases"][0]["contenders"])
    assert text.count('{"over": ') == len(value["cases"][0]["ratios"])
    assert documents.load(path, samples=True) == json.loads(json.dumps(value))
    raw = documents.raw_path(path)
    assert raw == tmp_path / "raw" / "a.json.gz"
    before = raw.read_bytes()
    documents.write(path, documents.load(path, samples=True))
    assert (path.read_text(), raw.read_bytes()) == (text, before)


def test_samples_that_are_missing_or_of_other_series_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    documents.write(path, document())
    assert "samples" not in documents.load(path)["cases"][0]["contenders"][0]
    path.write_text(path.read_text().replace('{"name": "twin"', '{"name": "Twin"'))
    with pytest.raises(ValueError, match=r"a\.json\.gz has not the samples of a\.json: 'Twin'"):
        documents.load(path, samples=True)
    documents.raw_path(path).unlink()
    with pytest.raises(FileNotFoundError):
        documents.load(path, samples=True)
    assert documents.load(path)["cases"][0]["name"] == "ask"


def test_runs_of_one_machine_can_be_merged() -> None:
    old = json.loads(json.dumps(document()))
    for case in old["cases"]:
        del case["measured"]  # as results of the first version
    fresh = run_case(Case("await", "Another", small), Effort.QUICK, random.Random(4))
    again = run_case(SMALL, Effort.QUICK, random.Random(4))
    later = {**MACHINE, "date": "2026-03-04T00:00:00Z", "commit": "fedcba9876543210"}
    both = documents.document([fresh, again], later, IDLE, Effort.FULL, seed=1, forced=False)
    one = documents.document([fresh], later, IDLE, Effort.FULL, seed=1, forced=False)
    merged = documents.check(documents.merge(old, one))
    assert [(case["name"], case["measured"]["date"]) for case in merged["cases"]] == [
        ("ask", MACHINE["date"]),
        ("await", later["date"]),
    ]
    assert {verdict.bar.name for verdict in judge(merged["cases"], all_bars())} >= {
        "no-op ask, spinning, process",
        "await, process",
    }
    page = report.markdown([merged], all_bars())
    assert f"Measured {MACHINE['date']}, commit 0123456789." in page
    assert "prove nothing: ask." in page
    assert [case["measured"]["date"] for case in documents.merge(old, both)["cases"]] == [later["date"]] * 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("cores", 64, "cores is 64"), ("device", None, "device name is None"), ("cpu", "Other", "cpu is 'Other'")],
)
def test_runs_of_different_machines_cannot_be_merged(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        documents.merge(_gpu_document(**{key: value}), _gpu_document())


def test_another_gpu_of_the_same_kind_is_named_where_it_was_used() -> None:
    other = machine.describe_gpu("cuda:0", {**FACTS, "uuid": "f" * 32})
    old = _gpu_document(device=other, date="2026-02-01T00:00:00Z")
    new = {**_gpu_document(), "cases": [{**_gpu_document()["cases"][0], "name": "gpu_tell"}]}
    assert "commit 0123456789, GPU ffffffff." in report.markdown([documents.merge(old, new)], all_bars())


# ------------------------------------------------------------------------------------------ what is committed

COMMITTED = sorted(documents.RESULTS.glob("*.json"))


def test_there_are_results_with_their_samples_and_nothing_else() -> None:
    assert COMMITTED
    raw = {documents.raw_path(path) for path in COMMITTED}
    assert {path for path in documents.RESULTS.rglob("*") if path.is_file()} == {*COMMITTED, *raw}


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_what_is_committed_is_what_its_samples_say(path: Path) -> None:
    value = documents.load(path, samples=True)
    assert str(ROOT) not in json.dumps(value)
    assert path.read_text() == documents.dumps(value)
    for case in value["cases"]:
        samples = {series["name"]: series["samples"] for series in case["contenders"]}
        for series in case["contenders"]:
            present = [sample for sample in series["samples"] if sample is not None]
            if series["status"] == "ok":
                _same(series["summary"], median_interval(present))
            else:
                assert series["summary"] is None
            if "members" in series:
                rounds = zip(*(samples[member] for member in series["members"]), strict=True)
                assert series["samples"] == pytest.approx([math.prod(r) ** (1 / len(r)) for r in rounds], rel=1e-5)
        for ratio in case["ratios"]:
            # A contender that failed, or never ran, has no rounds to pair, nor have two that never ran.
            over, under = samples[ratio["over"]], samples[ratio["under"]]
            found = ratio_interval(over, under) if len(over) == len(under) > 0 else None
            assert (found is None) == (ratio["summary"] is None)
            if found is not None:
                _same(ratio["summary"], found)


def _same(summary: dict[str, float], interval: Interval) -> None:
    """Samples are kept to six digits: each is right to 5e-6, their ratio to 1e-5, and is rounded once more."""
    assert summary == pytest.approx(asdict(interval), rel=1.5e-5)


# ------------------------------------------------------------------------------------------ machines


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
