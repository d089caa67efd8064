"""Words of Philox4x32-10 on GPUs (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).

`atomr_native._support.philox` has the same function for the host device.
"""

from __future__ import annotations

from typing import Any, Final

from ..api import inlined
from .intrinsics import product

__all__ = ["philox"]

_WORD: Final = 0xFFFFFFFF
_FIRST, _SECOND = 0xD2511F53, 0xCD9E8D57  # multipliers
_FIRST_KEY, _SECOND_KEY = 0x9E3779B9, 0xBB67AE85  # increments of the key
_ROUNDS: Final = 10


@inlined
def philox(a: Any, b: Any, c: Any, d: Any, low: Any, high: Any) -> Any:
    """Return the four words of a counter of four words and a key of two, all as int64."""
    for _ in range(_ROUNDS):
        (one, first), (two, second) = product(a, _FIRST), product(c, _SECOND)
        a, b, c, d = second ^ b ^ low, two, first ^ d ^ high, one
        low, high = low + _FIRST_KEY & _WORD, high + _SECOND_KEY & _WORD
    return a, b, c, d
