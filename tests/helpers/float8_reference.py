"""Float8 by ml_dtypes and float32 of NumPy, one block after the other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from atomr_native.dtypes import DTYPES

__all__ = ["BLOCKS", "boundaries", "cast", "quantize", "spread"]

BLOCKS = {"tensor": (None, None), "outer": (1, None), "vec128": (1, 128), "blk128": (128, 128)}
Array = np.ndarray[Any, Any]


def boundaries(dtype: str) -> Array:
    """Return all numbers of a format, the middles between them, and the neighbours of these in float32; both signs."""
    values = np.unique(np.arange(256, dtype=np.uint8).view(DTYPES[dtype]).astype(np.float64))
    values = values[np.isfinite(values)]
    steps = np.append(values, 2 * values[-1] - values[-2])  # what would be next, were there one
    middles = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    exact = np.concatenate([steps.astype(np.float32), middles])
    special = np.array([np.inf, np.nan, 1e-45, 1e-38, 3e38, 4.0 * values[-1]], np.float32)
    around = [np.nextafter(exact, np.float32(way)) for way in (np.inf, -np.inf)]
    found = np.concatenate([exact, *around, special])
    return np.concatenate([found, -found]).astype(np.float32)


@np.errstate(all="ignore")
def cast(x: Array, dtype: str, saturate: bool) -> Array:
    """Return float32 numbers in a format, as ml_dtypes rounds them."""
    limit = np.float32(float(ml_dtypes.finfo(DTYPES[dtype]).max))
    return (np.clip(x, -limit, limit) if saturate else x).astype(DTYPES[dtype])


@np.errstate(all="ignore")
def quantize(x: Array, dtype: str, scaling: str) -> tuple[Array, Array]:
    """Return codes and scales, saturating."""
    limit = np.float32(float(ml_dtypes.finfo(DTYPES[dtype]).max))
    wide = x.astype(np.float32).reshape(x.shape if scaling != "tensor" else (1, -1))
    rows, columns = (
        extent if block is None else block for block, extent in zip(BLOCKS[scaling], wide.shape, strict=True)
    )
    tops = range(0, wide.shape[0], max(rows, 1))
    lefts = [0] if columns == 0 else range(0, wide.shape[1], columns)
    lefts = [] if scaling in ("vec128", "blk128") and wide.shape[1] == 0 else lefts
    scales = np.ones((len(tops), len(lefts)), np.float32)
    codes = np.zeros(wide.shape, DTYPES[dtype])
    for i, top in enumerate(tops):
        for j, left in enumerate(lefts):
            block = wide[top : top + rows, left : left + columns]
            amax = np.max(np.abs(block), initial=np.float32(0))
            if np.isfinite(amax) and amax > 0:
                scales[i, j] = min(max(np.float32(amax / limit), np.float32(2.0**-126)), np.float32(2.0**126))
            scaled = block * (np.float32(1) / scales[i, j])
            codes[top : top + rows, left : left + columns] = cast(scaled, dtype, True)
    return codes.reshape(x.shape), scales.reshape(()) if scaling == "tensor" else scales


def spread(scale: Array, scaling: str, shape: tuple[int, ...]) -> Array:
    """Return the scale of each element."""
    if scaling == "tensor":
        return scale.reshape(())
    rows, columns = (extent if block is None else block for block, extent in zip(BLOCKS[scaling], shape, strict=True))
    return np.repeat(np.repeat(scale, rows, 0), columns, 1)[: shape[0], : shape[1]]
