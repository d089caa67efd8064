"""Epilogue visitor trees: the arithmetic that a product goes through before it is stored, as a value.

A tree is checked when it is made.  `language` makes one from text, `EpilogueTree` from calls; both are the same value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final

from ..._support.checks import is_real
from ..._support.public import public
from ...errors import InvalidRequest
from .functors import CALLS
from .kernels.kernel import FUNCTORS
from .language import parse

__all__ = ["MOST_NODES", "EpilogueTree", "flat", "names_of", "python_function", "stores_of"]

#: Most nodes of a tree, each counted as often as it is used: a kernel's registers are bounded.
MOST_NODES: Final = 64
#: Names of a product's own operands, and of the accumulator.
_TAKEN: Final = frozenset({"acc", "a", "b", "out"})


def python_function(function: object) -> FunctionType:
    """Return a scalar function as plain Python: decorated ones are unwrapped.

    Raises
    ------
    InvalidRequest
        If it is no Python function of positional parameters without defaults.
    """
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType):
        raise InvalidRequest(
            f"{function!r:.100} is a {type(function).__name__}; allowed: a Python function, or what "
            f"cuda.jit(device=True) or numba.njit made of one"
        )
    for parameter in inspect.signature(plain).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise InvalidRequest(f"function {plain.__name__} has the parameter {parameter}; allowed: positional ones")
        if parameter.default is not parameter.empty:
            raise InvalidRequest(f"parameter {parameter.name} of {plain.__name__} has a default; allowed: none")
    return plain


@public
@dataclass(frozen=True, slots=True)
class EpilogueTree:
    """A node of an epilogue visitor tree, and with it all that it is computed from.

    Trees are made by the class methods and by operators, and are immutable.  Their numbers are float32, or float64 for
    products of float64.  A tree uses arrays and numbers by name; a request says what they are.

    Attributes
    ----------
    op : str
        ``"acc"``, ``"name"``, ``"number"``, ``"call"``, ``"function"``, ``"store"`` or ``"reduce"``.
    args : tuple of EpilogueTree
    what : str, float, function or tuple
        The name, the number, the functor, or the Python function; of ``"reduce"`` the reduction, the axis and the name.

    Raises
    ------
    InvalidRequest
        For an unknown functor, a wrong number of arguments, an invalid name, or too many nodes; the message names the
        node.

    Examples
    --------
    >>> acc, bias = an.EpilogueTree.acc(), an.EpilogueTree.name("bias")
    >>> tree = an.EpilogueTree.call("relu", 2.0 * acc + bias)
    >>> tree == an.EpilogueTree.parse("relu(2.0 * acc + bias)")
    True
    >>> an.EpilogueTree.call("relu", acc, bias)
    Traceback (most recent call last):
        ...
    atomr_native.InvalidRequest: relu(acc, bias) has 2 arguments; relu takes 1
    """

    op: str
    args: tuple[EpilogueTree, ...] = ()
    what: Any = ""
    _size: int = field(default=0, init=False, repr=False, compare=False)
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for arg in self.args:
            if not isinstance(arg, EpilogueTree):
                raise InvalidRequest(f"an argument of {self.what!r} is a {type(arg).__name__}; allowed: EpilogueTree")
        _check(self)
        size = 1 + sum(arg._size for arg in self.args)  # noqa: SLF001 - of this class
        if size > MOST_NODES:
            raise InvalidRequest(
                f"the tree has {size} nodes at its {self.op} {_label(self)}; allowed: {MOST_NODES}, each counted as "
                f"often as it is used: a Python function can compute more in one node"
            )
        object.__setattr__(self, "_size", size)
        object.__setattr__(self, "_hash", hash((self.op, self.what, *map(hash, self.args))))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def acc(cls) -> EpilogueTree:
        """Return the accumulator: an element of the product."""
        return cls("acc")

    @classmethod
    def name(cls, name: str) -> EpilogueTree:
        """Return an array or a number of the request: ``"alpha"``, ``"beta"``, ``"c"``, or one of its operands."""
        return cls("name", (), name)

    @classmethod
    def call(cls, function: Any, *args: Any) -> EpilogueTree:
        """Return a functor, by its name in the language, or a Python function of numbers, applied to trees and numbers.

        Parameters
        ----------
        function : str or function
            Functors: `abs`, `sqrt`, `exp`, `relu`, `gelu`, `gelu_tanh`, `silu`, `sigmoid`, `tanh`, `hardswish`, `log`,
            `rsqrt`, `erf`, `softplus`, ``leaky_relu(x, slope)``, ``clamp(x, low, high)``, ``fma(x, y, z)``, `maximum`
            and `minimum`.  A Python function is compiled by Numba.
        *args : EpilogueTree or float
        """
        given = tuple(map(_tree, args))
        if not isinstance(function, str):
            return cls("function", given, python_function(function))
        if function not in CALLS:
            shown = ", ".join(map(str, given))
            raise InvalidRequest(f"unknown functor in {function}({shown}); allowed: {', '.join(CALLS)}")
        return cls("call", given, CALLS[function])

    @classmethod
    def parse(cls, text: str, functions: Any = ()) -> EpilogueTree:
        """Return the tree of an expression such as ``"relu(alpha * acc + bias) * c"``.

        Parameters
        ----------
        text : str
            An expression, or statements ``name = expression`` of which the last one assigns ``out``; others name
            intermediate results.
        functions : mapping of str to function, optional
            Python functions that the text may call, by name.
        """
        return parse(cls, text, dict(functions))

    def stored(self, name: str) -> EpilogueTree:
        """Return this value, which is also stored, in the request's output of this name.

        What is computed from it uses the value before it is rounded to the output's dtype.
        """
        return EpilogueTree("store", (self,), name)

    def reduced(self, reduction: str, name: str, axis: int | None = None) -> EpilogueTree:
        """Return this value, which is also reduced, to the request's output of this name.

        Parameters
        ----------
        reduction : {"sum", "max"}
        name : str
        axis : {0, 1, None}
            0 reduces rows, to (N,); 1 reduces columns, to (M,); None reduces all to (1,).
        """
        return EpilogueTree("reduce", (self,), (reduction, -1 if axis is None else axis, name))

    def __add__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (self, _tree(other)), "add")

    def __radd__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (_tree(other), self), "add")

    def __sub__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (self, _tree(other)), "sub")

    def __rsub__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (_tree(other), self), "sub")

    def __mul__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (self, _tree(other)), "mul")

    def __rmul__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (_tree(other), self), "mul")

    def __truediv__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (self, _tree(other)), "div")

    def __rtruediv__(self, other: Any) -> EpilogueTree:
        return EpilogueTree("call", (_tree(other), self), "div")

    def __neg__(self) -> EpilogueTree:
        return EpilogueTree("call", (self,), "neg")

    def __abs__(self) -> EpilogueTree:
        return EpilogueTree("call", (self,), "abs")

    def __str__(self) -> str:
        if not self.args:
            return _label(self)
        return f"{_label(self)}({', '.join(map(str, self.args))})"


def _label(tree: EpilogueTree) -> str:
    if tree.op == "acc":
        return "acc"
    if tree.op == "store":
        return f"store {tree.what}"
    if tree.op == "reduce":
        return f"{tree.what[0]} to {tree.what[2]}"
    return str(getattr(tree.what, "__name__", tree.what))


def _tree(value: Any) -> EpilogueTree:
    if isinstance(value, EpilogueTree):
        return value
    if not is_real(value):
        raise InvalidRequest(
            f"{value!r:.100} is a {type(value).__name__}; allowed in a tree: EpilogueTree, real numbers"
        )
    return EpilogueTree("number", (), float(value))


def _check(tree: EpilogueTree) -> None:
    """Refuse a node that no kernel has."""
    found = len(tree.args)
    match tree.op:
        case "acc" | "number":
            wanted = 0
        case "name" | "store":
            wanted = int(tree.op == "store")
            if not isinstance(tree.what, str) or not tree.what.isidentifier() or tree.what in _TAKEN:
                raise InvalidRequest(
                    f"{tree.what!r} is no name of an operand; allowed: identifiers but {', '.join(sorted(_TAKEN))}"
                )
        case "call":
            if tree.what not in FUNCTORS:
                raise InvalidRequest(f"unknown functor in {tree}; allowed: {', '.join(FUNCTORS)}")
            wanted = FUNCTORS[tree.what]
        case "reduce":
            wanted = 1
            reduction, axis, name = tree.what
            if reduction not in ("sum", "max"):
                raise InvalidRequest(f"unknown reduction {reduction!r}; allowed: sum, max")
            if axis not in (-1, 0, 1):
                raise InvalidRequest(f"axis={axis!r} of a reduction; allowed: 0, 1, None")
            if not isinstance(name, str) or not name.isidentifier() or name in _TAKEN:
                raise InvalidRequest(f"{name!r} is no name of an output; allowed: identifiers but "
                                     f"{', '.join(sorted(_TAKEN))}")  # fmt: skip
        case "function":
            wanted = len(inspect.signature(python_function(tree.what)).parameters)
        case _:
            raise InvalidRequest(f"op={tree.op!r}; allowed: acc, name, number, call, function, store, reduce")
    if found != wanted or (tree.op == "function" and not found):
        raise InvalidRequest(f"{tree} has {found} arguments; {_label(tree)} takes {wanted or 'at least 1'}")


def _walk(tree: EpilogueTree) -> Iterator[EpilogueTree]:
    for arg in tree.args:
        yield from _walk(arg)
    yield tree


def names_of(tree: EpilogueTree) -> tuple[str, ...]:
    """Return the names that a tree uses, in the order of their first use."""
    return tuple(dict.fromkeys(one.what for one in _walk(tree) if one.op == "name"))


def stores_of(tree: EpilogueTree) -> dict[str, int | None]:
    """Return the names of the outputs that a tree stores, each with the axis of a reduction, or None.

    Raises
    ------
    InvalidRequest
        If two values are stored in one.
    """
    found: dict[str, EpilogueTree] = {}
    for one in _walk(tree):
        if one.op in ("store", "reduce"):
            name = one.what if one.op == "store" else one.what[2]
            if found.setdefault(name, one) != one:
                raise InvalidRequest(f"two values are stored in {name!r}: {found[name]} and {one}; allowed: one")
    return {name: one.what[1] if one.op == "reduce" else None for name, one in found.items()}


#: The nodes of a tree in order, as plans have them: ``("acc",)``, ``("name", name)``, ``("number", hexadecimal)``,
#: ``("call", functor, node, ...)``, ``("function", place, node, ...)``, ``("store", name, node)`` and
#: ``("reduce", name, node, reduction, axis)``.
Nodes = tuple[tuple[str | int, ...], ...]


def flat(tree: EpilogueTree) -> tuple[Nodes, tuple[FunctionType, ...]]:
    """Return the nodes of a tree, each once, and its Python functions."""
    nodes: dict[tuple[str | int, ...], int] = {}
    functions: dict[FunctionType, int] = {}

    def place(one: EpilogueTree) -> int:
        args = tuple(map(place, one.args))
        node: tuple[str | int, ...]
        match one.op:
            case "acc":
                node = ("acc",)
            case "number":
                node = ("number", one.what.hex())
            case "reduce":
                node = ("reduce", one.what[2], *args, *one.what[:2])
            case "function":
                node = ("function", functions.setdefault(one.what, len(functions)), *args)
            case _:
                node = (one.op, one.what, *args)
        return nodes.setdefault(node, len(nodes))

    place(tree)
    return tuple(nodes), tuple(functions)
