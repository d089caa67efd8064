"""Fourier transforms on the host device, by SciPy's pocketfft."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES, as_dtype
from ...plans.spec import PlanSpec
from .attributes import FftAttributes, ShiftAttributes
from .spec import COMPUTED, FORWARD

__all__ = ["build_shift", "build_transform"]

#: Points below which one thread does a transform: several take longer to meet than to compute.
_SMALL: Final = 1 << 16

Array = np.ndarray[Any, Any]


def build_transform(spec: PlanSpec[FftAttributes], _context: HostContext) -> Built:
    """Build ``fft.transform``: operands ``x, out``.  Large transforms use all processors."""
    from scipy import fft

    how = spec.attributes
    x, out = spec.operands
    if math.prod(out.shape) == 0:
        return Built("noop")
    # For one axis SciPy's own function has less to do before it computes.
    one = len(how.axes) == 1
    compute = getattr(fft, how.transform if one else f"{how.transform}n")
    lengths, axes = (how.lengths[0], how.axes[0]) if one else (how.lengths, how.axes)
    # SciPy knows no way not to scale: of each direction it leaves one norm unscaled.
    norm = how.norm if how.norm != "none" else "backward" if how.transform in FORWARD else "forward"
    points = math.prod(how.lengths) * (math.prod(out.shape) // math.prod(out.shape[axis] for axis in how.axes))
    workers = 1 if points < _SMALL else len(os.sched_getaffinity(0))
    real = COMPUTED[x.dtype]
    wanted = as_dtype(x.dtype) if x.dtype.startswith("complex") else DTYPES[real]

    def run(arrays: tuple[Array, ...], _scalars: tuple[Any, ...]) -> None:
        given, result = arrays
        values = given.astype(wanted, copy=False)
        made = compute(values, lengths, axes, norm, overwrite_x=how.overwrite, workers=workers)
        result[...] = made

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
