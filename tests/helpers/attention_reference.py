"""Attention and its gradients in float64 by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ORDERS", "reference"]

Array = np.ndarray[Any, Any]
#: Axes of arrays by layout, as places of (batch, head, token, element).
ORDERS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}


def weights(q: Array, k: Array, how: dict[str, Any]) -> Array:
    scores = (q @ np.swapaxes(k, -1, -2)) * how.get("scale", q.shape[-1] ** -0.5)
    rows, columns = np.indices(scores.shape[-2:])
    rows = rows + (k.shape[-2] - q.shape[-2] if how.get("mask") == "causal_bottom_right" else 0)
    seen = (rows >= columns) | ("mask" not in how)
    if "window" in how:
        seen &= columns > rows - how["window"]
        seen &= (columns < rows + how["window"]) | ("mask" in how)
    scores = np.where(seen, scores, -np.inf)
    made: Array = np.exp(scores - scores.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True), scores


def reference(q: Array, k: Array, v: Array, dy: Array, how: dict[str, Any]) -> tuple[Array, ...]:
    """The result, its statistics, and the gradients."""
    groups = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(a, groups, 1) for a in (k, v))
    p, scores = weights(q, wide_k, how)
    y = p @ wide_v
    most = scores.max(-1)
    statistics = most + np.log(np.exp(scores - most[..., None]).sum(-1))
    dp = dy @ np.swapaxes(wide_v, -1, -2)
    ds = p * (dp - (dy * y).sum(-1, keepdims=True)) * how.get("scale", q.shape[-1] ** -0.5)

    def shared(a: Array) -> Array:
        return a.reshape(a.shape[0], -1, groups, *a.shape[2:]).sum(2)

    dk, dv = shared(np.swapaxes(ds, -1, -2) @ q), shared(np.swapaxes(p, -1, -2) @ dy)
    return y, statistics, ds @ wide_k, dk, dv
