"""Operands of requests: checks that every operation makes of its arrays.

Requests look only at ``shape``, ``dtype`` and ``strides``, so NumPy arrays can replace device memory when a request is
checked without a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from ..dtypes import as_dtype, dtype_name
from ..errors import InvalidRequest

__all__ = [
    "ArrayLayout",
    "Fresh",
    "are_interleaved",
    "broadcast_shapes",
    "check_disjoint",
    "check_handle",
    "check_input",
    "check_output",
    "check_size",
    "contiguous_strides",
    "is_contiguous",
    "memory_span",
    "overlaps",
    "same_view",
]

#: The largest array, in bytes: the range of a signed 64-bit offset.
_MAX_BYTES = 2**63 - 1


class ArrayLayout(Protocol):
    """The attributes that a request reads from an operand; a `GpuRef` and a NumPy array both have them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, for each axis."""


class Fresh(NamedTuple):
    """Shape and dtype of an output that is to be allocated."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-contiguous array, as in NumPy."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(array: ArrayLayout) -> bool:
    """Return whether elements are contiguous in C order; axes of one element may have any stride."""
    steps = contiguous_strides(tuple(array.shape), as_dtype(array.dtype).itemsize)
    return 0 in array.shape or all(
        extent == 1 or stride == step for extent, stride, step in zip(array.shape, array.strides, steps, strict=True)
    )


