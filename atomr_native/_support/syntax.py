"""Python's parser, one call at a time."""

from __future__ import annotations

import ast
import textwrap

from .._lib.guard import Lock

__all__ = ["parse_expression", "parse_statements"]

#: Python 3.11's parser counts its depth once for all threads: "AST constructor recursion depth mismatch".
_parsing = Lock()


def parse_statements(text: str) -> ast.Module:
    """Return the tree of statements, which may be indented together."""
    dedented = textwrap.dedent(text).strip()
    with _parsing:
        return ast.parse(dedented)


def parse_expression(text: str) -> ast.expr:
    """Return the tree of an expression."""
    stripped = text.strip()
    with _parsing:
        return ast.parse(stripped, mode="eval").body
