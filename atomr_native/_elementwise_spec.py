"""Elementwise requests: validation and plan specifications, as pure functions of layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ._operands import (
    Fresh,
    broadcast_shapes,
    check_disjoint,
    check_input,
    check_output,
    check_size,
    describe,
    describe_output,
    overlaps,
)
from .dtypes import DTYPES, as_dtype, dtype_name
from .errors import InvalidRequest
from .expressions import FRESH, Program, compile_program, result_dtype
from .plan_spec import OVERWRITE, READ, WRITE, OperandSpec, PlanSpec

__all__ = [
    "Elementwise",
    "ElementwiseRequest",
    "ReduceRequest",
    "SoftmaxCrossEntropyRequest",
    "elementwise_spec",
    "number",
    "reduce_spec",
    "softmax_cross_entropy_spec",
]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseRequest:
    """A program of `atomr_native.expressions` over arrays, as one message.

    Parameters
    ----------
    program
        One expression, statements, or a mapping from assigned name to expression.
    operands
        What each name stands for: a GpuRef, or a number, which travels with the message and is not part
        of the plan.
        Arrays that are assigned are written, and have one shape; the others broadcast to it.
    out
        What the name ``out`` (and a bare expression) is assigned to; allocated if missing.

    Raises
    ------
    InvalidRequest
        For anything wrong with the program, its operands' shapes, or arrays that overlap without being the same view.
    """

    program: str | Mapping[str, str]
    operands: Mapping[str, Any] = field(default_factory=dict)
    out: Any = None

    def __post_init__(self) -> None:
        elementwise_spec(self)


class Elementwise(NamedTuple):
    """What an elementwise request comes to.

    Attributes
    ----------
    spec : PlanSpec
        Operands in the order in which the request names them, ``out`` last.
    names : tuple of str
        Operands of the message in order; names that stand for an array already there are left out.
    fresh : Fresh or None
        Structure of ``out`` if it has to be allocated.
    written : tuple of str
        Operands written, in the order of assignment.
    scalars : tuple of str
        Names of the numbers.
    """

    spec: PlanSpec
    names: tuple[str, ...]
    fresh: Fresh | None
    written: tuple[str, ...]
    scalars: tuple[str, ...]


def _compile(request: ElementwiseRequest, types: dict[str, str]) -> Program:
    """Compile, with the dtype of a missing ``out`` found from its expression."""
    if "out" in types:
        return compile_program(request.program, types)
    program = compile_program(request.program, {**types, "out": FRESH})
    if "out" in dict(program.stores):
        types["out"] = result_dtype(program, "out", types)
        program = compile_program(request.program, types)
    return program


def _merge(program: Program, arrays: dict[str, Any]) -> tuple[Program, dict[str, str]]:
    """Give one name to operands that are the same array, where it is written; refuse other overlaps."""
    names = list(arrays)
    written = [name for name, _ in program.stores]
    alias: dict[str, str] = {}
    for i, j, same in overlaps(list(arrays.values())):
        first, second = names[i], names[j]
        if first not in written and second not in written:
            continue
        if not same:
            outputs = [name for name in (first, second) if name in written][:1]
            inputs = [name for name in (first, second) if name not in outputs]
            check_disjoint(
                [(n, arrays[n]) for n in outputs], [(n, arrays[n]) for n in inputs], ", or to be the very same view"
            )
        if first in written and second in written:
            raise InvalidRequest(f"{first} and {second} are the same array, and both are assigned; assign to one")
        alias[second] = alias.get(first, first)
    if not alias:
        return program, alias
    nodes = tuple((*node[:2], alias.get(node[2], node[2])) if node[0] == "operand" else node for node in program.nodes)
    stores = tuple((alias.get(name, name), index) for name, index in program.stores)
    return Program(nodes, stores, frozenset(alias.get(name, name) for name in program.reads)), alias


def elementwise_spec(request: ElementwiseRequest) -> Elementwise:
    """Check a request and return its plan specification.

    Raises
    ------
    InvalidRequest
        As `ElementwiseRequest` says.
    """
    if request.out is not None and "out" in request.operands:
        raise InvalidRequest("out is given twice: as out= and among the operands")
    arrays: dict[str, Any] = {}
    types: dict[str, str] = {}
    scalars: list[str] = []
    given = dict(request.operands) if request.out is None else {**request.operands, "out": request.out}
    for name, value in given.items():
        scalar = None if name == "out" else number(value)
        if scalar is None:
            arrays[name] = check_input(name, value)
            types[name] = dtype_name(as_dtype(arrays[name].dtype))
        else:
            scalars.append(name)
            types[name] = "int" if isinstance(scalar, int) else "float"
    program = _compile(request, types)
    written = tuple(name for name, _ in program.stores)
    program, alias = _merge(program, arrays)
    shapes = {name: tuple(arrays[name].shape) for name in written if name in arrays}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name}{shape}" for name, shape in shapes.items())
        raise InvalidRequest(f"arrays that one message assigns must have one shape, not {listed}")
    shape = broadcast_shapes(((name, tuple(array.shape)) for name, array in arrays.items()), "operands")
    if not arrays:
        raise InvalidRequest(f"{request.program!r} has no array; give out=, or an operand that is a GpuRef")
    for name, target in shapes.items():
        check_output(name, arrays[name])
        if target != shape:
            raise InvalidRequest(f"{name} of shape {target} is assigned values of shape {shape}; allowed: {shape}")
    stored = {name for name, _ in program.stores}
    operands = [
        describe(
            name,
            array,
            READ if name not in stored else READ | WRITE if name in program.reads else WRITE | OVERWRITE,
        )
        for name, array in arrays.items()
        if name not in alias
    ]
    fresh = None
    if "out" in written and "out" not in arrays:
        fresh = Fresh(shape, DTYPES[types["out"]])
        check_size("out", *fresh)
        operands.append(describe_output("out", None, fresh, WRITE | OVERWRITE))
    spec = PlanSpec(
        op="elementwise.program",
        operands=tuple(operands),
        scalars=tuple("int64" if types[name] == "int" else "float64" for name in scalars),
        attributes=(
            ("shape", shape),
            ("nodes", program.nodes),
            ("stores", program.stores),
            ("scalar_names", tuple(scalars)),
        ),
    )
    return Elementwise(spec, tuple(operand.name for operand in operands), fresh, written, tuple(scalars))


def _output(name: str, given: Any, fresh: Fresh, others: list[tuple[str, Any]]) -> OperandSpec:
    """Return an output operand, checked if it was given."""
    if given is None:
        check_size(name, *fresh)
    else:
        array = check_output(name, given)
        if tuple(array.shape) != fresh.shape:
            raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: {fresh.shape}")
        check_disjoint([(name, given)], others)
    return describe_output(name, given, fresh, WRITE | OVERWRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceRequest:
    """A reduction of `x` over some of its axes.

    Sums and means are accumulated in float32 for floating types up to 32 bits (in float64 on the host device), in int64
    (uint64) for integers, and in float64 for the rest; means of integers in float64.  NaN wins in ``max``, and
    ``argmax`` gives the first of equals.

    Parameters
    ----------
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"argmax"``.
    x
        Array of a real dtype.
    axis
        An axis, several (not for argmax), or None for all.  Reduced axes vanish.
    out
        Where to store it, of any dtype; allocated if missing: in x's dtype for floating types and
        ``max``, int64 for ``argmax``, and what is accumulated in for integers.
    """

    op: str
    x: Any
    axis: int | tuple[int, ...] | None = None
    out: Any = None

    def __post_init__(self) -> None:
        reduce_spec(self)


def _axes(axis: object, ndim: int) -> tuple[int, ...]:
    chosen = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(isinstance(i, bool) or not isinstance(i, int | np.integer) or not -ndim <= i < ndim for i in chosen):
        raise InvalidRequest(f"axis={axis!r} for an array of {ndim} axes; allowed: integers from {-ndim} to {ndim - 1}")
    axes = tuple(sorted(int(i) % ndim for i in chosen))
    if len(set(axes)) < len(axes):
        raise InvalidRequest(f"axis={axis!r} names an axis twice")
    return axes


def reduce_spec(request: ReduceRequest) -> tuple[PlanSpec, Fresh]:
    """Check a reduction; return its plan specification (operands ``x, out``) and the structure of its output."""
    if not isinstance(request.op, str) or request.op not in ("sum", "mean", "max", "argmax"):
        raise InvalidRequest(f"unknown reduction {request.op!r}; allowed: sum, mean, max, argmax")
    x = check_input("x", request.x)
    dtype = as_dtype(x.dtype)
    if dtype.kind == "c":
        raise InvalidRequest(f"x has dtype {dtype_name(dtype)}; allowed: real dtypes")
    axes = _axes(request.axis, len(x.shape))
    if request.op == "argmax" and len(axes) != 1 and request.axis is not None:
        raise InvalidRequest(f"argmax over axis={request.axis!r}; allowed: one axis, or None")
    if request.op != "sum" and any(x.shape[i] == 0 for i in axes):
        raise InvalidRequest(f"{request.op} over no elements: x has shape {tuple(x.shape)}, axis={request.axis!r}")
    floating = dtype.kind not in "biu"
    if floating:
        accumulate = "float64" if dtype == np.float64 else "float32"
    else:
        accumulate = "float64" if request.op == "mean" else "uint64" if dtype.kind == "u" else "int64"
    result = dtype if floating or request.op == "max" else DTYPES[accumulate]
    fresh = Fresh(
        tuple(extent for i, extent in enumerate(x.shape) if i not in axes),
        DTYPES["int64"] if request.op == "argmax" else result,
    )
    out = _output("out", request.out, fresh, [("x", request.x)])
    attributes = (("reduction", request.op), ("axes", axes), ("accumulate", accumulate))
    return PlanSpec("elementwise.reduce", (describe("x", x, READ), out), (), attributes), fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxCrossEntropyRequest:
    """Softmax over rows, mean cross entropy against class labels, and its gradient.

    ``loss = mean(-log(softmax(logits)[i, labels[i]]))`` and ``grad = (softmax(logits) - onehot(labels)) / N``,
    computed in float32, or float64 for float64.  All rows count: no label is one to ignore.  A label outside the
    classes is an error of the message on the host device, before anything is written; on a GPU, which cannot look
    before it computes, the loss and its row of the gradient are NaN.

    Parameters
    ----------
    logits
        (N, classes), floating; both at least 1.
    labels
        (N,), int32 or int64.
    grad_out
        Shape and dtype of the logits; allocated if missing.
    loss_out
        float32 of shape (); allocated if missing.
    """

    logits: Any
    labels: Any
    grad_out: Any = None
    loss_out: Any = None

    def __post_init__(self) -> None:
        softmax_cross_entropy_spec(self)


def softmax_cross_entropy_spec(request: SoftmaxCrossEntropyRequest) -> tuple[PlanSpec, Fresh, Fresh]:
    """Check a request; return its plan specification (operands ``logits, labels, grad, loss``), and grad and loss."""
    logits, labels = check_input("logits", request.logits), check_input("labels", request.labels)
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
    grad, loss = Fresh(tuple(logits.shape), dtype), Fresh((), DTYPES["float32"])
    others = [("logits", request.logits), ("labels", request.labels)]
    outputs = [
        _output("grad", request.grad_out, grad, others),
        _output(
            "loss", request.loss_out, loss, [*others, ("grad", request.grad_out)][: 2 + (request.grad_out is not None)]
        ),
    ]
    for operand, fresh in zip(outputs, (grad, loss), strict=True):
        if operand.dtype != dtype_name(fresh.dtype):
            raise InvalidRequest(f"{operand.name}_out has dtype {operand.dtype}; allowed: {dtype_name(fresh.dtype)}")
    spec = PlanSpec(
        "elementwise.softmax_cross_entropy",
        (describe("logits", logits, READ), describe("labels", labels, READ), *outputs),
        (),
        (("compute", "float64" if dtype == np.float64 else "float32"),),
    )
    return spec, grad, loss
