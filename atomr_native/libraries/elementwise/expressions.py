"""The expression language of elementwise requests: Python's expression syntax, a small safe part of it.

A program is one expression (``"a * x + y"``, whose value is the operand ``out``) or statements ``name = expression``,
separated by ``;`` or newlines.  Assigning to an operand writes it; any other assigned name is a temporary.  Statements
run in order, element by element.

Types.  Operands of 16 bits or less that are floating are widened to float32; from there on NumPy's promotion
holds, with float32 wherever it says float16, and numbers (literals and Python scalars) adapt to the array they meet.
Operations of literals alone are computed here, by Python's rules; integers are exact (`constants.py`).  A value is
converted to the dtype of the operand it is assigned to, and that is what later statements read.

Nothing is evaluated by Python: programs are parsed, checked against a list of what is allowed, and turned into a
list of typed nodes, which is what travels to the device.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..._support.options import unknown_option
from ..._support.syntax import parse_statements
from ...dtypes import DTYPES, dtype_name
from ...errors import InvalidRequest
from .constants import MAX_BITS, compared, computed

__all__ = [
    "FRESH",
    "FUNCTIONS",
    "LEAVES",
    "Program",
    "argument_types",
    "check_program",
    "compile_program",
    "compute_dtype",
    "loop_dtypes",
    "result_dtype",
]

#: Longest program, in characters.
MAX_SOURCE = 16384

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor", ast.LShift: "left_shift",
    ast.RShift: "right_shift",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "negative", ast.Invert: "invert"}

#: Functions that a program may call, with their number of arguments.
FUNCTIONS: dict[str, int] = {
    "where": 3, "minimum": 2, "maximum": 2, "abs": 1, "exp": 1, "log": 1, "sqrt": 1, "tanh": 1, "sin": 1, "cos": 1,
    "sigmoid": 1, "erf": 1, "relu": 1, "sign": 1, "floor": 1, "ceil": 1, "isnan": 1, "tan": 1, "asin": 1, "acos": 1,
    "atan": 1, "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "expm1": 1, "log1p": 1, "log2": 1, "log10": 1,
    "rint": 1, "trunc": 1, "isfinite": 1, "isinf": 1, "signbit": 1, "real": 1, "imag": 1, "conj": 1, "atan2": 2,
    "hypot": 2, "copysign": 2, "nextafter": 2, "logaddexp": 2,
}  # fmt: skip
#: Operations whose types are those of another NumPy function.
_TYPED_AS = {
    "abs": "absolute", "sigmoid": "exp", "erf": "exp", "where": "maximum", "relu": "maximum", "real": "absolute",
    "imag": "absolute",
}  # fmt: skip
_COMPLEX = {"add", "subtract", "multiply", "divide", "power", "equal", "not_equal", "negative", "where"} | {
    "abs", "exp", "log", "sqrt", "tanh", "sin", "cos", "isnan", "sign", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh", "expm1", "log1p", "log2", "log10", "rint", "isfinite", "isinf", "real", "imag", "conj"
}  # fmt: skip
_ALLOWED = f"operators + - * / ** % // & | ^ ~ << >> < <= > >= == != and functions {', '.join(FUNCTIONS)}"

#: Operations whose arguments are no nodes.
LEAVES = ("operand", "scalar", "const")
#: One step of a program: (operation, dtype, arguments); numbers have the types "int" and "float".
Node = tuple[Any, ...]
_WEAK: dict[str, type] = {"int": int, "float": float}
_INT64 = range(-(2**63), 2**63)
_COMPARISONS = frozenset(_COMPARE.values())
#: Stands for the dtype of an output that is still to be allocated.
FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program.

    Attributes
    ----------
    nodes : tuple of tuple
        ``("operand", dtype, name)`` the value of an operand when the message starts, widened to dtype;
        ``("scalar", "int" | "float", name)``; ``("const", "int" | "float", text)`` (a float as its hexadecimal);
        ``("cast", dtype, node)``; ``(operation, dtype, node, ...)``.  Nodes refer to earlier nodes by index.
    stores : tuple of (str, int)
        Operands written and the node that each gets, in the order of first assignment.
    reads : frozenset of str
        Operands whose initial value is read.
    """

    nodes: tuple[Node, ...]
    stores: tuple[tuple[str, int], ...]
    reads: frozenset[str]


