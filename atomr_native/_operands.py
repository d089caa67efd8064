"""Operands of requests: what is asked of every array, whatever the operation.

Requests look only at ``shape``, ``dtype`` and ``strides``, so NumPy arrays stand in for device memory
where a request is to be checked without a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from .dtypes import as_dtype, dtype_name
from .errors import InvalidRequest
from .plan_spec import OperandSpec

__all__ = [
    "ArrayLayout",
    "Fresh",
    "broadcast_shapes",
    "check_disjoint",
    "check_handle",
    "check_input",
    "check_output",
    "check_size",
    "contiguous_strides",
    "describe",
    "describe_output",
    "is_contiguous",
    "memory_span",
    "overlaps",
    "same_view",
]

#: The largest array, in bytes: what a signed 64-bit offset can reach.
_MAX_BYTES = 2**63 - 1


class ArrayLayout(Protocol):
    """What a request reads from an operand; a `GpuRef` and a NumPy array both have it."""

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
    """Shape and dtype of an output that the caller did not give."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-contiguous array, as NumPy has them."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_contiguous(array: ArrayLayout) -> bool:
    """Say whether elements lie together in C order; axes of one element have any stride."""
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


def check_input(name: str, operand: object) -> ArrayLayout:
    """Return `operand` as an array layout that an operation can read.

    Raises
    ------
    InvalidRequest
        If it is no array, its dtype is unknown, or a stride is negative or no multiple of the element size.
    """
    shape = getattr(operand, "shape", None)
    strides = getattr(operand, "strides", None)
    if isinstance(operand, np.generic):  # has all of these, and is a number of this process
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
        if stride < 0:
            raise InvalidRequest(
                f"{name} has the negative stride {stride} at axis {axis}; strides must be 0 or more: "
                f"copy it first, or flip it on the host"
            )
        if stride % itemsize:
            raise InvalidRequest(
                f"{name} has stride {stride} at axis {axis}, which is no multiple of its element size {itemsize}"
            )
    return array


def check_handle(name: str, operand: object) -> None:
    """Raise `InvalidRequest` if an operand of a message is no handle of device memory (None passes)."""
    if operand is not None and (not hasattr(operand, "layout") or isinstance(operand, type)):
        raise InvalidRequest(
            f"{name} is a {type(operand).__name__}; a message takes GpuRefs (Device.put makes one from a NumPy array)"
        )


def check_output(name: str, operand: object) -> ArrayLayout:
    """Return `operand` as an array layout that an operation can write: no two elements share a byte.

    Raises
    ------
    InvalidRequest
        For what `check_input` refuses, and for a layout in which elements may overlap.
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

    Operands that cannot say where they are (bare layouts) count as allocations of their own.
    """
    own: Callable[[], tuple[Hashable, int, int]] | None = getattr(operand, "memory_span", None)
    if own is not None:
        return own()
    if isinstance(operand, np.ndarray):
        first, end = np.lib.array_utils.byte_bounds(operand)
        return "host", first, first if operand.size == 0 else end
    return id(operand), 0, 1


def same_view(x: Any, y: Any) -> bool:
    """Say whether two operands are the same elements in the same order."""
    return x is y or (
        x.shape == y.shape and x.strides == y.strides and x.dtype == y.dtype and memory_span(x) == memory_span(y)
    )


def check_disjoint(
    outputs: Iterable[tuple[str, object]], inputs: Iterable[tuple[str, object]], reason: str = ""
) -> None:
    """Raise `InvalidRequest` if an output shares memory with an input or with another output.

    Spans are compared, not elements: interleaved views of one allocation count as overlapping.
    """
    seen = [(name, memory_span(operand)) for name, operand in inputs]
    for name, operand in outputs:
        where, first, end = memory_span(operand)
        for other, (place, start, stop) in seen:
            if place == where and first < stop and start < end:
                raise InvalidRequest(
                    f"{name} overlaps {other}: bytes {first} to {end} and {start} to {stop} of one allocation; "
                    f"an output needs memory of its own{reason}"
                )
        seen.append((name, (where, first, end)))


def overlaps(operands: Sequence[Any]) -> tuple[tuple[int, int, bool], ...]:
    """Return which operands share memory, as (i, j, whether they are the same view); usually nothing.

    With the layouts this is all that validation needs to know about where operands are.
    """
    try:
        if len({operand.allocation.space for operand in operands}) == len(operands):
            return ()
    except AttributeError:  # stand-ins for handles
        pass
    spans = [memory_span(operand) for operand in operands]
    return tuple(
        (i, j, same_view(operands[i], operands[j]))
        for j, (place, start, stop) in enumerate(spans)
        for i, (where, first, end) in enumerate(spans[:j])
        if place == where and first < stop and start < end
    )


def broadcast_shapes(named: Iterable[tuple[str, tuple[int, ...]]], what: str) -> tuple[int, ...]:
    """Return the common shape by NumPy's broadcasting rules, or raise `InvalidRequest` with all of them."""
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


def describe(name: str, operand: ArrayLayout, access: int) -> OperandSpec:
    """Return the plan operand with the layout of `operand`."""
    return OperandSpec(name, dtype_name(as_dtype(operand.dtype)), tuple(operand.shape), tuple(operand.strides), access)


def describe_output(name: str, given: ArrayLayout | None, fresh: Fresh, access: int) -> OperandSpec:
    """Return the plan operand of an output: as it was given, else contiguous, as it will be allocated."""
    if given is not None:
        return describe(name, given, access)
    strides = contiguous_strides(fresh.shape, fresh.dtype.itemsize)
    return OperandSpec(name, dtype_name(fresh.dtype), fresh.shape, strides, access)
