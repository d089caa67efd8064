"""Cutting arrays into blocks, so that temporaries stay small and in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

__all__ = ["Index", "blocks", "fold_axes"]

#: An index of leading axes that NumPy answers with a view.
Index = tuple[int | slice, ...]


def blocks(shape: tuple[int, ...], limit: int) -> Iterator[Index]:
    """Yield indices of consecutive blocks of at most `limit` elements (at least one) that cover `shape` in C order.

    One block that covers everything has the index ``()``.
    """
    if 0 in shape:
        return
    if math.prod(shape) <= limit:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner > limit:
        for i in range(shape[0]):
            for rest in blocks(shape[1:], limit):
                yield (i, *rest)
        return
    step = max(1, limit // max(inner, 1))
    for start in range(0, shape[0], step):
        yield (slice(start, min(start + step, shape[0])),)


def fold_axes(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the shortest shape, and strides, to which arrays of `shape` with `strides` reshape without a copy.

    Axes of one element vanish; the result has at least one axis, unless `shape` has none.
    """
    if not shape:
        return shape, strides
    folded = [shape[0]]
    steps = [[s[0]] for s in strides]
    for axis in range(1, len(shape)):
        extent = shape[axis]
        if extent == 1:
            continue
        if folded[-1] == 1 or all(step[-1] == s[axis] * extent for step, s in zip(steps, strides, strict=True)):
            folded[-1] *= extent
            for step, s in zip(steps, strides, strict=True):
                step[-1] = s[axis]
        else:
            folded.append(extent)
            for step, s in zip(steps, strides, strict=True):
                step.append(s[axis])
    return tuple(folded), tuple(tuple(step) for step in steps)
