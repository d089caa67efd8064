"""Links and paths in the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "atomr_native/**/*.md", "cython/**/*.md", "bench/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts and "build" not in path.parts
)

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
#: Paths of files in code spans: with a folder, or of a kind that only files have.
NAMED = re.compile(
    r"`([\w./-]+/[\w.-]+\.(?:py|pyx|pyi|pxi|pxd|c|h|md|json|toml)|[\w-]+\.(?:pyx|pxi|pxd|c|h))(?:::\w+)?`"
)
#: Where a page may look for the files that it names: beside it, at the top, and in the folders of sources.
BASES = ("", "atomr_native", "cython", "cython/runtime", "cython/cuda", "cython/libraries", "tests")
#: Files of others, and those of recipes.
FOREIGN = re.compile(r"<|^(cublas\w*|cufft\w*|library_types|cuda\w*|nvrtc)\.h$")


def text_of(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", text_of(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = 0
        while (unique := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(unique)
    return found


def test_there_are_pages() -> None:
    assert {Path("README.md"), Path("docs/architecture.md"), Path("atomr_native/plans/DESIGN.md")} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(re.sub(r"`[^`]*`", "`code`", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page.parent / name).resolve() if name else ROOT / page
        if not file.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(file.relative_to(ROOT)):
            broken.append(f"{target}: no such heading")
    assert not broken


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=str)
def test_named_files_exist(page: Path) -> None:
    missing = []
    for name in NAMED.findall(text_of(page)):
        if FOREIGN.search(name) or "*" in name:
            continue
        places = [ROOT / page.parent / name, *(ROOT / base / name for base in BASES)]
        folders = () if "/" in name else ("cython", "tests", "bench")
        if not any(place.exists() for place in places) and not any(list((ROOT / f).rglob(name)) for f in folders):
            missing.append(name)
    assert not missing
