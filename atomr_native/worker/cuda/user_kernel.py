"""Launches of users' kernels on CUDA: machine code from the parent, and where its parameters come from."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator
from typing import Any

from ...dtypes import as_dtype
from .target import Argument, Built, KernelProgram, Launch, Target

__all__ = ["build_kernel"]

_WIDE = {"int64": "int64", "uint64": "int64", "float64": "float64", "float32": "float32"}


def _number(index: int, kind: str) -> list[Argument]:
    if kind.startswith("complex"):
        part: Any = "float32" if kind == "complex64" else "float64"
        return [(part, index), (part, index + 1)]
    wide: Any = _WIDE.get(kind, kind)
    return [(wide, index)]


def _array(index: int, operand: dict[str, Any], record: list[Any] | None) -> list[Argument]:
    """Return the parameters that stand for an array: no owner, size, item size, address, extents, strides."""
    shape, strides = operand["shape"], operand["strides"]
    itemsize = as_dtype(operand["dtype"]).itemsize
    if record is not None:
        itemsize = record[3]
        shape, strides = shape[:-1], strides[:-1]
    words = [math.prod(shape), itemsize]
    return [
        ("uint64", 0),
        ("uint64", 0),
        *(("uint64", word) for word in words),
        ("operand", index),
        *(("uint64", int(n) % 2**64) for n in (*shape, *strides)),
    ]


def _members(parameters: Iterable[Any]) -> Iterator[Any]:
    """Yield parameters, those of tuples one by one."""
    for one in parameters:
        if one[0] == "tuple":
            yield from _members(one[1])
        else:
            yield one


def build_kernel(spec: dict[str, Any], target: Target) -> Built:
    """Build ``kernel.*``: one launch of machine code that the parent has compiled.

    It overlaps with the launch before where the code ``awaits`` that, but for what synchronises its grid.
    """
    arguments: list[Argument] = []
    alignments = [1] * len(spec["operands"])
    for kind, *what in _members(spec["parameters"]):
        if kind == "array":
            index, record = what
            arguments += _array(index, spec["operands"][index], record)
            alignments[index] = 8 if record is not None else as_dtype(spec["operands"][index]["dtype"]).itemsize
        elif kind == "pointer":
            arguments.append(("operand", what[0]))
            alignments[what[0]] = as_dtype(spec["operands"][what[0]]["dtype"]).itemsize
        elif kind == "record":
            arguments.append(("operand", what[0]))
            alignments[what[0]] = 8
        elif kind == "tensor_map":
            index, axes, modes, alignments[what[0]] = what
            arguments.append(("tensor_map", (index, tuple(map(tuple, axes)), tuple(modes))))
        elif kind == "scalars":
            arguments.append(("scalars", what[0]))
        elif kind == "bytes":
            arguments.append(("bytes", bytes.fromhex(what[0])))
        else:
            arguments += _number(*what)
    report = -1
    if spec.get("sites"):  # the last operand
        report = len(spec["operands"]) - 1
        arguments += _array(report, spec["operands"][report], None)
    cooperative = bool(spec["cooperative"])
    launch = Launch(
        spec["entry"], tuple(spec["grid"]), tuple(spec["block"]), spec["shared"], tuple(arguments), cooperative,
        None if spec["cluster"] is None else tuple(spec["cluster"]),
        overlaps=target.overlaps and spec.get("awaits", False) and not cooperative,
    )  # fmt: skip
    code = base64.b64decode(spec["code"])
    sites = tuple(spec.get("sites", ()))
    return Built("kernels", KernelProgram(code, (launch,), alignments=tuple(alignments), report=report, sites=sites))
