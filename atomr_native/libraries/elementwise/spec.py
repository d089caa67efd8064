"""Rules of elementwise programs, reductions and losses, as pure functions of layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...arrays.operands import Fresh, broadcast_shapes, check_disjoint, check_input, check_output, check_size, overlaps
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidAxis, InvalidRequest
from ...plans.lowering import Operand, written
from .attributes import REDUCTIONS
from .expressions import FRESH, Program, compile_program, result_dtype

__all__ = [
    "ProgramProblem",
    "Reduction",
    "number",
    "output",
    "resolve_loss",
    "resolve_program",
    "resolve_reduction",
]

Source: TypeAlias = str | Mapping[str, str]


def number(value: object) -> int | float | None:
    """Return a Python or NumPy scalar as the number that travels in a message, or None for what is no scalar.

    Raises
    ------
    InvalidRequest
        For complex numbers and integers beyond 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InvalidRequest(f"the scalar {value!r}; allowed: real numbers, integers of 64 bits")
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None


class ProgramProblem(NamedTuple):
    """A program with everything that follows from its operands.

    Attributes
    ----------
    program : Program
        Compiled; operands that are one array have one name.
    shape : tuple of int
        Of what is assigned.
    arrays : dict
        Arrays by name, in the request's order.
    alias : dict
        Names that stand for another name's array, with that name.
    assigned : tuple of str
        Names in the order of assignment.
    scalars : dict
        Numbers by name.
    fresh : Fresh or None
        Structure of ``out`` if it is to be allocated.
    """

    program: Program
    shape: tuple[int, ...]
    arrays: dict[str, Any]
    alias: dict[str, str]
    assigned: tuple[str, ...]
    scalars: dict[str, int | float]
    fresh: Fresh | None


def _compile(source: Source, types: dict[str, str]) -> Program:
    """Compile, with the dtype of a missing ``out`` found from its expression."""
    if "out" in types:
        return compile_program(source, types)
    program = compile_program(source, {**types, "out": FRESH})
    if "out" in dict(program.stores):
        types["out"] = result_dtype(program, "out", types)
        program = compile_program(source, types)
    return program


def _merge(program: Program, arrays: dict[str, Any]) -> tuple[Program, dict[str, str]]:
    """Merge operands that are one array, if it is written; refuse other overlaps."""
    names = list(arrays)
    assigned = [name for name, _ in program.stores]
    alias: dict[str, str] = {}
    for i, j, same in overlaps(list(arrays.values())):
        first, second = names[i], names[j]
        if first not in assigned and second not in assigned:
            continue
        if not same:
            outputs = [name for name in (first, second) if name in assigned][:1]
            inputs = [name for name in (first, second) if name not in outputs]
            check_disjoint(
                [(n, arrays[n]) for n in outputs], [(n, arrays[n]) for n in inputs], ", or to be the very same view"
            )
        if first in assigned and second in assigned:
            raise InvalidRequest(f"{first} and {second} are the same array, and both are assigned; assign to one")
        if first not in assigned and arrays[first] is not arrays[second]:
            alias[first] = second  # what is written stays an operand, so that a send checks whether it may be
        else:
            alias[second] = alias.get(first, first)
    for name, other in alias.items():
        while other in alias:
            other = alias[other]
        alias[name] = other
    if not alias:
        return program, alias
    nodes = tuple((*node[:2], alias.get(node[2], node[2])) if node[0] == "operand" else node for node in program.nodes)
    stores = tuple((alias.get(name, name), index) for name, index in program.stores)
    return Program(nodes, stores, frozenset(alias.get(name, name) for name in program.reads)), alias


def resolve_program(source: Source, operands: Mapping[str, Any], out: Any) -> ProgramProblem:
    """Check a program and its operands.

    Raises
    ------
    InvalidRequest
        As `ElementwiseRequest` says.
    """
    if out is not None and "out" in operands:
        raise InvalidRequest("out is given twice: as out= and among the operands")
    arrays: dict[str, Any] = {}
    types: dict[str, str] = {}
    scalars: dict[str, int | float] = {}
    given = dict(operands) if out is None else {**operands, "out": out}
    for name, value in given.items():
        scalar = None if name == "out" else number(value)
        if scalar is None:
            arrays[name] = check_input(name, value, backwards=True)  # what is written is checked below
            types[name] = dtype_name(as_dtype(arrays[name].dtype))
        else:
            scalars[name] = scalar
            types[name] = "int" if isinstance(scalar, int) else "float"
    program = _compile(source, types)
    assigned = tuple(name for name, _ in program.stores)
    program, alias = _merge(program, arrays)
    shapes = {name: tuple(arrays[name].shape) for name in assigned if name in arrays}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name}{shape}" for name, shape in shapes.items())
        raise InvalidRequest(f"arrays that one message assigns must have one shape, not {listed}")
    shape = broadcast_shapes(((name, tuple(array.shape)) for name, array in arrays.items()), "operands")
    if not arrays:
        raise InvalidRequest(f"{source!r} has no array; give out=, or an operand that is a GpuRef")
    for name, target in shapes.items():
        check_output(name, arrays[name])
        if target != shape:
            raise InvalidRequest(f"{name} of shape {target} is assigned values of shape {shape}; allowed: {shape}")
    fresh = None
    if "out" in assigned and "out" not in arrays:
        fresh = Fresh(shape, DTYPES[types["out"]])
        check_size("out", *fresh)
    return ProgramProblem(program, shape, arrays, alias, assigned, scalars, fresh)


