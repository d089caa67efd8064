"""Functions of the user's inside a transform: on each element that it loads, and on each that it stores."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from ..._support.checks import is_integer, is_real
from ...arrays.operands import check_disjoint, check_input
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest, Unsupported
from ...plans.spec import PlanSpec, ShippedCode
from ...protocol.binaries import Binary
from .attributes import MappedAttributes
from .callbacks import callbacks_of
from .expressions import ElementExpression, as_expression, function_of
from .sources import CudaFunction
from .spec import COMPLEX_OF, COMPUTED, TRANSFORMS

if TYPE_CHECKING:
    from ...compile.shipped import Part
    from ...plans.lowering import Target

__all__ = [
    "ElementFunction",
    "MappedCode",
    "Operands",
    "as_function",
    "as_functions",
    "function_parts",
    "plain",
    "resolve_operands",
]

#: Parameters of the kernel are bounded; each array has eight steps.
_OPERANDS: Final = 16
_TAKEN: Final = ("x", "out")


@dataclass(frozen=True, slots=True)
class ElementFunction:
    """A Python function of an element's value, its offset and operands, by their names.

    Attributes
    ----------
    function : FunctionType
    names : tuple of str
        Of the parameters after the first two.
    """

    function: FunctionType
    names: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by value, so that lambdas and functions of a notebook travel too; imports Numba."""
        from ...compile.numba import copies

        return _restored, (copies.pickled(self.function), self.names)


#: What a request has as `load` or `store`.
Element = ElementFunction | ElementExpression | CudaFunction


def _restored(function: bytes, names: tuple[str, ...]) -> ElementFunction:
    import pickle

    return ElementFunction(pickle.loads(function), names)  # noqa: S301 - part of a pickle that is being loaded


def as_function(name: str, given: Any) -> Element | None:
    """Return a request's `load` or `store`.

    Raises
    ------
    InvalidRequest
        If it is no Python function, or its parameters are not positional, without defaults, and two or more.
    """
    if given is None or isinstance(given, ElementFunction | ElementExpression | CudaFunction):
        return given
    if isinstance(given, str):
        return as_expression(name, given)
    function = getattr(given, "py_func", given)
    if not isinstance(function, FunctionType):
        raise InvalidRequest(
            f"{name} is a {type(given).__name__}; allowed: a Python function, what cuda.jit(device=True) or "
            f"numba.njit made of one, an expression as text, or an atomr_native.CudaFunction"
        )
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise InvalidRequest(
                f"{name} {function.__name__} has the parameter {parameter}; allowed: positional parameters"
            )
        if parameter.default is not parameter.empty:
            raise InvalidRequest(f"parameter {parameter.name} of {name} {function.__name__} has a default")
    names = tuple(parameter.name for parameter in parameters)
    if len(names) < 2:
        raise InvalidRequest(
            f"{name} {function.__name__} has the parameters {', '.join(names) or 'none'}; allowed: the element's "
            f"value, its offset, and operands"
        )
    taken = [found for found in names[2:] if found in _TAKEN]
    if taken:
        raise InvalidRequest(f"parameter {taken[0]} of {name} {function.__name__}; allowed: names other than x and out")
    return ElementFunction(function, names[2:])


def plain(name: str, value: Any) -> Any:
    """Return an operand: numbers of Python or NumPy as those of Python, anything else as it is.

    Raises
    ------
    InvalidRequest
        For Boolean and complex numbers, and integers beyond 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | complex):
        raise InvalidRequest(f"operand {name}={value!r}; allowed: arrays, real numbers, and integers of 64 bits")
    if is_integer(value) and not -(2**63) <= value < 2**63:
        raise InvalidRequest(f"operand {name}={value!r}; allowed: integers of 64 bits")
    return value


class Operands(NamedTuple):
    """Operands of the functions of a request, in the order of the functions' parameters."""

    arrays: dict[str, Any]
    scalars: dict[str, int | float]


def resolve_operands(
    functions: Mapping[str, Element],
    given: tuple[tuple[str, Any], ...],
    shapes: Mapping[str, tuple[int, ...]],
    outputs: list[tuple[str, Any]],
) -> Operands:
    """Check the operands of functions, which are given by the names ``"load"`` and ``"store"``.

    Parameters
    ----------
    functions
    given : tuple of (str, value)
    shapes
        To which operands broadcast: that of x for ``"load"``, that of the result for ``"store"``.
    outputs
        Arrays that are written, with which operands share no memory.
    """
    values = dict(given)
    names = list(dict.fromkeys(name for function in functions.values() for name in function.names))
    if set(values) != set(names):
        raise InvalidRequest(
            f"operands are {', '.join(map(str, values)) or 'none'}; the functions take {', '.join(names) or 'none'}, "
            f"each of which must be given"
        )
    if len(names) > _OPERANDS:
        raise InvalidRequest(f"{len(names)} operands; allowed: {_OPERANDS}")
    arrays: dict[str, Any] = {}
    scalars: dict[str, int | float] = {}
    for name in names:
        value = plain(name, values[name])
        if is_integer(value) or is_real(value):
            scalars[name] = int(value) if is_integer(value) else float(value)
            continue
        array = check_input(name, value, backwards=True)
        dtype = dtype_name(as_dtype(array.dtype))
        if dtype not in COMPUTED:
            raise InvalidRequest(f"operand {name} has dtype {dtype}; allowed: {', '.join(COMPUTED)}")
        for which, function in functions.items():
            shape = shapes[which]
            missing = len(shape) - len(array.shape)
            fits = missing >= 0 and all(n in (1, m) for n, m in zip(array.shape, shape[missing:], strict=True))
            if name in function.names and not fits:
                what = "x" if which == "load" else "the result"
                raise InvalidRequest(
                    f"operand {name} of {which} has shape {tuple(array.shape)}; allowed: shapes that broadcast to "
                    f"{shape}, that of {what}"
                )
        check_disjoint(outputs, [(name, value)])
        arrays[name] = value
    return Operands(arrays, scalars)


