"""docs/libraries/elementwise.md: it lists the functions of the language."""

from __future__ import annotations

import re
from pathlib import Path

from atomr_native.libraries.elementwise.expressions import FUNCTIONS

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "elementwise.md").read_text(encoding="utf-8")


def test_the_page_lists_the_functions_of_the_language() -> None:
    row = re.search(r"^\| functions \| `([a-z0-9 ]+)` \|$", TEXT, re.MULTILINE)
    assert row is not None
    assert row[1].split() == list(FUNCTIONS)
