"""Rules that the requests of cuDNN share: options of spatial axes, layouts, dtypes, outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ..._support.checks import as_integer, check_flag, is_integer
from ...arrays.operands import Fresh, check_disjoint, check_input, check_output
from ...dtypes import DTYPES, as_dtype, dtype_name
from ...errors import InvalidRequest
from .draft import Draft, packed, settled

__all__ = [
    "ACTIVATIONS",
    "FLOATS",
    "Axes",
    "check_given",
    "check_vector",
    "dtype_of",
    "array_shape",
    "dense_order",
    "extents",
    "flags",
    "fresh_of",
    "image_shape",
    "image_view",
    "paddings_of",
    "per_axis",
    "spatial_axes",
    "vector_view",
]

#: Floating-point dtypes of most operations.
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
#: Activations by name, as pointwise modes without their ending.
ACTIVATIONS: Final = {
    "relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh", "silu": "swish", "sigmoid": "sigmoid",
    "tanh": "tanh", "elu": "elu", "softplus": "softplus",
}  # fmt: skip
_MOST: Final = 2**31 - 1


class Axes(NamedTuple):
    """Options of the spatial axes, a number for each.

    Attributes
    ----------
    before, after : tuple of int
        Paddings.
    stride, dilation : tuple of int
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def integers(self) -> dict[str, tuple[int, ...]]:
        """Return them as a node's numbers; a lone axis gets a second one in front, since cuDNN takes two or three."""
        lone = len(self.stride) == 1
        zero, one = ((0,), (1,)) if lone else ((), ())
        return {
            "before": zero + self.before, "after": zero + self.after, "stride": one + self.stride,
            "dilation": one + self.dilation,
        }  # fmt: skip


def flags(request: Any, *names: str) -> None:
    """Refuse options that are neither True nor False."""
    for name in names:
        check_flag(name, getattr(request, name), bool | np.bool)


def dtype_of(name: str, array: Any, allowed: Iterable[str]) -> str:
    """Return the dtype's name of an operand, which must be one of these."""
    found = dtype_name(as_dtype(check_input(name, array).dtype))
    if found not in allowed:
        raise InvalidRequest(f"{name} has dtype {found}; allowed: {', '.join(allowed)}")
    return found


def spatial_axes(name: str, array: Any, least: int = 1) -> int:
    """Return how many spatial axes an array of images has."""
    shape = tuple(check_input(name, array).shape)
    if not least + 2 <= len(shape) <= 5:
        raise InvalidRequest(
            f"{name} has shape {shape}; allowed: batch, channels and {least} to 3 spatial axes, {least + 2} to 5 in all"
        )
    return len(shape) - 2


def per_axis(name: str, value: object, axes: int, least: int) -> tuple[int, ...]:
    """Return an option as a number for each spatial axis."""
    if is_integer(value):
        return (as_integer(name, value, least, _MOST),) * axes
    if isinstance(value, tuple | list) and len(value) == axes:
        return tuple(as_integer(f"{name}[{i}]", one, least, _MOST) for i, one in enumerate(value))
    raise InvalidRequest(f"{name}={value!r}; allowed: an integer, or {axes} of them, one for each spatial axis")


