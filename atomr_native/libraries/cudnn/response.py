"""Requests of local response norms, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..._support.checks import as_integer, is_real
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .defaults import ONE, RESPONSE_POWER, RESPONSE_SCALE
from .draft import Draft, packed
from .spec import (
    array_shape,
    check_given,
    dense_order,
    dtype_of,
    flags,
    fresh_of,
    image_shape,
    image_view,
    spatial_axes,
)
from .support import RESPONSE_DTYPES, RESPONSE_LIMITS, RESPONSE_SIZE

__all__ = ["ResponseNormalizationGradientRequest", "ResponseNormalizationRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResponseNormalization(Request[Any]):
    """What both requests have."""

    x: Any
    size: int = 5
    alpha: float = RESPONSE_SCALE
    beta: float = RESPONSE_POWER
    k: float = ONE
    out: Any = None
    channels_last: bool = False

    def _check_options(self) -> None:
        flags(self, "channels_last")
        as_integer("size", self.size, 1, RESPONSE_SIZE)
        for name in ("alpha", "beta", "k"):
            value, least = getattr(self, name), RESPONSE_LIMITS[name]
            if not is_real(value) or not least <= float(value) < math.inf:
                raise InvalidRequest(f"{name}={value!r}; allowed: numbers from {least}")

    def _lowered_as(self, op: str, inputs: tuple[str, ...], port: str) -> Lowered:
        self._check_options()
        last = bool(self.channels_last)
        spatial_axes("x", self.x, 0)
        dtype = dtype_of("x", self.x, RESPONSE_DTYPES)
        for name in inputs[1:]:
            dtype_of(name, getattr(self, name), (dtype,))
            if tuple(getattr(self, name).shape) != tuple(self.x.shape):
                found = tuple(getattr(self, name).shape)
                raise InvalidRequest(f"{name} has shape {found}; allowed: {tuple(self.x.shape)}, that of x")
        fresh = fresh_of(self.x.shape, dtype)
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in inputs])
        draft = Draft()
        images = image_shape(self.x.shape, channels_last=last)
        flat = (*images[:2], math.prod(images[2:]), 1)

        def image(operand: int) -> int:
            return image_view(draft, operand, channels_last=last, prefer_last=False)

        ports = {name: draft.regrouped(image(draft.read(name, getattr(self, name))), flat) for name in inputs}
        order = dense_order(self.x, channels_last=last)
        strides = array_shape(packed(images, channels_last=order), channels_last=last)
        out = image(draft.write("out", self.out, fresh, strides=strides))
        made = ports[port] = draft.target(out, flat)
        draft.node(
            op,
            ports,
            compute="float64" if dtype == "float64" else "float32",
            integers={"size": (self.size,)},
            reals={"scale": self.alpha, "power": self.beta, "k": self.k},
        )
        draft.deliver(made, out)
        return draft.lowered(f"cudnn.{op}", itemgetter("out"))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseNormalizationRequest(_ResponseNormalization):
    """A local response norm across channels, ``x / (k + alpha / size * s) ** beta``, checked when it is made.

    s is the sum of the squares of the `size` channels around each: ``(size - 1) // 2`` before it, and the rest after
    it.  Beyond the first and the last channel there is nothing.

    Parameters
    ----------
    x : GpuRef
        Images, (N, C, ...) with up to 3 spatial axes, or with `channels_last` (N, ..., C); any strides; float16,
        float32 or float64.
    size : int
        From 1 to 16.
    alpha, beta, k : float
        alpha from 0, beta from 0.01, k from 1e-5.
    out : GpuRef, optional
        Where the result goes, of x's shape and dtype.
    channels_last : bool
        Whether the channels are the last axis.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([[3.0, 4.0, 0.0]]))
    >>> device.cudnn.tell(an.ResponseNormalizationRequest(x=x, size=2, alpha=2.0, beta=0.5, k=1.0)).numpy().round(3)
    array([[0.588, 0.97 , 0.   ]])
    """

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        return self._lowered_as("lrn_forward", ("x",), "y")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseNormalizationGradientRequest(_ResponseNormalization):
    """The gradient of a local response norm by its input, checked when it is made.

    Parameters
    ----------
    x : GpuRef
        The norm's input.
    y : GpuRef
        Its result, of x's shape and dtype.
    dy : GpuRef
        The gradient by the result, of x's shape and dtype.
    size, alpha, beta, k, out, channels_last
        As in `ResponseNormalizationRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, dy = device.put(np.array([[3.0, 4.0]])), device.put(np.ones((1, 2)))
    >>> y = device.cudnn.response_norm(x, size=1, alpha=0.0)
    >>> request = an.ResponseNormalizationGradientRequest(x=x, y=y, dy=dy, size=1, alpha=0.0)
    >>> device.cudnn.tell(request).numpy()
    array([[1., 1.]])
    """

    y: Any
    dy: Any

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        return self._lowered_as("lrn_backward", ("x", "y", "dy"), "dx")
