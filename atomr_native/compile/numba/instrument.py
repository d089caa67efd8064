"""Kernels with checked indices: the source of a kernel is rewritten to check each array index.

Numba has no bounds checks on CUDA. An index out of bounds is written to a report (the first one of a launch) and ends
its thread, instead of causing a fault or overwriting other bytes.  Checked are indices in ``x[...]`` if x is an array
after type inference (an argument, shared, local and constant memory, a view, a row, an array in a struct), indices of
``cuda.atomic.f(x, i, ...)``, of loads and stores with cache hints, and of states of random numbers; in the kernel, in
its inner functions, and in the device functions that it calls.  Slices need no check.  ``raise`` and ``assert``, which
Numba's launches do not report, are reported, too.  Not checked are indices into the result of a call, and literal
indices (``x[5]``) if the source does not show that x is an array: in a heterogeneous tuple the literal must remain.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Final, cast

from ..._support.syntax import parse_statements
from ...errors import Unsupported

__all__ = ["REPORT_WORDS", "Names", "instrument"]

#: Words of a report, int64: 1 once taken, site, index, axis (-1: no index, but an exception), extent, block x, y, z,
#: thread x, y, z.
REPORT_WORDS: Final = 11

_REPORT: Final = "_atomr_report"
_CHECK: Final = "_atomr_check"
_NOTE: Final = "_atomr_note"
_HINTED: Final = ("ldca", "ldcg", "ldcs", "ldcv", "ldlu", "stcg", "stcs", "stwb", "stwt")
#: Operations on element 0 that have no index.
_NO_INDEX: Final = ("compare_and_swap",)
_MEMORY: Final = ("shared", "local")
#: Pure methods and functions, which may be evaluated twice.
_VIEWS: Final = frozenset({"ravel", "reshape", "transpose", "view"})
_PLAIN: Final = frozenset({"abs", "int", "len", "max", "min"})
#: Attributes of arrays that are tuples.
_TUPLES: Final = frozenset({"shape", "strides"})


@dataclass(frozen=True, slots=True)
class Names:
    """The meanings of names in kernels.

    Attributes
    ----------
    cuda, random : module
        Numba's.
    is_device_function : callable
        Whether an object can be called, and has its Python as ``py_func``.
    device_function : callable
        Creates a device function from the old one and its checked Python.
    check, note : function
        Functions that check an index, and record an exception; see `index_checks`.
    """

    cuda: Any
    random: ModuleType
    is_device_function: Callable[[object], bool]
    device_function: Callable[[Any, FunctionType], Any]
    check: Any
    note: Any

    def indexed(self, function: object) -> bool:
        """Return whether a function takes an array and an index of it as its first arguments."""
        atomic = self.cuda.atomic
        found = [value for name, value in vars(atomic).items() if name[0] != "_" and name not in _NO_INDEX]
        found += [getattr(self.cuda, name, None) for name in _HINTED]
        found += [value for name, value in vars(self.random).items() if name.startswith("xoroshiro128p_")]
        return function is not None and any(function is one for one in found)

    def makes_array(self, function: object) -> bool:
        """Return whether a function creates an array, with the shape as first argument."""
        return any(function is getattr(self.cuda, name).array for name in _MEMORY)


#: A device function, and its array parameters with their numbers of axes.
_Key = tuple[int, tuple[tuple[str, int], ...]]


class _Instrumenter:
    """Creates checked versions of a kernel and of the device functions that it calls."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.sites: list[str] = []
        self.made: dict[_Key, Any] = {}
        self.waiting: dict[_Key, list[tuple[dict[str, Any], str]]] = {}

    def function(self, function: FunctionType, arrays: Mapping[str, int]) -> FunctionType:
        """Return a checked copy; `arrays` has the parameters known to be arrays, with their numbers of axes."""
        try:
            lines, first = inspect.getsourcelines(function)
            tree = parse_statements("".join(lines))
        except (OSError, TypeError, SyntaxError) as error:
            raise Unsupported(
                f"debug=True needs the source of {function.__name__}, which is not available ({error}); define the "
                f"function in a file or a notebook's cell"
            ) from None
        ast.increment_lineno(tree, first - 1)
        node = tree.body[0] if isinstance(tree.body[0], ast.FunctionDef) else _lambda(function, tree)
        names = {**function.__globals__, **_closed_over(function)}
        tree.body, node.decorator_list = [node], []
        node.args.args.append(ast.arg(_REPORT))
        node.args.defaults = []  # every call passes them
        node.returns = None
        _Checks(self, function, names, dict(arrays)).body(node)
        names[_CHECK], names[_NOTE] = self.names.check, self.names.note
        code = compile(ast.fix_missing_locations(tree), inspect.getsourcefile(function) or "<kernel>", "exec")
        made: dict[str, Any] = {}
        exec(code, names, made)  # noqa: S102 - the user's own function
        found: FunctionType = made[node.name]
        return found

    def device_function(self, dispatcher: Any, arrays: Mapping[str, int], names: dict[str, Any], name: str) -> None:
        """Add a checked copy of a device function, for arguments with these axes, to the caller's names."""
        key = id(dispatcher), tuple(sorted(arrays.items()))
        if key in self.made:
            names[name] = self.made[key]
        elif key in self.waiting:  # it calls itself
            self.waiting[key].append((names, name))
        else:
            self.waiting[key] = [(names, name)]
            self.made[key] = self.names.device_function(dispatcher, self.function(dispatcher.py_func, arrays))
            for one, called in self.waiting.pop(key):
                one[called] = self.made[key]

    def site(self, function: FunctionType, node: ast.expr | ast.stmt, exception: str = "") -> int:
        """Return the number of a place in the source; the text of an exception's place begins with its name."""
        begin = exception and f"{exception} "
        self.sites.append(f"{begin}{inspect.getsourcefile(function)}:{node.lineno}: {ast.unparse(node)}")
        return len(self.sites) - 1


