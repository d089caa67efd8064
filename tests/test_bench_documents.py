"""Result files of benchmarks, the pages made of them, and how machines are described and refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from bench_case import FACTS, IDLE, MACHINE, SMALL, document, small
from scripts import ROOT

from bench import machine, report
from bench.__main__ import main
from bench.bars import Bar, judge
from bench.harness import Case, Effort, run_case


def test_document_survives_json_and_its_check() -> None:
    value = json.loads(json.dumps(document()))
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
        report.check({**document(), key: value})


def test_path_names_date_kind_and_commit_only() -> None:
    assert report.default_path(MACHINE).name == "2026-01-02-some-e5-v3-2c-0123456789.json"
    assert report.default_path({**MACHINE, "commit": None, "dirty": True}).name.endswith("nocommit-dirty.json")


def test_description_of_this_machine_has_the_schema() -> None:
    value = document()
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
    source.write_text(json.dumps(document()))
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
    return report.document([result], {**described, **changes}, IDLE, Effort.FULL, seed=4, forced=False)


def test_a_page_shows_several_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    files[0].write_text(report.dumps(_gpu_document()))
    files[1].write_text(report.dumps(document()))
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
    value = document()
    text = report.dumps(value)
    assert json.loads(text) == json.loads(json.dumps(value))
    assert '"samples": [ 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0 ]' in text


def test_runs_of_one_machine_can_be_merged() -> None:
    old = json.loads(json.dumps(document()))
    for case in old["cases"]:
        del case["measured"]  # as results of the first version
    fresh = run_case(Case("await", "Another", small), Effort.QUICK, random.Random(4))
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
