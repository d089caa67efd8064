"""The reference names every public name, once, and the index of errors every error."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

import atomr_native as an
from atomr_native import errors

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Submodules whose names users import, besides those of the package.
SUBMODULES = (
    "array_api",
    "array_api.fft",
    "array_api.linalg",
    "epilogues",
    "observe",
    "patterns",
    "ray",
    "ray.in_process",
    "testing",
)


def documented() -> Counter[str]:
    """The dotted names that the reference has entries for."""
    found: Counter[str] = Counter()
    for page in (DOCS / "reference").glob("*.md"):
        module = ""
        for directive, name in re.findall(r"^\.\. ([\w:]+):: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            if directive in ("currentmodule", "module"):
                module = name
            else:
                found[f"{module}.{name}"] += 1
    return found


def test_the_reference_has_every_public_name() -> None:
    wanted = {f"atomr_native.{name}" for name in an.__all__} - {f"atomr_native.{name}" for name in SUBMODULES}
    for module in SUBMODULES:
        loaded = getattr(an, module, None) or importlib.import_module(f"atomr_native.{module}")
        wanted |= {f"atomr_native.{module}.{name}" for name in loaded.__all__}
    found = documented()
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    assert "`atomr_native.__version__`" in text
    wanted.discard("atomr_native.__version__")
    assert not wanted - set(found), "without an entry in docs/reference"
    extra = {name for name in set(found) - wanted if not name.startswith("atomr_native.doctor.")}
    assert not extra, "in docs/reference, and not public"
    assert not [name for name, count in found.items() if count > 1], "documented twice"


def test_the_reference_lists_its_pages() -> None:
    index = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(\w+)$", index, re.MULTILINE))
    assert {page.stem for page in (DOCS / "reference").glob("*.md")} - {"index"} == listed


def test_the_site_lists_every_page() -> None:
    toctree = re.findall(r"^([\w./-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in pages if not page.startswith("reference/")} - set(toctree) == {"index"}
    for name in toctree:
        assert (DOCS / f"{name}.md").exists(), name


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name not in ("MessageCall", "Suspect")])
def test_the_index_has_every_error_with_its_attributes(name: str) -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    if name == "AtomrError":
        assert "`AtomrError`" in text
        return
    row = re.search(rf"^\| `{name}` \|(.*)$", text, re.MULTILINE)
    assert row is not None
    kind = getattr(an, name)
    for base in kind.__bases__:
        if base not in (errors.AtomrError, Exception):
            assert f"`{base.__name__}`" in row[1]
    section = re.search(r"Attributes\n-+\n(.*)", kind.__doc__ or "", re.DOTALL)
    attributes = re.findall(r"^ *([\w, ]+) : ", section[1], re.MULTILINE) if section else []
    for attribute in ", ".join(attributes).split(", ") if attributes else ():
        assert f"`{attribute.strip()}`" in row[1], attribute


def test_the_options_of_system_are_in_its_guide() -> None:
    import inspect

    text = (DOCS / "system.md").read_text(encoding="utf-8")
    table = {name for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert set(inspect.signature(an.System).parameters) <= table


def test_names_in_documents_exist() -> None:
    owners = {
        "device": an.Device, "dev": an.Device, "system": an.System, "context": an.Context, "ref": an.GpuRef,
    }  # fmt: skip
    wrong = []
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        if page.is_relative_to(DOCS / "design"):
            continue  # of what is planned, too
        text = page.read_text(encoding="utf-8")
        wrong += [(page.name, name) for name in re.findall(r"\ban\.([A-Za-z_]\w*)", text) if not hasattr(an, name)]
        for owner, name in re.findall(r"`(\w+)\.([a-z_]+)\(", text):
            if owner in owners and not any(hasattr(kind, name) for kind in (owners[owner], an.ActorRef)):
                wrong.append((page.name, f"{owner}.{name}"))
    assert not wrong
