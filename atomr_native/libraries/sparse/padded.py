"""Formats with padding: sliced ELL and Blocked-ELL; their rules, and where their elements are, in NumPy."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ...arrays.operands import check_input
from ...errors import InvalidRequest

__all__ = ["PADDED", "PaddedPlaces", "check_padded", "padded_places", "refuse_padded"]

PADDED: Final = ("sliced_ell", "blocked_ell")

Array = np.ndarray[Any, Any]


class PaddedPlaces(NamedTuple):
    """Row and column of each element of `values`, of its shape, and whether it is stored or padding."""

    rows: Array
    columns: Array
    stored: Array


def refuse_padded(name: str, format: str, what: str) -> None:
    """Refuse a format with padding where another one is needed."""
    if format in PADDED:
        raise InvalidRequest(f"{name} is {format}; {what} takes csr, csc or coo, which device.sparse.convert makes")


def check_padded(form: str, shape: tuple[int, int], values: Any, indices: Any, offsets: Any, rows: Any) -> int:
    """Check the shapes of the arrays of a matrix with padding; return the number of its elements, padding included.

    Raises
    ------
    InvalidRequest
        As `SparseMatrix` says.
    """
    found, places = (tuple(check_input(name, one).shape) for name, one in (("values", values), ("indices", indices)))
    if form == "sliced_ell":
        if len(found) != 2 or found[1] == 0:
            raise InvalidRequest(f"values has shape {found}; allowed: (columns of all slices, rows of a slice)")
        wanted, slices = found, -(-shape[0] // found[1])
        if offsets is None or rows is not None:
            raise InvalidRequest("the format sliced_ell takes offsets and no rows")
        if tuple(check_input("offsets", offsets).shape) != (slices + 1,):
            raise InvalidRequest(
                f"offsets has shape {tuple(offsets.shape)}; allowed: ({slices + 1},), one more than the slices"
            )
    else:
        if len(found) != 4 or found[1] != found[3] or found[1] == 0:
            raise InvalidRequest(f"values has shape {found}; allowed: (rows / b, b, blocks of a row, b)")
        block = found[1]
        if shape[0] % block or shape[1] % block or found[0] != shape[0] // block:
            raise InvalidRequest(
                f"shape={shape} with values of shape {found}; allowed: ({found[0] * block}, a multiple of {block})"
            )
        if offsets is not None or rows is not None:
            raise InvalidRequest("the format blocked_ell takes neither offsets nor rows")
        wanted = (found[0], found[2])
    if places != wanted:
        raise InvalidRequest(f"indices has shape {places}; allowed: {wanted}")
    return int(np.prod(found, dtype=np.int64))


def padded_places(shape: tuple[int, int], indices: Array, offsets: Array | None, block: int) -> PaddedPlaces:
    """Return where the elements of sliced ELL are, whose offsets are valid, or of Blocked-ELL, which has none."""
    if offsets is not None:
        size = indices.shape[1]
        parts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets) // size)
        rows = parts[:, None] * size + np.arange(size)
        return PaddedPlaces(rows, indices, (indices >= 0) & (rows < shape[0]))
    lines, width = indices.shape
    every = (lines, block, width, block)
    rows = np.broadcast_to(np.arange(lines * block).reshape(lines, block, 1, 1), every)
    wide = indices.astype(np.int64)[:, None, :, None]
    columns = np.broadcast_to(wide * block + np.arange(block), every)
    return PaddedPlaces(rows, columns, np.broadcast_to(wide >= 0, every))
