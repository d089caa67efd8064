"""Times of products with compressed matrices beside dense ones, as data: which of the two, and by which algorithm."""

from __future__ import annotations

from math import log2
from typing import Final, NamedTuple

__all__ = ["FIGURES", "VERSION", "Figure", "near"]

#: The version of cuSPARSELt that these figures are of, and whose algorithms have these numbers: 0.8.0.
VERSION: Final = 800


class Figure(NamedTuple):
    """What was measured of a product whose result lies by rows, on an H100.

    Attributes
    ----------
    algorithms : tuple of int
        The number of the fastest, and of the fastest in the workspace that a lane has by default, if that is another;
        empty: the library's own choice, 0.
    compressed, dense : float
        Microseconds by the fastest, and of the dense product.
    """

    algorithms: tuple[int, ...]
    compressed: float
    dense: float

    @property
    def gains(self) -> bool:
        """Whether the compressed matrix was faster by more than figures err."""
        return self.compressed < _GAIN * self.dense


#: The compressed matrix is taken where it took less than this part of the dense one's time.
_GAIN: Final = 0.95
#: The largest factor between an extent and that of a product that was measured.
_REACH: Final = 2.0
#: By the dtypes of A and out, and by rows of A, columns of A, and rows of x.  Those of int8, and of float16 but for the
#: largest, are of messages (`bench/libraries/sparse/layers.py`), the others of C calls.
FIGURES: Final[dict[tuple[str, str], dict[tuple[int, int, int], Figure]]] = {
    ("float16", "float16"): {
        (4096, 4096, 256): Figure((), 35.2, 20.5),
        (14336, 4096, 2048): Figure((6,), 248.8, 358.7),
        (4096, 14336, 2048): Figure((6,), 234.0, 323.0),
        (8192, 8192, 8192): Figure((6,), 1084.6, 1713.0),
        (28672, 8192, 8192): Figure((6, 27), 3365.7, 4429.4),
    },
    ("float8_e4m3fn", "bfloat16"): {
        (4096, 4096, 256): Figure((), 15.9, 12.1),
        (14336, 4096, 2048): Figure((8,), 121.2, 176.4),
        (4096, 14336, 2048): Figure((17, 16), 119.4, 170.8),
        (8192, 8192, 8192): Figure((8, 17), 513.5, 742.6),
        (28672, 8192, 8192): Figure((8, 19), 1733.4, 2583.8),
    },
    ("int8", "int32"): {
        (4096, 4096, 256): Figure((), 38.8, 23.8),
        (14336, 4096, 2048): Figure((), 222.4, 186.3),
        (4096, 14336, 2048): Figure((), 204.7, 186.4),
        (8192, 8192, 8192): Figure((), 782.4, 850.1),
        (28672, 8192, 8192): Figure((), 2667.1, 3122.5),
    },
}


def near(dtype: str, out: str, extents: tuple[int, int, int]) -> tuple[tuple[int, int, int], Figure] | None:
    """Return the product that was measured nearest to one, and its figure; None where none was near.

    Parameters
    ----------
    dtype, out : str
        Dtypes of A and of the result.
    extents : tuple of int
        Rows of A, columns of A, and rows of x.
    """
    if 0 in extents:
        return None

    def apart(measured: tuple[int, int, int]) -> tuple[float, float]:
        steps = [abs(log2(found / known)) for found, known in zip(extents, measured, strict=True)]
        return max(steps), sum(steps)

    known = FIGURES.get((dtype, out), {})
    within = [one for one in known if apart(one)[0] <= log2(_REACH)]
    if not within:
        return None
    found = min(within, key=lambda one: apart(one)[1])
    return found, known[found]
