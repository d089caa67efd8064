"""Launches of users' kernels on CUDA: machine code from the parent, and the sources of its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...builders.context import Built
from ...builders.cuda.context import CudaContext
from ...builders.cuda.target import Argument, KernelProgram, Launch
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.spec import OperandSpec, PlanSpec
from .attributes import (
    ArrayParameter,
    BytesParameter,
    CompiledKernel,
    KernelAttributes,
    MapParameter,
    Parameter,
    PointerParameter,
    RecordParameter,
    ScalarParameter,
    TupleParameter,
    WordsParameter,
)

__all__ = ["build_kernel"]

_WIDE = {"int64": "int64", "uint64": "int64", "float64": "float64", "float32": "float32"}


def _number(index: int, kind: str) -> list[Argument]:
    if kind.startswith("complex"):
        part: Any = "float32" if kind == "complex64" else "float64"
        return [(part, index), (part, index + 1)]
    wide: Any = _WIDE.get(kind, kind)
    return [(wide, index)]


def _array(index: int, operand: OperandSpec, record: Sequence[Any] | None) -> list[Argument]:
    """Return the parameters that stand for an array: no owner, size, item size, address, extents, strides."""
    shape, strides = operand.shape, operand.strides
    itemsize = as_dtype(operand.dtype).itemsize
    if record is not None:
        itemsize = record[3]
        shape, strides = shape[:-1], strides[:-1]
    words = [math.prod(shape), itemsize]
    return [
        ("uint64", 0),
        ("uint64", 0),
        *(("uint64", word) for word in words),
        ("operand", index),
        *(("uint64", n % 2**64) for n in (*shape, *strides)),
    ]


def _arguments(parameter: Parameter, operands: Sequence[OperandSpec], alignments: list[int]) -> list[Argument]:
    """Return the launch arguments of a parameter; adds each operand's alignment, in bytes, to `alignments`."""
    match parameter:
        case ArrayParameter(operand=index, record=record):
            alignments[index] = 8 if record is not None else as_dtype(operands[index].dtype).itemsize
            return _array(index, operands[index], record)
        case PointerParameter(operand=index):
            alignments[index] = as_dtype(operands[index].dtype).itemsize
            return [("operand", index)]
        case RecordParameter(operand=index):
            alignments[index] = 8
            return [("operand", index)]
        case MapParameter(operand=index, axes=axes, modes=modes):
            alignments[index] = parameter.alignment
            return [("tensor_map", (index, axes, modes))]
        case WordsParameter(scalar=scalar):
            return [("scalars", scalar)]
        case BytesParameter(data=data):
            return [("bytes", bytes.fromhex(data))]
        case ScalarParameter(scalar=scalar, dtype=dtype):
            return _number(scalar, dtype)
        case TupleParameter():
            return [argument for item in parameter.items for argument in _arguments(item, operands, alignments)]


def build_kernel(spec: PlanSpec[KernelAttributes], context: CudaContext) -> Built:
    """Build ``kernel.*``: one launch of machine code that the parent has compiled.

    It overlaps with the previous launch if the code ``awaits`` that launch, unless the kernel synchronises its grid.

    Raises
    ------
    InvalidRequest
        If it comes as Python, which is for the host device.
    """
    launch, kernel = spec.attributes, spec.attributes.kernel
    if not isinstance(kernel, CompiledKernel):
        raise InvalidRequest(f"{spec.op!r} comes as Python; allowed on GPUs: machine code")
    alignments = [1] * len(spec.operands)
    arguments = [value for parameter in launch.parameters for value in _arguments(parameter, spec.operands, alignments)]
    report = -1
    if kernel.sites:  # the last operand
        report = len(spec.operands) - 1
        arguments += _array(report, spec.operands[report], None)
    made = Launch(
        kernel.entry, launch.grid, launch.block, launch.shared, tuple(arguments), launch.cooperative, launch.cluster,
        overlaps=context.target.overlaps and kernel.awaits and not launch.cooperative,
    )  # fmt: skip
    code, sites = kernel.code.data, kernel.sites
    return Built(KernelProgram(code, (made,), alignments=tuple(alignments), report=report, sites=sites))
