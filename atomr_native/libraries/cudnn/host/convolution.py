"""Convolutions by NumPy: for each place in the filter, a product of matrices over the channels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..attributes import NodeSpec

__all__ = ["backward_data", "backward_filter", "forward"]

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[int, ...]]
Slices = tuple[slice, ...]
#: An index of NumPy.
Index = tuple[Any, ...]


def _places(
    node: NodeSpec, filters: tuple[int, ...], made: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Slices]]:
    """Yield each place in a filter, and the elements of the padded images that it meets."""
    how = dict(node.integers)
    for place in itertools.product(*(range(n) for n in filters)):
        begins = [k * d for k, d in zip(place, how["dilation"], strict=True)]
        ends = [b + s * (n - 1) + 1 for b, s, n in zip(begins, how["stride"], made, strict=True)]
        yield place, tuple(slice(b, e, s) for b, e, s in zip(begins, ends, how["stride"], strict=True))


def _each(rest: Index) -> Index:
    """Return an index of all images and channels."""
    return (slice(None), slice(None), *rest)


def _padded(node: NodeSpec, x: Array) -> Array:
    how = dict(node.integers)
    return np.pad(x, [(0, 0), (0, 0), *zip(how["before"], how["after"], strict=True)])


def _grouped(images: Array, groups: int) -> Array:
    """Return (N, C, ...) as (N, groups, C / groups, elements)."""
    n, channels = images.shape[:2]
    return images.reshape(n, groups, channels // groups, -1)


def forward(node: NodeSpec, given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    """Return y of x and w."""
    x, w, shape = given["x"], given["w"], shapes["y"]
    groups = x.shape[1] // w.shape[1]
    padded = _padded(node, x)
    made = np.zeros((shape[0], groups, shape[1] // groups, int(np.prod(shape[2:]))), x.dtype)
    for place, elements in _places(node, w.shape[2:], shape[2:]):
        part = w[_each(place)].reshape(groups, -1, w.shape[1])
        made += part @ _grouped(padded[_each(elements)], groups)
    return {"y": made.reshape(shape)}


def backward_data(node: NodeSpec, given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    """Return dx of dy and w."""
    dy, w, shape = given["dy"], given["w"], shapes["dx"]
    groups = shape[1] // w.shape[1]
    padded = _padded(node, np.zeros(shape, dy.dtype))
    rows = _grouped(dy, groups)
    for place, elements in _places(node, w.shape[2:], dy.shape[2:]):
        part = w[_each(place)].reshape(groups, -1, w.shape[1])
        at = _each(elements)
        padded[at] += (np.swapaxes(part, 1, 2) @ rows).reshape(padded[at].shape)
    begin = dict(node.integers)["before"]
    inside = tuple(slice(b, b + n) for b, n in zip(begin, shape[2:], strict=True))
    return {"dx": padded[_each(inside)]}


def backward_filter(node: NodeSpec, given: dict[str, Array], shapes: Shapes) -> dict[str, Array]:
    """Return dw of x and dy."""
    x, dy, shape = given["x"], given["dy"], shapes["dw"]
    groups = x.shape[1] // shape[1]
    padded = _padded(node, x)
    rows = _grouped(dy, groups)
    made = np.zeros(shape, x.dtype)
    for place, elements in _places(node, shape[2:], dy.shape[2:]):
        part = _grouped(padded[_each(elements)], groups)
        product = (rows @ np.swapaxes(part, 2, 3)).sum(0)
        made[_each(place)] = product.reshape(shape[:2])
    return {"dw": made}
