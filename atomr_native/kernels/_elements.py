"""Elements of arrays as float32: one from its word, or eight that lie together, and back."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._numba import cuda
from ._intrinsics import bits_of, float_of, float_of_half, half_of, load4, store4
from ._scalars import bfloat16_of

__all__ = ["READERS", "STORAGE", "WRITERS"]

#: Words by which kernels point to elements.
STORAGE: Final = {"float32": "uint32", "float16": "uint16", "bfloat16": "uint16"}


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _same(word: Any) -> Any:
    return float_of(word)


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _upper(word: Any) -> Any:
    return float_of(np.int64(word) << 16)


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _half(word: Any) -> Any:
    return float_of_half(word)


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _load_float32(x: Any, at: Any) -> Any:
    a, b = load4(x, at * 4), load4(x, at * 4 + 16)
    return (
        float_of(a[0]), float_of(a[1]), float_of(a[2]), float_of(a[3]),
        float_of(b[0]), float_of(b[1]), float_of(b[2]), float_of(b[3]),
    )  # fmt: skip


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _load_bfloat16(x: Any, at: Any) -> Any:
    a = load4(x, at * 2)
    return (
        float_of(a[0] << 16), float_of(a[0] & 0xFFFF0000), float_of(a[1] << 16), float_of(a[1] & 0xFFFF0000),
        float_of(a[2] << 16), float_of(a[2] & 0xFFFF0000), float_of(a[3] << 16), float_of(a[3] & 0xFFFF0000),
    )  # fmt: skip


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _load_float16(x: Any, at: Any) -> Any:
    a = load4(x, at * 2)
    return (
        float_of_half(a[0]), float_of_half(a[0] >> 16), float_of_half(a[1]), float_of_half(a[1] >> 16),
        float_of_half(a[2]), float_of_half(a[2] >> 16), float_of_half(a[3]), float_of_half(a[3] >> 16),
    )  # fmt: skip


#: Of each dtype: one element from its word, and eight that lie together.
READERS: Final = {
    "float32": (_same, _load_float32),
    "bfloat16": (_upper, _load_bfloat16),
    "float16": (_half, _load_float16),
}


@cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
def _store_float32(out: Any, at: Any, v: Any, s: Any) -> None:
    store4(out, at * 4, (bits_of(v[0] * s), bits_of(v[1] * s), bits_of(v[2] * s), bits_of(v[3] * s)))
    store4(out, at * 4 + 16, (bits_of(v[4] * s), bits_of(v[5] * s), bits_of(v[6] * s), bits_of(v[7] * s)))


def _narrow_store(round_: Any) -> Any:
    @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
    def pair(low: Any, high: Any) -> Any:
        return np.uint32(round_(low) | np.int64(round_(high)) << 16)

    @cuda.jit(device=True, forceinline=True)  # type: ignore[untyped-decorator]
    def store(out: Any, at: Any, v: Any, s: Any) -> None:
        words = pair(v[0] * s, v[1] * s), pair(v[2] * s, v[3] * s), pair(v[4] * s, v[5] * s), pair(v[6] * s, v[7] * s)
        store4(out, at * 2, words)

    return store


#: Of each dtype: the bits of an element, and how eight are stored together.
WRITERS: Final = {
    "float32": (bits_of, _store_float32),
    "bfloat16": (bfloat16_of, _narrow_store(bfloat16_of)),
    "float16": (half_of, _narrow_store(half_of)),
}
