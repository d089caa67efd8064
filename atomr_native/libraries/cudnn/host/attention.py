"""Parts of attention by NumPy that are no products: packed sequences, pages, lengths, and rows that see nothing."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ...._support.philox import philox
from ....errors import InvalidRequest
from ..attributes import NodeSpec, TensorSpec

__all__ = [
    "float8", "gathered", "lengths", "offsets", "pages", "rng", "scattered", "seeds", "shortened", "sink_backward",
    "sink_forward", "vacate",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Given = dict[str, Array]
Shapes = dict[str, tuple[int, ...]]


def _sequences(spec: TensorSpec, array: Array, begins: Array) -> list[Array]:
    """Return each packed sequence as (head, token, element), or as its tensor has them."""
    turned = spec.strides[3] != 1
    token = 3 if turned else 2
    found = begins.reshape(-1).astype(np.int64) // spec.strides[token]
    if (np.diff(found) < 0).any() or found[0] < 0 or found[-1] > array.shape[0]:
        raise InvalidRequest(f"offsets {found.tolist()}; allowed: ascending numbers from 0 to {array.shape[0]}")
    made = []
    for begin, end in pairwise(found):
        shape, strides = list(spec.shape[1:]), [s * array.itemsize for s in spec.strides[1:]]
        shape[token - 1] = min(int(end - begin), shape[token - 1])
        part = array[begin:end]
        if array.itemsize == 1:  # NumPy does not find float8_e5m2 by the text that names it
            made.append(np.lib.stride_tricks.as_strided(part.view(np.uint8), shape, strides).view(array.dtype))
        else:
            made.append(np.lib.stride_tricks.as_strided(part, shape, strides))
    return made


def _inside(part: Array) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in part.shape)


def gathered(spec: TensorSpec, array: Array, begins: Array) -> Array:
    """Return packed sequences as a tensor, with zeros after each."""
    made = np.zeros(spec.shape, array.dtype)
    for one, part in zip(made, _sequences(spec, array, begins), strict=True):
        one[_inside(part)] = part
    return made


def scattered(spec: TensorSpec, array: Array, begins: Array, value: Array) -> None:
    """Store a tensor as packed sequences."""
    for one, part in zip(value, _sequences(spec, array, begins), strict=True):
        part[...] = one[_inside(part)]


def lengths(node: NodeSpec, given: Given, shapes: Shapes) -> Given:
    """Return the lengths of packed sequences of their first tokens."""
    most, tokens = dict(node.integers)["most"]
    ends = np.clip(given["x"].reshape(-1).astype(np.int64), 0, tokens)
    return {"y": np.clip(np.diff(ends), 0, most).astype(np.int32).reshape(shapes["y"])}


def offsets(node: NodeSpec, given: Given, shapes: Shapes) -> Given:
    """Return the first elements of packed sequences of their first tokens."""
    how = dict(node.integers)
    return {"y": (given["x"] * how["step"][0]).astype(np.int32).reshape(shapes["y"])}


def pages(node: NodeSpec, given: Given, shapes: Shapes) -> Given:
    """Return sequences of their pages."""
    table, x, shape = given["table"], given["x"], shapes["y"]
    n = table.shape[2] * x.shape[2]
    made = np.zeros((shape[0], x.shape[1], n, x.shape[3]), x.dtype)
    for b, (row, length) in enumerate(zip(table.reshape(shape[0], -1), given["lengths"].reshape(-1), strict=True)):
        used = int(np.clip(-(-int(length) // x.shape[2]), 0, len(row)))
        numbers = row[:used].astype(np.int64)
        if used and not 0 <= numbers.min() <= numbers.max() < len(x):
            raise InvalidRequest(f"pages {numbers.tolist()} of sequence {b}; allowed: 0 to {len(x) - 1}")
        made[b, :, : used * x.shape[2]] = x[numbers].transpose(1, 0, 2, 3).reshape(x.shape[1], -1, x.shape[3])
    return {"y": made.swapaxes(2, 3) if dict(node.integers)["turned"][0] else made}


def shortened(given: Given) -> tuple[Array, Array]:
    """Return the operands of a product, with zeros where its axes end earlier in a batch."""
    a, b = given["a"], given["b"]
    for port, axes in (("m", ((0, 2),)), ("n", ((1, 3),)), ("k", ((0, 3), (1, 2)))):
        if port not in given:
            continue
        for which, axis in axes:
            array = (a, b)[which]
            place = np.arange(array.shape[axis]).reshape([-1 if i == axis else 1 for i in range(4)])
            array = np.where(place < given[port], array, array.dtype.type(0))
            a, b = (array, b) if which == 0 else (a, array)
    return a, b


def vacate(node: NodeSpec, given: Given, _shapes: Shapes) -> Given:
    """Return a tensor with a value in rows of queries that see no key, or of keys after the end."""
    keys_side, causal, window = dict(node.integers)["rule"]
    queries, keys = given["queries"], given["keys"]
    y = given["y"]
    row = np.arange(y.shape[2]).reshape(1, 1, -1, 1)
    if keys_side:
        vacant = (row >= keys) | (queries <= 0)
    else:
        own = row + (keys - queries if causal == 2 else 0)
        end = own + (window - 1 if causal == 3 else 0) if causal else keys - 1 + 0 * row
        first = np.maximum(own - window + 1, 0) if window else 0
        vacant = (row >= queries) | (np.minimum(end, keys - 1) < first)
    return {"y": np.where(vacant, y.dtype.type(dict(node.reals)["value"]), y)}


def float8(_node: NodeSpec, given: Given, _shapes: Shapes) -> Given:
    """Return the inverse of a scale, and zeros for the largest magnitudes."""
    zero = np.zeros((1, 1, 1, 1), np.float32)
    return {"y": 1 / given["x"], "first": zero, "second": zero}


def seeds(_node: NodeSpec, given: Given, _shapes: Shapes) -> Given:
    """Return the numbers of the message as tensors."""
    return {
        name: np.full((1, 1, 1, 1), value) for name, value in zip(("seed", "offset"), given["numbers"], strict=True)
    }


def rng(node: NodeSpec, given: Given, shapes: Shapes) -> Given:
    """Return 1 for each weight that is kept, else 0."""
    seed, offset = (int(given[name].reshape(-1)[0]) for name in ("seed", "offset"))
    place: Array = np.arange(math.prod(shapes["y"]), dtype=np.uint64)
    low, high, half = (np.array(word, np.uint64) for word in (offset & 0xFFFFFFFF, offset >> 32, 32))
    word = philox((place & np.uint64(0xFFFFFFFF), place >> half, low, high), (seed & 0xFFFFFFFF, seed >> 32))[0]
    kept = word >= np.uint64(round((1 - dict(node.reals)["kept"]) * 2**32))
    return {"y": kept.astype(np.float32).reshape(shapes["y"])}


def sink_forward(_node: NodeSpec, given: Given, _shapes: Shapes) -> Given:
    """Return results and statistics of attention with sinks, of those without."""
    sink, statistics = given["sink"], given["statistics"]
    share = 1 / (1 + np.exp(sink - statistics))
    return {"y": given["y"].astype(np.float32) * share, "statistics": np.logaddexp(statistics, sink)}


def sink_backward(node: NodeSpec, given: Given, shapes: Shapes) -> Given:
    """Return the gradient by the sinks."""
    share = np.exp(given["sink"] - given["statistics"])
    made = -np.where(share > 0, share * given["sums"], 0).sum((0, 2, 3)) * dict(node.reals)["factor"]
    return {"y": made.reshape(shapes["y"])}
