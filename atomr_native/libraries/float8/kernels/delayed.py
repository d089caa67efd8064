"""Delayed scaling in a launch that casts: it records an amax, and computes the next scale from the history.

The first block looks at the history, each block contributes its amax, and the last one to finish has them all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.intrinsics import block_max, float_of
from ....compile.numba.device.launch_words import arrived, raise_to, taken
from ....compile.numba.device.scalars import FORMATS, fresh_scale, known, power_of_two
from .casts import size_of

__all__ = ["recorder"]

_ARRIVED: Final = 0  # places in the words that the blocks share: how many have finished,
_NOW: Final = 1  # the largest magnitude of what is cast,
_PAST: Final = 2  # and that of the history


@inlined
def _place(position: Any, length: Any) -> Any:
    """Return where the next amax goes."""
    at = np.int64(position[0])
    return at if 0 <= at < length else at % length


def recorder(dtype: str, latest: bool) -> tuple[Any, Any]:
    """Return device functions: a block's steps before its casts and, with its largest magnitude, after them.

    All threads of a block call them; a block has 256.  `latest` leaves the history out.
    """
    limit = np.float32(FORMATS[dtype].limit)

    @inlined
    def counted(history: Any, i: Any, at: Any, length: Any) -> Any:
        """Return the size of an amax of the history that counts, else 0."""
        size = size_of(history[i]) if i < length else np.int32(0)
        return size if i != at and known(size) else np.int32(0)

    @inlined
    def before(words: Any, history: Any, length: Any, position: Any) -> None:
        if not latest and cuda.blockIdx.x == 0 and cuda.blockIdx.y == 0:
            at, found = _place(position, length), np.int32(0)
            i = np.int64(cuda.threadIdx.x)
            while i < length:  # four loads at once
                a = counted(history, i, at, length)
                b = counted(history, i + 256, at, length)
                c = counted(history, i + 512, at, length)
                d = counted(history, i + 768, at, length)
                found = max(found, max(max(a, b), max(c, d)))
                i += 1024
            found = block_max(found)
            if cuda.threadIdx.x == 0:
                raise_to(words, _PAST, found)

    @inlined
    def after(words: Any, found: Any, history: Any, length: Any, position: Any, scale: Any, margin: Any) -> None:
        found = block_max(found)  # and everybody has read the scale, the history and the position
        if cuda.threadIdx.x == 0:
            raise_to(words, _NOW, found)
            if arrived(words, _ARRIVED, cuda.gridDim.x * cuda.gridDim.y - 1):
                now, most = taken(words, _NOW), taken(words, _PAST)
                at = _place(position, length)
                history[at] = float_of(now)
                position[0] = at + 1 if at + 1 < length else 0
                if known(now):
                    most = max(most, now)
                if known(most):
                    scale[0] = fresh_scale(most, limit, power_of_two(margin))

    return before, after
