"""Norms by NumPy: forward and backward, with statistics over the axes in which these have one element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..attributes import NodeSpec

__all__ = ["norm_backward", "norm_forward"]

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]


def _axes(node: NodeSpec, shape: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of the statistics: all but those of a norm's own."""
    rank = len(shape)
    if node.mode == "batch":
        return (0, *range(2, rank))
    if node.mode == "instance":
        return tuple(range(2, rank))
    return tuple(axis for axis in range(1, rank) if scale[axis] == shape[axis])  # layer, rms


def _grouped(array: Array, statistic: tuple[int, ...]) -> Array:
    """Return images as (N, groups, elements)."""
    return array.reshape(*statistic[:2], math.prod(array.shape[1:]) // statistic[1])


def _group_forward(given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    x, statistic = given["x"], shapes["mean_out"]
    grouped = _grouped(x, statistic)
    mean = grouped.mean(2, keepdims=True)
    inverse = 1 / np.sqrt(((grouped - mean) ** 2).mean(2, keepdims=True) + given["epsilon"].reshape(-1)[0])
    unit = ((grouped - mean) * inverse).reshape(x.shape)
    made = {"mean_out": mean.reshape(statistic), "inv_variance_out": inverse.reshape(statistic)}
    return {"y": unit * given["scale"] + given["bias"], **made}


def _group_backward(given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    x, dy = given["x"], given["dy"]
    statistic = given["mean"].shape
    mean, inverse = (given[name].reshape(*statistic[:2], 1) for name in ("mean", "inv_variance"))
    unit = (_grouped(x, statistic) - mean) * inverse
    slope = _grouped(dy * given["scale"], statistic)
    dx = slope - slope.mean(2, keepdims=True) - unit * (slope * unit).mean(2, keepdims=True)
    others = (0, *range(2, x.ndim))
    along, plain = ((a * dy).sum(others) for a in (unit.reshape(x.shape), 1))
    return {
        "dx": (dx * inverse).reshape(x.shape), "dscale": along.reshape(shapes["dscale"]),
        "dbias": plain.reshape(shapes["dbias"]),
    }  # fmt: skip


def norm_forward(node: NodeSpec, given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    """Return y, and in training the statistics of the batch."""
    if node.mode == "group":
        return _group_forward(given, shapes)
    x, scale = given["x"], given["scale"]
    axes = _axes(node, x.shape, scale.shape)
    epsilon = given["epsilon"].reshape(-1)[0] if "epsilon" in given else x.dtype.type(0)
    if "mean" in given or "inv_variance" in given:
        mean, inverse = given.get("mean", np.zeros(1, x.dtype)), given["inv_variance"]
        variance = mean
    else:
        mean = x.mean(axes, keepdims=True) if node.mode != "rms" else np.zeros((1,) * x.ndim, x.dtype)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        inverse = 1 / np.sqrt(variance + epsilon)
    y = (x - mean) * inverse * scale
    made = {"y": y + given["bias"] if "bias" in given else y, "mean_out": mean, "inv_variance_out": inverse}
    if "running_mean" in given:
        part = given["momentum"].reshape(-1)[0]
        n = x.size // mean.size
        unbiased = variance * (n / max(n - 1, 1))
        made["running_mean_out"] = (1 - part) * given["running_mean"] + part * mean
        made["running_var_out"] = (1 - part) * given["running_var"] + part * unbiased
    return {port: np.broadcast_to(value, shapes[port]) for port, value in made.items() if port in shapes}


def norm_backward(node: NodeSpec, given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    """Return dx, dscale and dbias."""
    if node.mode == "group":
        return _group_backward(given, shapes)
    dy, x, scale, inverse = given["dy"], given["x"], given["scale"], given["inv_variance"]
    axes = _axes(node, x.shape, scale.shape)
    centred = x - given["mean"] if "mean" in given else x
    unit = centred * inverse
    slope = dy * scale
    dx = slope - unit * (slope * unit).mean(axes, keepdims=True)
    if node.mode != "rms":
        dx = dx - slope.mean(axes, keepdims=True)
    others = tuple(axis for axis, n in enumerate(scale.shape) if n == 1)
    made = {
        "dx": dx * inverse, "dscale": (dy * unit).sum(others, keepdims=True), "dbias": dy.sum(others, keepdims=True)
    }  # fmt: skip
    return {port: value.reshape(shapes[port]) for port, value in made.items() if port in shapes}
