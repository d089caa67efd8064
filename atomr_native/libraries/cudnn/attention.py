"""Requests of attention, forward and backward: graphs of matrix products, masks and softmax that cuDNN fuses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ..._support.checks import as_integer, check_choice, is_real
from ..._support.public import public
from ...arrays.operands import check_input
from ...dtypes import as_dtype
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .draft import Draft, packed
from .spec import check_given, dtype_of, flags, fresh_of
from .support import ATTENTION_DTYPES, HEAD_DIM

__all__ = ["SCRATCH", "AttentionGradientRequest", "AttentionRequest"]

#: Axes of arrays by layout, as places of (batch, head, token, element).
LAYOUTS: Final = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}
#: Arrays that messages need besides those of their requests.
SCRATCH: Final = ("sums", "wide", "log_sums")
MASKS: Final = ("none", "causal", "causal_bottom_right")
#: Bytes of which strides are multiples.
_ALIGNED: Final = 16
_SWAPPED: Final = (0, 1, 3, 2)


class _Sizes(NamedTuple):
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int


def _shape(name: str, array: Any, layout: str) -> tuple[int, ...]:
    shape = tuple(check_input(name, array).shape)
    if len(shape) != 4:
        raise InvalidRequest(f"{name} has shape {shape}; allowed: 4 axes, {layout}")
    _check_strides(name, array)
    return tuple(shape[axis] for axis in LAYOUTS[layout])


def _check_strides(name: str, array: Any) -> None:
    """Refuse strides that cuDNN does not check, and with which attention is wrong."""
    *others, last = zip(array.shape, array.strides, strict=True)
    if last[1] != as_dtype(array.dtype).itemsize or any(n > 1 and step % _ALIGNED for n, step in others):
        raise InvalidRequest(
            f"{name} has strides {tuple(array.strides)} bytes; allowed: elements of a head next to each other, and "
            f"multiples of {_ALIGNED} for other axes, as device.copy(ref) makes them"
        )


def _array_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    made = [0] * 4
    for place, axis in enumerate(LAYOUTS[layout]):
        made[axis] = shape[place]
    return tuple(made)


def _check_sizes(request: Any) -> _Sizes:
    check_choice("layout", request.layout, LAYOUTS)
    check_choice("mask", request.mask, MASKS)
    q, k, v = (_shape(name, getattr(request, name), request.layout) for name in ("q", "k", "v"))
    if k[0] != q[0] or v[0] != q[0] or v[1] != k[1] or v[2] != k[2] or k[3] != q[3]:
        raise InvalidRequest(
            f"q, k and v have shapes {tuple(request.q.shape)}, {tuple(request.k.shape)}, {tuple(request.v.shape)} as "
            f"{request.layout}; allowed: one batch, the heads and tokens of k in v, the elements of q in k"
        )
    if not k[1] or q[1] % k[1]:
        raise InvalidRequest(f"q has {q[1]} heads, and k has {k[1]}; allowed: a multiple of those of k")
    for name, n in (("q", q[3]), ("v", v[3])):
        if n % 8 or not 0 < n <= HEAD_DIM:
            raise InvalidRequest(f"{name} has heads of {n} elements; allowed: multiples of 8 up to {HEAD_DIM}")
    sizes = _Sizes(q[0], q[1], k[1], q[2], k[2], q[3], v[3])
    _check_mask(request, sizes)
    return sizes


def _check_mask(request: Any, sizes: _Sizes) -> None:
    if request.mask == "causal_bottom_right" and sizes.queries > sizes.keys:
        raise InvalidRequest(
            f"mask='causal_bottom_right' with {sizes.queries} queries and {sizes.keys} keys: the first queries see no "
            f"key; allowed: at most as many queries as keys"
        )
    if request.window is None:
        return
    window = as_integer("window", request.window, 1, 2**31 - 1)
    if request.mask == "none":
        raise InvalidRequest(f"window={window} with mask='none'; allowed: with a causal mask")
    if request.mask == "causal" and sizes.queries >= sizes.keys + window:
        raise InvalidRequest(
            f"window={window} with {sizes.queries} queries and {sizes.keys} keys: the last queries see no key; "
            f"allowed: fewer queries than keys and window together"
        )


def _scale(request: Any, sizes: _Sizes) -> float:
    if request.scale is None:
        return 1 / math.sqrt(sizes.head_dim)
    if not is_real(request.scale) or not math.isfinite(request.scale):
        raise InvalidRequest(f"scale={request.scale!r}; allowed: a finite number")
    return float(request.scale)


class _Builder:
    """Parts that both directions have."""

    def __init__(self, request: Any, sizes: _Sizes, dtype: str) -> None:
        self.draft = Draft()
        self.request, self.sizes, self.dtype = request, sizes, dtype
        self.scale = self.draft.constant(_scale(request, sizes), 4)
        self.scores = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        self.rows = (sizes.batch, sizes.heads, sizes.queries, 1)

    def view(self, operand: int, *, turned: bool = False) -> int:
        """Add the tensor (batch, head, token, element) of an operand, or with the last two axes exchanged."""
        spec, strides = self.draft.operands[operand].spec, self.draft.dense_strides(operand)
        axes = [LAYOUTS[self.request.layout][place] for place in (_SWAPPED if turned else range(4))]
        return self.draft.view(operand, [spec.shape[a] for a in axes], [strides[a] for a in axes])

    def read(self, name: str, *, turned: bool = False) -> int:
        """Add an operand that is read, and its tensor."""
        return self.view(self.draft.read(name, getattr(self.request, name)), turned=turned)

    def statistics(self, operand: int) -> int:
        """Add the tensor (batch, head, token, 1) of an operand of 3 axes."""
        strides = self.draft.dense_strides(operand)
        return self.draft.view(operand, self.rows, (*strides, 1))

    def matmul(self, a: int, b: int, shape: tuple[int, ...], *, to: int | None = None) -> int:
        """Add a product."""
        made = self.draft.result(shape) if to is None else to
        self.draft.node("matmul", {"a": a, "b": b, "c": made})
        return made

    def reduction(self, mode: str, x: int, shape: tuple[int, ...], *, to: int | None = None) -> int:
        """Add a reduction."""
        made = self.draft.result(shape) if to is None else to
        self.draft.node("reduction", {"x": x, "y": made}, mode=mode)
        return made

    def transposed(self, x: int, dtype: str) -> int:
        """Add the exchange of the last two axes."""
        found = self.draft.tensors[x]
        shape, strides = ([values[axis] for axis in _SWAPPED] for values in (found.shape, found.strides))
        made = self.draft.result(shape, dtype, strides)
        self.draft.node("transpose", {"x": x, "y": made}, integers={"axes": _SWAPPED})
        return made

    def scaled(self, q: int, k: int) -> int:
        """Add the scaled scores of queries and keys."""
        return self.draft.pointwise("mul", self.matmul(q, k, self.scores), self.scale)

    def masked(self, scores: int) -> int:
        """Add scores with minus infinity where the mask hides a key.

        cuDNN's engines take the mask from the form of these nodes, and are wrong for equivalent ones.
        """
        draft, request, sizes = self.draft, self.request, self.sizes
        if request.mask == "none":
            return scores
        bottom_right = request.mask == "causal_bottom_right"
        column, row = self._index(scores, 3), self._index(scores, 2)
        if bottom_right:
            for mode, n in (("add", sizes.keys), ("sub", sizes.queries)):
                row = draft.pointwise(mode, row, draft.constant(n, 4, "int32"), dtype="int32", compute="int32")
        seen = draft.pointwise("cmp_ge", row, column, dtype="bool", compute="bool")
        scores = draft.pointwise("binary_select", scores, draft.constant(-math.inf, 4), seen)
        if request.window is None:
            return scores
        left = int(request.window) + (sizes.queries - sizes.keys if bottom_right else 0)
        last = draft.pointwise("add", self._index(scores, 3), draft.constant(left, 4))
        near = draft.pointwise("cmp_gt", last, self._index(scores, 2), dtype="bool", compute="bool")
        return draft.pointwise("binary_select", scores, draft.constant(-math.inf, 4), near)

    def _index(self, scores: int, axis: int) -> int:
        return self.draft.pointwise("gen_index", scores, dtype="int32", integers={"axis": (axis,)})


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRequest(Request[Any]):
    """Scaled dot-product attention, ``softmax(scale * q k^T + mask) v``, checked when it is made.

    Parameters
    ----------
    q, k, v : GpuRef
        float16 or bfloat16, of one dtype.  Queries (B, Hq, Sq, D), keys (B, Hk, Sk, D), values (B, Hk, Sk, Dv), in the
        order of axes that `layout` names.  Elements of a head are next to each other; other strides are multiples of 16
        bytes.  Hq is a multiple of Hk: a group of heads shares keys and values.  D and Dv are multiples of 8 up to 256.
    mask : str
        ``none``; ``causal``: query i sees keys up to i; ``causal_bottom_right``: up to ``i + Sk - Sq``.
    window : int, optional
        With a causal mask: only the last `window` of these keys.
    scale : float, optional
        By default ``1 / sqrt(D)``.
    statistics : bool
        Return also what the gradient needs.
    layout : str
        ``bhsd``, ``bshd`` or ``sbhd``, of all four arrays.
    out : GpuRef, optional
        Where the result goes, (B, Hq, Sq, Dv) in this order.

    Returns
    -------
    GpuRef or tuple of GpuRef
        The result; with `statistics` also the logarithms of the sums of exponentials, float32, (B, Hq, Sq).

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> q, k, v = (device.put(np.ones((1, 2, 3, 8), "float16")) for _ in range(3))
    >>> device.cudnn.tell(an.AttentionRequest(q=q, k=k, v=v, mask="causal")).numpy()[0, 0, 2]
    array([1., 1., 1., 1., 1., 1., 1., 1.], dtype=float16)
    """

    q: Any
    k: Any
    v: Any
    out: Any = None
    mask: str = "none"
    window: int | None = None
    scale: float | None = None
    statistics: bool = False
    layout: str = "bhsd"

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "statistics")
        dtype = dtype_of("q", self.q, ATTENTION_DTYPES)
        for name in ("k", "v"):
            dtype_of(name, getattr(self, name), (dtype,))
        sizes = _check_sizes(self)
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        fresh = fresh_of(_array_shape(made, self.layout), dtype)
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in "qkv"])
        if self.out is not None:
            _check_strides("out", self.out)
        build = _Builder(self, sizes, dtype)
        draft = build.draft
        q, k, v = build.read("q"), build.read("k", turned=True), build.read("v")
        out = build.view(draft.write("out", self.out, fresh))
        scores = build.masked(build.scaled(q, k))
        largest = build.reduction("max", scores, build.rows)
        exponentials = draft.pointwise("exp", draft.pointwise("sub", scores, largest))
        total = build.reduction("add", exponentials, build.rows)
        # cuDNN has no engine for the graph without them.
        name = "statistics" if self.statistics else "log_sums"
        stored = build.statistics(draft.write(name, None, fresh_of(build.rows[:3], "float32")))
        draft.pointwise("add", largest, draft.pointwise("log", total), to=stored)
        weights = draft.pointwise("div", exponentials, total, dtype=dtype)
        build.matmul(weights, v, made, to=out)
        return draft.lowered("cudnn.attention", _both if self.statistics else itemgetter("out"))


def _both(arrays: Mapping[str, Any]) -> Any:
    return arrays["out"], arrays["statistics"]


def _gradients(arrays: Mapping[str, Any]) -> Any:
    return arrays["dq"], arrays["dk"], arrays["dv"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGradientRequest(Request[Any]):
    """The gradients of attention by q, k and v, checked when it is made.

    Parameters
    ----------
    q, k, v, mask, window, scale, layout
        As in `AttentionRequest`.
    y : GpuRef
        The result of attention.
    statistics : GpuRef
        Its statistics, float32, (B, Hq, Sq).
    dy : GpuRef
        The gradient by the result.

    Returns
    -------
    tuple of GpuRef
        The gradients by q, k and v, of their shapes and dtype.  Sums of the gradient by q are in no fixed order, so
        that equal messages may differ in the last places.

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> q, k, v = (device.put(np.ones((1, 2, 3, 8), "float16")) for _ in range(3))
    >>> y, statistics = device.cudnn.attention(q, k, v, statistics=True)
    >>> request = an.AttentionGradientRequest(q=q, k=k, v=v, y=y, statistics=statistics, dy=y)
    >>> [gradient.shape for gradient in device.cudnn.tell(request)]
    [(1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8)]
    """

    q: Any
    k: Any
    v: Any
    y: Any
    statistics: Any
    dy: Any
    mask: str = "none"
    window: int | None = None
    scale: float | None = None
    layout: str = "bhsd"

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        dtype = dtype_of("q", self.q, ATTENTION_DTYPES)
        for name in ("k", "v", "y", "dy"):
            dtype_of(name, getattr(self, name), (dtype,))
        sizes = _check_sizes(self)
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        for name in ("y", "dy"):
            if _shape(name, getattr(self, name), self.layout) != made:
                shape = tuple(getattr(self, name).shape)
                raise InvalidRequest(f"{name} has shape {shape}; allowed: {_array_shape(made, self.layout)}")
        dtype_of("statistics", self.statistics, ("float32",))
        if tuple(self.statistics.shape) != made[:3]:
            raise InvalidRequest(f"statistics has shape {tuple(self.statistics.shape)}; allowed: {made[:3]}")
        build = _Builder(self, sizes, dtype)
        _backward(build, sizes)
        return build.draft.lowered("cudnn.attention_backward", _gradients)


def _backward(build: _Builder, sizes: _Sizes) -> None:
    """Add the nodes of the gradients."""
    draft, request, dtype = build.draft, build.request, build.dtype
    q, dy, y = build.read("q"), build.read("dy"), build.read("y")
    k_at, v_at = draft.read("k", request.k), draft.read("v", request.v)
    k, v = build.view(k_at, turned=True), build.view(v_at, turned=True)
    statistics = build.statistics(draft.read("statistics", request.statistics))
    # Parts of the graph meet in memory here: the sums of dy * y, and the gradient by q before it is rounded.
    sums = build.statistics(draft.write("sums", None, fresh_of(build.rows[:3], "float32")))
    q_shape = (sizes.batch, sizes.heads, sizes.queries, sizes.head_dim)
    wide = draft.write("wide", None, fresh_of(q_shape, "float32"))
    dq, dk, dv = (
        build.view(draft.write(f"d{name}", None, fresh_of(getattr(request, name).shape, dtype))) for name in "qkv"
    )
    products = draft.pointwise("mul", dy, y, to=draft.result(draft.tensors[dy].shape))
    draft.pointwise("mul", build.reduction("add", products, build.rows), draft.constant(1.0, 4), to=sums)
    # The engines for gradients expect the mask after the statistics are subtracted.
    weights = draft.pointwise("exp", build.masked(draft.pointwise("sub", build.scaled(q, k), statistics)))
    by_value = (sizes.batch, sizes.heads, sizes.keys, sizes.value_dim)
    by_key = (sizes.batch, sizes.heads, sizes.keys, sizes.head_dim)
    _shared(build, build.transposed(weights, dtype), dy, by_value, dv)
    slopes = build.matmul(dy, v, build.scores)
    slopes = draft.pointwise("mul", draft.pointwise("sub", slopes, sums), weights)
    slopes = draft.pointwise("mul", slopes, build.scale)
    _shared(build, build.transposed(slopes, dtype), q, by_key, dk)
    keys = build.transposed(k, "float32")
    accumulated = draft.view(wide, q_shape, packed(q_shape))
    build.matmul(slopes, keys, q_shape, to=accumulated)
    draft.pointwise("identity", accumulated, to=dq)


def _shared(build: _Builder, a: int, b: int, shape: tuple[int, ...], to: int) -> None:
    """Add a product, summed over the heads of a group."""
    if build.sizes.heads == build.sizes.groups:
        build.matmul(a, b, shape, to=to)
        return
    parts = build.draft.result(shape, build.dtype)
    build.reduction("add", build.matmul(a, b, shape, to=parts), shape, to=to)