def compute_dtype(name: str) -> str:
    """Return the dtype in which elements of dtype `name` are computed with."""
    return "float32" if name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2") else name


def loop_dtypes(operation: str, arguments: list[str]) -> tuple[str, ...]:
    """Return the dtypes in which an operation takes its arguments, and last that of its result.

    Raises
    ------
    TypeError
        If the operation is not defined for them.
    """
    if any(name.startswith("complex") for name in arguments) and operation not in _COMPLEX:
        raise TypeError(f"{operation} is not defined for complex numbers")
    types: list[Any] = [_WEAK.get(name) or DTYPES[name] for name in arguments]
    if all(name in _WEAK for name in arguments):
        types = [np.dtype(kind) for kind in types]
    if operation == "where":
        types = types[1:]
    elif operation == "relu":
        types.append(int)
    function: np.ufunc = getattr(np, _TYPED_AS.get(operation, operation))
    resolved = function.resolve_dtypes((*types, None))
    names = [dtype_name(np.dtype(np.float32) if dtype == np.float16 else dtype) for dtype in resolved]
    if operation == "where":
        names.insert(0, "bool")
    return tuple(names)


def argument_types(nodes: Sequence[Node], node: Node) -> list[str]:
    """Return the types of a node's arguments for `loop_dtypes`.

    A number of the message that is compared with integers is an int64: any number has an answer.
    """
    types: list[str] = [nodes[index][1] for index in node[2:]]
    if node[0] in _COMPARISONS:
        for place, index in enumerate(node[2:]):
            if types[place] == "int" and nodes[index][0] != "const" and _is_integer(types[1 - place]):
                types[place] = "int64"
    return types


def _is_integer(name: str) -> bool:
    return name not in _WEAK and DTYPES[name].kind in "iu"


def result_dtype(program: Program, name: str, operands: Mapping[str, str]) -> str:
    """Return the dtype of an output that the caller did not give.

    It is the type of its expression; where that is float32 only because all floating operands have one narrower type,
    it is that type.
    """
    node = program.nodes[dict(program.stores)[name]]
    found = {"int": "int64", "float": "float64"}.get(node[1], node[1])
    floating = {
        operands[n[2]] for n in program.nodes if n[0] == "operand" and compute_dtype(operands[n[2]]) == "float32"
    }
    return floating.pop() if found == "float32" and len(floating) == 1 else str(found)


def _quote(source: object) -> str:
    text = repr(source)
    return text if len(text) <= 200 else f"{text[:199]}..."


