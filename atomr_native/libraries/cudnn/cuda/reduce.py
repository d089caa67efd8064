"""Kernels for reductions that are steps of their own."""

from __future__ import annotations

from typing import Any, Final

from ....builders.cuda.reductions import build_reduce
from ....builders.cuda.sums import Reduction
from ....builders.cuda.target import Target
from ....dtypes import as_dtype
from ....plans.spec import READ, WRITE, OperandSpec
from ..attributes import GraphAttributes, NodeSpec, TensorSpec

__all__ = ["reduction_kernel"]

#: Operators of cuDNN that the project has kernels for, with their names here.
_KINDS: Final = {"add": "sum", "mul": "prod", "min": "min", "max": "max", "avg": "mean"}


def _operand(name: str, tensor: TensorSpec, kept: list[int], access: int) -> OperandSpec:
    size = as_dtype(tensor.dtype).itemsize
    shape, strides = (tuple(values[axis] for axis in kept) for values in (tensor.shape, tensor.strides))
    return OperandSpec(name, tensor.dtype, shape, tuple(step * size for step in strides), access)


def reduction_kernel(graph: GraphAttributes, node: NodeSpec, target: Target) -> Any:
    """Compile the kernel of a reduction node, or return None where there is none."""
    ports = dict(node.ports)
    x, y = graph.tensors[ports["x"]], graph.tensors[ports["y"]]
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, y.shape, strict=True)) if n != m)
    if node.mode not in _KINDS or any(y.shape[axis] != 1 for axis in axes):
        return None
    source = _operand("x", x, list(range(len(x.shape))), READ)
    out = _operand("y", y, [i for i in range(len(x.shape)) if i not in axes], WRITE)
    return build_reduce(Reduction(source, out, _KINDS[node.mode], axes, node.compute), target).run
