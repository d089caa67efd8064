"""Words of Philox4x32-10 on the host device: the numbers of every library that draws some.

`atomr_native.compile.numba.device.philox` has the same function for GPUs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["philox"]

Array = np.ndarray[Any, Any]

_WORD: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def philox(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Return the four words that Philox4x32-10 gives for counters of four words and a key, all as uint64."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        one, two = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (two >> _HALF) ^ b ^ np.uint64(low), two & _WORD, (one >> _HALF) ^ d ^ np.uint64(high), one & _WORD
        low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
    return a, b, c, d
