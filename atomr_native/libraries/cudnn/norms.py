"""Requests of norms: batch, instance, group, layer and RMS norms, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ..._support.checks import check_choice, is_integer, is_real
from ..._support.public import public
from ...arrays.operands import Fresh, check_input, check_output
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .defaults import EPSILON, MOMENTUM
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
    vector_view,
)
from .support import NORM_DTYPES

__all__ = ["KINDS", "NormalizationGradientRequest", "NormalizationRequest"]

#: Kinds of norms.
KINDS: Final = ("batch", "instance", "group", "layer", "rms")


def _check_epsilon(request: Any) -> None:
    if not is_real(request.epsilon) or not 0 < float(request.epsilon) < math.inf:
        raise InvalidRequest(f"epsilon={request.epsilon!r}; allowed: a positive number")


def _is_image(kind: str) -> bool:
    return kind in ("batch", "instance", "group")


def _groups(request: Any) -> int:
    """Return the number of groups of channels of a group norm, else 1."""
    if request.kind != "group":
        if request.groups is not None:
            raise InvalidRequest(f"groups={request.groups!r} with kind={request.kind!r}; allowed: with kind='group'")
        return 1
    channels = image_shape(request.x.shape, channels_last=bool(request.channels_last))[1]
    if request.groups is None or not is_integer(request.groups) or not 0 < request.groups <= max(channels, 1):
        raise InvalidRequest(f"groups={request.groups!r}; allowed: an integer from 1 to {channels}, the channels of x")
    if channels % request.groups:
        raise InvalidRequest(f"groups={request.groups} of {channels} channels; allowed: a divisor of the channels")
    return int(request.groups)


def _parameter_shape(kind: str, x: Any, scale: Any, *, last: bool) -> tuple[int, ...]:
    """Return the shape of scale and bias, after a check of scale's."""
    shape = tuple(check_input("scale", scale).shape)
    if _is_image(kind):
        spatial_axes("x", x)
        wanted: tuple[int, ...] = (image_shape(x.shape, channels_last=last)[1],)
    else:
        wanted = tuple(x.shape[len(x.shape) - len(shape) :])
    if not shape or shape != wanted or (not _is_image(kind) and len(shape) >= len(x.shape)):
        allowed = wanted if _is_image(kind) else f"the last axes of x, {tuple(x.shape)}, but not all of them"
        raise InvalidRequest(f"scale has shape {shape}; allowed for {kind} norms: {allowed}")
    return shape


def _statistics_shape(kind: str, x: Any, scale: tuple[int, ...], groups: int, *, last: bool) -> tuple[int, ...]:
    if kind == "batch":
        return scale
    if kind == "group":
        return (x.shape[0], groups)
    if kind == "instance":
        return image_shape(x.shape, channels_last=last)[:2]
    return tuple(x.shape[: len(x.shape) - len(scale)])


def _rows(draft: Draft, operand: int, own: int, *, written: bool) -> tuple[int, int]:
    """Add the tensor (rows, columns, 1, 1) of an operand whose last `own` axes are the columns, and that of its shape.

    If its rows do not lie behind each other, the first is a copy, or an intermediate result if it is `written`.
    """
    whole = draft.whole(operand)
    found = draft.tensors[whole]
    shape = found.shape
    rows, columns = math.prod(shape[: len(shape) - own]), math.prod(shape[len(shape) - own :])
    wanted, steps = (rows, columns, 1, 1), (columns, 1, columns, columns)
    if all(n <= 1 or s == d for n, s, d in zip(shape, found.strides, packed(shape), strict=True)):
        return draft.view(operand, wanted, steps), whole
    made = draft.result(wanted, found.dtype, steps)
    if not written:
        dense = draft.pointwise("identity", whole, to=draft.result(shape, found.dtype))
        draft.node("reshape", {"x": dense, "y": made})
    return made, whole


