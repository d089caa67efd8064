"""Gathers, and assignment to views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arrays.gpu_ref import GpuRef
from ..arrays.operands import memory_span, same_view
from ..arrays.owner import owner_of
from ..arrays.refusals import refused_operand
from ..dtypes import dtype_name
from ..errors import InvalidRequest
from ._manipulation import broadcast_to, reshape
from ._operands import as_axis, handle
from ._selection import select

if TYPE_CHECKING:
    from ..device import Device

__all__ = ["assign", "gather", "take", "take_along_axis", "take_any", "to_device"]


def take_any(x: GpuRef, indices: GpuRef, axis: int | None = None) -> GpuRef:
    """Return the elements at integer indices of any shape along an axis, or of the flat array; enqueues.

    Negative indices count from the end.  An index out of bounds fails the message.
    """
    if axis is None:
        x, axis = reshape(handle("take", x), (-1,)), 0
    place = as_axis("take", axis, handle("take", x).ndim)
    found: GpuRef = owner_of(x.device).elementwise.take(x, handle("take", indices), place, along=False)
    return found


def take(x: GpuRef, indices: GpuRef, /, *, axis: int | None = None) -> GpuRef:
    """Return the elements at integer indices along an axis, which is optional for an array of one; enqueues.

    Negative indices count from the end.  An index out of bounds fails the message: with `InvalidRequest` on the host
    device, and with `LibraryError` on a GPU.
    """
    if axis is None and handle("take", x).ndim != 1:
        raise InvalidRequest(f"take without an axis from an array of shape {x.shape}; allowed: arrays of one axis")
    return take_any(x, indices, 0 if axis is None else axis)


def take_along_axis(x: GpuRef, indices: GpuRef, /, *, axis: int = -1) -> GpuRef:
    """Return the elements at integer indices along an axis, one index for each element of the result; enqueues.

    `indices` has the shape of `x` but for that axis, or broadcasts to it.  An index out of bounds fails the message.
    """
    place = as_axis("take_along_axis", axis, handle("take_along_axis", x).ndim)
    if handle("take_along_axis", indices).ndim != x.ndim:
        raise InvalidRequest(
            f"take_along_axis with indices of shape {indices.shape} from {x.shape}; allowed: as many axes"
        )
    try:
        shape = list(np.broadcast_shapes(
            tuple(1 if i == place else n for i, n in enumerate(x.shape)),
            tuple(1 if i == place else n for i, n in enumerate(indices.shape)),
        ))  # fmt: skip
    except ValueError:
        raise InvalidRequest(
            f"take_along_axis with indices of shape {indices.shape} from {x.shape}: they do not broadcast"
        ) from None
    whole = shape.copy()
    shape[place], whole[place] = indices.shape[place], x.shape[place]
    found: GpuRef = owner_of(x.device).elementwise.take(
        broadcast_to(x, tuple(whole)), broadcast_to(indices, tuple(shape)), place, along=True
    )
    return found


def gather(x: GpuRef, key: Any) -> GpuRef:
    """Return ``x[key]`` where items of the key are handles: integers gather; a mask alone selects, and waits.

    Raises
    ------
    InvalidRequest
        For a mask beside other items, and for arrays and integers with a slice between them, whose axes NumPy puts in
        front.
    """
    items = key if isinstance(key, tuple) else (key,)
    if len(items) == 1 and items[0].dtype.kind == "b":
        return select(x, items[0])
    arrays = [item for item in items if isinstance(item, GpuRef)]
    for array in arrays:
        if array.dtype.kind not in "iu":
            raise InvalidRequest(
                f"index {key!r} with an array of {dtype_name(array.dtype)}; "
                f"allowed: arrays of integers, and an array of Booleans alone"
            )
    slices = [isinstance(item, slice) for item in items]
    group = slices[slices.index(False) :]
    while group[-1]:
        group.pop()
    if any(item is None or item is Ellipsis for item in items) or any(group):
        raise InvalidRequest(f"index {key!r} with GpuRefs; allowed: slices, and GpuRefs and integers beside each other")
    rest = x[tuple(slice(None) if isinstance(item, GpuRef) else item for item in items)]
    axis = slices.index(False)
    found = arrays[0]
    for other in arrays[1:]:
        n, m = rest.shape[axis : axis + 2]
        # Each index must be within its own axis: otherwise the place is beyond the end, and the message fails.
        found = x.device.elementwise.run(
            "where((i >= -n) & (i < n) & (j >= -m) & (j < m), "
            "(i + where(i < 0, n, 0)) * m + j + where(j < 0, m, 0), n * m)",
            i=found.astype("int64"), j=other.astype("int64"), n=n, m=m,
        )  # fmt: skip
        rest = reshape(rest, (*rest.shape[:axis], n * m, *rest.shape[axis + 2 :]))
    return take_any(rest, found, axis)


def assign(x: GpuRef, key: Any, value: Any) -> None:
    """Perform ``x[key] = value``; enqueues."""
    if isinstance(value, np.ndarray | list | tuple):
        raise refused_operand("x[...] = y", value)
    if isinstance(key, GpuRef) and key.dtype.kind == "b":
        _assign_where(x, key, value)
        return
    if isinstance(key, GpuRef) or (isinstance(key, tuple) and any(isinstance(item, GpuRef) for item in key)):
        raise InvalidRequest("assignment to gathered elements; allowed: views, and masks of Booleans alone")
    target = x[key]
    if not isinstance(value, GpuRef):
        if not isinstance(value, bool | int | float | complex | np.generic):
            raise refused_operand("x[...] = y", value)
        if target.size:
            target.fill(cast("complex", value))
        return
    if same_view(target, value):
        return
    if value.ndim > target.ndim and all(n == 1 for n in value.shape[: value.ndim - target.ndim]):
        value = value.reshape(value.shape[value.ndim - target.ndim :])
    if not target.size:
        broadcast_to(value, target.shape)
        return
    where, first, end = memory_span(target)
    place, start, stop = memory_span(value)
    if where == place and first < stop and start < end:
        value = value.device.copy(value)
    x.device.copy(value, out=target)


def _assign_where(x: GpuRef, mask: GpuRef, value: Any) -> None:
    if mask.shape != x.shape[: mask.ndim]:
        raise InvalidRequest(f"a mask of shape {mask.shape} for an array of shape {x.shape}; allowed: {x.shape}")
    if isinstance(value, GpuRef) and value.size != 1:
        raise InvalidRequest(
            f"x[mask] = y with y of shape {value.shape}; allowed: a number or one element; where(mask, y, x) chooses "
            f"by place"
        )
    if isinstance(value, GpuRef):
        value = value.reshape(())
    if x.size:
        wide = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        owner_of(x.device).elementwise.assign_where(x, wide, value)


def to_device(x: GpuRef, device: Device, *, stream: object = None) -> GpuRef:
    """Return the array on a device: itself, or a copy."""
    from ._creation import refuse_stream
    from ._operands import check_device

    refuse_stream(stream)
    return x if check_device(device) is x.device else device.copy(x)
