"""Kernels with their indices checked: the source of a kernel, each index of an array put through a check.

Numba has no bounds checks on CUDA.  An index that is out of bounds is written to a report (the first one of a launch),
and ends its thread, instead of faulting or changing somebody else's bytes.  Checked are the integers in ``x[i]``,
``x[i, j]`` and ``cuda.atomic.f(x, i, ...)``, where x is an array argument, one passed on to a device function, a
shared or a local array, or a view of one of these.  Slices need no check.  An index in a variable that holds a tuple is
not checked.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from .errors import Unsupported

__all__ = ["REPORT_WORDS", "instrument"]

#: Words of a report, int64: 1 once taken, site, index, axis, extent, block x, y, z, thread x, y, z.
REPORT_WORDS = 11

#: Numba's module, in the copy of `check` that `instrument` compiles.
cuda: Any = None

_REPORT = "_atomr_report"
_CHECK = "_atomr_check"


def check(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    """Return an index that is in bounds, else report it and end the thread; compiled as a device function."""
    extent = array.shape[axis]
    if index < -extent or index >= extent:
        if cuda.atomic.cas(report, 0, 0, 1) == 0:
            report[1] = site
            report[2] = index
            report[3] = axis
            report[4] = extent
            report[5] = cuda.blockIdx.x
            report[6] = cuda.blockIdx.y
            report[7] = cuda.blockIdx.z
            report[8] = cuda.threadIdx.x
            report[9] = cuda.threadIdx.y
            report[10] = cuda.threadIdx.z
        raise IndexError
    return index


class _Instrumenter:
    """Makes checked functions of a kernel and of the device functions that it calls."""

    def __init__(self, cuda: Any, is_dispatcher: Callable[[object], bool]) -> None:
        self.cuda = cuda
        self.is_dispatcher = is_dispatcher
        self.sites: list[str] = []
        self.made: dict[tuple[int, tuple[int | None, ...]], Any] = {}
        named = FunctionType(check.__code__, {"cuda": cuda, "IndexError": IndexError}, "check")
        self.check = cuda.jit(device=True)(named)

    def function(self, function: FunctionType, axes: Sequence[int | None]) -> FunctionType:
        """Return a checked copy; `axes` says of each parameter how many axes it has, None: it is no array."""
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError) as error:
            raise Unsupported(
                f"debug=True needs the source of {function.__name__}, which is not to be had ({error}); "
                f"define the function in a file or a notebook's cell"
            ) from None
        ast.increment_lineno(tree, first - 1)
        node = tree.body[0]
        if not isinstance(node, ast.FunctionDef):
            raise Unsupported(f"debug=True needs a function made by def; {function.__name__} is none")
        names = {**function.__globals__, **_closed_over(function)}
        parameters = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        arrays = {name: n for name, n in zip(parameters, axes, strict=False) if n is not None}
        node.decorator_list = []
        node.args.args.append(ast.arg(_REPORT))
        node.returns = None
        _Checks(self, function, names, arrays).run(node)
        names[_CHECK] = self.check
        code = compile(ast.fix_missing_locations(tree), inspect.getsourcefile(function) or "<kernel>", "exec")
        made: dict[str, Any] = {}
        exec(code, names, made)  # noqa: S102 - the user's own function
        found: FunctionType = made[function.__name__]
        return found

    def device_function(self, dispatcher: Any, axes: tuple[int | None, ...]) -> Any:
        """Return a checked copy of a device function, for arguments of so many axes."""
        key = id(dispatcher), axes
        if key not in self.made:
            self.made[key] = None  # one that calls itself goes unchecked the second time
            self.made[key] = self.cuda.jit(device=True)(self.function(dispatcher.py_func, axes))
        return self.made[key]

    def site(self, function: FunctionType, node: ast.expr) -> int:
        """Give a place in the source its number."""
        self.sites.append(f"{inspect.getsourcefile(function)}:{node.lineno}: {ast.unparse(node)}")
        return len(self.sites) - 1


def _closed_over(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {n: c.cell_contents for n, c in zip(function.__code__.co_freevars, cells, strict=True)}


class _Checks(ast.NodeTransformer):
    """Puts the checks into one function."""

    def __init__(
        self, owner: _Instrumenter, function: FunctionType, names: dict[str, Any], arrays: dict[str, int]
    ) -> None:
        self.owner, self.function, self.names, self.arrays = owner, function, names, arrays

    def run(self, node: ast.FunctionDef) -> None:
        node.body = [self.visit(statement) for statement in node.body]

    def _checked(self, array: str, index: ast.expr, axis: int, whole: ast.expr) -> ast.expr:
        site = self.owner.site(self.function, whole)
        return ast.copy_location(
            ast.Call(
                ast.Name(_CHECK, ast.Load()),
                [
                    ast.Name(array, ast.Load()),
                    index,
                    ast.Constant(axis),
                    ast.Constant(site),
                    ast.Name(_REPORT, ast.Load()),
                ],
                [],
            ),
            index,
        )

    def _index(self, array: str, index: ast.expr, whole: ast.expr) -> ast.expr:
        """Return an index with its integers checked."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if any(isinstance(p, ast.Starred) or (isinstance(p, ast.Constant) and p.value in (None, ...)) for p in parts):
            return index
        if (
            len(parts) == 1
            and self.arrays[array] > 1
            and not isinstance(index, ast.Tuple | ast.Slice | ast.Constant | ast.BinOp)
        ):
            return index  # it may be a tuple
        checked = [
            part if isinstance(part, ast.Slice) else self._checked(array, part, axis, whole)
            for axis, part in enumerate(parts)
        ]
        return ast.Tuple(checked, ast.Load()) if isinstance(index, ast.Tuple) else checked[0]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        original = ast.parse(ast.unparse(node), mode="eval").body
        ast.copy_location(original, node)
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays:
            node.slice = self._index(node.value.id, node.slice, original)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        name = node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else None
        axes = self._axes_of(node.value) if name is not None else None
        self.generic_visit(node)
        if name is not None:
            if axes:
                self.arrays[name] = axes
            else:
                self.arrays.pop(name, None)
        return node

    def _axes_of(self, value: ast.expr) -> int | None:
        """Return the number of axes of an expression that is an array for certain, else None."""
        if isinstance(value, ast.Name):
            return self.arrays.get(value.id)
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id in self.arrays:
            parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
            if any(isinstance(p, ast.Constant) and p.value in (None, ...) for p in parts):
                return None
            return self.arrays[value.value.id] - sum(not isinstance(p, ast.Slice) for p in parts) or None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "array":
            owner = value.func.value
            if isinstance(owner, ast.Attribute) and owner.attr in ("shared", "local") and self._is_cuda(owner.value):
                shape = (
                    value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "shape"), None)
                )
                return len(shape.elts) if isinstance(shape, ast.Tuple) else 1
        return None

    def _is_cuda(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self.names.get(node.id) is self.owner.cuda

    def visit_Call(self, node: ast.Call) -> ast.expr:
        original = ast.parse(ast.unparse(node), mode="eval").body
        ast.copy_location(original, node)
        axes = tuple(self._axes_of(argument) for argument in node.args)
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Name)
            and self.owner.is_dispatcher(self.names.get(function.id))
            and not node.keywords
        ):
            made = self.owner.device_function(self.names[function.id], axes)
            if made is not None:
                name = f"_atomr_{function.id}_{len(self.names)}"
                self.names[name] = made
                node.func = ast.Name(name, ast.Load())
                node.args.append(ast.Name(_REPORT, ast.Load()))
        elif (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Attribute)
            and function.value.attr == "atomic"
            and self._is_cuda(function.value.value)
            and len(node.args) > 1
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id in self.arrays
        ):
            node.args[1] = self._index(node.args[0].id, node.args[1], original)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Leave inner functions as they are."""
        return node


def instrument(
    function: FunctionType, axes: Sequence[int | None], cuda: Any, is_dispatcher: Callable[[object], bool]
) -> tuple[FunctionType, tuple[str, ...]]:
    """Return a kernel with its indices checked, which takes a report as its last argument, and its places by number.

    Parameters
    ----------
    function : function
        The kernel's.
    axes : sequence of int or None
        Number of axes of each array parameter; None for the others.
    cuda, is_dispatcher
        Numba's module, and what tells its functions.

    Raises
    ------
    Unsupported
        If its source is not to be had.
    """
    owner = _Instrumenter(cuda, is_dispatcher)
    made = owner.function(function, axes)
    return made, tuple(owner.sites)
