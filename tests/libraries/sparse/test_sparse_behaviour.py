"""The table of waits, capture and equal bits: its data beside the documentation, and beside recorded programs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.sparse.behaviour import BEHAVIOUR

pytestmark = [pytest.mark.plain, pytest.mark.alike]
TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "sparse.md").read_text(encoding="utf-8")
#: Methods that send nothing, or of which the documentation speaks elsewhere.
OTHERS = {"matrix", "plan", "solver", "ask", "tell", "route_24"}
#: Methods that wait for formats of blocks or with padding only.
CHANGED = {"convert", "to_dense"}


def test_the_documentation_has_the_table() -> None:
    section = TEXT.partition("## Waits, capture, equal bits")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `") and "solver(" not in line]
    named = [name for row in rows for name in re.findall(r"`(?:pattern\.)?(\w+)`", row.split("|")[1])]
    assert sorted(set(named)) == sorted(BEHAVIOUR)
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")]
        for name in re.findall(r"`(?:pattern\.)?(\w+)`", cells[1]):
            found = BEHAVIOUR[name]
            padded = "padding" in cells[1]
            assert cells[2].partition(",")[0] == ("yes" if found.waits or (padded and name in CHANGED) else "no"), name
            assert cells[3].startswith("refused") == (cells[2] == "yes"), name
            assert cells[4].startswith("yes") == (found.deterministic == "always" or padded), name


def test_programs_take_what_does_not_wait() -> None:
    with an.System() as system:
        device = system.device("host")
        sparse = device.sparse
        a = sparse.matrix(np.array([[4.0, 1.0], [1.0, 5.0]]))
        x, square = device.ones(2, "float64"), device.ones((2, 2), "float64")
        even = device.zeros((32, 32), "float16")
        structured = sparse.structured(even)
        pattern, sliced = sparse.matmul_pattern(a, a), sparse.convert(a, "sliced_ell")
        arguments = {
            "spmv": (a, x), "spmm": (a, square), "sddmm": (a, square, square), "solve_triangular": (a, x),
            "convert": (a, "csc"), "from_dense": (square,), "matmul_pattern": (a, a), "add_pattern": (a, a),
            "matmul": (a, a), "add": (a, a), "prune_24": (even,), "check_24": (even,), "compress_24": (even,),
            "structured": (even,), "direct": (a,), "linear_24": (even, structured),
        }  # fmt: skip

        def send(name: str) -> None:
            if name == "tell":
                pattern.tell(a.values, a.values)
            elif name == "semiring":
                sparse.semiring(a, x, multiply=np.add, add=np.minimum, start=1e9)
            else:
                getattr(sparse, name)(*arguments.get(name, (a,)))

        for name, found in BEHAVIOUR.items():
            if found.recorded:
                with device.record():
                    send(name)
            else:
                with pytest.raises(an.InvalidRequest, match="a recording takes no copies"), device.record():
                    send(name)
        for name in CHANGED:
            with pytest.raises(an.InvalidRequest, match="a recording takes no copies"), device.record():
                sparse.convert(sliced, "csr") if name == "convert" else sparse.to_dense(sliced)


def test_every_method_has_a_row() -> None:
    public = {name for name in dir(an.Sparse) if not name.startswith("_")}
    assert public - OTHERS == set(BEHAVIOUR) - {"tell"}