def as_functions(
    functions: Mapping[str, Element], whole: Mapping[str, bool], arrays: Mapping[str, Any]
) -> tuple[tuple[str, ElementFunction | CudaFunction], ...]:
    """Return functions, with those of expressions, whose types are known now.

    Parameters
    ----------
    functions
    whole : dict
        Whether the value is complex, for ``"load"`` and ``"store"``.
    arrays : dict
        The operands that are arrays.
    """
    names = {name for name, array in arrays.items() if as_dtype(array.dtype).kind == "c"}
    made: list[tuple[str, ElementFunction | CudaFunction]] = []
    for which, function in functions.items():
        if isinstance(function, ElementExpression):
            known = frozenset(names & set(function.names) | ({"value"} if whole[which] else set()))
            function = ElementFunction(function_of(which, function, known), function.names)
        made.append((which, function))
    return tuple(made)


def seen(dtype: str, real: str) -> str:
    """Return the type in which a function gets elements of a dtype, in a transform that computes in `real`."""
    if dtype.startswith("complex"):
        return COMPLEX_OF[real]
    return "int64" if as_dtype(dtype).kind in "biu" else real


def function_parts(
    spec: PlanSpec[MappedAttributes], functions: Mapping[str, bytes]
) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """Return names and options of the kernels of a plan, see ``kernels/functions.py``; `functions` are pickled."""
    how = spec.attributes
    dtypes = {operand.name: operand.dtype for operand in spec.operands}
    kind, real = TRANSFORMS[how.transform], COMPUTED[dtypes["x"]]
    scalars = dict(zip(how.scalar_names, spec.scalars, strict=True))
    whole = COMPLEX_OF[real]
    ends = {
        "load": (dtypes["x"], real if kind == "r2c" else whole),
        "store": (real if kind == "c2r" else whole, dtypes["out"]),
    }
    made = []
    for which, function in functions.items():
        names = getattr(how, which)
        arrays = [name for name in names if name in dtypes]
        source, target = ends[which]
        own = (source, target, *(dtypes[name] for name in arrays))
        result = COMPLEX_OF[real] if target.startswith("complex") else real
        first = whole if source.startswith("complex") else real
        kinds = (first, result, *(seen(dtypes[name], real) for name in arrays))
        numbers = tuple(scalars[name] for name in names if name in scalars)
        order = tuple([*arrays, *(name for name in names if name in scalars)].index(name) for name in names)
        options = (("function", function), ("dtypes", own), ("kinds", kinds), ("scalars", numbers), ("order", order))
        made.append((which, options))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class MappedCode:
    """The functions of a request in a plan."""

    functions: tuple[tuple[str, ElementFunction | CudaFunction], ...]

    def attributes(self, spec: PlanSpec[MappedAttributes], target: Target) -> MappedAttributes:
        """Return the attributes with the functions: pickled for the host device, else compiled.

        Waits for the compiler.

        Raises
        ------
        Unsupported, LibraryError
            As `atomr_native.compile.shipped.machine_code`; `Unsupported` for CUDA C++ on the host device.
        """
        from ...compile import linker, shipped

        python = {which: f for which, f in self.functions if isinstance(f, ElementFunction)}
        sources = tuple((which, f.name, f.source) for which, f in self.functions if isinstance(f, CudaFunction))
        if sources and target.capability is None:
            raise Unsupported(
                f"{sources[0][0]} is the function {sources[0][1]} in CUDA C++, which runs on GPUs; allowed on the host "
                f"device: Python functions, and expressions as text",
                rule="fft.cuda_function",
                lifted_by=("a GPU",),
            )
        functions = {which: linker.pickled(function.function) for which, function in python.items()}
        if target.capability is None:
            pickled = tuple((which, Binary(function)) for which, function in functions.items())
            return replace(spec.attributes, functions=pickled)
        if not functions:
            return replace(spec.attributes, sources=sources)
        made = function_parts(spec, functions)
        parts: tuple[Part, ...] = tuple(shipped.Part(*part) for part in made)
        code = shipped.machine_code("fft.functions", parts, target.capability)
        callbacks, apart = callbacks_of(spec, made, target.capability)
        kernels = ShippedCode(code.entries, code.code)
        return replace(spec.attributes, shipped=kernels, callbacks=callbacks, apart=apart, sources=sources)
