"""Programs decide by an error's type and attributes: no module reads the wording of an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import atomr_native

_PACKAGE = Path(atomr_native.__file__).parent
_FOLDERS = (_PACKAGE, Path(__file__).parents[1] / "helpers")
#: Names of exceptions, besides those that `except` binds.
_ERRORS = {"error", "err", "exc", "exception", "refusal", "failure"}
_TEXTS = {"args", "message", "msg", "strerror", "text", "__notes__"}
#: Methods of texts, and of regular expressions, whose result is read from the wording.
_READS = {
    "count", "endswith", "find", "findall", "finditer", "fullmatch", "index", "match", "partition", "removeprefix",
    "removesuffix", "rfind", "rindex", "rpartition", "search", "startswith",
}  # fmt: skip
_IDENTITY = (ast.Is, ast.IsNot)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the nodes of a scope, without functions in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _inside(node)


class _Scope:
    """The names of one function, or of a module's own code, that hold exceptions and their texts."""

    def __init__(self, scope: ast.AST) -> None:
        self.nodes = list(_inside(scope))
        self.errors = _ERRORS | {n.name for n in self.nodes if isinstance(n, ast.ExceptHandler) and n.name}
        self.texts: set[str] = set()
        for _ in range(3):  # texts of texts
            for node in self.nodes:
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if self.is_text(node.value):
                        self.texts |= {t.id for t in targets if isinstance(t, ast.Name)}

    def is_error(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.errors) or (
            isinstance(node, ast.Attribute) and node.attr in ("error", "__cause__", "__context__")
        )

    def is_text(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if isinstance(node, ast.Attribute):
            return node.attr in _TEXTS and self.is_error(node.value)
        if isinstance(node, ast.Subscript):
            return self.is_text(node.value)
        if isinstance(node, ast.JoinedStr):
            values = [n.value for n in node.values if isinstance(n, ast.FormattedValue)]
            return any(self.is_error(value) or self.is_text(value) for value in values)
        if isinstance(node, ast.BinOp):
            return self.is_text(node.left) or self.is_text(node.right)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
                return any(self.is_error(a) or self.is_text(a) for a in node.args)
            return isinstance(node.func, ast.Attribute) and self.is_text(node.func.value)
        return False

    def decisions(self) -> Iterator[ast.AST]:
        for node in self.nodes:
            if isinstance(node, ast.Compare) and not all(isinstance(op, _IDENTITY) for op in node.ops):
                if any(self.is_text(side) for side in (node.left, *node.comparators)):
                    yield node
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
                receiver = node.func.value
                if self.is_text(receiver) or self.is_error(receiver) or any(self.is_text(a) for a in node.args):
                    yield node
            elif isinstance(node, ast.Match) and self.is_text(node.subject):
                yield node


def decisions(source: str) -> list[int]:
    """Return the lines of a module that read the wording of an error."""
    tree = ast.parse(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, _SCOPES))]
    return sorted({node.lineno for scope in scopes for node in _Scope(scope).decisions()})  # type: ignore[attr-defined]


def test_no_module_decides_by_the_wording_of_an_error() -> None:
    files = [file for folder in _FOLDERS for file in sorted(folder.rglob("*.py"))]
    found = {str(file): lines for file in files if (lines := decisions(file.read_text(encoding="utf-8")))}
    allowed = {str(_FOLDERS[1] / "typed_program.py")}  # a program that shows the messages of bad input
    assert {file: lines for file, lines in found.items() if file not in allowed} == {}
    assert len(files) > 200


@pytest.mark.parametrize(
    "handler",
    [
        'if "copies=True" in str(error): pass',
        'if error.args[0] == "gone": pass',
        'said = f"{error.message}; x"; done = said.startswith("a")',
        'words = ("a", "b"); done = any(word in str(error) for word in words)',
        'done = re.search("a", str(error).lower())',
        'why = str(error)\n    done = why.partition(":")',
        'done = (lambda: "x" in error.message)()',
        'done = found.error.startswith("x")',
    ],
)
def test_decisions_by_wording_are_found(handler: str) -> None:
    assert decisions(f"try:\n    run()\nexcept OSError as error:\n    {handler}\n")


@pytest.mark.parametrize(
    "handler",
    [
        "if error.errno == 3: pass",
        "why = str(error) if error else None\n    if why is not None: log(why)",
        'if error.rule in ("a", "b"): raise',
        "raise KeyError(str(error)) from None",
    ],
)
def test_decisions_by_attributes_are_allowed(handler: str) -> None:
    assert decisions(f"try:\n    run()\nexcept OSError as error:\n    {handler}\n") == []
