"""Parts of the kernels that fill arrays: where an element lies, and which counter it has."""

from __future__ import annotations

from typing import Any, Final

from ....compile.numba.api import inlined
from ....compile.numba.device.philox import philox

__all__ = ["WORD", "contiguous_place", "shared_words", "strided_place"]

WORD: Final = 0xFFFFFFFF


@inlined
def strided_place(i: Any, n1: Any, n2: Any, n3: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the place of an element in an array, of four axes with extents n and steps s."""
    d, i = i % n3, i // n3
    c, i = i % n2, i // n2
    b, a = i % n1, i // n1
    return a * s0 + b * s1 + c * s2 + d * s3


@inlined
def contiguous_place(i: Any, n1: Any, n2: Any, n3: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> Any:
    """Return the place of an element in a contiguous array."""
    return i


def shared_words(engine: str, kind: int, shift: int) -> Any:
    """Return the function from the number of a counter to its words; ``2**shift`` elements share a counter, 4 or 2.

    cuRAND's Philox has 65536 sequences: four elements are of one, and the next four of the next one.
    """
    if engine == "philox":
        last = WORD >> shift
        return inlined(
            lambda number, stream, low, high: philox(number & WORD, number >> 32 & last, stream, kind, low, high)
        )
    top = 0xFFFF >> shift
    if shift == 2:
        return inlined(
            lambda number, stream, low, high: philox(
                number >> 16 & WORD, number >> 48 & top, number & 0xFFFF, 0, low, high
            )
        )
    return inlined(
        lambda number, stream, low, high: philox(
            (number >> 17 << 1 | number & 1) & WORD, number >> 48 & top, number >> 1 & 0xFFFF, 0, low, high
        )
    )
