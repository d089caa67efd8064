"""Where the elements of a sparse matrix are: sorts, counts and searches of indices, by functions of arrays.

Every function enqueues messages and returns; those that wait for a number of the device say so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import InvalidRequest
from .matrix import SparseMatrix

__all__ = ["Groups", "Places", "group", "key_of", "kept", "lines_of", "offsets_of", "ordered", "places_of", "ramp"]

Array = Any


class Places(NamedTuple):
    """Row and column of each stored element, int64 and in the order of the values."""

    rows: Array
    columns: Array


class Groups(NamedTuple):
    """Elements with equal keys.

    Attributes
    ----------
    order : array
        Elements in ascending order of their keys; equal ones stay in order.
    starts : array
        Where each group begins in `order`, and the end.
    keys : array
        Of each group, ascending.
    number : int
        Of groups.
    """

    order: Array
    starts: Array
    keys: Array
    number: int


def ramp(device: Any, count: int) -> Array:
    """Return 0, 1, ... as int64."""
    return device.arange(count, dtype="int64")


def lines_of(offsets: Array, count: int, xp: Any) -> Array:
    """Return the line of each stored element or block."""
    wide = xp.astype(offsets, xp.int64)
    return xp.searchsorted(wide, ramp(offsets.device, count), side="right") - 1


def offsets_of(lines: Array, count: int, xp: Any) -> Array:
    """Return where each of `count` lines begins among ascending line numbers."""
    return xp.searchsorted(lines, ramp(lines.device, count + 1), side="left")


def places_of(a: SparseMatrix, xp: Any) -> Places:
    """Return where the elements are; of ``bsr`` in the order of the flat values."""
    minor = xp.astype(a.indices, xp.int64)
    if a.format == "coo":
        return Places(xp.astype(a.rows, xp.int64), minor)
    lines = lines_of(a.offsets, a.indices.size, xp)
    if a.format == "csc":
        return Places(minor, lines)
    if a.format == "csr":
        return Places(lines, minor)
    b = a.block
    each = ramp(a.values.device, a.nnz)
    block = each // (b * b)
    return Places(xp.take(lines, block, axis=0) * b + each // b % b, xp.take(minor, block, axis=0) * b + each % b)


def key_of(first: Array, second: Array, extents: tuple[int, int]) -> Array:
    """Return numbers that order elements by the first index, then by the second.

    Raises
    ------
    InvalidRequest
        If they do not fit 64 bits.
    """
    if extents[0] * extents[1] > 2**63 - 1:
        raise InvalidRequest(
            f"a matrix of {extents[0]} x {extents[1]} has places beyond 64 bits; allowed: up to 2**63 - 1"
        )
    return first * extents[1] + second


def ordered(key: Array, xp: Any) -> Array:
    """Return the places of the elements in ascending order of their keys, equal ones in their order."""
    return xp.argsort(key, stable=True)


def kept(mask: Array, xp: Any) -> Array:
    """Return the places where a mask is true.  Waits for their number."""
    if mask.size == 0:
        return ramp(mask.device, 0)
    seen = xp.cumulative_sum(xp.astype(mask, xp.int64))
    count = int(seen[-1])
    return xp.searchsorted(seen, ramp(mask.device, count) + 1, side="left")


def group(key: Array, xp: Any) -> Groups:
    """Group elements by their keys.  Waits for the number of groups."""
    device = key.device
    if key.size == 0:
        none = ramp(device, 0)
        return Groups(none, device.zeros(1, "int64"), none, 0)
    order = ordered(key, xp)
    keys = xp.take(key, order, axis=0)
    first = device.ones(key.size, "bool")
    device.copy(keys[1:] != keys[:-1], out=first[1:])
    starts = kept(first, xp)
    ends = xp.concat((starts, device.full(1, key.size, "int64")))
    return Groups(order, ends, xp.take(keys, starts, axis=0), starts.size)
