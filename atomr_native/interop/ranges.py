"""Items by their ranges of addresses."""

from __future__ import annotations

import bisect
from typing import Generic, Protocol, TypeVar

__all__ = ["Ranges"]


class _Range(Protocol):
    @property
    def start(self) -> int:
        """The first address."""

    @property
    def end(self) -> int:
        """One past the last address."""


_T = TypeVar("_T", bound=_Range)


class Ranges(Generic[_T]):
    """Items with ``start`` and ``end``, which may overlap; the search is fast if they have similar lengths."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._items: list[_T] = []
        self._longest = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: _T) -> None:
        """Add an item."""
        at = bisect.bisect_right(self._starts, item.start)
        self._starts.insert(at, item.start)
        self._items.insert(at, item)
        self._longest = max(self._longest, item.end - item.start)

    def remove(self, item: _T) -> None:
        """Remove an item, which must be present."""
        at = bisect.bisect_left(self._starts, item.start)
        while self._items[at] is not item:
            at += 1
        del self._starts[at], self._items[at]
        if not self._items:
            self._longest = 0

    def overlapping(self, start: int, end: int) -> list[_T]:
        """Return the items that share an address with a range, sorted by their starts."""
        first = bisect.bisect_right(self._starts, start - self._longest)
        last = bisect.bisect_left(self._starts, end)
        return [item for item in self._items[first:last] if item.end > start]
