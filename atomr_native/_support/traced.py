"""Python functions of numbers as expression trees: called once with symbols, which note the operations on them.

Functions that branch, or need a number where a symbol is, have no tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..errors import InvalidRequest

__all__ = ["BINARY", "UNARY", "Tree", "Untraceable", "evaluate", "trace", "tree_function", "tree_lines", "tree_source"]

#: Nodes in order: ``("input", name)``, ``("const", hexadecimal)``, or an operation and its arguments' numbers.
Tree = tuple[tuple[str | int, ...], ...]

#: NumPy's ufuncs of two numbers, each with its C expression; comparisons are 0 or 1.
BINARY: Final = {
    "add": "{a} + {b}", "subtract": "{a} - {b}", "multiply": "{a} * {b}", "divide": "{a} / {b}",
    "minimum": "({a} <= {b} || {a} != {a} ? {a} : {b})", "maximum": "({a} >= {b} || {a} != {a} ? {a} : {b})",
    "less": "({kind})({a} < {b})", "less_equal": "({kind})({a} <= {b})", "greater": "({kind})({a} > {b})",
    "greater_equal": "({kind})({a} >= {b})", "equal": "({kind})({a} == {b})", "not_equal": "({kind})({a} != {b})",
    "power": "pow{f}({a}, {b})", "hypot": "hypot{f}({a}, {b})",
}  # fmt: skip
#: The same of one number.
UNARY: Final = {
    "negative": "-{a}", "absolute": "fabs{f}({a})", "sqrt": "sqrt{f}({a})", "exp": "exp{f}({a})", "log": "log{f}({a})",
    "tanh": "tanh{f}({a})", "sin": "sin{f}({a})", "cos": "cos{f}({a})", "log1p": "log1p{f}({a})",
    "expm1": "expm1{f}({a})", "erf": "erf{f}({a})", "square": "{a} * {a}", "isnan": "({kind})({a} != {a})",
}  # fmt: skip
#: Those of both that Python spells otherwise; the rest are functions of `math`.
_PYTHON: Final = {
    "add": "{a} + {b}", "subtract": "{a} - {b}", "multiply": "{a} * {b}", "divide": "{a} / {b}",
    "minimum": "{a} if {a} <= {b} or {a} != {a} else {b}", "maximum": "{a} if {a} >= {b} or {a} != {a} else {b}",
    "less": "1.0 if {a} < {b} else 0.0", "less_equal": "1.0 if {a} <= {b} else 0.0",
    "greater": "1.0 if {a} > {b} else 0.0", "greater_equal": "1.0 if {a} >= {b} else 0.0",
    "equal": "1.0 if {a} == {b} else 0.0", "not_equal": "1.0 if {a} != {b} else 0.0", "power": "{a} ** {b}",
    "negative": "-{a}", "absolute": "abs({a})", "square": "{a} * {a}", "isnan": "1.0 if {a} != {a} else 0.0",
}  # fmt: skip
_ALIASES: Final = {"true_divide": "divide", "abs": "absolute"}


class Untraceable(TypeError):
    """A function asked a symbol for its number."""


class _Symbol:
    """A number that is not known yet."""

    def __init__(self, nodes: list[tuple[Any, ...]], place: int) -> None:
        self.nodes, self.place = nodes, place

    def of(self, name: str, *arguments: Any) -> _Symbol:
        """Note an operation on symbols and plain numbers."""
        places = [self._place(one) for one in arguments]
        self.nodes.append((name, *places))
        return _Symbol(self.nodes, len(self.nodes) - 1)

    def _place(self, value: Any) -> int:
        if isinstance(value, _Symbol):
            return value.place
        if isinstance(value, complex | np.complexfloating) or not isinstance(value, int | float | np.number):
            raise TypeError(f"{value!r} is no real number")
        self.nodes.append(("const", float(value).hex()))
        return len(self.nodes) - 1

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = _ALIASES.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or name not in (*UNARY, *BINARY):
            raise TypeError(f"numpy.{ufunc.__name__} is not one of {', '.join((*UNARY, *BINARY))}")
        return self.of(name, *inputs)

    def __array_function__(self, function: Any, _types: Any, given: Any, options: Any) -> Any:
        if function is not np.where or len(given) != 3 or options:
            raise TypeError(f"numpy.{function.__name__} is not where, with three arguments, or a ufunc")
        return self.of("where", *given)

    def __bool__(self) -> bool:
        raise Untraceable("a branch depends on a number")

    def __float__(self) -> float:
        raise Untraceable("a function of the standard library takes a number")

    def __neg__(self) -> _Symbol:
        return self.of("negative", self)

    def __abs__(self) -> _Symbol:
        return self.of("absolute", self)


def _define(name: str, symbol: str, swapped: str = "") -> None:
    setattr(_Symbol, symbol, lambda self, other: self.of(name, self, other))
    if swapped:
        setattr(_Symbol, swapped, lambda self, other: self.of(name, other, self))


for _name, _word in (("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "truediv"), ("power", "pow")):
    _define(_name, f"__{_word}__", f"__r{_word}__")
for _name, _word in (("less", "lt"), ("less_equal", "le"), ("greater", "gt"), ("greater_equal", "ge"),
                     ("equal", "eq"), ("not_equal", "ne")):  # fmt: skip
    _define(_name, f"__{_word}__")


def trace(name: str, function: Callable[..., Any], inputs: tuple[str, ...]) -> Tree:
    """Return the tree of a function of real numbers, which is called once with symbols.

    Raises
    ------
    InvalidRequest
        If it is no function, or does with its arguments what a tree does not have.
    Untraceable
        If it branches, or calls a function that takes numbers, of Numba or of the standard library.
    """
    if not callable(function):
        raise InvalidRequest(
            f"{name} is a {type(function).__name__}; allowed: a Python function of {', '.join(inputs)}"
        )
    nodes: list[tuple[Any, ...]] = [("input", one) for one in inputs]
    symbols = [_Symbol(nodes, place) for place in range(len(inputs))]
    python = getattr(function, "py_func", function)  # of what Numba's decorators made
    try:
        result = python(*symbols)
        last = symbols[0].of("add", result, 0.0) if not isinstance(result, _Symbol) else result
    except Untraceable:
        raise
    except TypeError as error:
        raise InvalidRequest(
            f"{name}: {error}; allowed: a function of {', '.join(inputs)} of arithmetic, comparisons, numpy.where, and "
            f"the ufuncs {', '.join((*UNARY, *BINARY))}"
        ) from None
    except Exception as error:
        raise Untraceable(str(error)) from None  # of a function of Numba's that it calls
    return tuple(nodes[: last.place + 1])


def _ufunc(name: str) -> Any:
    if name != "erf":
        return getattr(np, name)
    from scipy import special

    return special.erf


def evaluate(tree: Tree, inputs: dict[str, Any]) -> Any:
    """Return the value of a tree of NumPy's arrays, in their dtype."""
    kind = next(iter(inputs.values())).dtype.type
    found: list[Any] = []
    for name, *rest in tree:
        if name == "input":
            value = inputs[str(rest[0])]
        elif name == "const":
            value = kind(float.fromhex(str(rest[0])))
        elif name == "where":
            condition, yes, no = (found[int(i)] for i in rest)
            value = np.where(condition != 0, yes, no)
        else:
            value = _ufunc(str(name))(*(found[int(i)] for i in rest))
            value = value.astype(kind, copy=False)
        found.append(value)
    return found[-1]


