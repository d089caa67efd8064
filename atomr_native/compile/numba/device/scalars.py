"""Scalar float8 arithmetic: device functions that also run as plain Python.

All operations are exact or rounded once, to nearest even, so every device can produce the same bits.  NaN has the code
of `ml_dtypes`, without its sign; a GPU's own conversion may use another code.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ..api import cuda
from .intrinsics import bfloat16_pair, bits_of, float_of

__all__ = ["FORMATS", "Format", "bfloat16_of", "decoder", "encoder", "fresh_scale", "known", "power_of_two"]

_INFINITY: Final = 0x7F800000
_LEAST: Final = np.float32(2.0**-126)  # limit of scales: they and their reciprocals are normal numbers
_MOST: Final = np.float32(2.0**126)
_ONE: Final = np.float32(1.0)
_ZERO: Final = np.float32(0.0)


class Format(NamedTuple):
    """A float8 format: mantissa bits, exponent bias, codes, and largest number."""

    mantissa: int
    bias: int
    largest: int  # code
    overflow: int  # code for values that are too large, without saturation
    nan: int
    limit: float


FORMATS: Final = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7F, 0x7F, 448.0),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E, 57344.0),
}


def encoder(dtype: str, saturate: bool) -> Any:
    """Return a device function from a float32 to a code."""
    mantissa, bias, largest, overflow, nan, _ = FORMATS[dtype]
    drop = 23 - mantissa
    first = 127 - bias + 1  # biased exponent, in float32, of the smallest normal number
    beyond = largest if saturate else overflow
    base = (127 - bias) << mantissa

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def encode(value: Any) -> Any:
        bits = bits_of(value)
        sign = (bits >> 24) & 0x80
        size = bits & 0x7FFFFFFF
        if size > _INFINITY:
            return nan
        exponent = size >> 23
        if exponent >= first:
            code = ((size + (1 << (drop - 1)) - 1 + ((size >> drop) & 1)) >> drop) - base
            if code > largest:
                code = beyond
            return sign | code
        shift = min(drop + first - exponent, 25)  # below half of the smallest subnormal number the result is 0
        whole = (size & 0x7FFFFF) | 0x800000
        return sign | ((whole + (1 << (shift - 1)) - 1 + ((whole >> shift) & 1)) >> shift)

    return encode


def decoder(dtype: str) -> Any:
    """Return a device function from a code to a float32."""
    mantissa, bias, _, infinity, nan, _ = FORMATS[dtype]
    drop = 23 - mantissa
    power = np.float32(2.0 ** (127 - bias))
    special = infinity  # from here on: infinity, if the format has it, then NaN
    has_infinity = infinity != nan

    @cuda.jit(device=True)  # type: ignore[untyped-decorator]
    def decode(code: Any) -> Any:
        sign = (np.int64(code) & 0x80) << 24
        size = np.int64(code) & 0x7F
        if size >= special:
            if has_infinity and size == special:
                return float_of(sign | _INFINITY)
            return float_of(0x7FC00000)
        return float_of(sign | (size << drop)) * power

    return decode


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def bfloat16_of(value: Any) -> Any:
    """Return the 16 bits of a float32 as bfloat16."""
    return bfloat16_pair(value, _ZERO) & 0xFFFF


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def known(size: Any) -> Any:
    """Return whether a largest magnitude, given as float32 bits, is usable: finite and not 0."""
    return size > 0 and size < _INFINITY


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def power_of_two(exponent: Any) -> Any:
    """Return 2**exponent as float32, for -126 to 127."""
    return float_of((exponent + 127) << 23)


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def fresh_scale(size: Any, limit: Any, headroom: Any) -> Any:
    """Return the factor from codes back to numbers whose largest magnitude has the bits `size`.

    1 if that is not `known`.  `limit` is the format's largest number; `headroom` is a further factor of the scale.
    """
    if not known(size):
        return _ONE
    scale = float_of(size) / limit * headroom
    return min(max(scale, _LEAST), _MOST)
