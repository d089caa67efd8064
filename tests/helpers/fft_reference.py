"""Fourier transforms in extended precision, and how far a result may be from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.fft

__all__ = ["FORWARD", "assert_close", "random_array", "reference", "relative_error"]

FORWARD = ("fft", "rfft", "hfft")
#: Of ``c * eps * log2(n)``, the most that the relative error of a transform may be in the Euclidean norm.
_C = 4.0

Array = np.ndarray[Any, Any]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return normal numbers, or small integers."""
    if np.dtype(dtype).kind in "biu":
        return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    made = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def reference(transform: str, x: Array, s: Any = None, axes: Any = None, norm: str | None = None) -> Array:
    """Return a transform in extended precision; in double precision if it is long."""
    norm = norm or "backward"
    if norm == "none":
        norm = "backward" if transform in FORWARD else "forward"
    kinds = (np.complex128, np.float64) if x.size > 1 << 17 else (np.clongdouble, np.longdouble)
    wide = x.astype(kinds[not np.iscomplexobj(x)])
    s = (s,) if isinstance(s, int) else s
    axes = (axes,) if isinstance(axes, int) else axes
    made: Array = getattr(scipy.fft, f"{transform}n")(wide, s, axes, norm)
    return made


def relative_error(got: Array, want: Array) -> float:
    """Return the error in the Euclidean norm, as a part of the result's."""
    size = float(np.linalg.norm(want.astype(np.clongdouble).ravel()))
    return float(np.linalg.norm((got.astype(np.clongdouble) - want).ravel())) / (size or 1.0)


def assert_close(got: Array, want: Array, points: int) -> None:
    """Hold a result against the reference, within the bound for a transform of so many points."""
    assert got.shape == want.shape
    bound = _C * float(np.finfo(got.dtype).eps) * max(1.0, math.log2(points))
    assert relative_error(got, want) <= bound
