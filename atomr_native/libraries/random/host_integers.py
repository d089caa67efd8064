"""Random integers on the host device, by NumPy: every bit as by the kernels of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...dtypes import DTYPES
from .kernels.positions import MOST_ATTEMPTS, QUADS

__all__ = ["integers", "sound_ranges"]

Array = np.ndarray[Any, Any]

_WORD: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def _again(drawn: Any, left: Array, span: Array, unfair: Array, result: Array) -> None:
    """Draw elements from their own sequences, whose shared words would bring a bias."""
    for count in range(MOST_ATTEMPTS):
        if not left.size:
            return
        found = np.zeros(left.size, bool)
        for word in drawn.own(left, count):
            product = word.astype(np.uint64) * span
            result[left[~found]] = product[~found] >> _HALF
            found |= (product & _WORD) >= unfair
        left, span, unfair = left[~found], span[~found], unfair[~found]


def _wide(drawn: Any, left: Array, last: Array, result: Array) -> None:
    """Draw elements of more than 2**32 numbers from their own sequences."""
    mask = last.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    for count in range(MOST_ATTEMPTS):
        if not left.size:
            return
        a, b, c, d = (word.astype(np.uint64) for word in drawn.own(left, count))
        first, second = (a | b << _HALF) & mask, (c | d << _HALF) & mask
        result[left] = np.where(first <= last, first, second)
        again = result[left] > last
        left, last, mask = left[again], last[again], mask[again]


def _bounds(second: str, values: list[Any]) -> tuple[Array, Array]:
    """Return the least number of each element or of all, and the difference of the largest and it, as uint64."""
    low, bound = (np.asarray(value).astype(np.int64).view(np.uint64) for value in values)
    return low, bound if second == "last" else bound - low - np.uint64(second == "high")


def integers(dtype: str, second: str) -> Callable[[Any, list[Any]], Array]:
    """Return the function from a block's counters and bounds to its elements.

    `second` is the name of the second bound: ``"last"``, ``"most"`` or ``"high"``, see `parameter_names`.
    """
    kind = DTYPES[dtype]

    def fill(drawn: Any, values: list[Any]) -> Array:
        low, last = _bounds(second, values)
        words = drawn.shared(4, QUADS, lambda words: words).astype(np.uint64)
        narrow = last < _WORD
        span = np.where(narrow, last + np.uint64(1), np.uint64(1))
        product = words * span
        result = np.where(narrow, product >> _HALF, words)
        unfair = np.uint64(2**32) % span
        left = np.flatnonzero((product & _WORD) < unfair)
        span, unfair = np.broadcast_to(span, result.shape)[left], np.broadcast_to(unfair, result.shape)[left]
        _again(drawn, left, span, unfair, result)
        last = np.broadcast_to(last, result.shape)
        left = np.flatnonzero(last > _WORD)
        _wide(drawn, left, last[left], result)
        made: Array = (result + low).view(np.int64).astype(kind)
        return made

    return fill


def sound_ranges(dtype: str, second: str, low: Any, bound: Any) -> bool:
    """Whether arrays of bounds are within the dtype, and each range has a number."""
    info = np.iinfo(dtype)
    least, beyond = (
        value[:].astype(np.int64) if isinstance(value, np.flatiter) else np.int64(value) for value in (low, bound)
    )
    if second == "high":
        fits = (beyond > least) & (beyond <= min(int(info.max) + 1, 2**63 - 1))
    else:
        fits = (least <= beyond) | ((dtype == "uint64") & (beyond < 0))
    return bool(np.all((least >= int(info.min)) & fits))
