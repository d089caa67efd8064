"""Softmax and local response norms by NumPy: along axis 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attributes import NodeSpec

__all__ = ["lrn_backward", "lrn_forward", "softmax_backward", "softmax_forward"]

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]


def softmax_forward(node: NodeSpec, given: dict[str, Array], _shapes: Shapes) -> dict[str, Array]:
    """Return y: the softmax of x, or its logarithm."""
    x = given["x"]
    centred = x - x.max(1, keepdims=True)
    powers = np.exp(centred)
    sums = powers.sum(1, keepdims=True)
    return {"y": centred - np.log(sums) if node.mode == "log" else powers / sums}


def softmax_backward(node: NodeSpec, given: dict[str, Array], _shapes: Shapes) -> dict[str, Array]:
    """Return dx of dy and y."""
    y, dy = given["y"], given["dy"]
    if node.mode == "log":
        return {"dx": dy - np.exp(y) * dy.sum(1, keepdims=True)}
    return {"dx": y * (dy - (dy * y).sum(1, keepdims=True))}


def _over_windows(node: NodeSpec, x: Array, *, mirrored: bool = False) -> Array:
    """Return sums over the channels around each, or over those around which it is."""
    size = dict(node.integers)["size"][0]
    before = (size - 1) // 2
    after = size - 1 - before
    around = (after, before) if mirrored else (before, after)
    padded = np.pad(x, [(0, 0), around, *([(0, 0)] * (x.ndim - 2))])
    made: Array = sum((padded[:, i : i + x.shape[1]] for i in range(size)), np.zeros_like(x))
    return made


def _scales(node: NodeSpec, x: Array) -> Array:
    reals, size = dict(node.reals), dict(node.integers)["size"][0]
    made: Array = x.dtype.type(reals["k"]) + x.dtype.type(reals["scale"] / size) * _over_windows(node, x * x)
    return made


def lrn_forward(node: NodeSpec, given: dict[str, Array], _shapes: Shapes) -> dict[str, Array]:
    """Return y: x divided by a power of the squares in the channels around it."""
    x = given["x"]
    return {"y": x * _scales(node, x) ** x.dtype.type(-dict(node.reals)["power"])}


def lrn_backward(node: NodeSpec, given: dict[str, Array], _shapes: Shapes) -> dict[str, Array]:
    """Return dx of dy, x and y."""
    x, y, dy = given["x"], given["y"], given["dy"]
    reals, size = dict(node.reals), dict(node.integers)["size"][0]
    scales = _scales(node, x)
    factor = x.dtype.type(2 * reals["scale"] * reals["power"] / size)
    shared = _over_windows(node, dy * y / scales, mirrored=True)
    return {"dx": dy * scales ** x.dtype.type(-reals["power"]) - factor * x * shared}
