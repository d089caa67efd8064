"""Finding cases by walking the folders: a module counts when it is in ``bench/cases/*/`` or ``bench/libraries/*/``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from bench.harness.bars import Bar
from bench.harness.harness import Case

__all__ = ["all_bars", "all_cases", "library_names", "modules"]

BENCH = Path(__file__).resolve().parents[1]
GROUPS = ("cases", "libraries")


def _folders(group: str) -> list[Path]:
    return sorted(path for path in (BENCH / group).iterdir() if path.is_dir() and not path.name.startswith(("_", ".")))


def library_names() -> list[str]:
    """Names of the libraries that have a folder here."""
    return [folder.name for folder in _folders("libraries")]


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of cases, in the order of folders and names; imports them."""
    return tuple(
        importlib.import_module(f"bench.{group}.{folder.name}.{path.stem}")
        for group in GROUPS
        for folder in _folders(group)
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith("_")
    )


def _cases() -> Iterator[Case]:
    for module in modules():
        yield from getattr(module, "CASES", ())


def all_cases() -> dict[str, Case]:
    """Every case by name.

    Raises
    ------
    ValueError
        Two have the same name.
    """
    found: dict[str, Case] = {}
    for case in _cases():
        if case.name in found:
            raise ValueError(f"two cases are called {case.name!r}")
        found[case.name] = case
    return found


def all_bars() -> list[Bar]:
    """Every bar, in the order of the modules of their cases."""
    return [bar for module in modules() for bar in getattr(module, "BARS", ())]
