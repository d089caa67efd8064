"""Fourier transforms in extended precision, and how far a result may be from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.fft

__all__ = ["FORWARD", "assert_close", "exact", "random_array", "reference", "relative_error"]

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


def exact(transform: str, x: Array, n: int) -> Array:
    """Return an unscaled forward, or scaled inverse, transform of a few elements by its sum, in 40 digits."""
    from mpmath import mp, mpc, mpf

    sign, real = (-1 if transform in FORWARD else 1), transform == "irfft"
    with mp.workdps(40):
        given = [mpc(mpf(float(z.real)), mpf(float(z.imag))) for z in x.astype(np.complex128)]
        if real:  # the other half, and no imaginary parts where a real result has none
            given[0] = mpc(given[0].real)
            if n % 2 == 0:
                given[n // 2] = mpc(given[n // 2].real)
            given = given[: n // 2 + 1] + [mp.conj(given[n - k]) for k in range(n // 2 + 1, n)]
        roots = [mp.expjpi(mpf(sign * 2 * k) / n) for k in range(n)]
        sums = [mp.fsum(z * roots[k * j % n] for j, z in enumerate(given)) for k in range(n)]
        made = np.array([complex(z / (n if sign > 0 else 1)) for z in sums])
    if transform == "rfft":
        return made[: n // 2 + 1]
    return made.real if real else made


def relative_error(got: Array, want: Array) -> float:
    """Return the error in the Euclidean norm, as a part of the result's."""
    size = float(np.linalg.norm(want.astype(np.clongdouble).ravel()))
    return float(np.linalg.norm((got.astype(np.clongdouble) - want).ravel())) / (size or 1.0)


def assert_close(got: Array, want: Array, points: int) -> None:
    """Hold a result against the reference, within the bound for a transform of so many points."""
    assert got.shape == want.shape
    bound = _C * float(np.finfo(got.dtype).eps) * max(1.0, math.log2(points))
    assert relative_error(got, want) <= bound
