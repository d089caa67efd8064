"""Kernels that draw numbers by weights, with and without replacement."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.philox import philox
from .fill import DOUBLE, clear
from .formulas import DRAWS
from .positions import CHUNK, LEAST_WEIGHT, PAIRS, STORED

__all__ = ["clear", "keys", "pick", "ranks", "sums", "totals"]

Kernel = tuple[Any, tuple[str, ...]]

_WORD: Final = 0xFFFFFFFF
_MOST: Final = np.finfo(np.float64).max
_uniform: Final = DRAWS["uniform"](DOUBLE, 53)
_logarithms: Final = DRAWS["exponential"](DOUBLE, 0)
_multiply: Final = DOUBLE.mul


@inlined
def _words(position: Any, stream: Any, seed: Any) -> Any:
    number = position >> 1
    return philox(number & _WORD, number >> 32 & (_WORD >> 1), stream, PAIRS, seed & _WORD, seed >> 32 & _WORD)


def sums(weights: str) -> Kernel:
    """Return the kernel that adds up the weights of each chunk, one after the other: a thread has a chunk."""

    def sums(x: Any, parts: Any, report: Any, n: Any, step: Any) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        while i * CHUNK < n:
            total = 0.0
            for k in range(i * CHUNK, min((i + 1) * CHUNK, n)):
                weight = np.float64(x[k * step])
                if not (weight >= 0.0 and weight <= _MOST):
                    report[0] = 1
                total += weight
                parts[k] = total
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    return sums, (f"*{weights}", "*float64", "*int32", "int64", "int64")


def totals() -> Kernel:
    """Return the kernel of one thread that adds up the chunks: `bases` has the sum before each, and that of all."""

    def totals(parts: Any, bases: Any, report: Any, n: Any) -> None:
        total, i = 0.0, np.int64(0)
        while i * CHUNK < n:
            bases[i] = total
            total += parts[min((i + 1) * CHUNK, n) - 1]
            i += 1
        bases[i] = total
        if not (total >= LEAST_WEIGHT and total <= _MOST):
            report[0] = 1

    return totals, ("*float64", "*float64", "*int32", "int64")


def pick(dtype: str, given: bool) -> Kernel:
    """Return the kernel of draws with replacement, each by bisection of the sums."""

    def pick(
        out: Any, parts: Any, bases: Any, from_: Any, seed: Any, stream: Any, offset: Any, count: Any, n: Any
    ) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        whole = bases[(n + CHUNK - 1) // CHUNK]
        while i < count:
            two = _uniform(_words(start + i, stream, seed))
            goal = _multiply(two[0] if (start + i) & 1 == 0 else two[1], whole)
            low, high = np.int64(0), n - 1
            while low < high:
                middle = (low + high) >> 1
                if bases[middle // CHUNK] + parts[middle] > goal:
                    high = middle
                else:
                    low = middle + 1
            out[i] = low
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = f"*{STORED[dtype]}"
    return pick, (pointer, "*float64", "*float64", "*int64" if given else pointer, *("int64",) * 5)


def keys(weights: str, given: bool) -> Kernel:
    """Return the kernel of the times at which items come: exponential numbers, by their weights."""

    def keys(
        x: Any, times: Any, from_: Any, report: Any, seed: Any, stream: Any, offset: Any, n: Any, step: Any
    ) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        if i < n:
            weight = np.float64(x[i * step])
            if not (weight >= 0.0 and weight <= _MOST):
                report[0] = 1
            two = _logarithms(_words(start + i, stream, seed))
            time = (0.0 - (two[0] if (start + i) & 1 == 0 else two[1])) / (weight if weight > 0.0 else 1.0)
            times[i] = time if weight > 0.0 else np.inf

    return keys, (f"*{weights}", "*float64", "*int64" if given else "*float64", "*int32", *("int64",) * 5)


def ranks(dtype: str) -> Kernel:
    """Return the kernel that stores each of the first `count` items at its place."""

    def ranks(out: Any, times: Any, report: Any, count: Any, n: Any) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i < n:
            mine, place = times[i], np.int64(0)
            for j in range(n):
                other = times[j]
                if other < mine or (other == mine and j < i):
                    place += 1
            if place < count:
                out[place] = i
                if mine == np.inf:
                    report[0] = 1

    return ranks, (f"*{STORED[dtype]}", "*float64", "*int32", "int64", "int64")
