"""docs/actors.md: its promises name tests that exist, and its examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "actors.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", TEXT)))
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_every_promise_names_tests_that_exist() -> None:
    assert len(NAMED) > 70
    for file, name in NAMED:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(def {name}\(|{name} = )", source, re.MULTILINE), f"{file} has no {name}"


def test_every_row_of_a_promise_names_a_test() -> None:
    for line in TEXT.splitlines():
        if line.startswith("| ") and not line.startswith(("| promise", "| ---")):
            assert "::" in line, line


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if number == 0:
        assert done.stdout == "16\n"
