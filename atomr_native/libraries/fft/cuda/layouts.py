"""Layouts that a plan of cuFFT takes: which transforms of strided arrays are one call, or a few.

A plan transforms up to three axes, which must be nested (each stride a multiple of the next), and repeats that along
one axis more, which lies outside of the others or inside.  Strides are positive.  What is left over is a loop of calls.
Inputs of a batch may overlap, unless they are overwritten, as by complex-to-real transforms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ....builders.blocks import fold_axes

__all__ = ["MOST_AXES", "MOST_CALLS", "Layout", "Side", "match"]

#: Axes that a plan of cuFFT transforms.
MOST_AXES: Final = 3
#: Calls in a message; beyond, a copy that makes one call suffice is cheaper.
MOST_CALLS: Final = 8

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """Input or output of a transform.

    Attributes
    ----------
    shape, strides : tuple of int
        Strides in elements.
    itemsize : int
        Bytes of an element.
    """

    shape: Axes
    strides: Axes
    itemsize: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Calls of a plan of cuFFT.

    Attributes
    ----------
    lengths : tuple of int
        Points along each axis of the plan.
    embed : (tuple of int, tuple of int)
        Of input and output: how many elements of each axis an element of the axis before spans.
    stride, dist : (int, int)
        Elements from one to the next along the last axis, and from one transform to the next.
    batch : int
        Transforms of a call.
    loops : tuple of (int, int, int)
        Further repetitions: how often, and bytes from call to call of input and output.
    """

    lengths: Axes
    embed: tuple[Axes, Axes]
    stride: tuple[int, int]
    dist: tuple[int, int]
    batch: int
    loops: tuple[tuple[int, int, int], ...]


def _nested(extents: list[int], strides: list[int]) -> tuple[int, Axes] | None:
    """Return the stride of the last axis, and how many elements of each axis one of the axis before spans."""
    steps = list(strides)
    if extents[-1] == 1:
        steps[-1] = 1
    if any(step < 1 for step in steps):
        return None
    embed = [extents[0]]
    for outer, inner, extent in zip(steps, steps[1:], extents[1:], strict=False):
        if outer % inner or outer // inner < extent:
            return None
        embed.append(outer // inner)
    return steps[-1], tuple(embed)


def _apart(batch: int, dist: int, extents: list[int], stride: int, embed: Axes) -> bool:
    """Whether transforms of a batch lie one after the other, or within the last stride."""
    if batch == 1:
        return True
    whole = stride * math.prod(embed[1:]) * extents[0]
    return dist >= whole or dist * batch <= stride


def match(input_: Side, output: Side, axes: Axes, lengths: Axes, kind: str, alignment: int) -> Layout | None:
    """Return the calls that transform `axes`, or None if cuFFT does not take the layouts.

    Parameters
    ----------
    input_, output : Side
        Arrays of the same axes; the last of `axes` is halved in the complex one of a real transform.
    axes, lengths
        At most three axes, and points along each.
    kind : str
        ``"c2c"``, ``"r2c"`` or ``"c2r"``.
    alignment : int
        Bytes, at multiples of which each call must start.
    """
    points = dict(zip(axes, lengths, strict=True))
    last = axes[-1] if kind != "c2c" else None
    order = sorted((a for a in axes if a != last and points[a] > 1), key=lambda a: -output.strides[a])
    order += [axes[0]] if last is None and not order else [] if last is None else [last]
    found = []
    for side in (input_, output):
        extents = [side.shape[a] for a in order]
        nested = _nested(extents, [side.strides[a] if side.shape[a] > 1 else 1 for a in order])
        if nested is None:
            return None
        found.append((extents, *nested))
    rest = sorted(
        (a for a in range(len(output.shape)) if a not in points and output.shape[a] > 1),
        key=lambda a: -output.strides[a],
    )
    sides = (input_, output)
    if any(side.strides[a] < 1 for side in sides for a in rest):
        return None
    counts, steps = fold_axes(
        tuple(output.shape[a] for a in rest), tuple(tuple(side.strides[a] for a in rest) for side in sides)
    )
    repeated = [(n, *step) for n, *step in zip(counts, *steps, strict=True)]
    inner = [
        i for i, (n, *dist) in enumerate(repeated)
        if all(
            (side == 0 and kind != "c2r") or _apart(n, d, extents, stride, embed)
            for side, (d, (extents, stride, embed)) in enumerate(zip(dist, found, strict=True))
        )
    ]  # fmt: skip
    batch, near, far = 1, *(stride * math.prod(embed) for _, stride, embed in found)
    if inner:  # within the last stride if possible, so that neighbours in memory are read together
        stride = found[1][1]
        batch, near, far = repeated.pop(max(inner, key=lambda i: (repeated[i][2] < stride, repeated[i][0])))
    loops = tuple((n, a * input_.itemsize, b * output.itemsize) for n, a, b in repeated)
    if len(loops) > 2 or math.prod(n for n, *_ in loops) > MOST_CALLS:
        return None
    if any(step % alignment for _, *both in loops for step in both):
        return None
    return Layout(
        tuple(points[a] for a in order),
        (found[0][2], found[1][2]),
        (found[0][1], found[1][1]),
        (near, far),
        batch,
        loops,
    )
