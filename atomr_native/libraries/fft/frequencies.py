"""Frequencies of the elements of a transform, by messages of the elementwise actor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..._support.checks import as_integer, is_real
from ...arrays.owner import owner_of
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...arrays.gpu_ref import GpuRef
    from ...device import Device

__all__ = ["all_frequencies", "half_frequencies"]

_DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
#: Beyond it, float64 does not hold every place.
_MOST: Final = 1 << 53


def _checked(n: Any, d: Any, dtype: Any) -> tuple[int, float, np.dtype[Any]]:
    """Return the number of points, the step between frequencies, and their dtype."""
    points = as_integer("n", n, 1, _MOST)
    spacing = float(d) if is_real(d) else math.nan
    if not math.isfinite(spacing) or not spacing or not math.isfinite(1.0 / (points * spacing)):
        raise InvalidRequest(
            f"d={d!r} for n={points}; allowed: finite real numbers other than 0, with a finite 1 / (n * d)"
        )
    made = as_dtype("float64" if dtype is None else dtype)
    if dtype_name(made) not in _DTYPES:
        raise InvalidRequest(f"dtype={dtype_name(made)}; allowed: {', '.join(_DTYPES)}")
    return points, 1.0 / (points * spacing), made


def all_frequencies(device: Device, n: Any, d: Any, dtype: Any) -> GpuRef:
    """Return the frequencies of ``fft``: from 0 on, then the negative ones."""
    points, step, made = _checked(n, d, dtype)
    elementwise = owner_of(device).elementwise
    places = elementwise.sequence(0, 1, points, "int64")
    out = device.empty((points,), made)
    first = (points + 1) // 2  # the first of the negative frequencies
    elementwise.run("where(i < first, i, i - n) * step", out=out, i=places, first=first, n=points, step=step)
    return out


def half_frequencies(device: Device, n: Any, d: Any, dtype: Any) -> GpuRef:
    """Return the frequencies of ``rfft``: from 0 on."""
    points, step, made = _checked(n, d, dtype)
    found: GpuRef = owner_of(device).elementwise.sequence(0.0, step, points // 2 + 1, dtype_name(made))
    return found
