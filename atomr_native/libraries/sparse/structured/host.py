"""Matrices with two numbers in each four on the host device, in NumPy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....builders.context import Built, HostContext
from ....dtypes import DTYPES
from ....plans.spec import PlanSpec
from ..attributes import PruneAttributes, StructuredAttributes
from .patterns import GROUP, KEPT, TILES

__all__ = ["build_broken", "build_compress", "build_linear", "build_prune"]

Array = np.ndarray[Any, Any]
_ROWS: Final = 256


def _magnitude(x: Array) -> Array:
    wide = np.abs(x.astype(np.float32))
    return np.where(np.isnan(wide), np.float32(np.inf), wide)


def _strips(x: Array) -> Array:
    """Return the places of each four that are kept, as a mask."""
    size = _magnitude(x).reshape(*x.shape[:-1], -1, GROUP)
    rank = np.zeros(size.shape, np.int8)
    for j in range(GROUP):
        for i in range(GROUP):
            if i != j:
                rank[..., j] += (size[..., i] > size[..., j]) | ((size[..., i] == size[..., j]) & (i < j))
    return (rank < KEPT).reshape(x.shape)


def _tiles(x: Array) -> Array:
    rows, columns = x.shape
    tiles = _magnitude(x).reshape(rows // GROUP, GROUP, columns // GROUP, GROUP).swapaxes(1, 2)
    flat = tiles.reshape(-1, GROUP * GROUP)
    best, chosen = np.full(len(flat), -1, np.float32), np.zeros(len(flat), np.intp)
    for number, places in enumerate(TILES):
        total = np.zeros(len(flat), np.float32)
        for place in places:
            total = total + flat[:, place]
        better = total > best
        best, chosen = np.where(better, total, best), np.where(better, number, chosen)
    masks = np.zeros((len(TILES), GROUP * GROUP), bool)
    for number, places in enumerate(TILES):
        masks[number, list(places)] = True
    kept = masks[chosen].reshape(rows // GROUP, columns // GROUP, GROUP, GROUP)
    return kept.swapaxes(1, 2).reshape(rows, columns)


def build_prune(spec: PlanSpec[PruneAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.prune_24``."""
    masked = _tiles if spec.attributes.method == "tile" else _strips

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        if x.size:
            out[...] = np.where(masked(np.ascontiguousarray(x)), x, np.zeros((), x.dtype))

    return Built(run)


def build_broken(_spec: PlanSpec[PruneAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.broken_24``."""

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        out[...] = (x != np.zeros((), x.dtype)).reshape(*out.shape, GROUP).sum(axis=-1) > KEPT

    return Built(run)


def _parts(memory: Array, shape: tuple[int, int], dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return views of the kept numbers, and of the codes that say which of each four they are."""
    rows, columns = shape
    size = rows * columns // 2 * dtype.itemsize
    values = memory[:size].view(dtype).reshape(rows, columns // GROUP, KEPT)
    return values, memory[size : size + rows * columns // GROUP].reshape(rows, columns // GROUP)


def build_compress(_spec: PlanSpec[Any], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.compress_24``."""

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        values, codes = _parts(out, x.shape, x.dtype)
        groups = np.ascontiguousarray(x).reshape(*codes.shape, GROUP)
        stored = groups != np.zeros((), x.dtype)
        # The first two that differ from 0; where there are fewer, zeros from the end.
        order = np.where(stored, np.arange(GROUP), 2 * GROUP - np.arange(GROUP))
        kept = np.sort(np.argsort(order, axis=-1, kind="stable")[..., :KEPT], axis=-1)
        values[...] = np.take_along_axis(groups, kept, axis=-1)
        codes[...] = kept[..., 0] | kept[..., 1] << 2

    return Built(run)


def _expanded(memory: Array, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    values, codes = _parts(memory, shape, dtype)
    made = np.zeros((*codes.shape, GROUP), dtype)
    kept = np.stack([codes & 3, codes >> 2 & 3], axis=-1).astype(np.intp)
    np.put_along_axis(made, kept, values, axis=-1)
    expanded: Array = made.reshape(shape)
    return expanded


def _gelu(x: Array) -> Array:
    inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
    made: Array = np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))
    return made


def _stored(x: Array, dtype: np.dtype[Any]) -> Array:
    made: Array = x
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        wide = np.nan_to_num(np.rint(x.astype(np.float64)), nan=0.0, posinf=limits.max, neginf=limits.min)
        made = np.clip(wide, limits.min, limits.max)
    return made.astype(dtype)


def build_linear(spec: PlanSpec[StructuredAttributes], _context: HostContext) -> Built:
    """Return ``run(arrays, scalars)`` for ``sparse.linear_24``."""
    how = spec.attributes
    names = [operand.name for operand in spec.operands]
    dtype = DTYPES[how.dtype]

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True))
        x, out = given["x"], given["out"]
        a = _expanded(given["compressed"], how.shape, dtype)
        wide = np.int32 if dtype.kind == "i" else np.float32
        factor: Any = np.float32(scalars[0])
        for name in ("row_alpha", "scale_a", "scale_x"):
            if name in given:
                factor = factor * given[name]
        turned = a.astype(wide).T
        for first in range(0, len(x), _ROWS):  # at once it would take several times the memory
            part = slice(first, first + _ROWS)
            made: Array = factor * (x[part].astype(wide) @ turned).astype(np.float32)
            if how.adds:
                beta = np.float32(scalars[1]) * given.get("row_beta", np.float32(1))
                made = made + beta * out[part].astype(np.float32)
            if "bias" in given:
                made = made + given["bias"].astype(np.float32)
            if how.activation != "none":
                made = _gelu(made) if how.activation == "gelu" else np.where(made > 0, made, np.float32(0))
            out[part] = _stored(made, out.dtype)

    return Built(run)
