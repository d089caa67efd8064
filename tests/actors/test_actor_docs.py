"""docs/actors.md: its guarantees name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "actors.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", TEXT)))


def test_every_guarantee_names_tests_that_exist() -> None:
    assert len(NAMED) > 70
    for file, name in NAMED:
        (path,) = (ROOT / "tests").rglob(file)
        source = path.read_text(encoding="utf-8")
        assert re.search(rf"^(def {name}\(|{name} = )", source, re.MULTILINE), f"{file} has no {name}"


def test_every_row_of_a_guarantee_names_a_test() -> None:
    for line in TEXT.splitlines():
        if line.startswith("| ") and not line.startswith(("| guarantee", "| ---")):
            assert "::" in line, line
