"""Folders of the benchmarks: what imports what, and what each library has."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import scripts
from scripts import ROOT

from bench.harness import discovery
from bench.harness.programs import PROGRAMS

BENCH = ROOT / "bench"
LIBRARIES = (
    "blas", "blas_lt", "cudnn", "cutlass", "elementwise", "fft", "float8", "fused", "kernel", "random", "solver",
    "sparse", "tensor",
)  # fmt: skip


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in BENCH.rglob("*.py")}


def _imported(path: Path) -> Iterator[str]:
    """What a module imports, in functions too: a module that is named in a package counts, and not the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


IMPORTS = {name: set(_imported(path)) & set(MODULES) for name, path in MODULES.items()}


def test_no_module_imports_itself_by_way_of_others() -> None:
    order = list(graphlib.TopologicalSorter(IMPORTS).static_order())
    assert (
        order.index("bench.harness.unavailable") < order.index("bench.harness.harness") < order.index("bench.__main__")
    )


def test_the_harness_knows_no_case_and_libraries_do_not_know_each_other() -> None:
    for name, imported in IMPORTS.items():
        group = ".".join(name.split(".")[:3])
        for other in imported:
            if name.startswith("bench.harness"):
                assert not other.startswith(("bench.cases", "bench.libraries")), f"{name} imports {other}"
            elif other.startswith(("bench.cases.", "bench.libraries.")):
                assert other.startswith(group), f"{name} imports {other}"


@pytest.mark.parametrize("path", sorted(BENCH.glob("*/*/twin.c")), ids=lambda path: path.parent.name)
def test_a_twin_names_no_other(path: Path) -> None:
    own = {header.name for header in path.parent.glob("*.h")} | {"loops.h"}
    ours = {header.name for header in BENCH.rglob("*.h")}
    assert set(re.findall(r'#include "(?:[^"]*/)?([^"/]+)"', path.read_text())) & ours <= own


def test_programs_are_made_of_files_that_exist() -> None:
    for patterns in PROGRAMS.values():
        for pattern in patterns:
            assert list(BENCH.glob(pattern)), pattern


def test_every_library_has_a_case_of_a_gpu() -> None:
    assert set(discovery.library_names()) >= set(LIBRARIES)
    found = {
        module.__name__.split(".")[2]
        for module in discovery.modules()
        if module.__name__.startswith("bench.libraries.") and any("cuda" in case.devices for case in module.CASES)
    }
    assert found == set(discovery.library_names())


def test_cases_are_found_without_the_package_and_without_numpy() -> None:
    scripts.run(
        """
        import sys
        from bench.harness.discovery import all_bars, all_cases
        assert all_bars() and all_cases()
        assert not {"atomr_native", "numpy"} & set(sys.modules)
        """
    )


def test_a_folder_is_found_without_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for group, folder in (("cases", "runtime"), ("libraries", "cufft"), ("libraries", "_draft"), ("libraries", ".git")):
        (tmp_path / group / folder).mkdir(parents=True)
    monkeypatch.setattr(discovery, "BENCH", tmp_path)
    assert discovery.library_names() == ["cufft"]
    twin = (BENCH / "libraries" / "blas_lt" / "twin.c").relative_to(BENCH)
    assert any(twin.match(pattern) for pattern in PROGRAMS["loops"])
