"""Conversions to and from formats with padding, by functions of arrays."""

from __future__ import annotations

from typing import Any

from ...dtypes import dtype_name
from ...errors import InvalidRequest
from .matrix import SparseMatrix
from .places import kept, key_of, ordered, ramp

__all__ = ["facts_of_padded", "to_blocked_ell", "to_sliced_ell", "without_padding"]

Array = Any


def _where(stored: Array, values: Array, xp: Any) -> Array:
    return xp.where(stored, values, values.device.zeros(1, dtype_name(values.dtype)))


def to_sliced_ell(a: SparseMatrix, size: int, xp: Any) -> SparseMatrix:
    """Return a matrix in csr as sliced ELL.  Waits for the number of columns of all slices."""
    device, rows, kind = a.values.device, a.shape[0], dtype_name(a.index_dtype)
    slices = -(-rows // size)
    if not a.nnz:
        none = device.zeros((0, size), kind)
        return SparseMatrix(
            "sliced_ell", a.shape, device.zeros((0, size), dtype_name(a.dtype)), none, device.zeros(slices + 1, kind)
        )
    offsets = xp.astype(a.offsets, xp.int64)
    behind = device.zeros(slices * size - rows, "int64")
    begins = xp.concat((offsets[:-1], behind))
    lengths = xp.concat((offsets[1:] - offsets[:-1], behind))
    widths = xp.max(lengths.reshape(slices, size), axis=1)
    ends = xp.cumulative_sum(widths)
    slot = ramp(device, int(ends[-1]) * size)
    column = slot // size
    part = xp.searchsorted(ends, column, side="right")
    row, place = part * size + slot % size, column - xp.take(ends - widths, part, axis=0)
    stored = place < xp.take(lengths, row, axis=0)
    source = xp.where(stored, xp.take(begins, row, axis=0) + place, 0)
    indices = xp.where(stored, xp.take(xp.astype(a.indices, xp.int64), source, axis=0), -1)
    shape, index = (slot.size // size, size), getattr(xp, kind)
    starts = xp.concat((device.zeros(1, "int64"), ends)) * size
    return SparseMatrix(
        "sliced_ell", a.shape, _where(stored, xp.take(a.values, source, axis=0), xp).reshape(shape),
        xp.astype(indices, index).reshape(shape), xp.astype(starts, index),
    )  # fmt: skip


def to_blocked_ell(a: SparseMatrix, xp: Any) -> SparseMatrix:
    """Return a matrix in bsr as Blocked-ELL.  Waits for the largest number of blocks of a row."""
    device, b, kind = a.values.device, a.block, dtype_name(a.index_dtype)
    lines = a.shape[0] // b
    offsets = xp.astype(a.offsets, xp.int64)
    lengths = offsets[1:] - offsets[:-1]
    width = int(xp.max(lengths)) if a.nnz else 0
    if not width:
        values = device.zeros((lines, b, 0, b), dtype_name(a.dtype))
        return SparseMatrix("blocked_ell", a.shape, values, device.zeros((lines, 0), kind))
    slot = ramp(device, lines * width)
    line, place = slot // width, slot % width
    stored = place < xp.take(lengths, line, axis=0)
    source = xp.where(stored, xp.take(offsets, line, axis=0) + place, 0)
    indices = xp.where(stored, xp.take(xp.astype(a.indices, xp.int64), source, axis=0), -1)
    blocks = xp.take(a.values, source, axis=0).reshape(slot.size, b * b)
    blocks = _where(stored.reshape(slot.size, 1), blocks, xp).reshape(lines, width, b, b)
    return SparseMatrix(
        "blocked_ell", a.shape, device.copy(xp.permute_dims(blocks, (0, 2, 1, 3))),
        xp.astype(indices, getattr(xp, kind)).reshape(lines, width),
    )  # fmt: skip


def without_padding(a: SparseMatrix, xp: Any) -> SparseMatrix:
    """Return a matrix with padding as coo; elements of a row keep their order.  Waits for their number."""
    device, kind = a.values.device, dtype_name(a.index_dtype)
    index, total = getattr(xp, kind), a.nnz
    if not total:
        none = device.zeros(0, kind)
        return SparseMatrix("coo", a.shape, device.zeros(0, dtype_name(a.dtype)), none, rows=none, ordered=True)
    named = xp.astype(a.indices, xp.int64).reshape(a.indices.size)
    if a.format == "sliced_ell":
        stay = kept(named >= 0, xp)
        size = a.indices.shape[1]
        ends = xp.astype(a.offsets, xp.int64)[1:]
        rows = xp.searchsorted(ends, stay, side="right") * size + stay % size
        columns = xp.take(named, stay, axis=0) if stay.size else stay
    else:
        b, width = a.block, a.indices.shape[1]
        slot = ramp(device, total)
        row, place = slot // (width * b), slot % (width * b)
        block = xp.take(named, row // b * width + place // b, axis=0)
        stay = kept(block >= 0, xp)
        rows, columns = stay, stay
        if stay.size:
            rows = xp.take(row, stay, axis=0)
            columns = xp.take(block * b + place % b, stay, axis=0)
    values = xp.take(a.values.reshape(total), stay, axis=0) if stay.size else a.values.reshape(total)[:0]
    return SparseMatrix("coo", a.shape, values, xp.astype(columns, index), rows=xp.astype(rows, index))


def facts_of_padded(a: SparseMatrix, xp: Any) -> tuple[bool, Array]:
    """Return whether each row's elements are in order, and numbers of the places of all.  Waits.

    Raises
    ------
    InvalidRequest
        For an element in a row that the matrix does not have.
    """
    found = without_padding(a, xp)
    if not found.nnz:
        return True, ramp(a.values.device, 0)
    if bool(xp.any(found.rows >= a.shape[0])):
        raise InvalidRequest(f"indices has elements behind row {a.shape[0] - 1}, the last; allowed: -1, padding")
    rows, columns = xp.astype(found.rows, xp.int64), xp.astype(found.indices, xp.int64)
    key = key_of(rows, columns, a.shape)
    key = xp.take(key, ordered(rows, xp), axis=0)
    return bool(xp.all(key[1:] >= key[:-1])), key
