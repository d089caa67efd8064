"""What the solver refuses, with values and rules; and its table in the docs.  Needs no device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries.solver.behaviour import BEHAVIOUR
from atomr_native.libraries.solver.decomposition_rules import DECOMPOSITIONS
from atomr_native.libraries.solver.host import scaled_product
from atomr_native.libraries.solver.routes import ROUTES as LIMITS
from atomr_native.libraries.solver.spec import ROUTINES

pytestmark = [pytest.mark.plain, pytest.mark.alike]
TEXT = (Path(__file__).resolve().parents[3] / "docs" / "libraries" / "solver.md").read_text(encoding="utf-8")
A, V = np.eye(3), np.ones(3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"routine": "qr", "a": A}, ["unknown routine 'qr'", "cholesky, "]),
        ({"routine": "solve", "a": A}, ["solve needs b", "a, b"]),
        ({"routine": "inv", "a": A, "b": A}, ["inv does not take b"]),
        ({"routine": "inv", "a": V}, [r"\(3,\)", "matrix of 2 axes"]),
        ({"routine": "inv", "a": A[:2]}, [r"\(2, 3\)", "square"]),
        ({"routine": "inv", "a": A.astype("f2")}, ["float16; allowed: float32, float64, complex64, complex128"]),
        ({"routine": "solve", "a": A, "b": np.ones((4, 2))}, [r"\(4, 2\); allowed: \(3,\) or \(..., 3, any\)"]),
        ({"routine": "solve", "a": A, "b": V.astype("f4")}, ["b has dtype float32; allowed: float64"]),
        ({"routine": "solve", "a": np.ones((2, 3, 3)), "b": np.ones((4, 3, 1))}, ["batch axes do not broadcast"]),
        ({"routine": "solve", "a": A, "b": V, "assume": "banded"}, ["banded", "'general', 'positive_definite'"]),
        ({"routine": "solve", "a": A, "b": V, "lower": False}, ["lower=False with assume='general'"]),
        ({"routine": "cholesky", "a": A, "trans": True}, ["does not take trans=True; it takes lower, check"]),
        ({"routine": "cholesky", "a": A, "lower": 1}, ["lower=1"]),
        ({"routine": "cholesky_solve", "a": A, "b": V, "check": False}, ["does not take check=False"]),
        ({"routine": "det", "a": A, "check": False}, ["check=False with assume='general'", "allowed: check=True"]),
        ({"routine": "inv", "a": A, "info": np.zeros((), "i4")}, ["info is given", "allowed: check=False"]),
        ({"routine": "inv", "a": A, "check": False, "info": np.zeros((), "i8")}, ["int64; allowed: int32"]),
        ({"routine": "inv", "a": A, "out": A}, ["out overlaps a", "omit it"]),
        ({"routine": "inv", "a": A, "out": np.ones((3, 4))}, [r"\(3, 4\); allowed: \(3, 3\)"]),
        ({"routine": "inv", "a": A, "out": np.broadcast_to(V, (3, 3))}, ["overlaps itself"]),
        ({"routine": "inv", "a": A, "pivots_out": np.zeros(3, "i4")}, ["does not take pivots_out"]),
        ({"routine": "lu_solve", "a": A, "b": V, "pivots": np.zeros(2, "i4")}, [r"\(2,\); allowed: \(..., 3\)"]),
        ({"routine": "lu_solve", "a": A, "b": V, "pivots": np.zeros(3)}, ["pivots has dtype float64; allowed: int32"]),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(an.InvalidRequest) as caught:
        an.SolverRequest(**options)
    for word in words:
        assert caught.match(word)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"routine": "schur", "a": A}, ["unknown decomposition 'schur'", "qr, "]),
        ({"routine": "qr"}, ["qr needs a"]),
        ({"routine": "qr", "a": V}, [r"\(3,\)", "matrix of 2 axes"]),
        ({"routine": "qr", "a": A, "mode": "full"}, ["'full'", "'reduced', 'complete', 'r'"]),
        ({"routine": "svd", "a": A, "mode": "r"}, ["'r'", "'reduced', 'complete'"]),
        ({"routine": "qr", "a": A, "check": False}, ["does not take check=False; it takes mode"]),
        ({"routine": "qr_factor", "a": A, "mode": "complete"}, ["it takes no option"]),
        ({"routine": "qr", "a": A, "mode": "r", "q": A}, ["does not take q; its outputs: r"]),
        ({"routine": "svd", "a": A, "w": V}, ["does not take w; its outputs: u, s, vh"]),
        ({"routine": "svd", "a": A.astype("f2")}, ["float16; allowed: float32"]),
        ({"routine": "svdvals", "a": A.astype("c8"), "s": V}, ["s has dtype float64; allowed: float32"]),
        ({"routine": "svdvals", "a": A, "info": np.zeros((), "i4")}, ["allowed: check=False"]),
        ({"routine": "eigh", "a": A[:2]}, [r"\(2, 3\)", "square"]),
        ({"routine": "eigh", "a": A, "v": A}, ["v overlaps a"]),
        ({"routine": "eigh", "a": A, "lower": None}, ["lower=None"]),
        ({"routine": "qr_multiply", "a": A[:2], "tau": V[:2], "c": A}, [r"\(2, 3\)", r"a\[..., :2\]"]),
        ({"routine": "qr_multiply", "a": A, "tau": V[:2], "c": A}, [r"\(2,\); allowed: \(..., 3\)"]),
        ({"routine": "qr_multiply", "a": A, "tau": V, "c": A[:2]}, [r"\(2, 3\); allowed: \(..., 3, any\)"]),
        ({"routine": "qr_multiply", "a": A, "tau": V, "c": A.astype("f4")}, ["c has dtype float32; allowed: float64"]),
    ],
)
def test_decompositions_that_cannot_be_are_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(an.InvalidRequest) as caught:
        an.DecompositionRequest(**options)
    for word in words:
        assert caught.match(word)


def test_new_results_are_column_major_and_scratch_is_no_result() -> None:
    lowered = an.SolverRequest(routine="solve", a=np.ones((2, 3, 3)), b=np.ones((2, 3, 4)), route="loop").lowered
    specs = {operand.name: operand.spec for operand in lowered.operands}
    assert list(specs) == ["a", "b", "out", "factor"]
    assert specs["out"].strides == (96, 8, 24)
    out = np.ones((2, 3, 4))
    operands = {"a": np.ones((2, 3, 3)), "b": np.ones((2, 3, 4)), "out": out}
    lowered = an.SolverRequest(routine="solve", route="loop", **operands).lowered
    assert [operand.name for operand in lowered.operands] == ["a", "b", "out", "factor", "work"]
    names = {operand.name: operand.name for operand in lowered.operands}
    assert lowered.collect(names) == "out"


def test_products_of_pivots_are_scaled() -> None:
    assert scaled_product(np.array([])) == (1.0, 0)
    value, exponent = scaled_product(np.full(3001, 1e300))
    assert abs(np.log2(value) + exponent - 3001 * np.log2(1e300)) < 1e-6
    value, exponent = scaled_product(np.array([3j, 0.5, -2.0]))
    assert value * 2.0**exponent == -3j


def test_the_table_of_the_docs_has_the_routines_and_options_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)\([^|]*\)` \|[^|]*\|([^|]*)\|$", TEXT, re.MULTILINE))
    assert list(rows) == [*ROUTINES, *DECOMPOSITIONS]
    for name, routine in ROUTINES.items():
        flags = {*routine.flags, *(("check",) if routine.checks else ())}
        assert set(re.findall(r"`(\w+)`", rows[name])) == flags, name
    for name, rules in DECOMPOSITIONS.items():
        assert set(re.findall(r"`(\w+)`", rows[name])) >= set(rules.options), name


def test_the_table_of_waits_has_every_routine() -> None:
    section = TEXT.partition("## Waits, capture, equal bits")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(BEHAVIOUR)
    assert set(BEHAVIOUR) >= {*ROUTINES, *DECOMPOSITIONS}
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")]
        for name in re.findall(r"`(\w+)`", cells[1]):
            found = BEHAVIOUR[name]
            assert cells[2].partition(",")[0] == ("yes" if found.waits else "no"), name
            assert (" lane" in cells[2] or "#algorithms" in cells[2]) == found.lane_waits, name
            assert ("captured" in cells[3]) == found.captured, name
            assert cells[3].startswith("refused") == found.waits, name
            assert cells[4].startswith("yes" if found.deterministic else "no"), name


def test_the_table_of_routes_is_that_of_the_code() -> None:
    section = TEXT.partition("## Ways on a GPU")[2].partition("<!-- routes: begin -->")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    found = {}
    for row in rows:
        _, names, *cells = row.split("|")
        limits = [re.search(r"\d+", cell) for cell in cells[:2]]
        for name in re.findall(r"`(\w+)`", names):
            found[name] = tuple(
                int(limit[0]) if limit and "up to" in cell else 2**31 if "any" in cell else 0
                for cell, limit in zip(cells, limits, strict=False)
            )
    assert found == {name: tuple(limits) for name, limits in LIMITS.items()}
