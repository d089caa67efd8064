"""The benchmark of copies runs on a CUDA device, and says what it could not measure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
from scripts import ROOT

from bench.cases.memory.copies import BARS
from bench.harness import documents, report
from bench.harness.bars import judge


@pytest.fixture
def environment(fake_environment: dict[str, str]) -> dict[str, str]:
    with fake_cuda.using(fake_environment):
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}


def test_small_sizes(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "copies.json"
    command = [
        sys.executable,
        "-m",
        "bench.cases.memory.copies",
        "--most",
        "65536",
        "--rounds",
        "2",
        "--json",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    document = documents.load(path, samples=True)
    cases = {case["name"]: case for case in document["cases"]}
    for case, name in (
        ("4 KiB to the device", "put"), ("4 KiB to the host", "get out="), ("64 KiB there and back", "put, get"),
        ("64 KiB to the device", "C: cuMemcpyAsync, pinned, and synchronize"), ("4 KiB to the device", "put, caller"),
    ):  # fmt: skip
        series = {series["name"]: series for series in cases[f"copies, {case}"]["contenders"]}
        assert len(series[name]["samples"]) == 2
        assert min(series[name]["samples"]) > 0
    verdicts = {verdict.bar.name: verdict.state for verdict in judge(document["cases"], BARS)}
    assert verdicts["copy there and back, put, get, over C, 4 KiB"] in ("met", "missed")
    assert "copy there and back, put, get, over C, 4 KiB: " in done.stdout  # a bar, with its verdict
    assert "Copies: 64 KiB to the host" in report.markdown([document], BARS)
    torch = [line for line in done.stdout.splitlines() if line.startswith("  torch: cpu ")]
    assert torch
    assert all("skipped" in line or "GB/s" in line for line in torch)
