"""Random permutations: what both kinds of device agree on.

Up to `FEW` numbers are put into the order of random keys of 64 bits.  More are mapped one by one, by a Feistel network
over as many bits as the largest number has, which is applied until the result is one of the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["FEW", "ROUNDS", "halves", "round_function"]

#: Numbers that are ordered by keys, at most.
FEW: Final = 1024
#: Rounds of the network, each with a word as its key: those of `ROUNDS` / 4 counters.
ROUNDS: Final = 24
_FIRST, _SECOND = 0xD2511F53, 0xCD9E8D57  # multipliers of Philox


def halves(n: int) -> tuple[int, int]:
    """Return the bits of both halves of a number below `n`."""
    bits = max(2, (n - 1).bit_length())
    return bits // 2, bits - bits // 2


def round_function(product: Callable[[Any, Any], tuple[Any, Any]], function: Callable[[Any], Any]) -> Any:
    """Return the function of a half and a key to a word, by a product of words as two words."""

    def mixed(half: Any, key: Any) -> Any:
        low, high = product(half ^ key, _FIRST)
        low, high = product(low ^ high, _SECOND)
        return low ^ high

    return function(mixed)
