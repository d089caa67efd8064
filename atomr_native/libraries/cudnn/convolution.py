"""Requests of convolutions: forward, and the gradients by their inputs and filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ..._support.checks import as_integer, check_factor
from ..._support.public import public
from ...arrays.operands import Fresh
from ...dtypes import as_dtype, dtype_name
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .._tuning import tuning_of
from .activations import activated, check_activation
from .defaults import ONE, ZERO
from .draft import Draft, packed
from .spec import (
    Axes,
    array_shape,
    check_given,
    check_vector,
    dense_order,
    dtype_of,
    extents,
    flags,
    fresh_of,
    image_shape,
    image_view,
    paddings_of,
    per_axis,
    spatial_axes,
    vector_view,
)
from .support import CONVOLUTION_DTYPES, GRADIENT_DTYPES

__all__ = ["ConvolutionDataGradientRequest", "ConvolutionFilterGradientRequest", "ConvolutionRequest"]

_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolving(Request[Any]):
    """What all requests of convolutions have: the result and the options."""

    out: Any = None
    stride: int | tuple[int, ...] = 1
    padding: Any = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    alpha: float = ONE
    beta: float = ZERO
    channels_last: bool = False
    tf32: bool = False
    deterministic: bool = False
    tune: bool | str = False

    def _checked(self, first: str, second: str, dtypes: Iterable[str]) -> tuple[int, str]:
        """Check the options and the two arrays that are multiplied; returns the number of axes and the dtype."""
        flags(self, "channels_last", "tf32", "deterministic")
        axes = spatial_axes(first, getattr(self, first))
        dtype = dtype_of(first, getattr(self, first), dtypes)
        dtype_of(second, getattr(self, second), (dtype,))
        found = getattr(self, second).shape
        if len(found) != axes + 2:
            raise InvalidRequest(f"{second} has shape {tuple(found)}; allowed: {axes + 2} axes, as {first}")
        return axes, dtype

    def _image(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, channels first."""
        return image_shape(getattr(self, name).shape, channels_last=bool(self.channels_last))

    def _axes(self, axes: int) -> Axes:
        before, after = paddings_of(self.padding, axes)
        stride, dilation = (per_axis(name, getattr(self, name), axes, 1) for name in ("stride", "dilation"))
        return Axes(before, after, stride, dilation)

    def _factors(self) -> tuple[float, float]:
        for name in ("alpha", "beta"):
            check_factor(name, getattr(self, name), imaginary=False)
        return float(self.alpha), float(self.beta)

    def _check_filters(self, channels: int, filters: Sequence[int]) -> None:
        """Check the number of groups against the channels and the filters."""
        groups = as_integer("groups", self.groups, 1, _MOST)
        if filters[1] * groups != channels:
            raise InvalidRequest(
                f"w has {filters[1]} channels in a filter, and x has {channels} in {groups} groups; allowed: "
                f"{channels}/{groups} channels in a filter"
            )
        if filters[0] % groups:
            raise InvalidRequest(f"w has {filters[0]} filters for {groups} groups; allowed: a multiple of the groups")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionRequest(_Convolving):
    """A convolution ``out = activation(alpha * (x ⋆ w) + beta * residual + bias)``, checked when it is made.

    As in PyTorch, ``⋆`` is a cross-correlation: filters are not turned round.

    Parameters
    ----------
    x : GpuRef
        Images, (N, C, ...) with 1 to 3 spatial axes, or with `channels_last` (N, ..., C); any strides.  float16,
        bfloat16, float32, float8_e4m3fn and float8_e5m2 are summed in float32, float64 in float64, int8 in int32.
    w : GpuRef
        Filters of x's dtype, (K, C / groups, ...), or with `channels_last` (K, ..., C / groups).
    bias : GpuRef, optional
        (K,), of x's dtype; for int8 and float8 float32.
    residual : GpuRef, optional
        Of the shape of the result; by default what is in `out`, where `beta` is not 0.
    out : GpuRef, optional
        Where the result goes; allocated if missing, in the memory order of x.  Of x's dtype; for int8 int8, which is
        rounded to nearest and saturated, or float32; for float8 bfloat16, float16 or float32.
    x_scale, w_scale : GpuRef, optional
        For float8: float32, (1,), factors of the codes of x and w.
    stride, dilation : int or tuple of int
        One number for each spatial axis, or one for all.
    padding : int or tuple
        Zeros around x: a number, one for each spatial axis, or pairs (before, after).
    groups : int
        Groups of channels, each convolved by itself.
    alpha, beta : float
        Factors; with beta 0 nothing that is in `out` is read.
    activation : str, optional
        ``relu``, ``gelu``, ``gelu_tanh``, ``silu``, ``sigmoid``, ``tanh``, ``elu`` or ``softplus``.
    channels_last : bool
        Whether the channels are the last axis of all arrays.
    tf32 : bool
        Whether products of float32 may round their operands to TensorFloat-32.
    deterministic : bool
        Whether equal messages must give equal bits.
    tune : bool or "known"
        Whether engines are chosen by their times: True measures those that cuDNN's heuristics name when the plan is
        built, and keeps the results on disk; ``"known"`` takes what was measured before.  No effect on the host device
        and with `deterministic`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x = device.put(np.arange(6.0, dtype="float32").reshape(1, 1, 6))
    >>> w = device.put(np.array([[[1.0, 0.0, -1.0]]], "float32"))
    >>> device.cudnn.tell(an.ConvolutionRequest(x=x, w=w, padding=1)).numpy()
    array([[[-1., -2., -2., -2., -2.,  4.]]], dtype=float32)
    """

    x: Any
    w: Any
    bias: Any = None
    residual: Any = None
    activation: str | None = None
    x_scale: Any = None
    w_scale: Any = None

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        check_activation(self.activation)
        alpha, beta = self._factors()
        axes_count, dtype = self._checked("x", "w", CONVOLUTION_DTYPES)
        rules = CONVOLUTION_DTYPES[dtype]
        last = bool(self.channels_last)
        images, filters = self._image("x"), self._image("w")
        self._check_filters(images[1], filters)
        axes = self._axes(axes_count)
        made = (images[0], filters[0], *extents(images[2:], filters[2:], axes))
        out_dtype = rules.outputs[0]
        if self.out is not None:
            out_dtype = dtype_of("out", self.out, rules.outputs)
        fresh = fresh_of(array_shape(made, channels_last=last), out_dtype)
        self._check_others(beta, filters[0], fresh, rules.vector)
        reads_out = beta != 0 and self.residual is None
        inputs = [(name, getattr(self, name)) for name in ("x", "w", "bias", "residual", "x_scale", "w_scale")]
        scales = self._scales(dtype)
        check_given([("out", self.out, fresh)], inputs)
        draft = Draft()
        order = dense_order(self.x, channels_last=last)
        x = image_view(draft, draft.read("x", self.x), channels_last=last, prefer_last=order)
        w = image_view(draft, draft.read("w", self.w), channels_last=last, prefer_last=order)
        strides = array_shape(packed(made, channels_last=order), channels_last=last)
        target = draft.write("out", self.out, fresh, updated=reads_out, strides=strides)
        out = image_view(draft, target, channels_last=last, prefer_last=order)
        if reads_out:
            residual: int | None = out
        elif beta != 0:
            residual = image_view(draft, draft.read("residual", self.residual), channels_last=last, prefer_last=order)
        else:
            residual = None
        bias = None
        if self.bias is not None:
            found = draft.tensors[out]
            innermost = found.strides == packed(found.shape, channels_last=True)
            bias = vector_view(draft, draft.read("bias", self.bias), len(found.shape), channels_last=innermost)
        ones = (1,) * len(draft.tensors[out].shape)
        factors = [draft.view(draft.read(name, scale), ones, ones) for name, scale in scales]
        _forward(draft, self, (x, w, out), (bias, residual, factors), rules.compute, (alpha, beta), axes)
        return draft.lowered(
            "cudnn.convolution",
            itemgetter("out"),
            tf32=bool(self.tf32),
            deterministic=bool(self.deterministic),
            tune=tuning_of(self),
        )

    def _scales(self, dtype: str) -> list[tuple[str, Any]]:
        """Return the scales that are given."""
        found = [(name, getattr(self, name)) for name in ("x_scale", "w_scale") if getattr(self, name) is not None]
        for name, scale in found:
            if not dtype.startswith("float8"):
                raise InvalidRequest(f"{name} is given for {dtype}; allowed: for float8_e4m3fn, float8_e5m2")
            dtype_of(name, scale, ("float32",))
            if tuple(scale.shape) not in ((1,), ()):
                raise InvalidRequest(f"{name} has shape {tuple(scale.shape)}; allowed: (1,)")
        return found

    def _check_others(self, beta: float, filters: int, fresh: Fresh, vector: str) -> None:
        if self.bias is not None:
            check_vector("bias", self.bias, filters, (vector,))
        if self.residual is not None:
            if beta == 0:
                raise InvalidRequest("residual is given, and beta is 0; allowed: a factor beta that is not 0")
            dtype_of("residual", self.residual, (dtype_name(fresh.dtype),))
            if tuple(self.residual.shape) != fresh.shape:
                raise InvalidRequest(f"residual has shape {tuple(self.residual.shape)}; allowed: {fresh.shape}")
        elif beta != 0 and self.out is None:
            raise InvalidRequest(f"beta={beta} without residual and out; allowed: 0, or one of these arrays")


