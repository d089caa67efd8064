"""Functions of the namespace that change shapes: views where a view can do it, else one copy on the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..arrays.gpu_ref import GpuRef, viewed
from ..arrays.layout import extents_of
from ..errors import InvalidRequest
from ._operands import as_axes, as_axis, cast_to, common, handle

__all__ = [
    "astype", "broadcast_arrays", "broadcast_to", "concat", "copied", "diff", "expand_dims", "flip", "matrix_transpose",
    "moveaxis", "permute_dims", "repeated", "reshape", "roll", "squeeze", "stack", "tile", "transposed", "unstack",
    "view_of",
]  # fmt: skip


def view_of(function: str, x: GpuRef, change: Any) -> GpuRef:
    """Return the view that a function makes of a NumPy array of the same layout."""
    try:
        return viewed(handle(function, x), change)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidRequest(f"{function} of an array of shape {x.shape}: {error}") from None


def reshape(x: GpuRef, /, shape: Any, *, copy: bool | None = None) -> GpuRef:
    """Return an array with another shape: a view, or a copy where none is possible.

    With ``copy=False`` only a view, and with ``copy=True`` always a copy.
    """
    handle("reshape", x)
    if copy is True:
        return x.device.copy(x).reshape(shape)
    try:
        return x.reshape(shape)
    except InvalidRequest:
        wanted = extents_of(shape)
        if copy is False or wanted is None or min(wanted, default=0) < -1 or wanted.count(-1) > 1:
            raise
        if -1 not in wanted and math.prod(wanted) != x.size:
            raise
    return x.device.copy(x).reshape(shape)


def broadcast_to(x: GpuRef, /, shape: Any) -> GpuRef:
    """Return a view with a shape to which that of `x` broadcasts; it can be read only."""
    return view_of("broadcast_to", x, lambda image: np.broadcast_to(image, shape))


def broadcast_arrays(*arrays: GpuRef) -> list[GpuRef]:
    """Return views of arrays with the shape to which all of them broadcast."""
    shapes = [handle("broadcast_arrays", x).shape for x in arrays]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidRequest(f"shapes {shapes} do not broadcast; from the right, extents must be equal or 1") from None
    return [broadcast_to(x, shape) for x in arrays]


def expand_dims(x: GpuRef, /, axis: Any = 0) -> GpuRef:
    """Return a view with a new axis of one element."""
    ndim = handle("expand_dims", x).ndim
    wanted = axis if isinstance(axis, tuple) else (axis,)
    as_axes("expand_dims", wanted, ndim + len(wanted))
    return view_of("expand_dims", x, lambda image: np.expand_dims(image, axis))


def squeeze(x: GpuRef, /, axis: Any = None) -> GpuRef:
    """Return a view without axes of one element."""
    if axis is not None:
        axis = as_axes("squeeze", axis, handle("squeeze", x).ndim)
    return view_of("squeeze", x, lambda image: np.squeeze(image, axis))


def permute_dims(x: GpuRef, /, axes: tuple[int, ...]) -> GpuRef:
    """Return a view with its axes in another order."""
    return view_of("permute_dims", x, lambda image: np.transpose(image, axes))


def transposed(x: GpuRef, /, axes: Any = None) -> GpuRef:
    """Return a view with its axes in another order, by default reversed."""
    return view_of("transpose", x, lambda image: np.transpose(image, axes))


def matrix_transpose(x: GpuRef, /) -> GpuRef:
    """Return a view with its last two axes exchanged."""
    return view_of("matrix_transpose", x, lambda image: np.swapaxes(image, -1, -2))


def moveaxis(x: GpuRef, source: Any, destination: Any, /) -> GpuRef:
    """Return a view with axes at other places."""
    return view_of("moveaxis", x, lambda image: np.moveaxis(image, source, destination))


def flip(x: GpuRef, /, *, axis: Any = None) -> GpuRef:
    """Return a copy with the elements along axes in reverse order; enqueues."""
    axes = as_axes("flip", axis, handle("flip", x).ndim)
    return x.device.copy(x[tuple(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim))])


def copied(x: GpuRef, /) -> GpuRef:
    """Return a copy; enqueues."""
    return handle("copy", x).device.copy(x)


def concat(arrays: Any, /, *, axis: int | None = 0) -> GpuRef:
    """Return arrays joined along an axis, or flat with ``axis=None``; a message for each."""
    found, dtype = common("concat", arrays)
    if axis is None:
        found, axis = [reshape(x, (-1,)) for x in found], 0
    first = found[0]
    axis = as_axis("concat", axis, first.ndim)
    rest = first.shape[:axis] + first.shape[axis + 1 :]
    for x in found:
        if x.ndim != first.ndim or x.shape[:axis] + x.shape[axis + 1 :] != rest:
            raise InvalidRequest(
                f"concat along axis {axis} of shapes {[x.shape for x in found]}; allowed: equal along the other axes"
            )
    shape = (*first.shape[:axis], sum(x.shape[axis] for x in found), *first.shape[axis + 1 :])
    out = first.device.empty(shape, dtype)
    start = 0
    for x in found:
        end = start + x.shape[axis]
        if x.size:
            x.device.copy(x, out=out[(*[slice(None)] * axis, slice(start, end))])
        start = end
    return out


def stack(arrays: Any, /, *, axis: int = 0) -> GpuRef:
    """Return arrays of one shape joined along a new axis; a message for each."""
    found, _ = common("stack", arrays)
    shapes = {x.shape for x in found}
    if len(shapes) > 1:
        raise InvalidRequest(f"stack of shapes {[x.shape for x in found]}; allowed: equal ones")
    place = as_axis("stack", axis, found[0].ndim + 1)
    return concat([expand_dims(x, place) for x in found], axis=place)


def unstack(x: GpuRef, /, *, axis: int = 0) -> tuple[GpuRef, ...]:
    """Return the views of an array along an axis."""
    place = as_axis("unstack", axis, handle("unstack", x).ndim)
    return tuple(x[(*[slice(None)] * place, i)] for i in range(x.shape[place]))


def roll(x: GpuRef, /, shift: Any, *, axis: Any = None) -> GpuRef:
    """Return a copy with elements shifted along axes, those at the end coming in at the start; enqueues."""
    if handle("roll", x).size == 0:
        return copied(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), x.shape)
    shifts, places = (value if isinstance(value, tuple | list) else (value,) for value in (shift, axis))
    if len(shifts) != len(places) and 1 not in (len(shifts), len(places)):
        raise InvalidRequest(f"roll with shift={shift!r} and axis={axis!r}; allowed: as many of each")
    total = [0] * x.ndim
    for count, place in np.broadcast(np.asarray(shifts), np.asarray(places)):
        total[as_axis("roll", int(place), x.ndim)] += int(count)
    made = x
    for place, count in enumerate(total):
        at = -count % made.shape[place]
        if at:
            key = [slice(None)] * place
            made = concat([made[(*key, slice(at, None))], made[(*key, slice(None, at))]], axis=place)
    return copied(x) if made is x else made


def tile(x: GpuRef, repetitions: int | tuple[int, ...], /) -> GpuRef:
    """Return copies of an array beside each other; enqueues."""
    counts = extents_of(repetitions)
    if counts is None or min(counts, default=0) < 0:
        raise InvalidRequest(f"tile with repetitions={repetitions!r}; allowed: integers from 0")
    ndim = max(handle("tile", x).ndim, len(counts))
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    wide = reshape(x, tuple(n for extent in shape for n in (1, extent)))
    filled = broadcast_to(wide, tuple(n for count, extent in zip(counts, shape, strict=True) for n in (count, extent)))
    return copied(filled).reshape(tuple(count * extent for count, extent in zip(counts, shape, strict=True)))


def repeated(x: GpuRef, repeats: int, /, *, axis: int | None = None) -> GpuRef:
    """Return each element, or each part along an axis, `repeats` times; enqueues."""
    if isinstance(repeats, bool) or not isinstance(repeats, int | np.integer) or repeats < 0:
        raise InvalidRequest(f"repeat with repeats={repeats!r}; allowed: integers from 0, and arrays of them")
    if axis is None:
        x, axis = reshape(handle("repeat", x), (-1,)), 0
    place = as_axis("repeat", axis, handle("repeat", x).ndim)
    shape = x.shape
    wide = broadcast_to(expand_dims(x, place + 1), (*shape[: place + 1], int(repeats), *shape[place + 1 :]))
    return copied(wide).reshape((*shape[:place], shape[place] * int(repeats), *shape[place + 1 :]))


def diff(
    x: GpuRef, /, *, axis: int = -1, n: int = 1, prepend: GpuRef | None = None, append: GpuRef | None = None
) -> GpuRef:
    """Return the differences of neighbours along an axis, `n` times; a message for each time."""
    place = as_axis("diff", axis, handle("diff", x).ndim)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise InvalidRequest(f"diff with n={n!r}; allowed: integers from 0")
    parts = [part for part in (prepend, x, append) if part is not None]
    made = concat(parts, axis=place) if len(parts) > 1 else x
    key = (slice(None),) * place
    for _ in range(n):
        later, earlier = made[(*key, slice(1, None))], made[(*key, slice(None, -1))]
        made = later ^ earlier if made.dtype.kind == "b" else later - earlier
    return copied(x) if made is x else made


def astype(x: GpuRef, dtype: Any, /, *, copy: bool = True, device: Any = None) -> GpuRef:
    """Return an array with another element type; with ``copy=False`` itself where nothing changes.  Enqueues."""
    from ..dtypes import as_dtype

    target = as_dtype(dtype)
    if device is not None and device is not handle("astype", x).device:
        return device.copy(x, dtype=target)  # type: ignore[no-any-return]
    return handle("astype", x).device.copy(x, dtype=target) if copy else cast_to(x, target)
