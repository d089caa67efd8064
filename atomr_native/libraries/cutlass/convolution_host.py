"""Convolutions on the host device: a product for each position in the filter, then the tree over all of D."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from ...builders.context import Built, HostContext
from ...plans.spec import PlanSpec
from .attributes import ConvolutionAttributes
from .host import evaluation, product_of

__all__ = ["build_convolution"]

Array = np.ndarray[Any, Any]


#: An index of NumPy's.
_Index: TypeAlias = tuple[Any, ...]
_ALL: Final = slice(None)


def _positions(how: ConvolutionAttributes) -> Iterator[tuple[_Index, _Index, _Index]]:
    """Yield the indices of each position in filters, and of the pixels of x and those of y that it connects."""
    at, deep = how.numbers, how.spatial
    axes = ("depth", "height", "width")[3 - deep :]
    for place in product(*(range(at[f"filter_{axis}"]) for axis in axes)):
        images, results = [], []
        for axis, tap in zip(axes, place, strict=True):
            step, shift = at[f"stride_{axis}"], tap * at[f"dilation_{axis}"] - at[f"pad_{axis}"]
            first = max(0, -(shift // step))  # the first pixel of y whose pixel of x exists
            last = min(at[f"out_{axis}"], (at[axis] - 1 - shift) // step + 1)
            last = max(first, last)
            results.append(slice(first, last))
            begin = first * step + shift
            images.append(slice(begin, begin + (last - first - 1) * step + 1 if last > first else begin, step))
        yield (_ALL, *place), (_ALL, *images), (_ALL, *results)


def build_convolution(spec: PlanSpec[ConvolutionAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``cutlass.convolution``.

    Raises
    ------
    InvalidRequest
        If it comes without its Python functions.
    """
    how = spec.attributes
    kind = {"int32": np.int32, "float64": np.float64}.get(how.mode, np.float32)
    positions = list(_positions(how))

    def forward(at: dict[str, Array]) -> Array:
        x, w, y = at["x"], at["w"], np.zeros(at["out"].shape, kind)
        for place, images, results in positions:
            part = x[images]
            made = product_of(part.reshape(-1, part.shape[-1]), w[place].T, how.mode)
            y[results] += made.reshape(*part.shape[:-1], made.shape[-1])
        return y

    def by_data(at: dict[str, Array]) -> Array:
        dy, w, dx = at["dy"], at["w"], np.zeros(at["out"].shape, kind)
        for place, images, results in positions:
            part = dy[results]
            made = product_of(part.reshape(-1, part.shape[-1]), w[place], how.mode)
            dx[images] += made.reshape(*part.shape[:-1], made.shape[-1])
        return dx

    def by_filter(at: dict[str, Array]) -> Array:
        dy, x, dw = at["dy"], at["x"], np.zeros(at["out"].shape, kind)
        for place, images, results in positions:
            part, other = dy[results], x[images]
            dw[place] = product_of(part.reshape(-1, part.shape[-1]).T, other.reshape(-1, other.shape[-1]), how.mode)
        return dw

    return evaluation(spec, {"forward": forward, "data_gradient": by_data}.get(how.operation, by_filter))
