"""Fourier transforms on the host device, by SciPy's pocketfft."""

from __future__ import annotations

import math
import os
from typing import Any, Final

import numpy as np

from ...builders.context import Built, HostContext
from ...dtypes import DTYPES, as_dtype
from ...plans.spec import PlanSpec
from .attributes import FftAttributes
from .spec import COMPUTED, FORWARD

__all__ = ["build_transform"]

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
        np.copyto(result, made)

    return Built(run)