def tree_function(name: str, tree: Tree) -> Any:
    """Return the Python function of a tree, of scalars."""
    inputs = [str(node[1]) for node in tree if node[0] == "input"]
    lines = [f"def {name}({', '.join(inputs)}):"]
    for place, (kind, *rest) in enumerate(tree):
        if kind == "input":
            text = str(rest[0])
        elif kind == "const":
            value = float.fromhex(str(rest[0]))
            text = repr(value) if np.isfinite(value) else f"math.{'nan' if value != value else 'inf'}"
            text = f"-{text}" if value == -np.inf else text
        elif kind == "where":
            text = "n{1} if n{0} != 0 else n{2}".format(*rest)
        else:
            names = [f"n{i}" for i in rest]
            call = f"math.{kind}({', '.join(names)})"
            text = _PYTHON.get(str(kind), call).format(a=names[0], b=names[-1])
        lines.append(f"    n{place} = {text}")
    scope: dict[str, Any] = {"math": math}
    exec("\n".join([*lines, f"    return n{len(tree) - 1}"]), scope)  # noqa: S102 - of the pieces above
    return scope[name]


def tree_lines(tree: Tree, dtype: str, kind: str, inputs: Mapping[str, str]) -> list[str]:
    """Return the C statements of a tree, which declare ``n0``, ``n1``, ..., a value of each node.

    Parameters
    ----------
    tree : Tree
    dtype : str
        float32 or float64.
    kind : str
        The type of values in C.
    inputs : mapping of str to str
        Their C expressions.
    """
    suffix = "f" if dtype == "float32" else ""
    lines = []
    for place, (operation, *rest) in enumerate(tree):
        if operation == "input":
            text = inputs[str(rest[0])]
        elif operation == "const":
            value = float.fromhex(str(rest[0]))
            text = f"({kind})__longlong_as_double((long long){int(np.float64(value).view(np.uint64))}ull)"
        elif operation == "where":
            text = "(n{} != 0 ? n{} : n{})".format(*rest)
        else:
            names = [f"n{i}" for i in rest]
            text = {**UNARY, **BINARY}[str(operation)].format(a=names[0], b=names[-1], f=suffix, kind=kind)
        lines.append(f"const {kind} n{place} = {text};")
    return [*lines, *(f"(void)n{place};" for place in range(len(tree) - 1))]


def tree_source(name: str, tree: Tree, dtype: str) -> str:
    """Return the C function of a tree, whose parameters are its inputs; `dtype` is float32 or float64."""
    inputs = [str(node[1]) for node in tree if node[0] == "input"]
    lines = [
        f"DEVICE elem {name}({', '.join(f'elem {one}' for one in inputs)}) {{",
        *tree_lines(tree, dtype, "elem", {one: one for one in inputs}),
    ]
    return "\n".join([*lines, f"return n{len(tree) - 1};", "}"]) + "\n"
