"""The request of attention over float8: products of codes, with scales and the largest magnitudes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .attention_graph import Builder
from .attention_shapes import array_shape, check_attention, check_strides
from .spec import check_given, dtype_of, flags, fresh_of
from .support import FLOAT8_DTYPES, FLOAT8_LAYOUTS, FLOAT8_MASKS, FLOAT8_MULTIPLE

__all__ = ["Float8AttentionRequest"]

_SCALES: Final = ("q_scale", "k_scale", "v_scale", "weights_scale", "out_scale")


def _results(arrays: Mapping[str, Any]) -> Any:
    names = ("out", "weights_amax", "out_amax", "statistics")
    return tuple(arrays[name] for name in names if name in arrays)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class Float8AttentionRequest(Request[Any]):
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
    layout : str
        ``bhsd``, ``bshd`` or ``sbhd``.
    out : GpuRef, optional
        Where the result goes.

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
    #: Options of attention that it does not have.
    bias: ClassVar[None] = None
    slopes: ClassVar[None] = None
    sink: ClassVar[None] = None
    window: ClassVar[None] = None
    k_pages: ClassVar[None] = None
    q_lengths: ClassVar[None] = None
    kv_lengths: ClassVar[None] = None
    q_offsets: ClassVar[None] = None
    kv_offsets: ClassVar[None] = None
    max_queries: ClassVar[None] = None
    max_keys: ClassVar[None] = None
    dropout: ClassVar[float] = 0.0
    seed: ClassVar[int] = 0
    offset: ClassVar[int] = 0

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "statistics")
        for name, allowed in (("mask", FLOAT8_MASKS), ("layout", FLOAT8_LAYOUTS)):
            if getattr(self, name) not in allowed:
                raise InvalidRequest(f"{name}={getattr(self, name)!r}; allowed: {', '.join(map(repr, allowed))}")
        dtype = dtype_of("q", self.q, FLOAT8_DTYPES)
        for name in ("k", "v"):
            dtype_of(name, getattr(self, name), (dtype,))
        sizes = check_attention(self)
        for name, n in (("q", sizes.head_dim), ("v", sizes.value_dim)):
            if n % FLOAT8_MULTIPLE:
                raise InvalidRequest(f"{name} has heads of {n} elements; allowed: multiples of {FLOAT8_MULTIPLE}")
        for name in _SCALES:
            dtype_of(name, getattr(self, name), ("float32",))
            if math.prod(getattr(self, name).shape) != 1:
                raise InvalidRequest(f"{name} has shape {tuple(getattr(self, name).shape)}; allowed: one element")
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        fresh = fresh_of(array_shape(made, self.layout), dtype)
        check_given([("out", self.out, fresh)], [(name, getattr(self, name)) for name in ("q", "k", "v", *_SCALES)])
        if self.out is not None:
            check_strides("out", self.out)
        build = Builder(self, sizes, dtype)
        _forward(build)
        return build.draft.lowered("cudnn.attention_float8", _results, traits=(*build.traits(), "float8"))


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
