"""Fourier transforms on the host device, by SciPy's pocketfft."""

from __future__ import annotations

import functools
import itertools
import math
import os
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES, as_dtype
from ...plans.spec import PlanSpec
from .attributes import CosineAttributes, FftAttributes, FramesAttributes, MappedAttributes, ShiftAttributes
from .frames import LEAST
from .functions import function_parts
from .spec import COMPUTED, FORWARD, TRANSFORMS

__all__ = ["build_cosine", "build_half", "build_istft", "build_mapped", "build_shift", "build_stft", "build_transform"]

#: Points below which one thread does a transform: several take longer to meet than to compute.
_SMALL: Final = 1 << 16

Array = np.ndarray[Any, Any]


def _transform(how: FftAttributes, dtype: str, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return the transform of an array of a dtype to one of a shape.  Large transforms use all processors."""
    from scipy import fft

    # For one axis SciPy's own function has less to do before it computes.
    one = len(how.axes) == 1
    compute = getattr(fft, how.transform if one else f"{how.transform}n")
    lengths, axes = (how.lengths[0], how.axes[0]) if one else (how.lengths, how.axes)
    # SciPy knows no way not to scale: of each direction it leaves one norm unscaled.
    norm = how.norm if how.norm != "none" else "backward" if how.transform in FORWARD else "forward"
    points = math.prod(how.lengths) * (math.prod(shape) // math.prod(shape[axis] for axis in how.axes))
    workers = 1 if points < _SMALL else len(os.sched_getaffinity(0))
    wanted = as_dtype(dtype) if dtype.startswith("complex") else DTYPES[COMPUTED[dtype]]

    def run(given: Array) -> Array:
        values = given.astype(wanted, copy=False)
        made: Array = compute(values, lengths, axes, norm, overwrite_x=how.overwrite, workers=workers)
        return made

    return run


def build_transform(spec: PlanSpec[FftAttributes], _context: HostContext) -> Built:
    """Build ``fft.transform``: operands ``x, out``."""
    x, out = spec.operands
    if math.prod(out.shape) == 0:
        return Built("noop")
    transform = _transform(spec.attributes, x.dtype, out.shape)

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        arrays[1][...] = transform(arrays[0])

    return Built(run)


def build_half(spec: PlanSpec[FftAttributes], _context: HostContext) -> Built:
    """Build ``fft.half``, in float32: operands ``x, out``."""
    out = spec.operands[1]
    if math.prod(out.shape) == 0:
        return Built("noop")
    kind = TRANSFORMS[spec.attributes.transform]
    shape = out.shape if kind == "c2r" else out.shape[:-1]
    transform = _transform(spec.attributes, "float32" if kind == "r2c" else "complex64", shape)

    @np.errstate(over="ignore")
    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        value: Array = arrays[0].astype(np.float32, order="C")
        if kind != "r2c":
            value = value.view(np.complex64)[..., 0]
        made = transform(value)
        if kind != "c2r":
            made = np.ascontiguousarray(made).view(np.float32).reshape(out.shape)
        arrays[1][...] = made

    return Built(run)


def build_mapped(spec: PlanSpec[MappedAttributes], _context: HostContext) -> Built:
    """Build ``fft.mapped``: operands x, those of the functions, and out.  Waits for Numba's compiler.

    Raises
    ------
    LibraryError
        If a function does not compile.
    """
    x, out = spec.operands[0], spec.operands[-1]
    if math.prod(out.shape) == 0:
        return Built("noop")
    how = spec.attributes
    parts = {which: dict(options) for which, options in function_parts(spec, {w: f.data for w, f in how.functions})}
    functions = {which: _applied(part, getattr(how, which)) for which, part in parts.items()}
    made_of = parts["load"]["kinds"][1] if "load" in parts else x.dtype
    transform = _transform(how, made_of, out.shape)
    names = [operand.name for operand in spec.operands]

    def run(arrays: tuple[Array, ...], scalars: tuple[Any, ...]) -> None:
        given = dict(zip(names, arrays, strict=True)) | dict(zip(how.scalar_names, scalars, strict=True))
        value = arrays[0]
        if "load" in functions:
            value = functions["load"](value, given)
        value = transform(value)
        if "store" in functions:
            value = functions["store"](value, given)
        arrays[-1][...] = value

    return Built(run)


def _applied(part: dict[str, Any], names: tuple[str, ...]) -> Callable[[Array, dict[str, Any]], Array]:
    """Return a function of the user's on all elements of an array; values of its operands come by name."""
    first, result, *others = part["kinds"]
    real = "float64" if first in ("float64", "complex128") else "float32"
    numbers = [real if kind == "float64" else kind for kind in part["scalars"]]
    kinds = [(*others, *numbers)[place] for place in part["order"]]
    function = _compiled(part["function"], (first, "int64", *kinds), result)

    @np.errstate(all="ignore")
    def apply(values: Array, given: dict[str, Any]) -> Array:
        offsets = np.arange(values.size).reshape(values.shape)
        own = (np.asarray(given[name]).astype(kind) for name, kind in zip(names, kinds, strict=True))
        made: Array = function(values.astype(first, copy=False), offsets, *own)
        return made

    return apply


@functools.lru_cache(maxsize=256)
def _compiled(function: bytes, arguments: tuple[str, ...], result: str) -> Callable[..., Any]:
    from ...compile.numba import compiler

    python = pickle.loads(function)  # noqa: S301 - from the parent
    return compiler.on_processor(python, arguments, (result,))[0]


def build_cosine(spec: PlanSpec[CosineAttributes], _context: HostContext) -> Built:
    """Build ``fft.cosine``: operands ``x, out``.  Large transforms use all processors."""
    from scipy import fft

    how = spec.attributes
    x, out = spec.operands
    if math.prod(out.shape) == 0:
        return Built("noop")
    compute = getattr(fft, f"{how.transform}n")
    norm = how.norm if how.norm != "none" else "forward" if how.transform.startswith("i") else "backward"
    workers = 1 if math.prod(out.shape) < _SMALL else len(os.sched_getaffinity(0))
    wanted = DTYPES[COMPUTED[x.dtype]]

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        values = arrays[0].astype(wanted, copy=False)
        arrays[1][...] = compute(
            values, how.type, how.lengths, how.axes, norm, workers=workers, orthogonalize=how.orthogonalize
        )

    return Built(run)


def _window(how: FramesAttributes, arrays: tuple[Array, ...], real: str) -> Array | None:
    """Return the window of a whole frame, or None for ones."""
    if len(arrays) == 2 and how.width == how.n_fft:
        return None
    left = (how.n_fft - how.width) // 2
    made = np.zeros(how.n_fft, real)
    made[left : left + how.width] = arrays[1] if len(arrays) == 3 else 1
    return made


def build_stft(spec: PlanSpec[FramesAttributes], _context: HostContext) -> Built:
    """Build ``fft.stft``: operands x, window if there is one, and out."""
    from scipy import fft

    how, x, out = spec.attributes, spec.operands[0], spec.operands[-1]
    if math.prod(out.shape) == 0:
        return Built("noop")
    compute = fft.rfft if how.onesided else fft.fft
    real = COMPUTED[x.dtype]
    wanted = as_dtype(x.dtype) if x.dtype.startswith("complex") else DTYPES[real]
    pads = [(0, 0)] * (len(x.shape) - 1) + [(how.n_fft // 2,) * 2]
    workers = 1 if math.prod(out.shape) < _SMALL else len(os.sched_getaffinity(0))

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        values = arrays[0].astype(wanted, copy=False)
        if how.center:
            values = np.pad(values, pads, mode="reflect" if how.pad == "reflect" else "constant")
        frames = np.lib.stride_tricks.sliding_window_view(values, how.n_fft, -1)[..., :: how.hop, :]
        window = _window(how, arrays, real)
        frames = frames if window is None else frames * window
        arrays[-1][...] = np.swapaxes(compute(frames, axis=-1, norm=how.norm, workers=workers), -1, -2)

    return Built(run)


def build_istft(spec: PlanSpec[FramesAttributes], _context: HostContext) -> Built:
    """Build ``fft.istft``: operands x, window if there is one, and out."""
    from scipy import fft

    how, x, out = spec.attributes, spec.operands[0], spec.operands[-1]
    if math.prod(out.shape) == 0:
        return Built("noop")
    compute = fft.irfft if how.onesided else fft.ifft
    n, hop, real, frames = how.n_fft, how.hop, COMPUTED[x.dtype], x.shape[-1]
    first = n // 2 if how.center else 0
    workers = 1 if math.prod(x.shape) < _SMALL else len(os.sched_getaffinity(0))

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        window = _window(how, arrays, real)
        window = np.ones(n, real) if window is None else window
        made = compute(np.swapaxes(arrays[0], -1, -2), n, -1, how.norm, workers=workers) * window
        total = np.zeros((*made.shape[:-2], max(n + hop * (frames - 1), first + out.shape[-1])), made.dtype)
        weight = np.zeros(total.shape[-1], np.float64)
        for t in range(frames):
            total[..., t * hop : t * hop + n] += made[..., t, :]
            weight[t * hop : t * hop + n] += window.astype(np.float64) ** 2
        part = slice(first, first + out.shape[-1])
        reached = weight[part] > LEAST
        arrays[-1][...] = np.where(reached, total[..., part] / np.where(reached, weight[part], 1), 0)

    return Built(run)


def build_shift(spec: PlanSpec[ShiftAttributes], _context: HostContext) -> Built:
    """Build ``fft.shift``: operands ``x, out``."""
    shape, shifts = spec.operands[0].shape, spec.attributes.shifts
    # The parts of each axis: where they come from, and where they go.
    parts = [((slice(n - k), slice(k, n)), (slice(n - k, n), slice(k))) for n, k in zip(shape, shifts, strict=True)]
    moves = [tuple(zip(*chosen, strict=True)) for chosen in itertools.product(*parts)] if shape else [((), ())]

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        x, out = arrays
        for source, target in moves:
            out[target] = x[source]

    return Built(run)
