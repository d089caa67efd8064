"""Kernels of random permutations, and of arrays whose rows follow them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....compile.numba.api import cuda, inlined
from ....compile.numba.device.intrinsics import product
from ....compile.numba.device.philox import philox
from .permutation import ROUNDS, round_function
from .positions import SINGLES, STORED

__all__ = ["few", "gather", "many", "move_many"]

Kernel = tuple[Any, tuple[str, ...]]

_WORD: Final = 0xFFFFFFFF

_ITEMS: Final = {1: "*uint8", 2: "*uint16", 4: "*uint32", 8: "*int64"}

_mixed: Final = round_function(product, inlined)


@inlined
def _words(number: Any, stream: Any, seed: Any) -> Any:
    return philox(number & _WORD, number >> 32 & _WORD, stream, SINGLES, seed & _WORD, seed >> 32 & _WORD)


def few(dtype: str, given: bool) -> Kernel:
    """Return the kernel that orders numbers by keys: each thread finds the place of one."""

    def few(out: Any, from_: Any, seed: Any, stream: Any, offset: Any, n: Any, step: Any) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        if i < n:
            mine = _words(start + i, stream, seed)
            place = 0
            for j in range(n):
                other = _words(start + j, stream, seed)
                if other[0] < mine[0] or (
                    other[0] == mine[0] and (other[1] < mine[1] or (other[1] == mine[1] and j < i))
                ):
                    place += 1
            out[place * step] = i

    pointer = f"*{STORED[dtype]}"
    return few, (pointer, "*int64" if given else pointer, *("int64",) * 5)


@inlined
def _image(i: Any, start: Any, stream: Any, seed: Any, n: Any, upper: Any, lower: Any) -> Any:
    """Return the number to which a number below `n` is mapped; its halves have `upper` and `lower` bits."""
    top, bottom = (1 << upper) - 1, (1 << lower) - 1
    number, walks = i, True
    while walks:
        left, right = number >> lower, number & bottom
        for j in range(ROUNDS // 4):
            keys = _words(start + j, stream, seed)
            left ^= _mixed(right, keys[0]) & top
            right ^= _mixed(left, keys[1]) & bottom
            left ^= _mixed(right, keys[2]) & top
            right ^= _mixed(left, keys[3]) & bottom
        number = left << lower | right
        walks = number >= n
    return number


def many(dtype: str, given: bool) -> Kernel:
    """Return the kernel that maps numbers one by one, and stores them `step` elements apart."""

    def many(
        out: Any, from_: Any, seed: Any, stream: Any, offset: Any, size: Any, n: Any, step: Any, upper: Any, lower: Any
    ) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        while i < size:
            out[i * step] = _image(i, start, stream, seed, n, upper, lower)
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = f"*{STORED[dtype]}"
    return many, (pointer, "*int64" if given else pointer, *("int64",) * 8)


def move_many(itemsize: int, given: bool) -> Kernel:
    """Return the kernel that copies rows of `columns` items: row i is that of the number to which i is mapped."""

    def move_many(
        out: Any, x: Any, from_: Any, seed: Any, stream: Any, offset: Any, size: Any, n: Any, columns: Any, upper: Any,
        lower: Any,
    ) -> None:  # fmt: skip
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        start = from_[0] if given else offset
        while i < size:
            row = _image(i // columns, start, stream, seed, n, upper, lower)
            out[i] = x[row * columns + i % columns]
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = _ITEMS[itemsize]
    return move_many, (pointer, pointer, "*int64" if given else pointer, *("int64",) * 8)


def gather(itemsize: int) -> Kernel:
    """Return the kernel that copies rows of `columns` items: row i is that of the number at i."""

    def gather(order: Any, x: Any, out: Any, size: Any, columns: Any) -> None:
        i = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        while i < size:
            out[i] = x[order[i // columns] * columns + i % columns]
            i += np.int64(cuda.gridDim.x) * cuda.blockDim.x

    pointer = _ITEMS[itemsize]
    return gather, ("*int64", pointer, pointer, "int64", "int64")
