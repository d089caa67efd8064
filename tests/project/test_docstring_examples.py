"""Examples in docstrings of public classes run on the host device, and print what they say."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import atomr_native as an
from atomr_native.libraries import EXPORTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLASSES = [name for name in an.__all__ if inspect.isclass(getattr(an, name))]
#: Libraries of which every public class has an example.
WHOLE = ("blas", "blas_lt", "elementwise", "fft", "float8", "fused", "random")
#: A text in an example that runs a function by Numba.
COMPILED = "load="
NUMBA = importlib.util.find_spec("numba_cuda") is not None
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST


def examples(name: str) -> list[doctest.DocTest]:
    """Return the examples of a class and of its methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [found for found in finder.find(getattr(an, name), name, module=False) if found.examples]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def device() -> Iterator[an.Device]:
    with an.System(isolation="thread", standby="off") as system:
        yield system.device("host")


@pytest.mark.parametrize("name", [name for name in CLASSES if examples(name)])
def test_examples_do_what_they_say(device: an.Device, name: str) -> None:
    said: list[str] = []
    for test in examples(name):
        if not NUMBA and any(COMPILED in example.source for example in test.examples):
            continue
        test.globs = {"an": an, "np": np, "device": device}
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("library", WHOLE)
def test_every_public_class_of_a_library_has_an_example(library: str) -> None:
    names = [name for name, module in EXPORTS.items() if module.startswith(f"libraries.{library}.")]
    assert names
    assert not [name for name in names if not examples(name)]


def names_in(code: str) -> Iterator[str]:
    """Yield the names that a piece of code uses."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_every_public_name_has_an_example() -> None:
    """In its own docstring, or in a block of the documents; test_doc_blocks.py runs those."""
    block = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    used = {name for page in pages for code in block.findall(page.read_text("utf-8")) for name in names_in(code)}
    missing = []
    for module in (
        "",
        ".array_api",
        ".array_api.fft",
        ".array_api.linalg",
        ".observe",
        ".patterns",
        ".testing",
        ".libraries.blas_lt.epilogues",
    ):
        loaded = importlib.import_module(f"atomr_native{module}")
        for name in loaded.__all__:
            if name not in used and not (loaded is an and name in CLASSES and examples(name)):
                missing.append(f"{module}.{name}")
    assert not missing