class _Views:
    """The tensors of a norm's operands."""

    def __init__(self, draft: Draft, kind: str, x: Any, own: int, *, last: bool) -> None:
        self.draft, self.kind, self.own, self.last = draft, kind, own, last
        self.order = True
        self.apart: list[tuple[int, int]] = []
        if _is_image(kind):
            self.order = dense_order(x, channels_last=last)

    def image(self, operand: int, *, written: bool = False) -> int:
        """Add a tensor of x's shape; what is `written` is in its place after `deliver`."""
        if _is_image(self.kind):
            return image_view(self.draft, operand, channels_last=self.last, prefer_last=self.kind == "batch")
        made, whole = _rows(self.draft, operand, self.own, written=written)
        if written and self.draft.tensors[made].operand < 0:
            self.apart.append((made, whole))
        return made

    def deliver(self) -> None:
        """Bring results to operands whose rows do not lie behind each other."""
        for made, whole in self.apart:
            dense = self.draft.reshaped(made, self.draft.tensors[whole].shape)
            self.draft.pointwise("identity", dense, to=whole)

    def parameter(self, operand: int, image: int) -> int:
        """Add a tensor of scale's shape."""
        if _is_image(self.kind):
            found = self.draft.tensors[image]
            last = self.kind == "batch" and found.strides == packed(found.shape, channels_last=True)
            return vector_view(self.draft, operand, len(found.shape), channels_last=last)
        columns = math.prod(self.draft.operands[operand].spec.shape)
        self._check_dense(operand)
        return self.draft.view(operand, (1, columns, 1, 1), (columns, 1, columns, columns))

    def statistic(self, operand: int, image: int) -> int:
        """Add a tensor of the statistics."""
        if self.kind == "batch":
            return self.parameter(operand, image)
        self._check_dense(operand)
        rank = len(self.draft.tensors[image].shape)
        shape = self.draft.operands[operand].spec.shape
        if self.kind in ("instance", "group"):
            whole = (*shape, *([1] * (rank - 2)))
            return self.draft.view(operand, whole, packed(whole, channels_last=True))
        rows = math.prod(shape)
        return self.draft.view(operand, (rows, 1, 1, 1), (1, 1, 1, 1))

    def _check_dense(self, operand: int) -> None:
        spec = self.draft.operands[operand].spec
        strides = self.draft.dense_strides(operand)
        if any(n > 1 and s != d for n, s, d in zip(spec.shape, strides, packed(spec.shape), strict=True)):
            raise InvalidRequest(f"{spec.name} has strides {spec.strides}; allowed: those of a C-contiguous array")


def _check_parameter(name: str, array: Any, shape: tuple[int, ...], dtype: str) -> None:
    dtype_of(name, array, (dtype,))
    if tuple(array.shape) != shape:
        raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: {shape}")


