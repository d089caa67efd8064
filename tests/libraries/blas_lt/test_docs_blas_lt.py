"""docs/libraries/blas_lt.md: its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from atomr_native.libraries._scaling import scale_shapes
from atomr_native.libraries.blas_lt.cuda.tables import COMPUTE, SCALE_MODES
from atomr_native.libraries.blas_lt.epilogue import Epilogue
from atomr_native.libraries.blas_lt.types import RULES

TEXT = (Path(__file__).parents[3] / "docs" / "libraries" / "blas_lt.md").read_text(encoding="utf-8")


def types_table() -> str:
    rows = [
        f"| {a} | {b} | {', '.join(rule.outputs)} | {rule.accumulate} | {', '.join(f'`{m}`' for m in rule.modes)} |"
        for (a, b), rule in RULES.items()
    ]
    return "\n".join(rows)


def test_the_table_of_types_is_the_codes() -> None:
    table = re.search(r"<!-- types -->\n[^\n]*\n[^\n]*\n(.*?)\n<!-- end -->", TEXT, re.S)
    assert table is not None
    assert table[1] == types_table(), f"write this:\n{types_table()}"


def test_modes_epilogues_and_scales_are_all_there() -> None:
    modes = {mode for rule in RULES.values() for mode in rule.modes}
    assert modes == set(COMPUTE)
    assert all(f"`{mode}`" in TEXT or mode.endswith("_pedantic") for mode in modes)
    assert all(f"`{epilogue.value}`" in TEXT for epilogue in Epilogue)
    rows = dict(re.findall(r"^\| (\w+) \| (`\(.*?`) \|", TEXT, re.M))
    assert set(rows) == set(SCALE_MODES) - {"none"}
    assert set(scale_shapes("a", 1, 1)) == set(rows)