def paddings_of(value: object, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return paddings before and after each spatial axis."""
    if isinstance(value, tuple | list) and len(value) == axes and any(isinstance(one, tuple | list) for one in value):
        pairs = [per_axis(f"padding[{i}]", one, 2, 0) for i, one in enumerate(value)]
        return tuple(before for before, _ in pairs), tuple(after for _, after in pairs)
    if not is_integer(value) and not (isinstance(value, tuple | list) and len(value) == axes):
        raise InvalidRequest(
            f"padding={value!r}; allowed: an integer, {axes} integers, or {axes} pairs (before, after), one for each "
            f"spatial axis"
        )
    both = per_axis("padding", value, axes, 0)
    return both, both


def extents(size: Sequence[int], filters: Sequence[int], axes: Axes) -> tuple[int, ...]:
    """Return the extents of the spatial axes after a convolution."""
    made = []
    for i, (n, k) in enumerate(zip(size, filters, strict=True)):
        reach = axes.dilation[i] * (k - 1) + 1
        padded = n + axes.before[i] + axes.after[i]
        if reach > padded:
            raise InvalidRequest(
                f"the filter reaches over {reach} elements of spatial axis {i}, and x has {padded} with its padding; "
                f"allowed: filters that fit"
            )
        made.append((padded - reach) // axes.stride[i] + 1)
    return tuple(made)


def image_shape(shape: Sequence[int], *, channels_last: bool) -> tuple[int, ...]:
    """Return (N, C, ...) of an array's shape, or of such a shape that of an array."""
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last else tuple(shape)


def array_shape(shape: Sequence[int], *, channels_last: bool) -> tuple[int, ...]:
    """Return the shape of an array of images (N, C, ...)."""
    return (shape[0], *shape[2:], shape[1]) if channels_last else tuple(shape)


def dense_order(array: Any, *, channels_last: bool) -> bool:
    """Return whether the channels of an array of images are innermost in memory.

    Of an array that is dense in both orders, it is what `channels_last` says.
    """
    size = as_dtype(array.dtype).itemsize
    shape = image_shape(array.shape, channels_last=channels_last)
    strides = image_shape([s // size for s in array.strides], channels_last=channels_last)
    dense = [
        all(n == 1 or s == d for n, s, d in zip(shape, strides, packed(shape, channels_last=last), strict=True))
        for last in (False, True)
    ]
    return dense[1] and (not dense[0] or channels_last)


def image_view(draft: Draft, operand: int, *, channels_last: bool, prefer_last: bool) -> int:
    """Add the tensor of images of an operand: (N, C, ...), with two spatial axes at least."""
    spec = draft.operands[operand].spec
    shape = image_shape(spec.shape, channels_last=channels_last)
    strides = image_shape(draft.dense_strides(operand), channels_last=channels_last)
    if len(shape) == 3:
        shape, strides = (*shape[:2], 1, shape[2]), (*strides[:2], strides[2] * shape[2], strides[2])
    return draft.view(operand, shape, settled(shape, strides, channels_last=prefer_last))


def vector_view(draft: Draft, operand: int, rank: int, *, channels_last: bool) -> int:
    """Add a tensor (1, C, 1, ...) of an operand of one axis, in a memory order of images."""
    spec = draft.operands[operand].spec
    n, step = spec.shape[0], draft.dense_strides(operand)[0]
    shape = (1, n, *([1] * (rank - 2)))
    strides = tuple(s * step for s in packed(shape, channels_last=channels_last))
    return draft.view(operand, shape, strides)


def check_vector(name: str, array: Any, n: int, allowed: Iterable[str]) -> None:
    """Refuse what is no array of n elements and one axis, of one of these dtypes."""
    dtype_of(name, array, allowed)
    if tuple(array.shape) != (n,):
        raise InvalidRequest(f"{name} has shape {tuple(array.shape)}; allowed: ({n},), an element for each channel")


def check_given(outputs: Iterable[tuple[str, Any, Fresh]], inputs: Iterable[tuple[str, Any]]) -> None:
    """Refuse outputs of another shape or dtype than the result, and those that share memory with other operands."""
    given = []
    for name, array, fresh in outputs:
        if array is None:
            continue
        check_output(name, array)
        found = dtype_name(as_dtype(array.dtype))
        if tuple(array.shape) != fresh.shape or as_dtype(array.dtype) != fresh.dtype:
            raise InvalidRequest(
                f"{name} is {found}{list(array.shape)}; allowed: {dtype_name(fresh.dtype)}{list(fresh.shape)}"
            )
        given.append((name, array))
    check_disjoint(given, [(name, array) for name, array in inputs if array is not None])


def fresh_of(shape: Sequence[int], dtype: str) -> Fresh:
    """Return the structure of a new array."""
    return Fresh(tuple(shape), DTYPES[dtype])
