"""What `_kernel_debug` puts into kernels, as Numba compiles it: the check of an index, by the types that it meets.

Whether ``x`` in ``x[i]`` is an array, and ``i`` an integer or a tuple of them, is known when types have been inferred,
and not from the source.
"""

from __future__ import annotations

from typing import Any, Final

from ._numba import cuda, overload, types

__all__ = ["check", "note"]

_MOST: Final = 2**63 - 1  # more than any array has


def check(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:
    """Return an index as it is; of an array, end the thread if the index is out of bounds, and report the first one.

    Parameters
    ----------
    array
        What is indexed.
    index
        An integer for one axis, a tuple of integers and slices for one after the other, or anything else, which is not
        checked.
    axis : int
        Of `array`; counted from the last if it is negative.
    site : int
        Number of the place in the source.
    report : array of int64
        See `_kernel_debug.REPORT_WORDS`.
    """
    return _typed(array, index, axis, site, report)(array, index, axis, site, report)


def note(site: Any, index: Any, axis: Any, extent: Any, report: Any) -> None:
    """Write the first bad index, or exception, of a launch to its report; see `_kernel_debug.REPORT_WORDS`."""
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


def _noted(site: Any, index: Any, axis: Any, extent: Any, report: Any) -> Any:  # noqa: ARG001 - named as in `note`
    """Return what takes them down, whatever their types."""
    return note


def _typed(array: Any, index: Any, axis: Any, site: Any, report: Any) -> Any:  # noqa: ARG001 - named as in `check`
    """Return what checks an index of these types."""
    if isinstance(array, types.Array) and isinstance(index, types.Integer):
        return _signed if index.signed else _unsigned
    if isinstance(array, types.Array) and isinstance(index, types.Tuple | types.UniTuple) and _is_by_axes(index):
        return _each
    return _unchecked


def _is_by_axes(index: Any) -> bool:
    """Whether each member of a tuple is for one axis: no ellipsis, and no new axes."""
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
