"""Kernels of the host device as Python with Numba's types: each operation in the types that Numba infers.

Numba's typed representation is written as a Python function, which the simulator runs.  Its lines are those of the
source, so errors name them.
"""

from __future__ import annotations

import ast
import logging
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, cast

from ..._support.syntax import parse_expression, parse_statements
from ...errors import Unsupported
from .api import CUDADispatcher, cuda, numba_ir, types
from .arithmetic import MATH, SCOPE
from .compiler import failure
from .front_end import HOST_CAPABILITY, Typed, typed, typed_again
from .survey import constant_bytes
from .typed_values import (
    Unwritten,
    as_argument,
    converted,
    is_integer,
    is_number,
    is_real,
    normal,
    plain,
    wrapped,
)

__all__ = ["Unwritten", "for_host", "written"]

_Node = TypeVar("_Node", bound=ast.AST)

_log = logging.getLogger("atomr_native")

_SYMBOLS: Final = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
    operator.truediv: "/", operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.lshift: "<<",
    operator.rshift: ">>", operator.is_: "is", operator.is_not: "is not", operator.neg: "-", operator.pos: "+",
    operator.invert: "~", operator.not_: "not ", operator.contains: "in",
}  # fmt: skip
_COMPARISONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
_BITS: Final = frozenset({"&", "|", "^"})
_INTEGER: Final = {"//": "_integer_quotient({}, {})", "%": "_integer_rest({}, {})"}
_FLOATING: Final = {"//": "_floor_quotient({}, {})", "%": "_rest({}, {})", "**": "_float_power({}, {})"}
#: Constant arrays at most of a kernel that is lowered: Numba takes some microseconds for each of their bytes.
_LOWERED_BYTES: Final = 1 << 16
#: Nested blocks of code at most; deeper ones are reached by a jump.
_DEPTH: Final = 12


def for_host(function: FunctionType, arguments: Sequence[Any]) -> FunctionType:
    """Return a kernel for the simulator: as Python with types, or the function itself where that is not possible.

    Raises
    ------
    LibraryError
        With Numba's text, if Numba refuses the kernel for a GPU.
    """
    try:
        lowers = constant_bytes(function) <= _LOWERED_BYTES
        made = typed(function, arguments, HOST_CAPABILITY, lowers=lowers)
        if not isinstance(made.result, types.NoneType):
            raise TypeError(f"a kernel returns nothing, and {function.__name__} a {made.result}")
    except Exception as error:
        refusal = failure(error, function)
        if isinstance(refusal, Unsupported):  # parts of the compiler are missing
            _log.debug("kernel %s runs without types: %s", function.__name__, refusal)
            return function
        raise refusal from None
    try:
        return written(function, made)
    except Unwritten as reason:
        _log.debug("kernel %s runs without types, because of %s", function.__name__, reason)
        return function


def written(function: FunctionType, made: Typed) -> FunctionType:
    """Return a kernel as Python with types.

    Raises
    ------
    Unwritten
    """
    return _Function(function, made, {}).result


