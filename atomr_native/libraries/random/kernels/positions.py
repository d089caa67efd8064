"""Which counters and words belong to an element: what both kinds of device agree on, besides the formulas."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = [
    "BITS", "CHUNK", "CURAND", "DISTRIBUTIONS", "ENGINES", "INTEGERS", "LEAST_WEIGHT", "LIMITS", "MOST_ATTEMPTS",
    "MOST_ITEMS", "PAIRS", "QUADS", "REJECTING", "SINGLES", "STORED", "computed", "per_counter",
]  # fmt: skip

#: The last word of counters: of four elements, of two, and of one, to which the number of the call is added.
#: Dropout has 0 and 1.
QUADS: Final = 0x40000000
PAIRS: Final = 0x80000000
SINGLES: Final = 0xC0000000
#: After so many attempts the last one counts, which no sound parameters come to.
MOST_ATTEMPTS: Final = 256
#: Integers, with the type of words in which kernels store them.
INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
STORED: Final = {
    "bool": "uint8", "int8": "uint8", "uint8": "uint8", "int16": "uint16", "uint16": "uint16", "int32": "uint32",
    "uint32": "uint32", "int64": "int64", "uint64": "int64",
}  # fmt: skip
#: The largest number that an integer of a distribution becomes; of 64 bits, the largest float64 that fits.
LIMITS: Final = {
    "bool": 1.0,
    **{name: float(min(np.iinfo(name).max, 2**63 - 1024)) for name in INTEGERS},
}
#: Weights that are added up one after the other; the sums of chunks are so, too.
CHUNK: Final = 256
#: Items that are drawn from without replacement, at most.
MOST_ITEMS: Final = 2**16
#: The least sum of weights: it times a number below 1 is less.
LEAST_WEIGHT: Final = 2.0**-960
#: Bits of a uniform number.
BITS: Final = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
#: Distributions by rejection, and all.
REJECTING: Final = ("truncated_normal", "gamma", "beta", "poisson", "binomial")
DISTRIBUTIONS: Final = (
    "uniform", "integers", "bernoulli", "normal", "lognormal", "exponential", "cauchy", "geometric", *REJECTING,
)  # fmt: skip

#: Whose counters and formulas: this library's, and those of cuRAND's generator of the same words; and of the latter the
#: distributions, with the dtypes of their elements.
ENGINES: Final = ("philox", "curand_philox")
CURAND: Final = {
    **dict.fromkeys(("uniform", "normal", "lognormal"), ("float32", "float64")),
    "integers": ("uint32",),
}


def computed(distribution: str, dtype: str) -> Any:
    """Return the computation type of a distribution's elements."""
    wide = distribution in (*REJECTING, "geometric", "bernoulli") or dtype == "float64"
    return np.float64 if wide else np.float32


def per_counter(distribution: str, dtype: str) -> int:
    """Return how many elements share a counter: 4, 2, or 1 where each has a sequence of its own."""
    if distribution in REJECTING:
        return 1
    return 4 if distribution == "bernoulli" or computed(distribution, dtype) is np.float32 else 2
