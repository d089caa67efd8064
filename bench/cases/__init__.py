"""One module a row group; each has a tuple ``CASES``.

A case asks the public API only, and imports the package inside `device`, so that twins and peers run without it.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench.harness import Case

__all__ = ["all_cases"]


def all_cases() -> dict[str, Case]:
    """Every case by name, in the order of the modules' names."""
    found: dict[str, Case] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for case in module.CASES:
            if case.name in found:
                raise ValueError(f"two cases are called {case.name!r}")
            found[case.name] = case
    return found