def _collect(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    def collect(arrays: Mapping[str, Any]) -> Any:
        return tuple(arrays[name] for name in names)

    return collect


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizationRequest(Request[Any]):
    """A norm: ``(x - mean) / sqrt(var + epsilon) * scale + bias``, checked when it is made.

    Parameters
    ----------
    kind : str
        ``batch``: the statistics of each channel.  ``instance``: of each image and channel.  ``group``: of each image
        and group of neighbouring channels.  ``layer``: over the last axes, which are those of scale.  ``rms``: as
        layer, without mean and bias: x is divided by its root mean square.
    x : GpuRef
        float16, bfloat16 or float32.  For ``batch``, ``instance`` and ``group`` images, (N, C, ...) with 1 to 3
        spatial axes, or with `channels_last` (N, ..., C); else of any strides: a view with other axes last is normed
        over these, and copied in the message unless it is C-contiguous.
    groups : int, optional
        Of ``group``: groups of channels, a divisor of their number.
    scale, bias : GpuRef
        (C,), or of the last axes of x; float32 for images, else of x's dtype.  ``rms`` has no bias.
    running_mean, running_var : GpuRef, optional
        Of ``batch``, float32, (C,).  In training they are updated: ``(1 - momentum) * running + momentum * new``, with
        the variance that is divided by the number of elements less one.
    training : bool
        Of ``batch``: False takes the statistics from `running_mean` and `running_var`.
    epsilon, momentum : float
    out : GpuRef, optional
        Where the result goes.
    channels_last : bool
        Whether the channels are the last axis of x and out.

    Returns
    -------
    tuple of GpuRef
        In training the result, the means (not of ``rms``) and the inverse deviations ``1 / sqrt(var + epsilon)``, in
        float32, for the gradient; with ``training=False`` the result alone.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([[1.0, 2.0, 3.0, 6.0]], "float32"))
    >>> one, zero = device.put(np.ones(4, "float32")), device.put(np.zeros(4, "float32"))
    >>> y, mean, _ = device.cudnn.tell(an.NormalizationRequest(kind="layer", x=x, scale=one, bias=zero))
    >>> y.numpy().round(3), mean.numpy()
    (array([[-1.069, -0.535,  0.   ,  1.604]], dtype=float32), array([3.], dtype=float32))
    """

    kind: str
    x: Any
    scale: Any
    bias: Any = None
    running_mean: Any = None
    running_var: Any = None
    out: Any = None
    groups: int | None = None
    training: bool = True
    epsilon: float = EPSILON
    momentum: float = MOMENTUM
    channels_last: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("kind", self.kind, KINDS)
        flags(self, "channels_last", "training")
        _check_epsilon(self)
        if not is_real(self.momentum) or not 0 <= float(self.momentum) <= 1:
            raise InvalidRequest(f"momentum={self.momentum!r}; allowed: a number from 0 to 1")
        dtype = dtype_of("x", self.x, NORM_DTYPES)
        last = bool(self.channels_last)
        shape = _parameter_shape(self.kind, self.x, self.scale, last=last)
        groups = _groups(self)
        vector = "float32" if _is_image(self.kind) else dtype
        _check_parameter("scale", self.scale, shape, vector)
        self._check_bias(shape, vector)
        self._check_running(shape)
        fresh = fresh_of(self.x.shape, dtype)
        names = ("x", "scale", "bias", "running_mean", "running_var")
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in names])
        draft = Draft()
        views = _Views(draft, self.kind, self.x, len(shape), last=last)
        x = views.image(draft.read("x", self.x))
        scale = views.parameter(draft.read("scale", self.scale), x)
        bias = None if self.bias is None else views.parameter(draft.read("bias", self.bias), x)
        strides = None
        if _is_image(self.kind):
            images = image_shape(self.x.shape, channels_last=last)
            strides = array_shape(packed(images, channels_last=views.order), channels_last=last)
        out = views.image(draft.write("out", self.out, fresh, strides=strides), written=True)
        if not self.training:
            return self._inference(draft, views, (x, scale, bias, out))
        statistics = _statistics_shape(self.kind, self.x, shape, groups, last=last)
        return self._training(draft, views, (x, scale, bias, out), statistics)

    def _check_bias(self, shape: tuple[int, ...], dtype: str) -> None:
        if (self.bias is None) != (self.kind == "rms"):
            word = "do not take" if self.kind == "rms" else "need"
            raise InvalidRequest(f"{self.kind} norms {word} bias; allowed: bias with all kinds but rms")
        if self.bias is not None:
            _check_parameter("bias", self.bias, shape, dtype)

    def _check_running(self, shape: tuple[int, ...]) -> None:
        given = [name for name in ("running_mean", "running_var") if getattr(self, name) is not None]
        if given and self.kind != "batch":
            raise InvalidRequest(f"{self.kind} norms do not take {given[0]}; allowed: kind='batch'")
        if not self.training and (self.kind != "batch" or len(given) != 2):
            raise InvalidRequest("training=False; allowed: with kind='batch', running_mean and running_var")
        if len(given) == 1:
            raise InvalidRequest(f"{given[0]} is given alone; allowed: running_mean and running_var, or none")
        for name in given:
            _check_parameter(name, getattr(self, name), shape, "float32")
            if self.training:
                check_output(name, getattr(self, name))

    def _inference(self, draft: Draft, views: _Views, tensors: tuple[int, int, int | None, int]) -> Lowered:
        x, scale, bias, out = tensors
        rank = len(draft.tensors[x].shape)
        mean = views.parameter(draft.read("running_mean", self.running_mean), x)
        variance = views.parameter(draft.read("running_var", self.running_var), x)
        above = draft.pointwise("add", variance, draft.constant(float(self.epsilon), rank))
        factor = draft.pointwise("mul", draft.pointwise("rsqrt", above), scale)
        scaled = draft.pointwise("mul", draft.pointwise("sub", x, mean), factor)
        draft.pointwise("add", scaled, bias, to=out)
        return draft.lowered("cudnn.norm", itemgetter("out"))

    def _training(
        self, draft: Draft, views: _Views, tensors: tuple[int, int, int | None, int], shape: tuple[int, ...]
    ) -> Lowered:
        x, scale, bias, out = tensors
        rank = len(draft.tensors[x].shape)
        ports: dict[str, int | None] = {"x": x, "scale": scale, "bias": bias, "y": out}
        ports["epsilon"] = draft.constant(float(self.epsilon), rank)
        statistics = fresh_of(shape, "float32")
        names = ("inverse",) if self.kind == "rms" else ("mean", "inverse")
        for name, port in zip(names[::-1], ("inv_variance_out", "mean_out"), strict=False):
            ports[port] = views.statistic(draft.write(name, None, statistics), x)
        if self.running_mean is not None:
            ports["momentum"] = draft.constant(float(self.momentum), rank)
            for name in ("running_mean", "running_var"):
                given = getattr(self, name)
                fresh = Fresh(tuple(given.shape), as_dtype(given.dtype))
                operand = draft.write(name, given, fresh, updated=True)
                ports[name] = views.parameter(operand, x)
                ports[f"{name}_out"] = views.parameter(operand, x)
        draft.node("norm_forward", ports, mode=self.kind, integers={"training": (1,)})
        views.deliver()
        return draft.lowered("cudnn.norm", _collect(("out", *names)))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizationGradientRequest(Request[Any]):
    """The gradients of a norm by x, scale and bias, checked when it is made.

    Parameters
    ----------
    kind, x, scale, groups, channels_last
        As in `NormalizationRequest`.
    dy : GpuRef
        The gradient by the result, of x's shape and dtype.
    mean, inverse : GpuRef
        The statistics that `NormalizationRequest` returns in training; ``rms`` has no mean.
    out : GpuRef, optional
        Where the gradient by x goes.

    Returns
    -------
    tuple of GpuRef
        The gradients by x, scale and (not of ``rms``) bias.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.array([[1.0, 2.0, 3.0, 6.0]], "float32"))
    >>> one, dy = device.put(np.ones(4, "float32")), device.put(np.ones((1, 4), "float32"))
    >>> y, inverse = device.cudnn.norm("rms", x, one)
    >>> request = an.NormalizationGradientRequest(kind="rms", dy=dy, x=x, scale=one, inverse=inverse)
    >>> [gradient.shape for gradient in device.cudnn.tell(request)]
    [(1, 4), (4,)]
    """

    kind: str
    dy: Any
    x: Any
    scale: Any
    inverse: Any
    mean: Any = None
    out: Any = None
    groups: int | None = None
    channels_last: bool = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_choice("kind", self.kind, KINDS)
        flags(self, "channels_last")
        dtype = dtype_of("x", self.x, NORM_DTYPES)
        last = bool(self.channels_last)
        shape = _parameter_shape(self.kind, self.x, self.scale, last=last)
        vector = "float32" if _is_image(self.kind) else dtype
        _check_parameter("scale", self.scale, shape, vector)
        _check_parameter("dy", self.dy, tuple(self.x.shape), dtype)
        statistics = _statistics_shape(self.kind, self.x, shape, _groups(self), last=last)
        _check_parameter("inverse", self.inverse, statistics, "float32")
        if (self.mean is None) != (self.kind == "rms"):
            word = "do not take" if self.kind == "rms" else "need"
            raise InvalidRequest(f"{self.kind} norms {word} mean; allowed: mean with all kinds but rms")
        if self.mean is not None:
            _check_parameter("mean", self.mean, statistics, "float32")
        fresh = fresh_of(self.x.shape, dtype)
        inputs = ("dy", "x", "scale", "inverse", "mean")
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in inputs])
        draft = Draft()
        views = _Views(draft, self.kind, self.x, len(shape), last=last)
        ports: dict[str, int | None] = {"dy": views.image(draft.read("dy", self.dy))}
        x = ports["x"] = views.image(draft.read("x", self.x))
        ports["scale"] = views.parameter(draft.read("scale", self.scale), x)
        ports["inv_variance"] = views.statistic(draft.read("inverse", self.inverse), x)
        if self.mean is not None:
            ports["mean"] = views.statistic(draft.read("mean", self.mean), x)
        strides = None
        if _is_image(self.kind):
            images = image_shape(self.x.shape, channels_last=last)
            strides = array_shape(packed(images, channels_last=views.order), channels_last=last)
        ports["dx"] = views.image(draft.write("out", self.out, fresh, strides=strides), written=True)
        names = ("dscale",) if self.kind == "rms" else ("dscale", "dbias")
        for name in names:
            ports[name] = views.parameter(draft.write(name, None, fresh_of(shape, vector)), x)
        draft.node("norm_backward", ports, mode=self.kind)
        views.deliver()
        return draft.lowered("cudnn.norm_backward", _collect(("out", *names)))
