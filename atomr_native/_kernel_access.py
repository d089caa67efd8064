"""Which arrays a kernel only reads, from its source: what cannot be proven counts as written."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types

__all__ = ["read_only"]

#: Attributes of an array that say nothing of its elements.
_FACTS = frozenset({"shape", "size", "ndim", "dtype", "strides", "itemsize", "nbytes"})


def read_only(function: types.FunctionType) -> dict[str, int]:
    """Return the parameters that a kernel reads and does nothing else with.

    Returns
    -------
    dict of str to int
        Parameter, and the number of indices by which it is always read (0: it is never indexed).  With fewer axes
        than that it is used wrongly; with more, ``x[i]`` is a view that may be written, and the proof does not hold.
        Empty where the source is not to be had.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)), None)
    if found is None or not isinstance(found, ast.FunctionDef):
        return {}
    names = {a.arg for a in (*found.args.posonlyargs, *found.args.args)}
    visitor = _Uses(names)
    for statement in found.body:
        visitor.visit(statement)
    return {
        name: next(iter(counts), 0)
        for name, counts in visitor.indices.items()
        if name not in visitor.written and len(counts) <= 1
    }


class _Uses(ast.NodeVisitor):
    """Collects how parameters are used; whatever is not known to be a read is taken for a write."""

    def __init__(self, names: set[str]) -> None:
        self.written: set[str] = set()
        self.indices: dict[str, set[int]] = {name: set() for name in names}

    def visit_Name(self, node: ast.Name) -> None:
        # Reached only where no rule below has taken the name: passed on, rebound, returned, given another name.
        if node.id in self.indices:
            self.written.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.attr in _FACTS and isinstance(node.ctx, ast.Load):
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
            if not isinstance(node.args[0], ast.Name):
                self.visit(node.args[0])
            return
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.slice)
        if not isinstance(node.value, ast.Name):
            self.visit(node.value)
            return
        if node.value.id not in self.indices:
            return
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        whole = all(not isinstance(part, ast.Slice | ast.Starred) and not _is_view(part) for part in parts)
        if isinstance(node.ctx, ast.Load) and whole:
            self.indices[node.value.id].add(len(parts))
        else:
            self.written.add(node.value.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id in self.indices:
            self.written.add(node.target.id)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Take everything that an inner function uses for written."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.indices:
                self.written.add(part.id)


def _is_view(part: ast.expr) -> bool:
    """Whether an index makes a view: ``...`` and ``None``."""
    return isinstance(part, ast.Constant) and (part.value is ... or part.value is None)
