"""The lists of mutants fit the sources: each text occurs once, and the tests that must notice exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutate import Mutant, read_lists

ROOT = Path(__file__).resolve().parents[2]

MUTANTS = read_lists()


def test_names_are_unique() -> None:
    names = [(mutant.area, mutant.name) for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("area", sorted({mutant.area for mutant in MUTANTS}))
def test_every_mutant_fits_the_sources(area: str) -> None:
    wrong = []
    for mutant in (mutant for mutant in MUTANTS if mutant.area == area):
        if (ROOT / mutant.file).read_text().count(mutant.old) != 1 or mutant.old == mutant.new:
            wrong.append(f"{mutant.name}: its text does not occur once in {mutant.file}")
        wrong += [f"{mutant.name}: {lack}" for lack in lacking(mutant)]
    assert not wrong


def lacking(mutant: Mutant) -> list[str]:
    """What a mutant needs and does not have."""
    programs = {path.stem for path in (ROOT / "tests" / "native").rglob("test_*.c")}
    files = [test.partition("::")[0] for test in mutant.tests]
    found = [f"no file {name}" for name in files if not (ROOT / name).exists()]
    found += [f"no native test {name}" for name in mutant.native if name not in programs]
    return found if mutant.tests or mutant.native else ["no tests"]
