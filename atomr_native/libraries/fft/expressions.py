"""Functions inside transforms that are written as one expression: from text to a Python function.

Functions of numbers have one name for real and complex arguments; which one is meant follows from the dtypes of the
request's arrays.
"""

from __future__ import annotations

import ast
import cmath
import functools
import math
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from ..._support.syntax import parse_expression
from ...errors import InvalidRequest

__all__ = ["ElementExpression", "as_expression", "function_of"]

#: Functions of a real or complex number, of real numbers only, and other names.
_BOTH: Final = ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
_REAL: Final = {"floor": 1, "ceil": 1, "atan2": 2, "hypot": 2, "min": 2, "max": 2}
_PARTS: Final = ("abs", "conj", "real", "imag")
_NAMES: Final = (*_BOTH, *_REAL, *_PARTS, "pi")
_COMPARISONS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


@dataclass(frozen=True, slots=True)
class ElementExpression:
    """An expression of an element's value, its offset and operands.

    Attributes
    ----------
    text : str
    names : tuple of str
        Of the operands, in the order in which they appear.
    """

    text: str
    names: tuple[str, ...]


def as_expression(name: str, text: str) -> ElementExpression:
    """Return a request's `load` or `store` that is text.

    Raises
    ------
    InvalidRequest
        If it is not one expression of Python.
    """
    names = [node.id for node in ast.walk(_parsed(name, text)) if isinstance(node, ast.Name)]
    return ElementExpression(text, tuple(dict.fromkeys(n for n in names if n not in (*_NAMES, "value", "offset"))))


def _parsed(name: str, text: str) -> ast.expr:
    try:
        return parse_expression(text)
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"{name}={text!r}: {error}; allowed: one expression of Python") from None


@functools.lru_cache(maxsize=256)
def function_of(name: str, expression: ElementExpression, whole: frozenset[str]) -> FunctionType:
    """Return the Python function of an expression; those of the names that are `whole` stand for complex numbers.

    Raises
    ------
    InvalidRequest
        If a part of it is not allowed.
    """
    typed = _Typed(name, expression.text, whole)
    body, _ = typed.of(_parsed(name, expression.text))
    text = f"def expression({', '.join(('value', 'offset', *expression.names))}):\n    return {ast.unparse(body)}\n"
    scope: dict[str, Any] = {"_math": math, "_cmath": cmath}
    exec(compile(text, "<expression>", "exec"), scope)  # noqa: S102 - of checked nodes only
    made: FunctionType = scope["expression"]
    return made


class _Typed:
    """Rewrites an expression; each method returns a node, and whether it is complex."""

    def __init__(self, name: str, text: str, whole: frozenset[str]) -> None:
        self.name, self.text, self.whole = name, text, whole

    def refuse(self, node: ast.AST, allowed: str) -> InvalidRequest:
        return InvalidRequest(f"{self.name}={self.text!r} has {ast.unparse(node)!r}; allowed: {allowed}")

    def real(self, node: ast.expr) -> ast.expr:
        """Return a node that has to be real."""
        made, whole = self.of(node)
        if whole:
            raise self.refuse(node, "a real number there")
        return made

    def of(self, node: ast.expr) -> tuple[ast.expr, bool]:
        if isinstance(node, ast.Name):
            if node.id == "pi":
                return ast.Constant(math.pi), False
            if node.id in _NAMES:
                raise self.refuse(node, f"{node.id} as a function, {node.id}(...)")
            return node, node.id in self.whole
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex):
            return node, isinstance(node.value, complex)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            made, whole = self.of(node.operand)
            return ast.UnaryOp(node.op, made), whole
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.UnaryOp(node.op, self.real(node.operand)), False
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
            (left, first), (right, second) = self.of(node.left), self.of(node.right)
            if (first or second) and isinstance(node.op, ast.FloorDiv | ast.Mod):
                raise self.refuse(node, "real numbers there")
            return ast.BinOp(left, node.op, right), first or second
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.real(value) for value in node.values]), False
        if isinstance(node, ast.Compare) and all(isinstance(op, _COMPARISONS) for op in node.ops):
            return ast.Compare(self.real(node.left), node.ops, [self.real(one) for one in node.comparators]), False
        if isinstance(node, ast.IfExp):
            (body, first), (other, second) = self.of(node.body), self.of(node.orelse)
            return ast.IfExp(self.real(node.test), body, other), first or second
        if isinstance(node, ast.Attribute) and node.attr in ("real", "imag"):
            return self.part(node.attr, node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self.call(node, node.func.id, node.args)
        raise self.refuse(node, f"numbers, operands, arithmetic, comparisons, a if b else c, {', '.join(_NAMES)}")

    def call(self, node: ast.Call, name: str, given: list[ast.expr]) -> tuple[ast.expr, bool]:
        count = _REAL.get(name, 1)
        if name not in _NAMES or name == "pi" or len(given) != count:
            raise self.refuse(node, f"{', '.join(_NAMES[:-1])}, with 1 argument, or 2 of atan2, hypot, min and max")
        if name in _REAL:
            called = name if name in ("min", "max") else f"_math.{name}"
            return ast.Call(_name(called), [self.real(one) for one in given], []), False
        if name in ("real", "imag"):
            return self.part(name, given[0])
        made, whole = self.of(given[0])
        if name == "conj":
            return (ast.Call(ast.Attribute(made, "conjugate"), [], []), True) if whole else (made, False)
        called = "abs" if name == "abs" else f"_cmath.{name}" if whole else f"_math.{name}"
        return ast.Call(_name(called), [made], []), whole and name != "abs"

    def part(self, name: str, given: ast.expr) -> tuple[ast.expr, bool]:
        made, whole = self.of(given)
        if whole:
            return ast.Attribute(made, name), False
        return made if name == "real" else ast.BinOp(ast.Constant(0), ast.Mult(), made), False


def _name(dotted: str) -> ast.expr:
    return parse_expression(dotted)