def _forward(
    draft: Draft,
    request: ConvolutionRequest,
    tensors: tuple[int, int, int],
    others: tuple[int | None, int | None, list[int]],
    compute: str,
    factors: tuple[float, float],
    axes: Axes,
) -> None:
    """Add the nodes of a convolution and what follows it."""
    (x, w, out), (bias, residual, scales), (alpha, beta) = tensors, others, factors
    ports = {"x": x, "w": w, "y": out}
    real = "float64" if compute == "float64" else "float32"
    exact = compute != "int32"
    if exact and bias is None and not scales and request.activation is None and residual in (None, out):
        draft.node(
            "convolution_forward",
            ports,
            compute=compute,
            integers=axes.integers(),
            reals={"alpha": alpha, "beta": beta},
        )
        return
    value = ports["y"] = draft.like(out, real if exact else "int32")
    draft.node("convolution_forward", ports, compute=compute, integers=axes.integers())
    rank = len(draft.tensors[out].shape)
    todo: list[tuple[str, int | None]] = [("mul", scale) for scale in scales]
    if alpha != 1:
        todo.append(("mul", draft.constant(alpha, rank, real)))
    if residual is not None and beta == 1:
        todo.append(("add", residual))
    elif residual is not None:
        scaled = draft.pointwise(
            "mul", residual, draft.constant(beta, rank, real), to=draft.like(residual, real), compute=real
        )
        todo.append(("add", scaled))
    if bias is not None:
        todo.append(("add", bias))
    if request.activation is not None:
        todo.append((request.activation, None))
    todo = todo or [("identity", None)]
    for place, (mode, other) in enumerate(todo):
        to = out if place == len(todo) - 1 else draft.like(out, real)
        if mode in ("mul", "add", "identity"):
            value = draft.pointwise(mode, value, other, to=to, compute=real)
        else:
            value = activated(draft, mode, value, to=to, compute=real)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConvolutionGradient(_Convolving):
    """What the gradients have in common: a message of one node."""

    dy: Any
    size: int | tuple[int, ...]

    def _lowered_as(
        self, op: str, names: tuple[str, str], port: str, wanted: tuple[int, ...], made: tuple[int, ...], axes: Axes
    ) -> Lowered:
        """Return the message, after a check of dy's shape; `made` is the shape of the gradient."""
        last = bool(self.channels_last)
        if self._image("dy") != wanted:
            raise InvalidRequest(
                f"dy has shape {tuple(self.dy.shape)}; allowed: {array_shape(wanted, channels_last=last)}, the shape "
                f"of the convolution's result"
            )
        alpha, beta = self._factors()
        if beta != 0 and self.out is None:
            raise InvalidRequest(f"beta={beta} without out; allowed: 0, or an array out")
        inputs = [(name, getattr(self, name)) for name in names]
        dtype = dtype_name(as_dtype(inputs[0][1].dtype))
        fresh = fresh_of(array_shape(made, channels_last=last), dtype)
        check_given([("out", self.out, fresh)], inputs)
        order = dense_order(inputs[0][1], channels_last=last)
        draft = Draft()
        ports = {
            name: image_view(draft, draft.read(name, array), channels_last=last, prefer_last=order)
            for name, array in inputs
        }
        strides = array_shape(packed(made, channels_last=order), channels_last=last)
        target = draft.write("out", self.out, fresh, updated=beta != 0, strides=strides)
        ports[port] = image_view(draft, target, channels_last=last, prefer_last=order)
        draft.node(
            op,
            ports,
            compute=GRADIENT_DTYPES[dtype],
            integers=axes.integers(),
            reals={"alpha": alpha, "beta": beta},
        )
        return draft.lowered(
            f"cudnn.{op}",
            itemgetter("out"),
            tf32=bool(self.tf32),
            deterministic=bool(self.deterministic),
            tune=tuning_of(self),
        )


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionDataGradientRequest(_ConvolutionGradient):
    """The gradient of a convolution by its input, ``dx = alpha * (dy by w) + beta * dx``, checked when it is made.

    It is also the transposed convolution of dy.

    Parameters
    ----------
    dy : GpuRef
        The gradient by the convolution's result, in the layouts and dtypes of `ConvolutionRequest` but int8.
    w : GpuRef
        The filters.
    size : int or tuple of int
        Extents of the spatial axes of x, which dy does not tell where the stride is not 1.
    out : GpuRef, optional
        Where dx goes.
    stride, padding, dilation, groups, alpha, beta, channels_last, tf32, deterministic, tune
        As in `ConvolutionRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> dy = device.put(np.ones((1, 1, 4), "float32"))
    >>> w = device.put(np.array([[[1.0, 0.0, -1.0]]], "float32"))
    >>> device.cudnn.tell(an.ConvolutionDataGradientRequest(dy=dy, w=w, size=6)).numpy()
    array([[[ 1.,  1.,  0.,  0., -1., -1.]]], dtype=float32)
    """

    w: Any

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        axes_count, _ = self._checked("dy", "w", GRADIENT_DTYPES)
        grad, filters = self._image("dy"), self._image("w")
        size = per_axis("size", self.size, axes_count, 1)
        images = (grad[0], filters[1] * as_integer("groups", self.groups, 1, _MOST), *size)
        self._check_filters(images[1], filters)
        axes = self._axes(axes_count)
        wanted = (images[0], filters[0], *extents(size, filters[2:], axes))
        return self._lowered_as("convolution_backward_data", ("dy", "w"), "dx", wanted, images, axes)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionFilterGradientRequest(_ConvolutionGradient):
    """The gradient of a convolution by its filters, ``dw = alpha * (x by dy) + beta * dw``, checked when it is made.

    Parameters
    ----------
    x : GpuRef
        The convolution's input, in the layouts and dtypes of `ConvolutionRequest` but int8.
    dy : GpuRef
        The gradient by its result.
    size : int or tuple of int
        Extents of the filters' spatial axes.
    out : GpuRef, optional
        Where dw goes: (K, C / groups, ...), or with `channels_last` (K, ..., C / groups).
    stride, padding, dilation, groups, alpha, beta, channels_last, tf32, deterministic, tune
        As in `ConvolutionRequest`.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> x, dy = device.put(np.arange(6.0).reshape(1, 1, 6)), device.put(np.ones((1, 1, 4)))
    >>> device.cudnn.tell(an.ConvolutionFilterGradientRequest(x=x, dy=dy, size=3)).numpy()
    array([[[ 6., 10., 14.]]])
    """

    x: Any

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        axes_count, _ = self._checked("x", "dy", GRADIENT_DTYPES)
        images, grad = self._image("x"), self._image("dy")
        groups = as_integer("groups", self.groups, 1, _MOST)
        if images[1] % groups:
            raise InvalidRequest(f"x has {images[1]} channels for {groups} groups; allowed: a multiple of the groups")
        filters = (grad[1], images[1] // groups, *per_axis("size", self.size, axes_count, 1))
        self._check_filters(images[1], filters)
        axes = self._axes(axes_count)
        wanted = (images[0], filters[0], *extents(images[2:], filters[2:], axes))
        return self._lowered_as("convolution_backward_filter", ("x", "dy"), "dw", wanted, filters, axes)
