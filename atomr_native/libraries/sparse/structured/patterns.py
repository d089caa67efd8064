"""Patterns with two numbers in each four, as data that the host and the kernels share."""

from __future__ import annotations

import itertools
from typing import Final

__all__ = ["GROUP", "KEPT", "TILES"]

#: Neighbours of a row, and how many of them may differ from 0.
GROUP: Final = 4
KEPT: Final = 2


def _tiles() -> tuple[tuple[int, ...], ...]:
    pairs = list(itertools.combinations(range(GROUP), KEPT))
    found = []
    for rows in itertools.product(pairs, repeat=GROUP):
        columns = [sum(column in row for row in rows) for column in range(GROUP)]
        if columns == [KEPT] * GROUP:
            found.append(tuple(GROUP * i + column for i, row in enumerate(rows) for column in row))
    return tuple(found)


#: The 90 ways to keep two places of each row and each column of a 4 x 4 tile: places in C order.
TILES: Final = _tiles()
