"""docs/blas_lt.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from atomr_native._blas_spec import ROUTINES
from atomr_native._matmul_epilogue import Epilogue
from atomr_native._matmul_scales import scale_shapes
from atomr_native._matmul_types import RULES
from atomr_native.worker.cuda.lt_tables import COMPUTE, SCALE_MODES

TEXT = (Path(__file__).parents[1] / "docs" / "blas_lt.md").read_text()


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


def test_modes_epilogues_scales_and_routines_are_all_there() -> None:
    modes = {mode for rule in RULES.values() for mode in rule.modes}
    assert modes == set(COMPUTE)
    assert all(f"`{mode}`" in TEXT or mode.endswith("_pedantic") for mode in modes)
    assert all(f"`{epilogue.value}`" in TEXT for epilogue in Epilogue)
    assert all(f"`{routine}`" in TEXT for routine in ROUTINES)
    rows = dict(re.findall(r"^\| (\w+) \| (`\(.*?`) \|", TEXT, re.M))
    assert set(rows) == set(SCALE_MODES) - {"none"}
    assert set(scale_shapes("a", 1, 1)) == set(rows)