def check_size(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `InvalidRequest` if an array of this shape cannot exist."""
    if math.prod(shape) * dtype.itemsize > _MAX_BYTES:
        raise InvalidRequest(
            f"{name} of shape {shape} and dtype {dtype_name(dtype)} needs {math.prod(shape) * dtype.itemsize} bytes; "
            f"the largest array has {_MAX_BYTES}"
        )


def check_input(name: str, operand: object, *, backwards: bool = False) -> ArrayLayout:
    """Return `operand` as an array layout that an operation can read; one with negative strides only if `backwards`.

    Raises
    ------
    InvalidRequest
        If it is not an array, its dtype is unknown, or a stride is negative or not a multiple of the element size.
    """
    shape = getattr(operand, "shape", None)
    strides = getattr(operand, "strides", None)
    if isinstance(operand, np.generic):  # has all of these attributes, but is a host scalar
        shape = None
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or not hasattr(operand, "dtype"):
        raise InvalidRequest(
            f"{name} is a {type(operand).__name__}; it must be a GpuRef (Device.put makes one from a NumPy array)"
        )
    array = cast("ArrayLayout", operand)
    itemsize = as_dtype(array.dtype).itemsize
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if extent < 2:
            continue
        if stride < 0 and not backwards:
            raise InvalidRequest(
                f"{name} has the negative stride {stride} at axis {axis}; strides must be 0 or more: "
                f"device.copy(ref) makes an array that is read forwards"
            )
        if stride % itemsize:
            raise InvalidRequest(
                f"{name} has stride {stride} at axis {axis}, which is not a multiple of its element size {itemsize}"
            )
    return array


def check_handle(name: str, operand: object) -> None:
    """Raise `InvalidRequest` if an operand of a message is not a handle of device memory (None passes)."""
    if operand is not None and (not hasattr(operand, "layout") or isinstance(operand, type)):
        raise InvalidRequest(
            f"{name} is a {type(operand).__name__}; a message takes GpuRefs (Device.put makes one from a NumPy array)"
        )


def check_output(name: str, operand: object) -> ArrayLayout:
    """Return `operand` as a layout that an operation can write, in which no two elements share a byte.

    Raises
    ------
    InvalidRequest
        As `check_input`, and for a layout in which elements may overlap.
    """
    array = check_input(name, operand)
    if 0 in array.shape:
        return array
    reach = as_dtype(array.dtype).itemsize
    for stride, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent < 2:
            continue
        if stride < reach:
            raise InvalidRequest(
                f"{name} of shape {array.shape} and strides {array.strides} overlaps itself; "
                f"an output needs distinct memory for each element"
            )
        reach = stride * (extent - 1) + reach
    return array


def memory_span(operand: object) -> tuple[Hashable, int, int]:
    """Return (allocation, first byte, one past the last byte) of an operand's memory.

    Operands without an address (bare layouts) count as separate allocations.
    """
    own: Callable[[], tuple[Hashable, int, int]] | None = getattr(operand, "memory_span", None)
    if own is not None:
        return own()
    if isinstance(operand, np.ndarray):
        first, end = np.lib.array_utils.byte_bounds(operand)
        return "host", first, first if operand.size == 0 else end
    return id(operand), 0, 1


def same_view(x: Any, y: Any) -> bool:
    """Return whether two operands have the same elements in the same order."""
    return x is y or (
        x.shape == y.shape and x.strides == y.strides and x.dtype == y.dtype and memory_span(x) == memory_span(y)
    )


def _reach_in(operand: Any, period: int) -> int | None:
    """Return how many bytes of each period a view touches, counted from its first element; None if that differs."""
    reach: int = as_dtype(operand.dtype).itemsize
    for n, step in zip(operand.shape, operand.strides, strict=True):
        if n < 2 or step == 0 or (step >= period and step % period == 0):
            continue
        if step < 0 or step >= period:
            return None
        reach += (n - 1) * step
    return reach if reach <= period else None


def are_interleaved(x: Any, first: int, y: Any, start: int) -> bool:
    """Return whether views lie side by side in each period of their strides, as the parts of one packed array do.

    Such views share no element, though one begins before the other ends: ``qkv[:, :, 0]`` and ``qkv[:, :, 1]``.  For
    others that share none it may return False.  The native sender says the same (``sender_calls.pxi``).

    Parameters
    ----------
    x, y : array
    first, start : int
        Bytes at which they begin, in one allocation.
    """
    for operand in (x, y):
        for n, period in zip(getattr(operand, "shape", ()), getattr(operand, "strides", ()), strict=True):
            if n < 2 or period <= 0:
                continue
            reach, rest = _reach_in(x, period), _reach_in(y, period)
            if reach is None or rest is None:
                continue
            between = (start - first) % period
            if between >= reach and between + rest <= period:
                return True
    return False


def check_disjoint(
    outputs: Iterable[tuple[str, object]], inputs: Iterable[tuple[str, object]], reason: str = ""
) -> None:
    """Raise `InvalidRequest` if an output shares memory with an input or with another output.

    Spans are compared, and views in one frame: see `are_interleaved`.
    """
    seen = [(name, operand, memory_span(operand)) for name, operand in inputs]
    for name, operand in outputs:
        where, first, end = memory_span(operand)
        for other, rival, (place, start, stop) in seen:
            if place == where and first < stop and start < end and not are_interleaved(operand, first, rival, start):
                for handle in (operand, rival):
                    _refuse_gone(handle)
                raise InvalidRequest(
                    f"{name} overlaps {other}: bytes {first} to {end} and {start} to {stop} of one allocation; "
                    f"an output needs separate memory{reason}"
                )
        seen.append((name, operand, (where, first, end)))


def _refuse_gone(operand: Any) -> None:
    """Raise `GpuRefStale` for a handle whose memory is gone."""
    if hasattr(operand, "allocation"):
        operand.allocation.refuse_gone()


def overlaps(operands: Sequence[Any]) -> tuple[tuple[int, int, bool], ...]:
    """Return the pairs of operands that share memory, as (i, j, whether they are the same view); usually none.

    Validation needs nothing else about the addresses of operands.
    """
    try:
        if len({operand.allocation.space for operand in operands}) == len(operands):
            return ()
    except AttributeError:  # substitutes for handles
        pass
    spans = [memory_span(operand) for operand in operands]
    return tuple(
        (i, j, same_view(operands[i], operands[j]))
        for j, (place, start, stop) in enumerate(spans)
        for i, (where, first, end) in enumerate(spans[:j])
        if place == where
        and first < stop
        and start < end
        and not are_interleaved(operands[i], first, operands[j], start)
    )


def broadcast_shapes(named: Iterable[tuple[str, tuple[int, ...]]], what: str) -> tuple[int, ...]:
    """Return the common shape by NumPy's broadcasting rules, or raise `InvalidRequest` with all shapes."""
    pairs = list(named)
    result: list[int] = []
    for axis in range(1, max((len(shape) for _, shape in pairs), default=0) + 1):
        extents = {shape[-axis] for _, shape in pairs if len(shape) >= axis} - {1}
        if len(extents) > 1:
            listed = ", ".join(f"{name}{shape}" for name, shape in pairs)
            raise InvalidRequest(
                f"{what} do not broadcast: {listed}; from the right, extents must be equal or 1 (or missing)"
            )
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))
