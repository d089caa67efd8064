"""A run of the tests says in a few lines what it has left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
CONFTEST = """
import pytest
from left_out import LeftOut

plugin = LeftOut()

def pytest_configure(config):
    config.pluginmanager.register(plugin)

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    plugin.drop(config, items, {item: "no GPU" for item in items if "gpu" in item.name})
"""
TESTS = """
import pytest

@pytest.mark.parametrize("i", range(300))
def test_gpu(i): pass

@pytest.mark.parametrize("i", range(40))
def test_rare(i):
    pytest.skip(f"reason {i}" if i > 20 else "a frequent reason")

def test_works(): pass
"""


def test_reasons_are_counted_by_one_process_and_by_several(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    for options in ((), ("-n", "2")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment(), check=False)
        assert done.returncode == 0, done.stdout
        said = [line.strip() for line in done.stdout.splitlines() if "not run" in line]
        assert said[:2] == ["300 not run: no GPU", "21 not run: a frequent reason"]
        assert said[-1] == "9 not run: other reasons; -rs shows them"
        assert len(said) == 13
        assert "1 passed, 40 skipped" in done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HELPERS)}
