"""Requests of softmax and its logarithm, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..._support.checks import is_integer
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .draft import Draft
from .spec import FLOATS, check_given, dtype_of, flags, fresh_of

__all__ = ["SoftmaxGradientRequest", "SoftmaxRequest"]


def _along(axis: object, shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the elements before, along and after the axes, and a lone one."""
    rank = len(shape)
    given = axis if isinstance(axis, tuple | list) else (axis,)
    places = [int(one) + rank * (one < 0) for one in given if is_integer(one) and -rank <= one < rank]
    if not given or len(places) != len(given) or places != list(range(places[0], places[0] + len(places))):
        raise InvalidRequest(f"axis={axis!r}; allowed: an axis of {rank}, or neighbouring ones in order")
    first, last = places[0], places[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]), 1


def _lowered(request: Any, op: str, inputs: tuple[str, ...], port: str) -> Lowered:
    """Return the message: one node over dense arrays."""
    flags(request, "log")
    first = inputs[0]
    array = getattr(request, first)
    dtype = dtype_of(first, array, FLOATS)
    shape = tuple(array.shape)
    for name in inputs[1:]:
        dtype_of(name, getattr(request, name), (dtype,))
        if tuple(getattr(request, name).shape) != shape:
            raise InvalidRequest(f"{name} has shape {tuple(getattr(request, name).shape)}; allowed: {shape}")
    along = _along(request.axis, shape)
    fresh = fresh_of(shape, dtype)
    check_given([("out", request.out, fresh)], [(name, getattr(request, name)) for name in inputs])
    draft = Draft()
    ports = {name: draft.regrouped(draft.whole(draft.read(name, getattr(request, name))), along) for name in inputs}
    out = draft.whole(draft.write("out", request.out, fresh))
    made = ports[port] = draft.target(out, along)
    compute = "float64" if dtype == "float64" else "float32"
    draft.node(op, ports, mode="log" if request.log else "", compute=compute)
    draft.deliver(made, out)
    return draft.lowered(f"cudnn.{op}", itemgetter("out"))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxRequest(Request[Any]):
    """Softmax along some axes, or its logarithm, checked when it is made.

    Parameters
    ----------
    x : GpuRef
        float16, bfloat16, float32 or float64, of any shape and strides; narrow types are computed in float32.
    axis : int or tuple of int
        Axes over which the result sums up to 1: one, or neighbouring ones.  Of images (N, C, H, W), 1 is cuDNN's
        channel mode, and (1, 2, 3) its instance mode.
    log : bool
        Whether the result is the logarithm of the softmax.
    out : GpuRef, optional
        Where the result goes, of x's shape and dtype.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([[0.0, 0.0], [0.0, np.log(3.0)]]))
    >>> device.cudnn.tell(an.SoftmaxRequest(x=x)).numpy()
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])
    """

    x: Any
    axis: int | tuple[int, ...] = -1
    log: bool = False
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        return _lowered(self, "softmax_forward", ("x",), "y")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxGradientRequest(Request[Any]):
    """The gradient of softmax, or of its logarithm, by its input, checked when it is made.

    Parameters
    ----------
    dy : GpuRef
        The gradient by the result, of y's shape and dtype.
    y : GpuRef
        What `SoftmaxRequest` returned.
    axis, log, out
        As in `SoftmaxRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> y, dy = device.put(np.array([0.25, 0.75])), device.put(np.array([1.0, 0.0]))
    >>> device.cudnn.tell(an.SoftmaxGradientRequest(dy=dy, y=y)).numpy()
    array([ 0.1875, -0.1875])
    """

    dy: Any
    y: Any
    axis: int | tuple[int, ...] = -1
    log: bool = False
    out: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        return _lowered(self, "softmax_backward", ("y", "dy"), "dx")
