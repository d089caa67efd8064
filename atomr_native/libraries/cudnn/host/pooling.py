"""Pooling by NumPy: windows of all results at once, a place in the window at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..attributes import NodeSpec

__all__ = ["resample_backward", "resample_forward"]

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]


def _places(node: NodeSpec, made: tuple[int, ...]) -> Iterator[Slices]:
    """Yield, for each place in the window, the elements of the padded images that it meets."""
    how = dict(node.integers)
    for place in itertools.product(*(range(n) for n in how["window"])):
        yield (
            slice(None),
            slice(None),
            *(slice(p, p + s * (n - 1) + 1, s) for p, s, n in zip(place, how["stride"], made, strict=True)),
        )


def _padded(node: NodeSpec, x: Array, value: float) -> Array:
    how = dict(node.integers)
    # A last window may reach beyond the padding that is asked for only where the extents say so, which they do not.
    return np.pad(x, [(0, 0), (0, 0), *zip(how["before"], how["after"], strict=True)], constant_values=value)


def _counts(node: NodeSpec, shape: tuple[int, ...], made: tuple[int, ...]) -> Any:
    """Return the number of elements that each average is over."""
    if node.mode == "average":
        return float(np.prod(dict(node.integers)["window"]))
    ones = _padded(node, np.ones((1, 1, *shape[2:])), 0)
    return sum(ones[at] for at in _places(node, made))


def resample_forward(node: NodeSpec, given: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return y, and with a maximum the place in its window."""
    x, shape = given["x"], shapes["y"]
    if node.mode != "max":
        padded = _padded(node, x, 0)
        total = np.zeros(shape, x.dtype)
        for at in _places(node, shape[2:]):
            total += padded[at]
        return {"y": total / np.asarray(_counts(node, x.shape, shape[2:]), x.dtype)}
    padded = _padded(node, x, -np.inf)
    best = np.full(shape, -np.inf, x.dtype)
    index = np.zeros(shape, np.int8)
    for place, at in enumerate(_places(node, shape[2:])):
        value = padded[at]
        better = (value > best) | (np.isnan(value) & ~np.isnan(best))
        best = np.where(better, value, best)
        index = np.where(better, np.int8(place), index)
    return {"y": best, "index": index}


def resample_backward(node: NodeSpec, given: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return dx of dy, for a maximum by the places."""
    dy, shape = given["dy"], shapes["dx"]
    made = _padded(node, np.zeros(shape, dy.dtype), 0)
    share = dy if node.mode == "max" else dy / np.asarray(_counts(node, shape, dy.shape[2:]), dy.dtype)
    for place, at in enumerate(_places(node, dy.shape[2:])):
        made[at] += np.where(given["index"].astype(np.int64) == place, share, 0) if node.mode == "max" else share
    before = dict(node.integers)["before"]
    inside = tuple(slice(b, b + n) for b, n in zip(before, shape[2:], strict=True))
    return {"dx": made[(slice(None), slice(None), *inside)]}