class _Function:
    """One function, written.

    Parameters
    ----------
    function : function
        For its name and file.
    made : Typed
    known : dict
        Device functions that are written, by their types; filled.
    """

    def __init__(self, function: FunctionType, made: Typed, known: dict[Any, Any]) -> None:
        self._made, self._known = made, known
        self._names: dict[str, str] = {}
        self._scope: dict[str, Any] = dict(SCOPE)
        self._counts: set[str] = set()  # pairs of counts and Booleans, of the iterators of ranges
        self._function = function
        blocks = made.code.blocks
        self._before = dict.fromkeys(blocks, 0)
        for block in blocks.values():
            for label in block.terminator.get_targets():
                self._before[label] += 1
        self._uses = Counter(
            variable.name
            for block in blocks.values()
            for statement in block.body
            if not isinstance(statement, numba_ir.Del)
            for variable in statement.list_vars()
        )
        self._first = min(blocks)
        self._entries: list[int] = [self._first]
        self._line = function.__code__.co_firstlineno
        self.result = self._compiled()

    def _compiled(self) -> FunctionType:
        parameters = [self._name(f"arg.{i}") for i in range(len(self._made.code.arg_names))]
        cases: list[list[ast.stmt]] = []
        for label in self._entries:  # which grows
            cases.append(self._block(label, 0))
        self._line = self._function.__code__.co_firstlineno
        chosen = cases.pop()
        while cases:
            body = cases.pop()
            chosen = [self._if(f"_at == {len(cases)}", body, chosen)]
        name = self._function.__name__ if self._function.__name__.isidentifier() else "_kernel"
        tree = parse_statements(f"def {name}({', '.join(parameters)}):\n _at = 0")
        self._place(tree)
        loop = self._here(ast.While(self._evaluated("True"), chosen, []))
        cast("ast.FunctionDef", tree.body[0]).body.append(loop)
        code = compile(tree, self._function.__code__.co_filename, "exec")
        (inner,) = (constant for constant in code.co_consts if isinstance(constant, CodeType))
        names = set(inner.co_names)
        scope = {name: value for name, value in self._scope.items() if name in names}
        return FunctionType(inner, scope, self._function.__name__)

    def _place(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr | ast.arg):
                self._here(node)

    def _here(self, node: _Node) -> _Node:
        """Place a node, but not its children, at the current line of the source."""
        node.lineno = node.end_lineno = self._line  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        return node

    def _parsed(self, text: str) -> list[ast.stmt]:
        found = parse_statements(text)
        self._place(found)
        return found.body

    def _evaluated(self, text: str) -> ast.expr:
        found = parse_expression(text)
        self._place(found)
        return found

    def _if(self, text: str, body: list[ast.stmt], otherwise: list[ast.stmt]) -> ast.stmt:
        return self._here(ast.If(self._evaluated(text), body, otherwise))

    def _name(self, variable: str) -> str:
        return self._names.setdefault(variable, f"_v{len(self._names)}")

    def _constant(self, value: Any) -> str:
        name = f"_c{len(self._scope)}"
        self._scope[name] = value
        return name

    def _type(self, variable: Any) -> Any:
        return self._made.types[variable.name]

    def _value(self, variable: Any, wanted: Any = None) -> str:
        """Return the name of a variable; its value in another type, if one is given."""
        name = self._name(variable.name)
        return name if wanted is None else converted(name, self._type(variable), wanted)

    # Statements

    def _block(self, label: int, depth: int) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in self._made.code.blocks[label].body:
            if statement.loc.line:
                self._line = statement.loc.line
            found += self._statement(statement, depth)
        return found

    def _goto(self, label: int, depth: int) -> list[ast.stmt]:
        if self._before[label] == 1 and depth < _DEPTH and label not in self._entries:
            return self._block(label, depth + 1)
        if label not in self._entries:
            self._entries.append(label)
        return [*self._parsed(f"_at = {self._entries.index(label)}"), self._here(ast.Continue())]

    def _statement(self, statement: Any, depth: int) -> list[ast.stmt]:
        match statement:
            case numba_ir.Assign():
                return self._assignment(statement.target, statement.value)
            case numba_ir.Del():
                return []
            case numba_ir.SetItem():
                return self._store(statement, self._value(statement.index))
            case numba_ir.StaticSetItem():
                return self._store(statement, self._index(statement))
            case numba_ir.SetAttr():
                return self._set_attribute(statement)
            case numba_ir.Jump():
                return self._goto(statement.target, depth)
            case numba_ir.Branch():
                condition = self._value(statement.cond)
                line = self._line
                body, otherwise = self._goto(statement.truebr, depth), self._goto(statement.falsebr, depth)
                self._line = line
                return [self._if(condition, body, otherwise)]
            case numba_ir.Return():
                return self._returned(statement)
            case numba_ir.StaticRaise(exc_class=kind) if kind is not None:
                arguments = ", ".join(map(repr, statement.exc_args or ()))
                return self._parsed(f"raise {self._constant(kind)}({arguments})")
            case numba_ir.DynamicRaise(exc_class=kind) if kind is not None:
                given = [self._value(a) if isinstance(a, numba_ir.Var) else repr(a) for a in statement.exc_args or ()]
                return self._parsed(f"raise {self._constant(kind)}({', '.join(given)})")
            case numba_ir.Print() if statement.vararg is None:
                return self._parsed(f"print({', '.join(map(self._value, statement.args))})")
        raise Unwritten(str(statement))

    def _assignment(self, target: Any, value: Any) -> list[ast.stmt]:
        is_next = isinstance(value, numba_ir.Expr) and value.op == "iternext"
        if is_next and isinstance(self._type(value.value), types.RangeIteratorType):
            self._counts.add(target.name)
        text = self._expression(target, value)
        if self._uses[target.name] == 1:  # in the assignment itself
            text = self._unused(value) or text
        return self._parsed(f"{self._name(target.name)} = {text}")

    def _returned(self, statement: Any) -> list[ast.stmt]:
        nothing = isinstance(self._made.result, types.NoneType)
        text = "None" if nothing else self._value(statement.value, self._made.result)
        return [self._here(ast.Return(self._evaluated(text)))]

    def _store(self, statement: Any, index: str) -> list[ast.stmt]:
        target = self._type(statement.target)
        if isinstance(target, types.Record):
            field = target.typeof(statement.index) if isinstance(getattr(statement, "index", None), str) else None
            value = self._value(statement.value, field) if is_number(field) else self._value(statement.value)
        elif isinstance(target, types.Buffer) and is_number(target.dtype) and is_number(self._type(statement.value)):
            value = self._value(statement.value, target.dtype)
        else:
            value = self._value(statement.value)
        return self._parsed(f"{self._name(statement.target.name)}[{index}] = {value}")

    def _set_attribute(self, statement: Any) -> list[ast.stmt]:
        target = self._type(statement.target)
        if not isinstance(target, types.Record):
            raise Unwritten(str(statement))
        field = target.typeof(statement.attr)
        value = self._value(statement.value, field if is_number(field) else None)
        return self._parsed(f"{self._name(statement.target.name)}.{statement.attr} = {value}")

    # Expressions

    def _expression(self, target: Any, value: Any) -> str:
        wanted = self._type(target)
        match value:
            case numba_ir.Arg():
                return normal(self._name(f"arg.{value.index}"), wanted)
            case numba_ir.Var():
                return self._value(value, wanted)
            case numba_ir.Const() | numba_ir.Global() | numba_ir.FreeVar():
                return self._given(value.value, wanted)
            case numba_ir.Expr():
                return self._operation(wanted, value)
        raise Unwritten(str(value))

    def _given(self, value: Any, wanted: Any) -> str:
        if value is None or (type(value) in (int, str, bool) and not is_real(wanted)):
            return repr(value)
        if type(value) is float and value == value and abs(value) != float("inf") and is_real(wanted):
            return repr(value)
        return normal(self._constant(value), wanted)

    def _operation(self, wanted: Any, value: Any) -> str:
        match value.op:
            case "binop" | "inplace_binop":
                function = value.fn if value.op == "binop" else value.immutable_fn
                return self._binary(wanted, value, function)
            case "unary":
                return self._unary(wanted, value)
            case "call":
                return self._call(wanted, value)
            case "cast":
                return self._value(value.value, wanted)
            case "getattr":
                return normal(f"{self._value(value.value)}.{value.attr}", wanted)
            case "getitem" | "typed_getitem":
                return normal(f"{self._value(value.value)}[{self._value(value.index)}]", wanted)
            case "static_getitem":
                return normal(f"{self._value(value.value)}[{self._index(value)}]", wanted)
            case "getiter" | "iternext" | "pair_first" | "pair_second" | "exhaust_iter":
                return self._iteration(wanted, value)
            case "build_tuple":
                members = wanted.types if isinstance(wanted, types.BaseTuple) else [None] * len(value.items)
                items = [self._value(item, kind) for item, kind in zip(value.items, members, strict=True)]
                return f"({''.join(f'{item}, ' for item in items)})"
            case "undef" | "null":
                return "None"
        raise Unwritten(str(value))

    def _iteration(self, wanted: Any, value: Any) -> str:
        text = self._value(value.value)
        match value.op:
            case "getiter":
                return f"iter({text})"
            case "iternext":
                return f"_following({text})"
            case "pair_second":
                return f"{text}[1]"
            case "pair_first" if value.value.name not in self._counts:
                return f"({normal(f'{text}[0]', wanted)} if {text}[1] else None)"  # the last one has no value
            case "pair_first":
                return f"{text}[0]"
        return f"tuple({text})"

    def _index(self, value: Any) -> str:
        if value.index_var is not None and value.index_var.name in self._names:
            return self._value(value.index_var)
        return repr(value.index) if isinstance(value.index, int | str) else self._constant(value.index)

    def _binary(self, wanted: Any, value: Any, function: Callable[..., Any]) -> str:
        symbol = _SYMBOLS.get(function)
        signature = self._made.calls[value]
        if symbol is None or signature is None:
            raise Unwritten(str(value))
        first, second = map(plain, signature.args[:2])
        a, b = self._value(value.lhs, first), self._value(value.rhs, second)
        result = plain(signature.return_type)
        return converted(self._operator(symbol, a, b, first, second, result), result, wanted)

    def _operator(self, symbol: str, a: str, b: str, first: Any, second: Any, result: Any) -> str:
        """Return an operator's expression, in the type of its result."""
        if symbol == "in":
            return f"({b} in {a})"
        if symbol in _COMPARISONS or symbol in ("is", "is not"):
            return f"bool({a} {symbol} {b})"
        if is_integer(result) and is_integer(first) and is_integer(second):
            bits = result.bitwidth
            if symbol in _INTEGER:
                return wrapped(_INTEGER[symbol].format(a, b), result)
            if symbol in ("**", "<<", ">>"):
                name = {"**": "_integer_power", "<<": "_left", ">>": "_right"}[symbol]
                return wrapped(f"{name}({converted(a, first, result)}, {b}, {bits})", result)
            return wrapped(f"{a} {symbol} {b}", result)
        if is_real(result) and not isinstance(first, types.Complex):
            # The operands may still be integers, as those of a division.
            a, b = converted(a, first, result), converted(b, second, result)
            if symbol == "/" and result == types.float64:
                return f"_quotient({a}, {b})"
            if symbol in _FLOATING:
                return normal(_FLOATING[symbol].format(a, b), result)
            return f"({a} {symbol} {b})"
        if isinstance(result, types.Complex):
            a, b = converted(a, first, result), converted(b, second, result)
            return normal(f"({a} {symbol} {b})", result)
        if isinstance(result, types.Boolean) and symbol in _BITS:
            return f"({a} {symbol} {b})"
        return normal(f"({a} {symbol} {b})", result)

    def _unary(self, wanted: Any, value: Any) -> str:
        symbol = _SYMBOLS.get(value.fn)
        signature = self._made.calls[value]
        if symbol is None or signature is None:
            raise Unwritten(str(value))
        kind = plain(signature.args[0])
        operand, result = self._value(value.value, kind), plain(signature.return_type)
        if symbol == "not ":
            return f"(not {operand})"
        if is_integer(kind) and is_integer(result):  # Numba widens the result
            return converted(converted(wrapped(f"{symbol}{operand}", kind), kind, result), result, wanted)
        operand = converted(operand, kind, result)
        return converted(normal(f"({symbol}{operand})", result), result, wanted)

    # Calls

    def _unused(self, value: Any) -> str:
        """Return a call of the simulator's whose result is not used, and which may return nothing, else ""."""
        if not isinstance(value, numba_ir.Expr) or value.op != "call":
            return ""
        if isinstance(getattr(self._type(value.func), "dispatcher", None), CUDADispatcher):
            return ""
        return self._plain_call(value, self._made.calls[value])

    def _plain_call(self, value: Any, signature: Any) -> str:
        arguments = [self._argument(one, signature, place) for place, one in enumerate(value.args)]
        arguments += [f"{key}={as_argument(self._value(one), self._type(one))}" for key, one in value.kws]
        return f"{self._value(value.func)}({', '.join(arguments)})"

    def _call(self, wanted: Any, value: Any) -> str:
        if value.vararg is not None:
            raise Unwritten(str(value))
        kind, signature = self._type(value.func), self._made.calls[value]
        dispatcher = getattr(kind, "dispatcher", None)
        if isinstance(dispatcher, CUDADispatcher):
            return self._device_function(dispatcher, value, signature, wanted)
        result = plain(signature.return_type)
        python = getattr(kind, "typing_key", None)
        converts = python in (int, float, bool, complex) or isinstance(kind, types.NumberClass)
        if converts and is_number(result) and len(value.args) == 1 and is_number(self._type(value.args[0])):
            return converted(self._value(value.args[0]), self._type(value.args[0]), wanted)
        name = MATH.get(python) if isinstance(python, type(abs)) else None
        if name is not None:
            return self._math(name, value, result, wanted)
        return converted(normal(self._plain_call(value, signature), result), result, wanted)

    def _argument(self, variable: Any, signature: Any, place: int) -> str:
        """Return an argument of the simulator's function, in the type that Numba's function takes."""
        kind = self._type(variable)
        wanted = plain(signature.args[place]) if place < len(signature.args) else kind
        if not (is_number(kind) and is_number(wanted)):
            return self._value(variable)
        return as_argument(self._value(variable, wanted), wanted)

    def _math(self, name: str, value: Any, result: Any, wanted: Any) -> str:
        """Return a call of a function of `math`, in the precision of its result."""
        precise = result if is_real(result) else types.float64
        arguments = []
        for place, one in enumerate(value.args):
            kind = precise if not (name == "_math_ldexp" and place == 1) else types.int64
            arguments.append(self._value(one, kind))
        text = f"{name}({', '.join(arguments)})"
        if is_integer(result):  # of floor and its like
            return converted(f"_truncated({text}, {result.bitwidth}, {result.signed})", result, wanted)
        return converted(normal(text, result), result, wanted)

    def _device_function(self, dispatcher: Any, value: Any, signature: Any, wanted: Any) -> str:
        if value.kws or len(value.args) != len(signature.args):
            raise Unwritten(str(value))
        arguments = [self._value(one, kind) for one, kind in zip(value.args, signature.args, strict=True)]
        key = id(dispatcher), tuple(signature.args)
        if key not in self._known:
            self._known[key] = None  # under way
            made = typed_again(dispatcher, signature.args, self._made.capability)
            written = _Function(dispatcher.py_func, made, self._known).result
            # Kept with the dispatcher, so that its identity stays its own.
            self._known[key] = cuda.jit(device=True)(written), dispatcher
        found = self._known[key]
        if found is None:
            raise Unwritten(f"{dispatcher.py_func.__name__} is recursive")
        text = f"{self._constant(found[0])}({', '.join(arguments)})"
        return converted(text, signature.return_type, wanted)
