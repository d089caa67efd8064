"""The checks that `instrument` inserts into kernels, typed by Numba during compilation.

Whether ``x`` in ``x[i]`` is an array, and ``i`` an integer or a tuple of integers, is known only after type inference.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from . import instrument
from .api import Checked, array_type, cuda, is_device_function, overload, random, types

__all__ = ["check", "note", "with_checks"]

_MOST: Final = 2**63 - 1  # more axes than any array has


def check(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    """Return an index unchanged; if it is out of bounds of an array, report the first such index and end the thread.

    Parameters
    ----------
    array
        The indexed object.
    index
        An integer for one axis, a tuple of integers and slices for successive axes; other indices are not checked.
    axis : int
        Axis of `array`, counted from the last if negative.
    site : int
        Number of the place in the source.
    report : array of int64
        See `instrument.REPORT_WORDS`.
    """
    return _typed(array, index, axis, site, report)(array, index, axis, site, report)


def note(site: Any, index: Any, axis: Any, extent: Any, report: Any) -> None:
    """Write the first bad index, or exception, of a launch to its report; see `instrument.REPORT_WORDS`."""
    if cuda.atomic.cas(report, 0, 0, 1) == 0:
        report[1] = site
        report[2] = index
        report[3] = axis
        report[4] = extent
        report[5] = cuda.blockIdx.x
        report[6] = cuda.blockIdx.y
        report[7] = cuda.blockIdx.z
        report[8] = cuda.threadIdx.x
        report[9] = cuda.threadIdx.y
        report[10] = cuda.threadIdx.z


def with_checks(
    function: python_types.FunctionType, types_: Sequence[Any]
) -> tuple[python_types.FunctionType, tuple[str, ...]]:
    """Return a kernel with checked indices for these argument types; see `instrument.instrument`."""

    def device_function(old: Any, function: python_types.FunctionType) -> Any:
        return Checked(old, function, array_type(np.dtype(np.int64), 1, "C"))

    axes = [t.ndim if isinstance(t, types.Array) else None for t in types_]
    return instrument.instrument(
        function, axes, instrument.Names(cuda, random, is_device_function, device_function, check, note)
    )


def _noted(site: Any, index: Any, axis: Any, extent: Any, report: Any) -> Any:  # noqa: ARG001 - named as in `note`
    """Return the function that records them, for any types."""
    return note


def _typed(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:  # noqa: ARG001 - named as in `check`
    """Return the function that checks an index of these types."""
    if isinstance(array, types.Array) and isinstance(index, types.Integer):
        return _signed if index.signed else _unsigned
    if isinstance(array, types.Array) and isinstance(index, types.Tuple | types.UniTuple) and _is_by_axes(index):
        return _each
    return _unchecked


def _is_by_axes(index: Any) -> bool:
    """Whether each member of a tuple indexes one axis, without ellipsis and new axes."""
    return len(index) > 0 and all(isinstance(member, types.Integer | types.SliceType) for member in index)


def _signed(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    extent = array.shape[axis]
    if index < -extent or index >= extent:
        note(site, index, axis if axis >= 0 else axis + array.ndim, extent, report)
        raise IndexError
    return index


def _unsigned(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    check(array, types.int64(index) if index <= _MOST else types.int64(_MOST), axis, site, report)
    return index


def _each(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    check(array, index[0], axis, site, report)
    check(array, index[1:], axis + 1, site, report)
    return index


def _unchecked(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:  # noqa: ARG001 - see above
    return index


overload(check)(_typed)
overload(note)(_noted)
