"""Making the graph of a request: tensors of its operands, intermediate results, constants, and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.operands import Fresh
from ...dtypes import as_dtype, dtype_name
from ...plans.lowering import Lowered, Operand, Scalar, read
from ...plans.spec import OVERWRITE, READ, WRITE, OperandSpec, describe
from .attributes import GraphAttributes, NodeSpec, TensorSpec

__all__ = ["Draft", "packed", "settled"]


def packed(shape: Sequence[int], *, channels_last: bool = False) -> tuple[int, ...]:
    """Return the strides, in elements, of dense (N, C, ...) in memory order, or with the channels innermost."""
    order = [0, *range(2, len(shape)), 1] if channels_last and len(shape) > 1 else range(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in reversed(list(order)):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def settled(shape: Sequence[int], strides: Sequence[int], *, channels_last: bool = True) -> tuple[int, ...]:
    """Return strides in which axes of one element have those of a dense tensor, as cuDNN recognises layouts by strides.

    A tensor that is dense in both memory orders gets the order that `channels_last` names.
    """
    for last in (channels_last, not channels_last):
        dense = packed(shape, channels_last=last)
        if all(n == 1 or s == d for n, s, d in zip(shape, strides, dense, strict=True)):
            return dense
    span = max([1, *(n * abs(s) for n, s in zip(shape, strides, strict=True))])
    return tuple(span if n == 1 else s for n, s in zip(shape, strides, strict=True))


class Draft:
    """A graph under construction; methods return the numbers of tensors.

    Attributes
    ----------
    operands : list of Operand
        Of the message.
    tensors : list of TensorSpec
    nodes : list of NodeSpec
    scalars : list of Scalar
        Of the message.
    """

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.tensors: list[TensorSpec] = []
        self.nodes: list[NodeSpec] = []
        self.scalars: list[Scalar] = []

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def view(self, operand: int, shape: Sequence[int], strides: Sequence[int], *, ragged: int = -1) -> int:
        """Add a tensor in the memory of an operand; strides in elements.

        Of packed sequences, `ragged` is the tensor of the places at which they begin.
        """
        dtype = self.operands[operand].spec.dtype
        return self._tensor(TensorSpec(dtype, tuple(shape), tuple(strides), operand, ragged=ragged))

    def read(self, name: str, array: Any) -> int:
        """Add an operand that is read; returns the operand's number."""
        self.operands.append(read(name, array))
        return len(self.operands) - 1

    def write(
        self, name: str, given: Any, fresh: Fresh, *, updated: bool = False, strides: Sequence[int] | None = None
    ) -> int:
        """Add an operand that is written; returns its number.

        A new array has these strides, in elements, which are those of a dense array in some order of the axes.
        """
        access = READ | WRITE if updated else WRITE | OVERWRITE
        if given is not None:
            self.operands.append(Operand(describe(name, given, access), given))
            return len(self.operands) - 1
        size = fresh.dtype.itemsize
        steps = packed(fresh.shape) if strides is None else tuple(strides)
        spec = OperandSpec(name, dtype_name(fresh.dtype), fresh.shape, tuple(s * size for s in steps), access)
        whole = None if strides is None else (math.prod(fresh.shape),)
        self.operands.append(Operand(spec, None, whole))
        return len(self.operands) - 1

    def dense_strides(self, operand: int) -> tuple[int, ...]:
        """Return an operand's strides in elements."""
        spec = self.operands[operand].spec
        size = as_dtype(spec.dtype).itemsize
        return tuple(s // size for s in spec.strides)

    def whole(self, operand: int) -> int:
        """Add the tensor of an operand as it is."""
        return self.view(operand, self.operands[operand].spec.shape, self.dense_strides(operand))

    def result(self, shape: Sequence[int], dtype: str = "float32", strides: Sequence[int] | None = None) -> int:
        """Add an intermediate result."""
        return self._tensor(TensorSpec(dtype, tuple(shape), packed(shape) if strides is None else tuple(strides)))

    def like(self, tensor: int, dtype: str = "float32") -> int:
        """Add an intermediate result with the shape and memory order of a tensor."""
        found = self.tensors[tensor]
        return self.result(found.shape, dtype, found.strides)

    def constant(self, value: float, rank: int, dtype: str = "float32") -> int:
        """Add a number."""
        return self._tensor(TensorSpec(dtype, (1,) * rank, (1,) * rank, -1, float(value).hex()))

    def node(
        self,
        op: str,
        ports: Mapping[str, int | None],
        *,
        mode: str = "",
        compute: str = "float32",
        integers: Mapping[str, Sequence[int]] | None = None,
        reals: Mapping[str, float] | None = None,
    ) -> None:
        """Add an operation; ports that are None are left out."""
        self.nodes.append(
            NodeSpec(
                op,
                tuple((port, at) for port, at in ports.items() if at is not None),
                mode,
                compute,
                tuple((name, tuple(map(int, values))) for name, values in (integers or {}).items()),
                tuple((name, float(value)) for name, value in (reals or {}).items()),
            )
        )

    def pointwise(
        self, mode: str, x: int, b: int | None = None, t: int | None = None, *, to: int | None = None, **options: Any
    ) -> int:
        """Add a pointwise operation, with a new intermediate result unless `to` is given; returns the result."""
        dtype = options.pop("dtype", "float32")
        y = self.like(x, dtype) if to is None else to
        self.node("pointwise", {"x": x, "b": b, "t": t, "y": y}, mode=mode, **options)
        return y

    def _compute(self, x: int) -> str:
        """Return the arithmetic in which a tensor is copied."""
        return "float64" if self.tensors[x].dtype == "float64" else "float32"

    def _copied(self, x: int, to: int) -> int:
        """Add a copy of a tensor."""
        return self.pointwise("identity", x, to=to, compute=self._compute(x))

    def reshaped(self, x: int, shape: Sequence[int]) -> int:
        """Add a tensor with the elements of a dense intermediate result, in the memory of which it is."""
        y = self.result(shape, self.tensors[x].dtype)
        self.node("reshape", {"x": x, "y": y}, compute=self._compute(x))
        return y

    def _is_packed(self, tensor: int) -> bool:
        found = self.tensors[tensor]
        dense = packed(found.shape)
        return all(n == 1 or s == d for n, s, d in zip(found.shape, found.strides, dense, strict=True))

    def regrouped(self, x: int, shape: Sequence[int]) -> int:
        """Add a dense tensor of another shape with the elements of an operand's tensor in C order; may copy."""
        found = self.tensors[x]
        if self._is_packed(x):
            return self.view(found.operand, shape, packed(shape))
        return self.reshaped(self._copied(x, self.result(found.shape, found.dtype)), shape)

    def target(self, y: int, shape: Sequence[int]) -> int:
        """Add a dense tensor of another shape for the elements of an operand's tensor, which `deliver` brings there."""
        found = self.tensors[y]
        return self.view(found.operand, shape, packed(shape)) if self._is_packed(y) else self.result(shape, found.dtype)

    def deliver(self, made: int, y: int) -> None:
        """Bring what is in a `target` to the operand's tensor."""
        if self.tensors[made].operand < 0:
            self._copied(self.reshaped(made, self.tensors[y].shape), y)

    def lowered(
        self,
        op: str,
        collect: Callable[[Mapping[str, Any]], Any],
        *,
        tf32: bool = False,
        deterministic: bool = False,
        traits: Sequence[str] = (),
        tune: str = "",
    ) -> Lowered:
        """Return the message of the graph."""
        attributes = GraphAttributes(
            tensors=tuple(self.tensors),
            nodes=tuple(self.nodes),
            tf32=tf32,
            deterministic=deterministic,
            traits=tuple(traits),
            tune=tune,
        )
        return Lowered(
            op=op,
            operands=tuple(self.operands),
            collect=collect,
            attributes=attributes,
            scalars=tuple(self.scalars),
        )


def as_name(dtype: object) -> str:
    """Return the name of a dtype."""
    found: np.dtype[Any] = as_dtype(dtype)
    return dtype_name(found)
