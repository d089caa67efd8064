"""The command line of the benchmarks, with small cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_case import IDLE

from bench.__main__ import main
from bench.harness import Case, Setup, documents, machine, peers


def _two_peers(setup: Setup) -> None:
    """A queue and a constant."""
    with setup.attempt("queue", kind="peer"):
        actor = setup.enter(peers.queue_actor())
        setup.add("queue", lambda: actor.ask() or 1.0)
    with setup.attempt("constant"):
        setup.add("constant", lambda: 1.0)


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
    assert [case["name"] for case in documents.load(target)["cases"]] == ["bad", "ask"]
    assert main(["--quick", "--rounds", "1", "--merge", str(target), "ask"]) == 0
    merged = documents.load(target, samples=True)
    assert [len(case["contenders"][0]["samples"]) for case in merged["cases"]] == [0, 1]
    documents.write(target, {**merged, "machine": {**merged["machine"], "cores": 1000}})
    assert main(["--quick", "--merge", str(target), "ask"]) == 2
    assert "cores is 1000" in capsys.readouterr().err


def test_a_tiny_run_of_a_case_ends_in_a_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.all_cases", lambda: {"ask": Case("ask", "Two peers", _two_peers)})
    monkeypatch.setattr(machine, "measure_load", lambda **_: IDLE)
    target = tmp_path / "deep" / "result.json"
    assert main(["--quick", "--rounds", "2", "--json", str(target)]) == 0
    value = documents.check(json.loads(target.read_text()))
    assert [series["status"] for series in value["cases"][0]["contenders"]] == ["ok", "ok"]
    assert "Two peers" in capsys.readouterr().out
