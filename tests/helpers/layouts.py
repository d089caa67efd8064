"""Arrays and views for property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from atomr_native.dtypes import DTYPES

NAMES = tuple(DTYPES)


def filled(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of random bits that are numbers: no NaN, whose bits a conversion may change."""
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape)).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(random.integers(info.min, info.max, shape, dtype, endpoint=True))
    values = random.integers(-8, 8, shape) / 4
    if dtype.kind == "c":
        return np.asarray(values + 1j * random.integers(-8, 8, shape)).astype(dtype)
    return np.asarray(values).astype(dtype)


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
dtypes = st.sampled_from(NAMES).map(DTYPES.__getitem__)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...], *, negative: bool = True) -> tuple[Any, ...]:
    """A basic index of a shape: integers, slices, one ellipsis, new axes."""
    key: list[Any] = []
    dots = draw(st.integers(-1, len(shape)))
    for axis, extent in enumerate(shape):
        if axis == dots:
            key.append(...)
            if draw(st.booleans()):
                break
        kind = draw(st.sampled_from(["slice", "integer", "new", "all"]))
        if kind == "new":
            key.append(None)
        if kind == "integer" and extent:
            key.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "slice":
            end = st.none() | st.integers(-extent - 2, extent + 2)
            steps = [1, 2, 3, -1, -2] if negative else [1, 2, 3]
            key.append(slice(draw(end), draw(end), draw(st.sampled_from([None, *steps]))))
        else:
            key.append(slice(None))
    return tuple(key)
