"""The interpreter of graphs on the host device: each node by NumPy, in the arithmetic that it names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....builders.context import Built, HostContext
from ....dtypes import DTYPES
from ....plans.spec import PlanSpec
from ..attributes import GraphAttributes, NodeSpec, TensorSpec
from .attention import (
    float8,
    gathered,
    lengths,
    offsets,
    pages,
    rng,
    scattered,
    seeds,
    shortened,
    sink_backward,
    sink_forward,
    vacate,
)
from .channels import lrn_backward, lrn_forward, softmax_backward, softmax_forward
from .convolution import backward_data, backward_filter, forward
from .norms import norm_backward, norm_forward
from .pointwise import pointwise
from .pooling import resample_backward, resample_forward

__all__ = ["build_graph"]

Array = np.ndarray[Any, Any]
#: A node's inputs by port, with zeros of its outputs' shapes, to its outputs by port.
Function = Callable[[NodeSpec, dict[str, Array], dict[str, tuple[int, ...]]], dict[str, Array]]


def _matmul(_node: NodeSpec, given: dict[str, Array], _shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    a, b = shortened(given)
    if a.ndim == 4 and a.shape[1] != b.shape[1]:  # groups of heads share one
        a, b = (np.repeat(t, max(a.shape[1], b.shape[1]) // t.shape[1], axis=1) for t in (a, b))
    return {"c": a @ b}


def _reduction(node: NodeSpec, given: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    x, shape = given["x"], shapes["y"]
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, shape, strict=True)) if m == 1 and n != 1)
    if x.ndim == 4 and shape[1] not in (1, x.shape[1]):  # the heads of a group
        x = x.reshape(x.shape[0], shape[1], -1, *x.shape[2:])
        axes = tuple(sorted({2, *(axis + 1 if axis > 1 else axis for axis in axes)}))
    made: Array
    if node.mode in ("amax", "norm1", "norm2"):
        size = abs(x)
        if node.mode == "amax":  # of rows that see nothing there is none, as on a GPU
            made = np.fmax.reduce(size, axis=axes, initial=0)
        else:
            made = size.sum(axes) if node.mode == "norm1" else np.sqrt((size * size).sum(axes))
    else:
        functions: dict[str, Any] = {"add": np.sum, "mul": np.prod, "min": np.min, "max": np.max, "avg": np.mean}
        made = functions[node.mode](x, axis=axes)
    return {"y": made.reshape(shape)}


def _transpose(node: NodeSpec, given: dict[str, Array], _shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    return {"y": given["x"].transpose(dict(node.integers)["axes"])}


def _reshape(_node: NodeSpec, given: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    return {"y": given["x"].reshape(shapes["y"])}


#: Their largest numbers.
_FLOAT8: Final = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_FUNCTIONS: Final[dict[str, Function]] = {
    "convolution_forward": forward,
    "convolution_backward_data": backward_data,
    "convolution_backward_filter": backward_filter,
    "pointwise": pointwise,
    "matmul": _matmul,
    "reduction": _reduction,
    "transpose": _transpose,
    "reshape": _reshape,
    "softmax_forward": softmax_forward,
    "softmax_backward": softmax_backward,
    "lrn_forward": lrn_forward,
    "lrn_backward": lrn_backward,
    "pages": pages,
    "lengths": lengths,
    "offsets": offsets,
    "float8": float8,
    "seeds": seeds,
    "rng": rng,
    "vacate": vacate,
    "sink_forward": sink_forward,
    "sink_backward": sink_backward,
    "resample_forward": resample_forward,
    "resample_backward": resample_backward,
    "norm_forward": norm_forward,
    "norm_backward": norm_backward,
}


def _view(spec: TensorSpec, array: Array) -> Array:
    """Return an operand as its tensor."""
    if math.prod(spec.shape) == 0:
        return np.empty(spec.shape, array.dtype)
    strides = tuple(s * array.itemsize for s in spec.strides)
    if array.itemsize == 1:  # NumPy does not find float8_e5m2 by the text that names it
        return np.lib.stride_tricks.as_strided(array.view(np.uint8), spec.shape, strides).view(array.dtype)
    return np.lib.stride_tricks.as_strided(array, spec.shape, strides)


def _stored(value: Array, dtype: str) -> Array:
    """Return a result in the dtype of its tensor; integers are rounded to nearest, and they and float8 saturated."""
    target = DTYPES[dtype]
    most = _FLOAT8.get(dtype)
    if most is not None:
        value = np.clip(value, -most, most)
    if target.kind in "iu" and value.dtype.kind == "f":
        info = np.iinfo(target)
        value = np.clip(np.rint(value), info.min, info.max)
    return value.astype(target, copy=False)


def _widened(value: Array, node: NodeSpec) -> Array:
    """Return an input in the arithmetic of a node; what is no number of it, such as a condition, stays as it is."""
    compute = DTYPES[node.compute]
    if "b" in (value.dtype.kind, compute.kind):
        return value
    return value.astype(compute, copy=False)


def _given(node: NodeSpec, value: Callable[[int], Array], scalars: tuple[Any, ...]) -> dict[str, Array]:
    """Return what a node reads, by port."""
    found = {port: _widened(value(at), node) for port, at in node.ports if at in node.reads and at not in node.writes}
    if node.op == "seeds":
        found["numbers"] = np.array(scalars, np.int64)
    if node.op in ("vacate", "sink_forward"):  # in place
        found |= {port: value(at) for port, at in node.ports if at in node.writes}
    return found


def build_graph(spec: PlanSpec[GraphAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for a plan specification of ``cudnn.*``."""
    graph = spec.attributes
    tensors = graph.tensors
    if all(math.prod(tensors[at].shape) == 0 for node in graph.nodes for at in node.writes):
        return Built("noop")

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        values: dict[int, Array] = {}

        def value(at: int) -> Array:
            tensor = tensors[at]
            if tensor.value:
                number = np.array(float.fromhex(tensor.value))
                values[at] = number.astype(DTYPES[tensor.dtype]).reshape(tensor.shape)
            elif tensor.operand >= 0:
                if tensor.ragged >= 0:
                    return gathered(tensor, arrays[tensor.operand], value(tensor.ragged))
                return _view(tensor, arrays[tensor.operand])
            return values[at]

        def store(at: int, result: Array) -> None:
            tensor = tensors[at]
            if tensor.operand < 0:
                values[at] = np.broadcast_to(result, tensor.shape)
            elif tensor.ragged >= 0:
                scattered(tensor, arrays[tensor.operand], value(tensor.ragged), result)
            else:
                value(at)[...] = result

        for node in graph.nodes:
            ports = dict(node.ports)
            written = [port for port, at in node.ports if at in node.writes]
            given = _given(node, value, scalars)
            factors = dict(node.reals)
            made = _FUNCTIONS[node.op](node, given, {port: tensors[ports[port]].shape for port in written})
            for port in written:
                at = ports[port]
                result = made[port]
                if factors.get("alpha", 1.0) != 1:
                    result = result * result.dtype.type(factors["alpha"])
                if factors.get("beta", 0.0) != 0:
                    result = result + result.dtype.type(factors["beta"]) * value(at).astype(result.dtype)
                store(at, _stored(result, tensors[at].dtype))

    return Built(run)
