"""Rotary embeddings and dropout on the host device, by NumPy: each step rounded as the kernels do it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...._support.philox import philox
from ....builders.context import Built, HostContext
from ....plans.spec import PlanSpec
from ..attributes import RopeAttributes, ShippedAttributes
from .activations import computed, real_of

__all__ = ["build_dropout", "build_rope"]

Array = np.ndarray[Any, Any]
Run = Callable[[tuple[Array, ...], tuple[Any, ...]], None]

_BLOCK: Final = 1 << 16  # elements whose temporaries stay in the cache
_WORD: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def build_rope(spec: PlanSpec[RopeAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.rope``: operands x, positions, out; scalar theta."""

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        x, positions, out = arrays
        pairs = x.shape[-1] // 2
        if x.size == 0:
            return
        steps = np.array([math.pow(scalars[0], -float(i) / float(pairs)) for i in range(pairs)], np.float32)
        first, second = slice(0, pairs), slice(pairs, None)
        if spec.attributes.interleaved:
            first, second = slice(0, None, 2), slice(1, None, 2)
        tokens = positions.size
        folded = x.reshape(-1, tokens, *x.shape[-2:])
        results = out.reshape(folded.shape)
        stride = max(1, _BLOCK // max(1, x.shape[-1] * x.shape[-2]))
        flat = positions.reshape(-1)
        for start in range(0, tokens, stride):
            index = slice(start, start + stride)
            angles = (flat[index].astype(np.float32)[:, None] * steps).astype(np.float64)
            cosine = np.cos(angles).astype(np.float32)[:, None, :]
            sine = np.sin(angles).astype(np.float32)[:, None, :]
            sine = -sine if spec.attributes.inverse else sine
            for source, result in zip(folded[:, index], results[:, index], strict=True):
                a, b = computed(source[..., first]), computed(source[..., second])
                turned = a * cosine - b * sine, a * sine + b * cosine
                result[..., first], result[..., second] = turned

    return Built(run)


def _halves(numbers: Array, which: int, seed: int) -> Array:
    """Return eight halves of words for each counter, in order, as uint64; of the kind `which`."""
    zeros = np.zeros_like(numbers)
    counter = numbers & _WORD, numbers >> _HALF, zeros, zeros + np.uint64(which)
    words = np.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)), axis=-1)
    return np.stack((words & np.uint64(0xFFFF), words >> np.uint64(16)), axis=-1).reshape(-1, 8)


def _kept(at: Array, threshold: int, seed: int, offset: int) -> Array:
    """Return whether elements stay, by their numbers, which rise."""
    eight = np.uint64(8)
    first = at[0] // eight
    numbers = np.arange(first, at[-1] // eight + np.uint64(1), dtype=np.uint64) + np.uint64(offset)
    upper = _halves(numbers, 0, seed).reshape(-1)[at - first * eight]
    limit, least = np.uint64(threshold >> 16), np.uint64(threshold & 0xFFFF)
    kept = upper >= limit
    doubtful = at[upper == limit]
    lower = _halves(doubtful // eight + np.uint64(offset), 1, seed)
    kept[upper == limit] = lower[np.arange(doubtful.size), doubtful % eight] >= least
    return np.asarray(kept)


def build_dropout(_spec: PlanSpec[ShippedAttributes], _context: HostContext) -> Built:
    """Return the run of ``fused.dropout``: operands x, out; scalars threshold, scale, seed, offset."""

    @np.errstate(all="ignore")
    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        threshold, scale, seed, offset = scalars
        if x.ndim == 0:
            x, out = x.reshape(1), out.reshape(1)
        if x.size == 0:
            return
        rows, results = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
        columns = x.shape[-1]
        tall, wide = max(1, _BLOCK // columns), min(columns, _BLOCK)
        for top in range(0, rows.shape[0], tall):
            for left in range(0, columns, wide):
                part = rows[top : top + tall, left : left + wide]
                starts = np.arange(top, top + part.shape[0], dtype=np.uint64)[:, None] * np.uint64(columns)
                at = (starts + np.arange(left, left + part.shape[1], dtype=np.uint64)).reshape(-1)
                kept = _kept(at, threshold, seed, offset).reshape(part.shape)
                real = real_of(x.dtype)
                results[top : top + tall, left : left + wide] = np.where(kept, computed(part) * real(scale), real(0))

    return Built(run)
