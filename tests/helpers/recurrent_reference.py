"""Recurrent networks in float64 by their formulas, a sequence and a step after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import atomr_native as an

__all__ = ["inputs_of", "network", "slopes"]

Array = np.ndarray[Any, Any]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _step(kind: str, parts: dict[str, Array], end: str, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    rows = len(parts[f"weight_ih_{end}"])
    none = np.zeros(rows)
    a = parts[f"weight_ih_{end}"] @ x + parts.get(f"bias_ih_{end}", none)
    b = parts[f"weight_hh_{end}"] @ h + parts.get(f"bias_hh_{end}", none)
    if kind == "lstm":
        i, f, g, o = np.split(a + b, 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c
    if kind == "gru":
        (ar, az, new), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
        z = _sigmoid(az + bz)
        return (1 - z) * np.tanh(new + _sigmoid(ar + br) * bn) + z * h, c
    return (np.maximum(a + b, 0) if kind == "relu" else np.tanh(a + b)), c


def network(
    weights: an.RecurrentWeights, values: Array, x: Array, hx: Array, cx: Array, lengths: Sequence[int]
) -> tuple[Array, Array, Array]:
    """Return (steps, batch, results) of (steps, batch, inputs), and the last states."""
    parts = weights.parts(values)
    hy, cy = hx.copy(), cx.copy()
    directions = 1 + weights.bidirectional
    for layer in range(weights.layers):
        made = np.zeros((*x.shape[:2], directions * weights.hidden))
        for way in range(directions):
            place, end = layer * directions + way, f"l{layer}{'_reverse' * way}"
            for n, length in enumerate(lengths):
                h, c = hy[place, n], cy[place, n]
                for t in reversed(range(length)) if way else range(length):
                    h, c = _step(weights.kind, parts, end, x[t, n], h, c)
                    made[t, n, way * weights.hidden : (way + 1) * weights.hidden] = h
                hy[place, n], cy[place, n] = h, c
        x = made
    return x, hy, cy


def slopes(function: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    """Return the gradient of a function by finite differences."""
    made = np.empty(at.shape)
    for i in range(at.size):
        sides = []
        for sign in (1, -1):
            moved = at.copy()
            moved.flat[i] += sign * step
            sides.append(function(moved))
        made.flat[i] = (sides[0] - sides[1]) / (2 * step)
    return made


def inputs_of(x: Array, lengths: Sequence[int], layout: str) -> Array:
    """Return (steps, batch, elements) in a layout."""
    if layout == "packed":
        steps = range(max(lengths))
        return np.stack([x[t, n] for t in steps for n, length in enumerate(lengths) if t < length])
    return np.ascontiguousarray(x.swapaxes(0, 1)) if layout == "ntc" else x