def output(name: str, given: Any, fresh: Fresh, others: list[tuple[str, Any]]) -> Operand:
    """Return an output operand, checked if it was given."""
    if given is None:
        check_size(name, *fresh)
    else:
        array = check_output(name, given)
        if tuple(array.shape) != fresh.shape:
            raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: {fresh.shape}")
        check_disjoint([(name, given)], others)
    return written(name, given, fresh)


class Reduction(NamedTuple):
    """A reduction: the axes, the dtype that is accumulated in, and the structure of the output."""

    axes: tuple[int, ...]
    accumulate: str
    out: Fresh


def _axes(axis: object, ndim: int) -> tuple[int, ...]:
    chosen = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(isinstance(i, bool) or not isinstance(i, int | np.integer) or not -ndim <= i < ndim for i in chosen):
        raise InvalidAxis(f"axis={axis!r} for an array of {ndim} axes; allowed: integers from {-ndim} to {ndim - 1}")
    axes = tuple(sorted(int(i) % ndim for i in chosen))
    if len(set(axes)) < len(axes):
        raise InvalidRequest(f"axis={axis!r} names an axis twice")
    return axes


def resolve_reduction(op: str, x: Any, axis: object) -> Reduction:
    """Check a reduction."""
    if not isinstance(op, str) or op not in REDUCTIONS:
        raise InvalidRequest(f"unknown reduction {op!r}; allowed: {', '.join(REDUCTIONS)}")
    x = check_input("x", x)
    dtype = as_dtype(x.dtype)
    if dtype.kind == "c" and op in ("max", "min", "argmax", "argmin"):
        raise InvalidRequest(f"{op} of x, which has dtype {dtype_name(dtype)}; allowed: real dtypes")
    axes = _axes(axis, len(x.shape))
    if op in ("argmax", "argmin") and len(axes) != 1 and axis is not None:
        raise InvalidRequest(f"{op} over axis={axis!r}; allowed: one axis, or None")
    if op not in ("sum", "prod", "any", "all") and any(x.shape[i] == 0 for i in axes):
        raise InvalidRequest(f"{op} over no elements: x has shape {tuple(x.shape)}, axis={axis!r}")
    floating = dtype.kind not in "biu"
    if op in ("any", "all"):
        accumulate = "bool"
    elif dtype.kind == "c":
        accumulate = dtype_name(dtype)
    elif floating:
        accumulate = "float64" if dtype == np.float64 else "float32"
    else:
        accumulate = "float64" if op == "mean" else "uint64" if dtype.kind == "u" else "int64"
    result = DTYPES[accumulate] if accumulate == "bool" or not (floating or op in ("max", "min")) else dtype
    shape = tuple(extent for i, extent in enumerate(x.shape) if i not in axes)
    return Reduction(axes, accumulate, Fresh(shape, DTYPES["int64"] if op in ("argmax", "argmin") else result))


def resolve_loss(logits: Any, labels: Any) -> tuple[Fresh, Fresh]:
    """Check the operands of softmax cross entropy; return the structures of gradient and loss."""
    logits, labels = check_input("logits", logits), check_input("labels", labels)
    dtype = as_dtype(logits.dtype)
    if dtype_name(dtype) not in ("float64", "float32", "float16", "bfloat16"):
        raise InvalidRequest(f"logits has dtype {dtype_name(dtype)}; allowed: float64, float32, float16, bfloat16")
    if len(logits.shape) != 2 or 0 in logits.shape:
        raise InvalidRequest(f"logits has shape {tuple(logits.shape)}; allowed: (N, classes), both at least 1")
    if dtype_name(as_dtype(labels.dtype)) not in ("int32", "int64") or tuple(labels.shape) != logits.shape[:1]:
        raise InvalidRequest(
            f"labels has dtype {dtype_name(as_dtype(labels.dtype))} and shape {tuple(labels.shape)}; "
            f"allowed: int32 or int64, {tuple(logits.shape[:1])}"
        )
    return Fresh(tuple(logits.shape), dtype), Fresh((), DTYPES["float32"])
