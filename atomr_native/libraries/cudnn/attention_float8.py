"""The request of attention over float8: products of codes, with scales and the largest magnitudes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ..._support.checks import check_choice
from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .._tuning import tuning_of
from .attention_graph import Builder
from .attention_shapes import Sizes, array_shape, check_attention, check_shape, check_strides
from .spec import check_given, dtype_of, flags, fresh_of
from .support import FLOAT8_DTYPES, FLOAT8_GRADIENT_HEADS, FLOAT8_MASKS, FLOAT8_MULTIPLE

__all__ = ["Float8AttentionGradientRequest", "Float8AttentionRequest"]

_SCALES: Final = ("q_scale", "k_scale", "v_scale", "weights_scale", "out_scale")
_ENDS: Final = ("q_lengths", "kv_lengths", "q_offsets", "kv_offsets")

#: Of the gradients: of codes that are read, and by which results are multiplied before they are rounded.
_READ: Final = ("q_scale", "k_scale", "v_scale", "y_scale", "dy_scale")
_ROUNDED: Final = ("weights_scale", "slopes_scale", "dq_scale", "dk_scale", "dv_scale")


def _gradients(arrays: Mapping[str, Any]) -> Any:
    return tuple(arrays[name] for name in ("dq", "dk", "dv", "dq_amax", "dk_amax", "dv_amax", "slopes_amax"))


def _results(arrays: Mapping[str, Any]) -> Any:
    names = ("out", "weights_amax", "out_amax", "statistics")
    return tuple(arrays[name] for name in names if name in arrays)


class _Options:
    """Options of attention that it does not have over float8."""

    __slots__ = ()

    bias: ClassVar[None] = None
    slopes: ClassVar[None] = None
    sink: ClassVar[None] = None
    window: ClassVar[None] = None
    k_pages: ClassVar[None] = None
    dropout: ClassVar[float] = 0.0
    seed: ClassVar[int] = 0
    offset: ClassVar[int] = 0


def _checked(request: Any, arrays: Sequence[str], scales: Sequence[str]) -> tuple[Sizes, str]:
    """Check what both directions have; returns the sizes and the dtype of codes."""
    check_choice("mask", request.mask, FLOAT8_MASKS)
    dtype = dtype_of("q", request.q, FLOAT8_DTYPES)
    for name in arrays:
        dtype_of(name, getattr(request, name), (dtype,))
    sizes = check_attention(request)
    for name, n in (("q", sizes.head_dim), ("v", sizes.value_dim)):
        if n % FLOAT8_MULTIPLE:
            raise InvalidRequest(f"{name} has heads of {n} elements; allowed: multiples of {FLOAT8_MULTIPLE}")
    for name in scales:
        dtype_of(name, getattr(request, name), ("float32",))
        if math.prod(getattr(request, name).shape) != 1:
            raise InvalidRequest(f"{name} has shape {tuple(getattr(request, name).shape)}; allowed: one element")
    return sizes, dtype


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class Float8AttentionRequest(_Options, Request[Any]):
    """Scaled dot-product attention of float8 arrays, checked when it is made.

    Codes of q, k and v are multiplied by their scales.  Weights, from 0 to 1, are multiplied by `weights_scale` and
    rounded to float8 for the product with v, and the result is multiplied by `out_scale` and rounded.

    Parameters
    ----------
    q, k, v : GpuRef
        float8_e4m3fn or float8_e5m2, of one dtype, as of `AttentionRequest`; heads have multiples of 16 elements.
    q_scale, k_scale, v_scale : GpuRef
        float32, (1,): the values of codes are multiples of it, as `device.float8.quantize` returns it.
    weights_scale, out_scale : GpuRef
        float32, (1,).
    mask : str
        ``none`` or ``causal``.
    scale : float, optional
        By default ``1 / sqrt(D)``.
    statistics : bool
        Whether to return the logarithms of the sums of exponentials, too.
    layout, q_lengths, kv_lengths, q_offsets, kv_offsets, max_queries, max_keys
        As of `AttentionRequest`.  On Hopper lengths and offsets are refused.
    out : GpuRef, optional
        Where the result goes.
    tune : bool or "known"
        As of `ConvolutionRequest`; no effect with lengths or offsets.

    Returns
    -------
    tuple of GpuRef
        The result, in q's dtype: codes of values times `out_scale`, so ``1 / out_scale`` is their scale; what is too
        large is the largest number.  The largest magnitudes of the weights and of the result before they are scaled,
        float32, (1,), by which later scales are chosen.  With `statistics` these, float32, (B, Hq, Sq).

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> q, scale, *_ = device.float8.quantize(device.put(np.ones((1, 2, 4, 16), "float32")))
    >>> one = device.put(np.ones(1, "float32"))
    >>> scales = {"q_scale": scale, "k_scale": scale, "v_scale": scale, "weights_scale": one, "out_scale": one}
    >>> request = an.Float8AttentionRequest(q=q, k=q, v=q, **scales)
    >>> y, weights_amax, out_amax = device.cudnn.tell(request)
    >>> float(y.numpy()[0, 0, 0, 0]), weights_amax.numpy(), out_amax.numpy()
    (1.0, array([0.25], dtype=float32), array([1.], dtype=float32))
    """

    q: Any
    k: Any
    v: Any
    q_scale: Any
    k_scale: Any
    v_scale: Any
    weights_scale: Any
    out_scale: Any
    mask: str = "none"
    scale: float | None = None
    statistics: bool = False
    layout: str = "bhsd"
    out: Any = None
    q_lengths: Any = None
    kv_lengths: Any = None
    q_offsets: Any = None
    kv_offsets: Any = None
    max_queries: int | None = None
    max_keys: int | None = None
    tune: bool | str = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "statistics")
        sizes, dtype = _checked(self, ("k", "v"), _SCALES)
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        fresh = fresh_of(array_shape(made, self.layout, self.q.shape[0]), dtype)
        names = ("q", "k", "v", *_SCALES, *_ENDS)
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in names])
        if self.out is not None:
            check_strides("out", self.out)
        build = Builder(self, sizes, dtype)
        _forward(build)
        traits = (*build.traits(), "float8")
        return build.draft.lowered("cudnn.attention_float8", _results, traits=traits, tune=tuning_of(self))


def _forward(build: Builder) -> None:
    """Add the nodes, in the form for which cuDNN has kernels."""
    draft, request, sizes, dtype = build.draft, build.request, build.sizes, build.dtype
    one = (1, 1, 1, 1)
    q, k, v = build.read("q"), build.read("k", turned=True, keys=True), build.read("v", keys=True)
    scales = {name: draft.view(draft.read(name, getattr(request, name)), one, one) for name in _SCALES}
    made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
    out = build.written("out", request.out, made)
    largest = [
        draft.view(draft.write(f"{n}_amax", None, fresh_of((1,), "float32")), one, one) for n in ("weights", "out")
    ]
    name = "statistics" if request.statistics else "log_sums"
    stored = build.statistics(draft.write(name, None, fresh_of(build.rows[:3], "float32")))
    inverse = draft.result(one, "float32", one)
    # cuDNN's kernels take maxima with what is there.
    draft.node("float8", {"x": scales["weights_scale"], "y": inverse, "first": largest[0], "second": largest[1]})
    scores = draft.pointwise("mul", build.matmul(q, k, build.scores, by="mn"), build.scale)
    for name in ("q_scale", "k_scale"):
        scores = draft.pointwise("mul", scores, scales[name])
    scores = build.masked(scores)
    most = build.reduction("max", scores, build.rows)
    exponentials = draft.pointwise("exp", draft.pointwise("sub", scores, most))
    total = build.reduction("add", exponentials, build.rows)
    draft.pointwise("add", most, draft.pointwise("log", total), to=stored)
    weights = draft.pointwise("div", exponentials, total)
    build.reduction("amax", weights, one, to=largest[0])
    weights = draft.pointwise("mul", weights, scales["weights_scale"], dtype=dtype)
    values = build.matmul(weights, v, made, by="mk")
    for scale in (inverse, scales["v_scale"]):
        values = draft.pointwise("mul", values, scale)
    draft.pointwise("mul", values, scales["out_scale"], to=out)
    build.reduction("amax", values, one, to=largest[1])
    build.vacate(out)
    if request.statistics:
        build.vacate(stored, value=math.inf)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class Float8AttentionGradientRequest(_Options, Request[Any]):
    """The gradients of attention of float8 arrays by q, k and v, checked when it is made.

    Codes of q, k, v, y and dy are multiplied by their scales.  Weights and the gradients by scores are multiplied by
    `weights_scale` and `slopes_scale` and rounded to float8 for the products, and the results by theirs.

    Parameters
    ----------
    q, k, v, q_scale, k_scale, v_scale, weights_scale, mask, scale, layout
        As of `Float8AttentionRequest`.  On Hopper cuDNN has engines for heads of 128 elements, as many of k as of q.
    tune
        As of `Float8AttentionRequest`.
    q_lengths, kv_lengths, q_offsets, kv_offsets, max_queries, max_keys
        As of `Float8AttentionRequest`.
    y : GpuRef
        The result of attention, of q's dtype.
    statistics : GpuRef
        Its statistics, float32, (B, Hq, Sq).
    dy : GpuRef
        The gradient by the result, of q's dtype.
    y_scale, dy_scale : GpuRef
        float32, (1,): the values of codes are multiples of it; of y ``1 / out_scale``.
    slopes_scale, dq_scale, dk_scale, dv_scale : GpuRef
        float32, (1,).

    Returns
    -------
    tuple of GpuRef
        The gradients by q, k and v, in q's dtype: codes of values times `dq_scale`, `dk_scale` and `dv_scale`.  Then
        the largest magnitudes of these and of the gradients by scores before they are scaled, float32, (1,).

    Raises
    ------
    InvalidRequest
        For invalid or unsupported values; the message names the value and the allowed ones.

    Examples
    --------
    >>> q = device.put(np.ones((1, 1, 2, 128), "float8_e4m3fn"))
    >>> one, statistics = device.put(np.ones(1, "float32")), device.put(np.full((1, 1, 2), 12.0, "float32"))
    >>> read = dict.fromkeys(("q_scale", "k_scale", "v_scale", "y_scale", "dy_scale"), one)
    >>> rounded = dict.fromkeys(("weights_scale", "slopes_scale", "dq_scale", "dk_scale", "dv_scale"), one)
    >>> request = an.Float8AttentionGradientRequest(
    ...     q=q, k=q, v=q, y=q, dy=q, statistics=statistics, **read, **rounded
    ... )
    >>> [gradient.shape for gradient in device.cudnn.tell(request)[:3]]
    [(1, 1, 2, 128), (1, 1, 2, 128), (1, 1, 2, 128)]
    """

    q: Any
    k: Any
    v: Any
    y: Any
    statistics: Any
    dy: Any
    q_scale: Any
    k_scale: Any
    v_scale: Any
    y_scale: Any
    dy_scale: Any
    weights_scale: Any
    slopes_scale: Any
    dq_scale: Any
    dk_scale: Any
    dv_scale: Any
    mask: str = "none"
    scale: float | None = None
    layout: str = "bhsd"
    q_lengths: Any = None
    kv_lengths: Any = None
    q_offsets: Any = None
    kv_offsets: Any = None
    max_queries: int | None = None
    max_keys: int | None = None
    tune: bool | str = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        sizes, dtype = _checked(self, ("k", "v", "y", "dy"), (*_READ, *_ROUNDED))
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        wanted = array_shape(made, self.layout, self.q.shape[0])
        for name in ("y", "dy"):
            check_shape(name, getattr(self, name), self.layout)
            if tuple(getattr(self, name).shape) != wanted:
                raise InvalidRequest(f"{name} has shape {tuple(getattr(self, name).shape)}; allowed: {wanted}")
        dtype_of("statistics", self.statistics, ("float32",))
        if tuple(self.statistics.shape) != made[:3]:
            raise InvalidRequest(f"statistics has shape {tuple(self.statistics.shape)}; allowed: {made[:3]}")
        build = Builder(self, sizes, dtype)
        _backward(build)
        other = (sizes.head_dim, sizes.value_dim) != (FLOAT8_GRADIENT_HEADS,) * 2
        traits = (*build.traits(), "float8", *(("other_heads",) if other else ()))
        op, tune = "cudnn.attention_float8_backward", tuning_of(self)
        return build.draft.lowered(op, _gradients, traits=traits, tune=tune)


def _backward(build: Builder) -> None:
    """Add the nodes of the gradients, in the form for which cuDNN has kernels."""
    draft, request, sizes, dtype = build.draft, build.request, build.sizes, build.dtype
    one = (1, 1, 1, 1)
    q, dy, y = build.read("q"), build.read("dy"), build.read("y")
    k, v = build.read("k", turned=True, keys=True), build.read("v", turned=True, keys=True)
    statistics = build.statistics(draft.read("statistics", request.statistics))
    scales = {n: draft.view(draft.read(n, getattr(request, n)), one, one) for n in (*_READ, *_ROUNDED)}
    b, h, g, s, t, d, e = sizes
    made = {name: build.written(name, None, shape, keys=name != "dq")
            for name, shape in (("dq", (b, h, s, d)), ("dk", (b, g, t, d)), ("dv", (b, g, t, e)))}  # fmt: skip
    amax = {
        name: draft.view(draft.write(f"{name}_amax", None, fresh_of((1,), "float32")), one, one)
        for name in (*made, "slopes")
    }
    inverses = {}
    for name, maxima in (("weights", ("dq", "dk")), ("slopes", ("dv", "slopes"))):
        inverses[name] = draft.result(one, "float32", one)
        ports = {"x": scales[f"{name}_scale"], "y": inverses[name], "first": amax[maxima[0]], "second": amax[maxima[1]]}
        draft.node("float8", ports)

    def times(x: int, *names: str) -> int:
        for name in names:
            x = draft.pointwise("mul", x, scales[name])
        return x

    def deliver(name: str, product: int, inverse: str, scale: str) -> None:
        """Add the scales of a product, its largest magnitude, and its codes."""
        shape = draft.tensors[made[name]].shape
        if draft.tensors[product].shape[1] != shape[1]:
            product = build.reduction("add", product, shape)
        product = times(draft.pointwise("mul", product, inverses[inverse]), scale)
        draft.pointwise("mul", product, scales[f"{name}_scale"], to=made[name])
        build.reduction("amax", product, one, to=amax[name])

    products = draft.pointwise("mul", dy, y, to=draft.result(draft.tensors[dy].shape))
    sums = times(build.reduction("add", products, build.rows), "dy_scale", "y_scale")
    scores = times(draft.pointwise("mul", build.matmul(q, k, build.scores, by="mn"), build.scale), "q_scale", "k_scale")
    weights = draft.pointwise("exp", draft.pointwise("sub", build.masked(scores), statistics))
    rounded = draft.pointwise("mul", weights, scales["weights_scale"], dtype=dtype)
    deliver("dv", build.matmul(build.transposed(rounded, dtype), dy, (b, h, t, e), by="km"), "weights", "dy_scale")
    slopes = times(build.matmul(dy, v, build.scores, by="mn"), "dy_scale", "v_scale")
    slopes = draft.pointwise("mul", draft.pointwise("sub", slopes, sums), weights)
    slopes = draft.pointwise("mul", slopes, build.scale)
    build.reduction("amax", slopes, one, to=amax["slopes"])
    slopes = draft.pointwise("mul", slopes, scales["slopes_scale"], dtype=dtype)
    keys = build.transposed(k, "float32")
    deliver("dq", build.matmul(slopes, keys, (b, h, s, d), by="mk"), "slopes", "k_scale")
    deliver("dk", build.matmul(build.transposed(slopes, dtype), q, (b, h, t, d), by="km"), "slopes", "q_scale")
    for name in ("dq", "dk", "dv"):
        build.vacate(made[name], keys=name != "dq")
