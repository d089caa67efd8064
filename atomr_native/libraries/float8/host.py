"""Quantisation to float8 and back on the host device, by NumPy and ml_dtypes: every bit as on a GPU, but codes of NaN.

NumPy has each step as one correctly rounded operation of float32, and ml_dtypes the conversions, so that nothing has
to be compiled here and the kernels of GPUs have a reference that shares no line with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES
from ...plans.spec import PlanSpec
from .attributes import DequantizeAttributes, QuantizeAttributes
from .spec import LIMITS, SCALE_BLOCKS

__all__ = ["build_dequantize", "build_quantize"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

_INFINITY: Final = 0x7F800000
_LEAST, _MOST = np.float32(2.0**-126), np.float32(2.0**126)
_NAN: Final = {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7E}
_ONE: Final = np.float32(1.0)
_LIFT: Final = np.float32(2.0**64)
_SMALLEST: Final = np.float32(2.0**-85)  # the smallest number of float32, lifted


def _sizes(x: Array) -> Array:
    """Return magnitudes as integers, which are ordered alike, NaN above infinity."""
    return x.view(np.int32) & np.int32(0x7FFFFFFF)


def _largest(sizes: Array, blocks: tuple[int, int]) -> Array:
    """Return the largest of each block of so many rows and columns; 0 stands for all of them."""
    for axis, (block, extent) in enumerate(zip(blocks, sizes.shape, strict=True)):
        if block == 1:
            continue
        if extent == 0:
            shape = list(sizes.shape)
            shape[axis] = 0 if block else 1
            sizes = np.zeros(shape, np.int32)
        else:
            sizes = np.maximum.reduceat(sizes, np.arange(0, extent, block or extent), axis=axis)
    return sizes


def _scales(sizes: Array, dtype: str, headroom: Any = _ONE) -> Array:
    """Return the scale for each largest magnitude; 1 for 0, infinity and NaN."""
    known = (sizes > 0) & (sizes < _INFINITY)
    largest = np.where(known, sizes, 0).astype(np.int32).view(np.float32)
    scales = np.clip(largest / np.float32(LIMITS[dtype]) * headroom, _LEAST, _MOST)
    return np.where(known, scales, _ONE).astype(np.float32)


def _spread(scales: Array, blocks: tuple[int, int], shape: tuple[int, int]) -> Array:
    """Return the scale of each element, or an array that broadcasts to it."""
    for axis, block in enumerate(blocks):
        if block > 1:
            scales = np.repeat(scales, block, axis=axis)
            scales = scales[tuple(slice(shape[i]) if i == axis else slice(None) for i in range(2))]
    return scales


def build_quantize(spec: PlanSpec[QuantizeAttributes], _context: HostContext) -> Built:
    """Return the run of ``float8.quantize``: operands as `QuantizeRequest` lowers to, no scalars."""
    names, how = [operand.name for operand in spec.operands], spec.attributes
    dtype, blocks = how.dtype, SCALE_BLOCKS[how.scaling]
    kind, limit = DTYPES[dtype], np.float32(LIMITS[dtype])

    def codes(x: Array, scales: Array) -> Array:
        lift = np.where(np.abs(scales) < _LEAST, _LIFT, _ONE)  # 1 / scale may be infinite
        divisors = scales * lift
        scaled = (x * lift) * (_ONE / np.where(divisors == 0, _SMALLEST, divisors))
        missing = np.isnan(scaled)
        if how.saturate:
            np.clip(scaled, -limit, limit, out=scaled)
        found = scaled.astype(kind).view(np.uint8)
        found[missing] = _NAN[dtype]
        return found

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        x = np.ascontiguousarray(given["x"], np.float32) if given["x"].ndim else given["x"].astype(np.float32)
        flat = x if how.scaling != "tensor" else x.reshape(1, -1)
        largest = _largest(_sizes(flat), blocks) if how.amax != "given" else np.zeros((1, 1), np.int32)
        if how.amax == "now":
            scales = _scales(largest, dtype)
        else:
            scales = given["scale" if how.amax == "given" else "state_scale"].reshape(1, 1).copy()
        found = codes(flat, _spread(scales, blocks, (flat.shape[0], flat.shape[1]))).reshape(x.shape)
        given["out"].view(np.uint8)[...] = found
        if "transposed_out" in given:
            given["transposed_out"].view(np.uint8)[...] = found.T
        if "scale_out" in given:
            given["scale_out"][...] = scales.reshape(given["scale_out"].shape)
        if "transposed_scale_out" in given:
            given["transposed_scale_out"][...] = scales.T
        if how.amax == "recorded":
            record(largest[0, 0], given["state_history"], given["state_position"], given["state_scale"])

    def record(size: Any, history: Array, position: Array, scale: Array) -> None:
        at = int(position[0]) % history.size
        history[at] = np.int32(size).view(np.float32)
        position[0] = (at + 1) % history.size
        sizes = _sizes(history) if not how.latest else np.array([size], np.int32)
        sizes = sizes[(sizes > 0) & (sizes < _INFINITY)]
        if sizes.size:
            scale[0] = _scales(sizes.max(keepdims=True), dtype, np.float32(2.0**how.margin))[0]

    return Built(run)


def build_dequantize(spec: PlanSpec[DequantizeAttributes], _context: HostContext) -> Built:
    """Return the run of ``float8.dequantize``: operands q, scale, out; no scalars."""
    blocks = spec.attributes.blocks

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        q, scale, out = arrays
        spread = scale.reshape(()) if blocks == (0, 0) else _spread(scale, blocks, (q.shape[0], q.shape[1]))
        np.copyto(out, q.astype(np.float32) * spread, casting="unsafe")

    return Built(run)
