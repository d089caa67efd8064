"""Connectionist temporal classification by NumPy, a sequence and a step after the other: the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....builders.context import Built, HostContext
from ....plans.spec import PlanSpec
from ..ctc import CtcAttributes

__all__ = ["build_ctc_loss"]

Array = np.ndarray[Any, Any]


def _log_probabilities(x: Array) -> Array:
    centred = x - x.max(-1, keepdims=True)
    made: Array = centred - np.log(np.exp(centred).sum(-1, keepdims=True))
    return made


def _total(*parts: Array) -> Array:
    """Return the logarithm of a sum of exponentials."""
    made: Array = np.logaddexp.reduce(parts)
    return made


def _paths(steps: Array, skips: Array) -> Array:
    """Return for each step and state the logarithm of the probability of all ways that lead there."""
    made = np.full(steps.shape, -np.inf, steps.dtype)
    made[0, :2] = steps[0, :2]
    for t in range(1, len(steps)):
        one, two = np.full_like(made[0], -np.inf), np.full_like(made[0], -np.inf)
        one[1:], two[2:] = made[t - 1, :-1], np.where(skips[2:], made[t - 1, :-2], -np.inf)
        made[t] = steps[t] + _total(made[t - 1], one, two)
    return made


def _sequence(x: Array, labels: Array, blank: int) -> tuple[float, Array]:
    """Return the cost of a sequence, and its gradient by the scores."""
    if not len(x):
        return (np.inf if len(labels) else 0.0), np.zeros_like(x)
    logs = _log_probabilities(x)
    states = np.full(2 * len(labels) + 1, blank)
    states[1::2] = labels
    skips = np.zeros(len(states), bool)  # whether the blank before a label can be left out
    skips[3::2] = labels[1:] != labels[:-1]
    steps = logs[:, states]
    ahead = _paths(steps, skips)
    total = _total(*ahead[-1, -2:])
    if np.isneginf(total):
        return np.inf, np.zeros_like(x)
    turned = np.zeros(len(states), bool)
    turned[2:] = skips[::-1][:-2]  # from the end, a label is left for the one before it
    behind = _paths(steps[::-1, ::-1], turned)[::-1, ::-1]
    shares = np.exp(ahead + behind - steps - total)
    slopes = np.exp(logs)
    for t in range(len(x)):
        np.subtract.at(slopes[t], states, shares[t])
    return float(-total), slopes


def build_ctc_loss(spec: PlanSpec[CtcAttributes], _context: HostContext) -> Built:
    """Return the run of ``cudnn.ctc_loss``."""
    how = spec.attributes

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, labels, input_lengths, label_lengths, costs, *rest = arrays
        real = np.float64 if x.dtype == np.float64 else np.float32
        wide = x.astype(real)
        wide = wide if how.layout == "ntc" else wide.swapaxes(0, 1)
        slopes = np.zeros_like(wide)
        for n, (steps, count) in enumerate(zip(input_lengths.tolist(), label_lengths.tolist(), strict=True)):
            inside = 0 <= steps <= wide.shape[1] and 0 <= count <= labels.shape[1]
            own = labels[n, : count if inside else 0].astype(np.int64)
            if not inside or ((own < 0) | (own >= wide.shape[2]) | (own == how.blank)).any():
                costs[n] = slopes[n] = np.nan
                continue
            cost, slopes[n, :steps] = _sequence(wide[n, :steps], own, how.blank)
            costs[n] = 0 if how.zero_infinity and np.isposinf(cost) else cost
        if rest:
            rest[0][...] = slopes if how.layout == "ntc" else slopes.swapaxes(0, 1)

    return Built(run)
