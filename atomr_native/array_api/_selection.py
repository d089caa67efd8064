"""Functions of the namespace whose result has a shape that depends on elements.

Each waits once, until the device has counted the elements of the result; the rest is enqueued.  One number comes to the
host, and no elements.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..arrays.gpu_ref import GpuRef
from ..errors import InvalidRequest
from ._manipulation import concat, repeated, reshape
from ._operands import as_axis, handle
from ._ordering import actor_of, argsort, scanned, searchsorted

__all__ = [
    "nonzero", "repeat", "select", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: GpuRef
    indices: GpuRef
    inverse_indices: GpuRef
    counts: GpuRef


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: GpuRef
    counts: GpuRef


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: GpuRef
    inverse_indices: GpuRef


def _expanded(counts: GpuRef) -> GpuRef:
    """Return each place of an array of int64 as often as its element says.  Waits for the sum."""
    device = counts.device
    if not counts.size:
        return device.empty((0,), "int64")
    ends = scanned("sum", counts, 0, counts.dtype)
    total = int(ends[-1])
    places = actor_of(counts).sequence(0, 1, total, "int64")
    return searchsorted(ends, places, side="right")


def _places(mask: GpuRef) -> GpuRef:
    """Return the places of the elements of a flat array that are not zero.  Waits."""
    return _expanded((mask != 0).astype("int64"))


def nonzero(x: GpuRef, /) -> tuple[GpuRef, ...]:
    """Return the indices of the elements that are not zero, as int64, an array for each axis; waits for their number.

    In C order.
    """
    if not handle("nonzero", x).ndim:
        raise InvalidRequest("nonzero of an array without axes; allowed: one axis or more")
    places = _places(reshape(x, (-1,)))
    found = []
    for i, n in enumerate(x.shape):
        rest = math.prod(x.shape[i + 1 :])
        found.append(x.device.elementwise.run("(p // r) % n", p=places, r=max(rest, 1), n=max(n, 1)))
    return tuple(found)


def select(x: GpuRef, mask: GpuRef) -> GpuRef:
    """Return ``x[mask]``: the parts of an array where a mask of its first axes holds; waits for their number."""
    if mask.shape != x.shape[: mask.ndim]:
        raise InvalidRequest(f"a mask of shape {mask.shape} for an array of shape {x.shape}; allowed: {x.shape}")
    flat = reshape(x, (math.prod(mask.shape), *x.shape[mask.ndim :]))
    return actor_of(x).take(flat, _places(reshape(mask, (-1,))), 0, along=False)


def repeat(x: GpuRef, repeats: int | GpuRef, /, *, axis: int | None = None) -> GpuRef:
    """Return each element, or each part along an axis, as often as a number says, or an array a number for each.

    Enqueues with a number; with an array waits for its sum.
    """
    if not isinstance(repeats, GpuRef):
        return repeated(x, repeats, axis=axis)
    if axis is None:
        x, axis = reshape(handle("repeat", x), (-1,)), 0
    place = as_axis("repeat", axis, handle("repeat", x).ndim)
    n = x.shape[place]
    if repeats.dtype.kind not in "iu" or repeats.shape not in ((), (1,), (n,)):
        raise InvalidRequest(
            f"repeat with repeats={repeats!r}; allowed: an integer, or an array of integers of shape ({n},) or (1,)"
        )
    counts = x.device.empty((n,), "int64")
    counts[...] = repeats.astype("int64")
    if n and int(counts.min()) < 0:
        raise InvalidRequest(f"repeat with {int(counts.min())} among the repeats; allowed: integers from 0")
    return actor_of(x).take(x, _expanded(counts), place, along=False)


def _order(flat: GpuRef) -> GpuRef:
    """Return the indices that sort a flat array; complex numbers by their real parts, then by the imaginary ones."""
    if flat.dtype.kind != "c":
        return argsort(flat)
    elementwise = flat.device.elementwise
    order = argsort(elementwise.run("imag(x)", x=flat))
    real = actor_of(flat).take(elementwise.run("real(x)", x=flat), order, 0, along=False)
    return actor_of(flat).take(order, argsort(real), 0, along=False)


class _Unique:
    """The distinct elements of an array, in order.  Waits for their number."""

    def __init__(self, function: str, x: GpuRef) -> None:
        self.x = handle(function, x)
        flat = reshape(x, (-1,))
        self.order = _order(flat)
        self.actor = actor_of(x)
        ordered = self.actor.take(flat, self.order, 0, along=False)
        ones = x.device.full((min(1, flat.size),), 1, "int64")
        changes = (ordered[1:] != ordered[:-1]).astype("int64")
        #: 1 where the sorted elements begin to be another one; NaN differs from itself.
        self.begins = concat([ones, changes]) if flat.size > 1 else ones
        self.places = _expanded(self.begins)
        self.values = self.actor.take(ordered, self.places, 0, along=False)

    @property
    def indices(self) -> GpuRef:
        """The first place of each."""
        return self.actor.take(self.order, self.places, 0, along=False)

    @property
    def inverse(self) -> GpuRef:
        """For each element, the place of its value."""
        if not self.x.size:
            return self.x.device.empty(self.x.shape, "int64")
        ranks = scanned("sum", self.begins, 0, self.begins.dtype) - 1
        return reshape(self.actor.take(ranks, argsort(self.order), 0, along=False), self.x.shape)

    @property
    def counts(self) -> GpuRef:
        """How often each occurs."""
        end = self.x.device.full((1,), self.x.size, "int64")
        ends = concat([self.places[1:], end]) if self.x.size else self.places
        return ends - self.places


def unique_all(x: GpuRef, /) -> UniqueAll:
    """Return the distinct elements in order, their first places, the place of each element among them, their counts.

    Each NaN is distinct.  Waits for the number of distinct elements.
    """
    found = _Unique("unique_all", x)
    return UniqueAll(found.values, found.indices, found.inverse, found.counts)


def unique_counts(x: GpuRef, /) -> UniqueCounts:
    """Return the distinct elements in order, and how often each occurs; waits as `unique_all`."""
    found = _Unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: GpuRef, /) -> UniqueInverse:
    """Return the distinct elements in order, and for each element its place among them; waits as `unique_all`."""
    found = _Unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse)


def unique_values(x: GpuRef, /) -> GpuRef:
    """Return the distinct elements in order; waits as `unique_all`."""
    return _Unique("unique_values", x).values