class _Lowering:
    """Turns syntax trees into nodes; equal expressions become one node."""

    def __init__(self, operands: Mapping[str, str]) -> None:
        self.source = ""
        self.operands = operands
        self.indices: dict[Node, int] = {}
        self.nodes: list[Node] = []
        self.types: list[str] = []
        self.values: dict[str, int] = {}
        self.stores: dict[str, int] = {}
        self.used: set[str] = set()
        self.unread: dict[str, tuple[str, ast.AST]] = {}

    def fail(self, problem: str, tree: ast.AST, allowed: str = "") -> NoReturn:
        where = f"line {getattr(tree, 'lineno', 1)}, column {getattr(tree, 'col_offset', 0) + 1}"
        raise InvalidRequest(
            f"{problem} at {where} of {_quote(self.source)}" + (f"; allowed: {allowed}" if allowed else "")
        )

    def node(self, operation: str, dtype: str, *arguments: Any) -> int:
        index = self.indices.setdefault((operation, dtype, *arguments), len(self.types))
        if index == len(self.types):
            self.types.append(dtype)
            self.nodes.append((operation, dtype, *arguments))
        return index

    def constant(self, value: float) -> int:
        return (
            self.node("const", "float", value.hex())
            if isinstance(value, float)
            else self.node("const", "int", str(value))
        )

    def number_at(self, index: int) -> int | float | None:
        """Return the value of a constant node, None for others."""
        operation, kind, *rest = self.nodes[index]
        if operation != "const":
            return None
        return float.fromhex(rest[0]) if kind == "float" else int(rest[0])

    def fitted(self, index: int, dtype: str, tree: ast.AST) -> int:
        """Return a constant as an operation takes it, in a dtype; other nodes unchanged.

        Integers of 64 bits stay as they are, except where the dtype is of integers and has not room for them.
        """
        value = self.number_at(index)
        if not isinstance(value, int):
            return index
        if dtype == "bool":
            return index if value in _INT64 else self.constant(1)
        if DTYPES[dtype].kind in "iu":
            info = np.iinfo(DTYPES[dtype])
            if not info.min <= value <= info.max:
                self.fail(
                    f"the number {_shortened(value)} does not fit {dtype}, the dtype that it meets,",
                    tree,
                    f"{info.min} to {info.max}",
                )
            return index
        if value in _INT64:
            return index
        try:
            return self.constant(float(value))
        except OverflowError:
            self.fail(f"the number {_shortened(value)} is too large for {dtype}", tree)

    def assign(self, target: ast.AST, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self.fail(f"assignment to {ast.unparse(target)!r}", target, "a name")
        self.store(target.id, self.expression(value), target)

    def store(self, name: str, index: int, tree: ast.AST) -> None:
        if name not in self.operands:
            self.unread.setdefault(name, (self.source, tree))
            self.values[name] = index
            return
        dtype, found = self.operands[name], self.types[index]
        if dtype in _WEAK:
            arrays = ", ".join(other for other, kind in self.operands.items() if kind not in _WEAK)
            self.fail(f"assignment to {name!r}, which is a number", tree, f"array operands ({arrays}) and new names")
        self.used.add(name)
        value = self.number_at(index)
        if isinstance(value, int) and value not in _INT64:  # a float would be looked for number by number
            index = self.fitted(index, "int64" if dtype == FRESH else compute_dtype(dtype), tree)
        self.stores[name] = index
        if dtype == FRESH:
            self.values[name] = index
            return
        if found.startswith("complex") and not dtype.startswith("complex"):
            self.fail(f"a {found} value is assigned to {name!r} of dtype {dtype}", tree, "complex64, complex128")
        if found != dtype:  # what later statements read is what was stored
            index = self.node("cast", dtype, index)
            if compute_dtype(dtype) != dtype:
                index = self.node("cast", compute_dtype(dtype), index)
        self.values[name] = index

    def name(self, tree: ast.Name) -> int:
        name = tree.id
        self.unread.pop(name, None)
        if name in self.values:
            return self.values[name]
        if name not in self.operands:
            known = dict.fromkeys([*self.operands, *self.values])
            self.fail(f"unknown name {name!r}", tree, ", ".join(known) or "none")
        self.used.add(name)
        dtype = self.operands[name]
        if dtype == FRESH:
            self.fail(f"{name!r} is read before it is assigned, and no array is given for it", tree)
        kind = "scalar" if dtype in _WEAK else "operand"
        self.values[name] = self.node(kind, compute_dtype(dtype), name)
        return self.values[name]

    def expression(self, tree: ast.expr) -> int:
        match tree:
            case ast.Name():
                return self.name(tree)
            case ast.Constant(value=bool() | int() | float() as value):
                if value.__class__ is int and value.bit_length() > MAX_BITS:
                    self.fail(f"the number {_shortened(value)}", tree, f"integers of {MAX_BITS} bits")
                return self.constant(value if isinstance(value, float) else int(value))
            case ast.BinOp(left=left, op=operator, right=right):
                if type(operator) not in _BINARY:
                    self.fail(f"operator {type(operator).__name__}", tree, _ALLOWED)
                return self.operation(_BINARY[type(operator)], [left, right], tree)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand)
            case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _UNARY:
                return self.operation(_UNARY[type(unary)], [operand], tree)
            case ast.Compare(left=left, ops=[comparison], comparators=[right]) if type(comparison) in _COMPARE:
                return self.operation(_COMPARE[type(comparison)], [left, right], tree)
            case ast.Compare(ops=[_, _, *_]):
                self.fail("a chained comparison", tree, "(a < b) & (b < c)")
            case ast.Call(func=function):
                return self.call(function, tree)
            case _:
                self.fail(f"{type(tree).__name__} {ast.unparse(tree)!r}", tree, f"names, numbers, {_ALLOWED}")

    def call(self, function: ast.expr, tree: ast.Call) -> int:
        name = function.id if isinstance(function, ast.Name) else ast.unparse(function)
        if not isinstance(function, ast.Name) or name not in FUNCTIONS:
            self.fail(f"unknown function {name!r}", tree, ", ".join(FUNCTIONS))
        if tree.keywords or len(tree.args) != FUNCTIONS[name]:
            self.fail(
                f"{name} with {len(tree.args)} arguments and {len(tree.keywords)} keywords",
                tree,
                f"{FUNCTIONS[name]} arguments by position",
            )
        return self.operation(name, tree.args, tree)

    def operation(self, name: str, trees: list[ast.expr], tree: ast.AST) -> int:
        arguments = [self.expression(argument) for argument in trees]
        try:
            loop = loop_dtypes(name, [self.types[index] for index in arguments])
        except (TypeError, KeyError) as error:
            types = ", ".join(self.types[index] for index in arguments)
            self.fail(f"{name} of {types} is not defined ({error})", tree)
        values = [self.number_at(index) for index in arguments]
        kind = "float" if loop[-1].startswith("float") else "int"
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            return self.folded(name, known, kind, tree)
        weak = all(self.types[index] in _WEAK for index in arguments)
        if name in _COMPARISONS:
            answer = self.answer(name, arguments, values)
            if answer is not None:
                return self.constant(answer) if weak else self.node("cast", "bool", self.constant(answer))
        if name == "power" and values[1] is not None and values[1] < 0 and loop[0] != "bool" and _is_integer(loop[0]):
            if not weak:
                self.fail(f"an integer ({loop[0]}) to the negative power {values[1]}", tree, "1 / x ** n, x ** -2.0")
            arguments[1], loop, kind = self.constant(float(values[1])), ("float64",) * 3, "float"
        arguments = [self.fitted(index, dtype, tree) for index, dtype in zip(arguments, loop, strict=False)]
        return self.node(name, kind if weak else loop[-1], *arguments)

    def folded(self, name: str, values: list[int | float], kind: str, tree: ast.AST) -> int:
        """Return the constant that an operation of constants is."""
        try:
            return self.constant(computed(name, values, kind))
        except (ArithmeticError, ValueError) as error:
            self.fail(f"{ast.unparse(tree)!r} has no value ({error})", tree)

    def answer(self, name: str, arguments: list[int], values: list[int | float | None]) -> int | None:
        """Return a comparison of integers with a constant beyond their range."""
        for place, value in enumerate(values):
            other = self.types[arguments[1 - place]]
            dtype = "int64" if other == "int" else other
            if isinstance(value, int) and _is_integer(dtype):
                info = np.iinfo(DTYPES[dtype])
                found = compared(name, value, int(info.min), int(info.max), first=place == 0)
                return None if found is None else int(found)
        return None


