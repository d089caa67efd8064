"""docs/libraries/blas.md: its table has every routine with its operands."""

from __future__ import annotations

import re
from pathlib import Path

from atomr_native.libraries.blas.spec import ROUTINES

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "blas.md").read_text(encoding="utf-8")


def test_the_table_has_the_routines_and_flags_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)\([^|]*\)` \|[^|]*\|([^|]*)\|$", TEXT, re.MULTILINE))
    assert list(rows) == list(ROUTINES)
    for routine, (_, _, flags) in ROUTINES.items():
        assert set(re.findall(r"`(\w+)`", rows[routine])) - {"alpha", "beta", "out"} == set(flags), routine