def _lambda(function: FunctionType, tree: ast.Module) -> ast.FunctionDef:
    """Return the only lambda of a statement as a definition.

    Raises
    ------
    Unsupported
        If there are several, or the function is not a lambda.
    """
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if function.__name__ != "<lambda>" or len(found) != 1:
        raise Unsupported(
            f"debug=True needs a function made by def, or the only lambda of its statement; {function.__name__} in "
            f"{function.__code__.co_filename}:{function.__code__.co_firstlineno} is neither"
        )
    (only,) = found
    body: list[ast.stmt] = [ast.copy_location(ast.Return(only.body), only.body)]
    return ast.copy_location(ast.FunctionDef("_atomr_lambda", only.args, body, []), only)


def _closed_over(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {n: c.cell_contents for n, c in zip(function.__code__.co_freevars, cells, strict=True)}


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a literal number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class _Checks(ast.NodeTransformer):
    """Inserts the checks into one function."""

    def __init__(
        self, owner: _Instrumenter, function: FunctionType, names: dict[str, Any], arrays: dict[str, int]
    ) -> None:
        self.owner, self.function, self.names, self.arrays = owner, function, names, arrays
        self.local = {*function.__code__.co_varnames, *function.__code__.co_cellvars}

    def body(self, node: ast.FunctionDef) -> None:
        """Insert them into the statements of a function only."""
        self.generic_visit(ast.Module(node.body, []))  # it changes the list in place

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Continue in an inner function, whose local names are unknown."""
        inner = _Checks(self.owner, self.function, self.names, dict(self.arrays))
        bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        inner.local = self.local | bound
        for name in bound:
            inner.arrays.pop(name, None)
        inner.body(node)
        return node

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        """Report an exception before it ends the thread."""
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = "Exception" if kind is None else ast.unparse(kind).rpartition(".")[2]
        return [self._note(node, name), cast("ast.Raise", self.generic_visit(node))]

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Report a failing assertion; with ``python -O`` there are none."""
        note = self._note(node, "AssertionError")
        self.generic_visit(node)
        fails = ast.BoolOp(ast.And(), [ast.Name("__debug__", ast.Load()), ast.UnaryOp(ast.Not(), node.test)])
        return ast.copy_location(ast.If(fails, [note, ast.Assert(ast.Constant(False), node.msg)], []), node)

    def _note(self, node: ast.stmt, exception: str) -> ast.stmt:
        words = (self.owner.site(self.function, node, exception), 0, -1, 0)
        note = _call(_NOTE, *map(ast.Constant, words), ast.Name(_REPORT, ast.Load()))
        return ast.copy_location(ast.Expr(note), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Leave the annotation unchanged."""
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Drop the meaning of a rebound name."""
        if not isinstance(node.ctx, ast.Load):
            self.arrays.pop(node.id, None)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Record the names of arrays."""
        name = node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else None
        axes = self._axes_of(node.value)
        self.generic_visit(node)
        if name is not None and axes:
            self.arrays[name] = axes
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Check an index."""
        original, axes = copy.deepcopy(node), self._axes_of(node.value)
        self.generic_visit(node)
        if self._may_be_array(node.value):
            node.slice = self._index(node.value, axes, node.slice, original)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Check the index argument of a function, and the body of a device function."""
        original = copy.deepcopy(node)
        axes = [self._axes_of(argument) for argument in node.args]
        named = {k.arg: self._axes_of(k.value) for k in node.keywords if k.arg is not None}
        self.generic_visit(node)
        function = self._meant(node.func)
        starred = any(isinstance(a, ast.Starred) for a in node.args) or len(named) < len(node.keywords)
        if self.owner.names.indexed(function):
            if len(node.args) > 1 and not starred and self._may_be_array(node.args[0]):
                node.args[1] = self._index(node.args[0], axes[0], node.args[1], original)
        elif not starred and self.owner.names.is_device_function(function):
            self._pass_on(node, function, axes, named)
        return node

    def _pass_on(
        self, node: ast.Call, dispatcher: Any, axes: Sequence[int | None], named: Mapping[str, int | None]
    ) -> None:
        """Redirect a call of a device function to its checked version."""
        signature = inspect.signature(dispatcher.py_func)
        kinds = {p.kind for p in signature.parameters.values()}
        try:
            bound = signature.bind(*axes, **named)
        except TypeError:
            return  # Numba reports the error
        if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
            return
        values = dict(zip(signature.parameters, node.args, strict=False))
        values |= {k.arg: k.value for k in node.keywords if k.arg is not None}
        name = f"_atomr_{dispatcher.py_func.__name__.strip('<>')}_{len(self.names)}"
        self.names[name] = None
        self.owner.device_function(dispatcher, {n: a for n, a in bound.arguments.items() if a}, self.names, name)
        for parameter in signature.parameters.values():
            if parameter.name not in values:
                default = f"_atomr_default_{len(self.names)}"
                self.names[default] = parameter.default
                values[parameter.name] = ast.Name(default, ast.Load())
        node.func = ast.Name(name, ast.Load())
        node.args = [*(values[n] for n in signature.parameters), ast.Name(_REPORT, ast.Load())]
        node.keywords = []

    def _index(self, array: ast.expr, axes: int | None, index: ast.expr, whole: ast.expr) -> ast.expr:
        """Return an index with checked integers; `axes` is None if the indexed object may not be an array."""
        parts, whole_tuple = _parts(index), isinstance(index, ast.Tuple)
        if any(isinstance(part, ast.Starred) for part in parts):
            return index
        number, site = 0, -1
        rest = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
        ellipsis = next((i for i, p in enumerate(rest) if isinstance(p, ast.Constant) and p.value is ...), len(rest))
        checked: list[ast.expr] = []
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is None:  # a new axis
                checked.append(part)
                continue
            axis = number if number < ellipsis else number - len(rest)
            number += 1
            known = axes is not None and axis < axes
            if isinstance(part, ast.Slice | ast.Tuple) or not (known if _is_number(part) else self._may_be_index(part)):
                checked.append(part)
                continue
            site = self.owner.site(self.function, whole) if site < 0 else site
            base = copy.deepcopy(array)
            for name in ast.walk(base):
                if isinstance(name, ast.Name | ast.Attribute | ast.Subscript):
                    name.ctx = ast.Load()
            one = _call(_CHECK, base, part, ast.Constant(axis), ast.Constant(site), ast.Name(_REPORT, ast.Load()))
            checked.append(ast.copy_location(one, part))
        return ast.copy_location(ast.Tuple(checked, ast.Load()), index) if whole_tuple else checked[0]

    @staticmethod
    def _may_be_index(part: ast.expr) -> bool:
        return not isinstance(part, ast.Constant)  # the name of a field, or an ellipsis

    def _may_be_array(self, node: ast.expr) -> bool:
        """Whether an expression may be an array, and can be evaluated twice without side effects."""
        if isinstance(node, ast.Attribute) and node.attr in _TUPLES:
            return False
        known = self._meant(node)
        if known is not None and not hasattr(known, "__array_interface__"):
            return False
        return isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and self._is_plain(node)

    def _is_plain(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            function = node.func
            is_view = isinstance(function, ast.Attribute) and function.attr in _VIEWS
            if not is_view and not (isinstance(function, ast.Name) and function.id in {_CHECK, *_PLAIN}):
                return False
        elif not isinstance(
            node,
            ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.Slice
            | ast.Compare | ast.IfExp | ast.operator | ast.unaryop | ast.cmpop | ast.expr_context,
        ):  # fmt: skip
            return False
        return all(self._is_plain(child) for child in ast.iter_child_nodes(node))

    def _meant(self, node: ast.expr) -> Any:
        """Return the value of a name or module attribute, if it is the same in every thread."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._meant(node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type) else None
        return None

    def _axes_of(self, value: ast.expr) -> int | None:
        """Return the number of axes of an expression known to be an array, otherwise None."""
        if isinstance(value, ast.Name):
            known = self._meant(value)
            return getattr(known, "ndim", None) if known is not None else self.arrays.get(value.id)
        if isinstance(value, ast.Attribute) and value.attr == "T":
            return self._axes_of(value.value)
        if isinstance(value, ast.Subscript):
            axes, parts = self._axes_of(value.value), _parts(value.slice)
            # The index may be a tuple, and the array may have structs as elements.
            if axes is None or any(not isinstance(part, ast.Slice) and not _is_number(part) for part in parts):
                return None
            return axes - sum(not isinstance(part, ast.Slice) for part in parts) or None
        if isinstance(value, ast.Call) and self.owner.names.makes_array(self._meant(value.func)):
            shape = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "shape"), None)
            known = self._meant(shape) if shape is not None else None
            return len(shape.elts) if isinstance(shape, ast.Tuple) else len(known) if isinstance(known, tuple) else 1
        return None


def instrument(
    function: FunctionType, axes: Sequence[int | None], names: Names
) -> tuple[FunctionType, tuple[str, ...]]:
    """Return a kernel with checked indices, which takes a report as its last argument, and its places by number.

    Parameters
    ----------
    function : function
        The kernel's.
    axes : sequence of int or None
        Number of axes of each array parameter; None for the others.
    names : Names

    Raises
    ------
    Unsupported
        If its source is not available.
    """
    owner = _Instrumenter(names)
    parameters = inspect.signature(function).parameters
    made = owner.function(function, {n: a for n, a in zip(parameters, axes, strict=True) if a})
    return made, tuple(owner.sites)