def _shortened(value: int) -> str:
    """Return a number as text; of a long one, its size."""
    return str(value) if value.bit_length() <= 256 else f"of {value.bit_length()} bits"


def _statements(source: str) -> list[ast.stmt]:
    if len(source) > MAX_SOURCE:
        raise InvalidRequest(f"the program has {len(source)} characters; allowed: {MAX_SOURCE}")
    try:
        return parse_statements(source).body
    except SyntaxError as error:
        token = (error.text or "").strip()
        raise InvalidRequest(
            f"{error.msg} at line {error.lineno}, column {error.offset} ({_quote(token)}) of {_quote(source)}; "
            f"allowed: an expression, or statements `name = expression` separated by ; or newlines"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequest(f"the program {_quote(source)} cannot be parsed: {error}") from None


def _lower(source: str, target: str, lowering: _Lowering) -> None:
    """Lower one source text.  With a `target` it is an expression; else statements, or an expression for ``out``."""
    lowering.source = source
    body = _statements(source)
    if not body:
        raise InvalidRequest(
            f"the program {_quote(source)} is empty; allowed: an expression, or statements `name = expression`"
        )
    for statement in body:
        match statement:
            case ast.Expr(value=value) if len(body) == 1:
                lowering.store(target or "out", lowering.expression(value), value)
            case _ if target:
                lowering.fail(f"a statement as the value of {target!r}", statement, "one expression")
            case ast.Assign(targets=[name], value=value):
                lowering.assign(name, value)
            case ast.AugAssign(target=ast.Name(id=name) as old, op=operator, value=value):
                read = ast.copy_location(ast.Name(name, ast.Load()), old)
                lowering.assign(old, ast.copy_location(ast.BinOp(read, operator, value), statement))
            case _:
                lowering.fail(
                    f"{type(statement).__name__} {ast.unparse(statement)!r}",
                    statement,
                    "one expression, or `name = expression`",
                )


def check_program(source: object) -> tuple[tuple[str, str], ...]:
    """Return a program as (name to assign a bare expression to, text) pairs.

    Raises
    ------
    InvalidRequest
        If it is neither text nor a mapping from names to texts.
    """
    if isinstance(source, str):
        return (("", source),)
    if not isinstance(source, Mapping):
        raise InvalidRequest(f"the program is a {type(source).__name__}; allowed: str, or a mapping from name to str")
    for name, text in source.items():
        if not isinstance(name, str) or not name.isidentifier() or not isinstance(text, str):
            raise InvalidRequest(f"the program assigns {_quote(text)} to {name!r}; allowed: a str to a name")
    return tuple(source.items())


def compile_program(source: str | Mapping[str, str], operands: Mapping[str, str]) -> Program:
    """Check a program against its operands and return it as nodes.

    Parameters
    ----------
    source
        The text, or a mapping from assigned name to expression, in order.
    operands
        The dtype of each array operand; ``"int"`` or ``"float"`` for numbers.

    Raises
    ------
    InvalidRequest
        For anything that is not of the language, unknown names, types for which an operation is not defined, operands
        that are not used, and results that are; with the token and its position.
    """
    lowering = _Lowering(operands)
    try:
        for name, text in check_program(source):
            _lower(text, name, lowering)
    except RecursionError:
        raise InvalidRequest("the program is nested too deeply; split it into statements") from None
    for name, (text, tree) in lowering.unread.items():
        lowering.source = text
        known = ", ".join(operands) or "none"
        lowering.fail(f"{name!r} is assigned, but is neither read later nor an operand ({known})", tree)
    unused = [name for name, dtype in operands.items() if name not in lowering.used and dtype != FRESH]
    if unused:
        names = sorted(lowering.used | {"out"})
        raise unknown_option(f"operands not used in {_quote(source)}: {', '.join(unused)}", unused[0], names)
    if not lowering.stores:
        raise InvalidRequest(f"{_quote(source)} writes nothing; assign to an operand ({', '.join(operands)})")
    return _prune(tuple(lowering.indices), lowering.stores)


def _prune(nodes: tuple[Node, ...], stores: Mapping[str, int]) -> Program:
    """Drop the nodes that no store needs."""
    needed = set(stores.values())
    for index in range(len(nodes) - 1, -1, -1):
        if index in needed and nodes[index][0] not in LEAVES:
            needed.update(nodes[index][2:])
    place = {old: new for new, old in enumerate(sorted(needed))}
    kept = tuple(
        node if node[0] in LEAVES else (*node[:2], *(place[argument] for argument in node[2:]))
        for node in (nodes[index] for index in place)
    )
    reads = frozenset(node[2] for node in kept if node[0] == "operand")
    return Program(kept, tuple((name, place[index]) for name, index in stores.items()), reads)
