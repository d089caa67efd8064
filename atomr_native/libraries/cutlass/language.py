"""The language of epilogues: Python's expression syntax, a small safe part of it, made into an `EpilogueTree`.

Nothing is evaluated by Python: the text is parsed, and checked against a list of what is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..._support.syntax import parse_statements
from ...errors import InvalidRequest
from .functors import CALLS

if TYPE_CHECKING:
    from .epilogue import EpilogueTree

__all__ = ["parse"]

_BINARY: Final = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Div: "__truediv__"}
#: Longest text, in characters.
_MOST: Final = 4096


class _Parser:
    def __init__(
        self, kind: type[EpilogueTree], text: str, functions: Mapping[str, Any], outputs: tuple[str, ...]
    ) -> None:
        self.kind, self.text, self.functions, self.outputs = kind, text, functions, outputs
        self.values: dict[str, EpilogueTree] = {}
        self.unread: dict[str, ast.AST] = {}
        self.acc = kind.acc()

    def fail(self, problem: str, at: ast.AST, allowed: str) -> NoReturn:
        where = f"line {getattr(at, 'lineno', 1)}, column {getattr(at, 'col_offset', 0) + 1}"
        raise InvalidRequest(f"{problem} at {where} of {self.text!r:.200}; allowed: {allowed}")

    def number(self, value: float, at: ast.expr) -> EpilogueTree:
        try:
            return self.kind("number", (), float(value))
        except OverflowError:
            self.fail("a number that is too large", at, "numbers of float64")

    def tree(self, at: ast.expr) -> EpilogueTree:
        match at:
            case ast.Name(id=name):
                self.unread.pop(name, None)
                if name == "acc":
                    return self.acc
                return self.values[name] if name in self.values else self.kind.name(name)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self.number(value, at)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                first, second = self.tree(left), self.tree(right)
                made: EpilogueTree = getattr(first, _BINARY[type(operator)])(second)
                return made
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return self.number(-value, at)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.tree(operand)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                if name in self.functions:
                    return self.kind.call(self.functions[name], *map(self.tree, args))
                if name not in CALLS:
                    self.fail(f"unknown function {name!r}", at, ", ".join([*CALLS, *self.functions]))
                return self.kind.call(name, *map(self.tree, args))
            case _:
                known = ", ".join([*CALLS, *self.functions])
                self.fail(f"{ast.unparse(at)!r:.100}", at, f"names, numbers, + - * /, {known}")

    def reduction(self, name: str, at: ast.expr) -> bool:
        """Reduce a value to the output `name`, if a statement says so: ``name = sum(value, axis)``."""
        match at:
            case ast.Call(func=ast.Name(id="sum" | "max" as how), args=[ast.Name(id=of), *axes], keywords=[]):
                pass
            case _:
                return False
        axis: Any = -1
        if axes:
            axis = axes[0].value if len(axes) == 1 and isinstance(axes[0], ast.Constant) else None
        if axis not in (-1, 0, 1) or isinstance(axis, bool):
            self.fail(f"{ast.unparse(at)!r:.100}", at, f"{how}({of}), {how}({of}, 0), {how}({of}, 1)")
        if of != "acc" and of not in self.values:
            self.fail(f"{of!r}", at, "acc, and names that a statement before has assigned")
        value = self.acc if of == "acc" else self.values[of]
        made = value.reduced(how, name, None if axis == -1 else axis)
        if of == "acc":
            self.acc = made
        else:
            self.values[of] = made
        self.unread[of] = at  # what follows must use it, or it is not computed
        return True

    def statement(self, at: ast.stmt, *, last: bool) -> str:
        """Assign a value to a name, which is returned."""
        match at:
            case ast.Expr(value=value) if last:
                self.values["out"] = self.tree(value)
                return "out"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
                name in self.outputs and not last and self.reduction(name, value)
            ):
                return ""
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name != "acc" and (name == "out") == last:
                self.values[name] = self.tree(value)
                self.unread[name] = at
                return name
            case _:
                self.fail(
                    f"{ast.unparse(at)!r:.100}", at, "statements `name = expression`, and last `out = expression`"
                )


def parse(
    kind: type[EpilogueTree], text: str, functions: Mapping[str, Any], outputs: tuple[str, ...] = ()
) -> EpilogueTree:
    """Return the tree, of class `kind`, of a text; results that `outputs` names are stored in outputs of these names.

    Raises
    ------
    InvalidRequest
        For anything that is not of the language, with its position.
    """
    if not isinstance(text, str) or len(text) > _MOST:
        what = f"has {len(text)} characters" if isinstance(text, str) else f"is a {type(text).__name__}"
        raise InvalidRequest(f"the epilogue {what}; allowed: text of up to {_MOST} characters")
    for name, function in functions.items():
        if not isinstance(name, str) or not name.isidentifier() or name in CALLS:
            raise InvalidRequest(f"a function is called {name!r}; allowed: identifiers but {', '.join(CALLS)}")
        if not callable(function):
            raise InvalidRequest(f"function {name} is a {type(function).__name__}; allowed: Python functions")
    try:
        body = parse_statements(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequest(f"the epilogue {text!r:.200} cannot be parsed: {error}") from None
    if not body:
        raise InvalidRequest(f"the epilogue {text!r} is empty; allowed: an expression such as 'relu(acc + bias)'")
    parser = _Parser(kind, text, functions, outputs)
    try:
        for at in body:
            name = parser.statement(at, last=at is body[-1])
            if name in outputs and name != "out":
                parser.values[name] = parser.values[name].stored(name)
    except RecursionError:
        raise InvalidRequest(f"the epilogue {text!r:.200} is nested too deeply; allowed: statements") from None
    parser.unread.pop("out", None)
    for name, place in parser.unread.items():
        more = "; a stored value must be used by out, too" if name in outputs else ""
        parser.fail(f"{name!r} is assigned and not used{more}", place, "names that a later statement uses")
    return parser.values["out"]
