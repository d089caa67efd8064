"""Requests of pooling: maxima and averages of windows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ..._support.checks import check_choice
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .draft import Draft, packed
from .spec import (
    Axes,
    array_shape,
    check_given,
    dense_order,
    dtype_of,
    flags,
    fresh_of,
    image_shape,
    image_view,
    paddings_of,
    per_axis,
    spatial_axes,
)
from .support import POOLING_DTYPES

__all__ = ["PoolingGradientRequest", "PoolingRequest"]

MODES: Final = ("max", "average", "average_exclude_padding")
#: Places in a window that an index of 8 bits can tell.
_PLACES: Final = 128


def _windows(request: Any, axes: int) -> tuple[tuple[int, ...], Axes]:
    """Return the extents of the window, and the options of the axes."""
    window = per_axis("window", request.window, axes, 1)
    stride = window if request.stride is None else per_axis("stride", request.stride, axes, 1)
    before, after = paddings_of(request.padding, axes)
    for axis, (n, *pads) in enumerate(zip(window, before, after, strict=True)):
        if max(pads) >= n:
            raise InvalidRequest(
                f"padding {tuple(pads)} of spatial axis {axis} for a window of {n}; allowed: less than the window, so "
                f"that each window has an element of x"
            )
    if request.mode == "max" and math.prod(window) > _PLACES:
        raise InvalidRequest(f"window={window} has {math.prod(window)} places; allowed for maxima: {_PLACES} at most")
    return window, Axes(before, after, stride, (1,) * axes)


def _extents(size: tuple[int, ...], window: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    made = []
    for i, (n, k) in enumerate(zip(size, window, strict=True)):
        whole = n + axes.before[i] + axes.after[i]
        if k > whole:
            raise InvalidRequest(f"the window has {k} places along spatial axis {i}, and x with its padding {whole}")
        made.append((whole - k) // axes.stride[i] + 1)
    return tuple(made)


def _integers(window: tuple[int, ...], axes: Axes) -> dict[str, tuple[int, ...]]:
    found = {name: values for name, values in axes.integers().items() if name != "dilation"}
    return found | {"window": (1, *window) if len(window) == 1 else window}


def _both(arrays: Mapping[str, Any]) -> Any:
    return arrays["out"], arrays["index"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingRequest(Request[Any]):
    """The maxima or averages of windows, checked when it is made.

    Parameters
    ----------
    x : GpuRef
        Images, (N, C, ...) with 1 to 3 spatial axes, or with `channels_last` (N, ..., C); float16, bfloat16 or float32.
    mode : str
        ``max``: padding is minus infinity, and NaN wins.  ``average``: zeros of the padding count.
        ``average_exclude_padding``: averages of the elements of x in a window.
    window : int or tuple of int
        One extent for each spatial axis, or one for all.
    stride : int or tuple of int, optional
        By default the window.
    padding : int or tuple
        A number, one for each spatial axis, or pairs (before, after); less than the window.
    index : bool
        Of maxima: return also where each is in its window, for the gradient.
    out : GpuRef, optional
        Where the result goes.
    channels_last : bool
        Whether the channels are the last axis of all arrays.

    Returns
    -------
    GpuRef or tuple of GpuRef
        The result; with `index` also an int8 array of its shape: the place of each maximum in its window, in C order.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.arange(6.0, dtype="float32").reshape(1, 1, 6))
    >>> device.cudnn.tell(an.PoolingRequest(x=x, mode="average", window=2)).numpy()
    array([[[0.5, 2.5, 4.5]]], dtype=float32)
    """

    x: Any
    mode: str
    window: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: Any = 0
    index: bool = False
    out: Any = None
    channels_last: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "channels_last", "index")
        check_choice("mode", self.mode, MODES)
        if self.index and self.mode != "max":
            raise InvalidRequest(f"index=True with mode={self.mode!r}; allowed: mode='max'")
        axes_count = spatial_axes("x", self.x)
        dtype = dtype_of("x", self.x, POOLING_DTYPES)
        last = bool(self.channels_last)
        images = image_shape(self.x.shape, channels_last=last)
        window, axes = _windows(self, axes_count)
        made = (*images[:2], *_extents(images[2:], window, axes))
        fresh = fresh_of(array_shape(made, channels_last=last), dtype)
        check_given([("out", self.out, fresh)], [("x", self.x)])
        draft = Draft()
        order = dense_order(self.x, channels_last=last)
        strides = array_shape(packed(made, channels_last=order), channels_last=last)
        x = image_view(draft, draft.read("x", self.x), channels_last=last, prefer_last=True)
        out = image_view(
            draft, draft.write("out", self.out, fresh, strides=strides), channels_last=last, prefer_last=True
        )
        index = None
        if self.index:
            places = draft.write("index", None, fresh_of(fresh.shape, "int8"), strides=strides)
            index = image_view(draft, places, channels_last=last, prefer_last=True)
        draft.node(
            "resample_forward", {"x": x, "y": out, "index": index}, mode=self.mode, integers=_integers(window, axes)
        )
        return draft.lowered("cudnn.pooling", _both if self.index else itemgetter("out"))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingGradientRequest(Request[Any]):
    """The gradient of pooling by its input, checked when it is made.

    Parameters
    ----------
    dy : GpuRef
        The gradient by the result.
    size : int or tuple of int
        Extents of the spatial axes of x.
    index : GpuRef, optional
        Of maxima: the places that `PoolingRequest` returns with ``index=True``.
    mode, window, stride, padding, out, channels_last
        As in `PoolingRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> dy = device.put(np.array([[[2.0, 4.0]]], "float32"))
    >>> request = an.PoolingGradientRequest(dy=dy, size=4, mode="average", window=2)
    >>> device.cudnn.tell(request).numpy()
    array([[[1., 1., 2., 2.]]], dtype=float32)
    """

    dy: Any
    size: int | tuple[int, ...]
    mode: str
    window: int | tuple[int, ...]
    index: Any = None
    stride: int | tuple[int, ...] | None = None
    padding: Any = 0
    out: Any = None
    channels_last: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "channels_last")
        check_choice("mode", self.mode, MODES)
        axes_count = spatial_axes("dy", self.dy)
        dtype = dtype_of("dy", self.dy, POOLING_DTYPES)
        last = bool(self.channels_last)
        grad = image_shape(self.dy.shape, channels_last=last)
        size = per_axis("size", self.size, axes_count, 1)
        window, axes = _windows(self, axes_count)
        wanted = (*grad[:2], *_extents(size, window, axes))
        if grad != wanted:
            raise InvalidRequest(
                f"dy has shape {tuple(self.dy.shape)}; allowed: {array_shape(wanted, channels_last=last)}, the shape "
                f"of the result"
            )
        self._check_index()
        fresh = fresh_of(array_shape((*grad[:2], *size), channels_last=last), dtype)
        check_given([("out", self.out, fresh)], [("dy", self.dy), ("index", self.index)])
        draft = Draft()
        order = dense_order(self.dy, channels_last=last)
        strides = array_shape(packed((*grad[:2], *size), channels_last=order), channels_last=last)
        ports: dict[str, int | None] = {
            "dy": image_view(draft, draft.read("dy", self.dy), channels_last=last, prefer_last=True)
        }
        if self.index is not None:
            ports["index"] = image_view(draft, draft.read("index", self.index), channels_last=last, prefer_last=True)
        target = draft.write("out", self.out, fresh, strides=strides)
        ports["dx"] = image_view(draft, target, channels_last=last, prefer_last=True)
        draft.node("resample_backward", ports, mode=self.mode, integers=_integers(window, axes))
        return draft.lowered("cudnn.pooling_backward", itemgetter("out"))

    def _check_index(self) -> None:
        if (self.index is not None) != (self.mode == "max"):
            word = "needs" if self.mode == "max" else "does not take"
            raise InvalidRequest(f"mode={self.mode!r} {word} index; allowed: index with mode='max', and only there")
        if self.index is not None:
            dtype_of("index", self.index, ("int8",))
            if tuple(self.index.shape) != tuple(self.dy.shape):
                raise InvalidRequest(
                    f"index has shape {tuple(self.index.shape)}; allowed: {tuple(self.dy.shape)}, that of dy"
                )
