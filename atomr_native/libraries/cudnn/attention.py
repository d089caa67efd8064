"""Requests of attention, forward and backward: graphs of matrix products, masks and softmax that cuDNN fuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from ..._support.public import public
from ...errors import InvalidRequest
from ...plans.lowering import Lowered, Request
from .._tuning import tuning_of
from .attention_graph import Builder, backward, forward
from .attention_shapes import array_shape, check_attention, check_shape, check_strides
from .defaults import ZERO
from .spec import check_given, dtype_of, flags, fresh_of
from .support import ATTENTION_DTYPES

__all__ = ["SCRATCH", "AttentionGradientRequest", "AttentionRequest"]

#: Arrays that messages need besides those of their requests.
SCRATCH: Final = ("sums", "wide", "log_sums")


def _both(arrays: Mapping[str, Any]) -> Any:
    return arrays["out"], arrays["statistics"]


def _gradients(arrays: Mapping[str, Any]) -> Any:
    return tuple(arrays[name] for name in ("dq", "dk", "dv", "dbias", "dsink") if name in arrays)


#: Arrays that requests may have besides q, k and v.
_OPTIONAL: Final = (
    "bias", "slopes", "sink", "q_lengths", "kv_lengths", "q_offsets", "kv_offsets", "k_pages", "v_pages",
)  # fmt: skip


def _inputs(request: Any, *names: str) -> list[tuple[str, Any]]:
    given = [(name, getattr(request, name, None)) for name in (*names, *_OPTIONAL)]
    return [(name, array) for name, array in given if array is not None]


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
        With a causal mask: only the last `window` of these keys.  With ``none``: keys that are less than `window`
        tokens away, before and after the query.
    scale : float, optional
        By default ``1 / sqrt(D)``.
    statistics : bool
        Return also what the gradient needs.
    layout : str
        ``bhsd``, ``bshd`` or ``sbhd``, of all four arrays; ``thd``: sequences one after the other, (tokens, heads,
        elements).
    out : GpuRef, optional
        Where the result goes, (B, Hq, Sq, Dv) in this order.
    bias : GpuRef, optional
        Added to the scaled scores: (B, Hq, Sq, Sk) with 1 for batches or heads that share it, of the dtype of q,
        C-contiguous.
    slopes : GpuRef, optional
        Of ALiBi, with a causal mask: float32, (Hq,); ``slopes[h] * (j - i)`` is added to the score of query i and
        key j.
    sink : GpuRef, optional
        float32, (Hq,): the score of a further key of each head, whose value is 0.
    q_lengths, kv_lengths : GpuRef, optional
        int32, (B,): tokens of each sequence, from 0 to Sq and Sk.  Those after them are not seen, and the result there
        is 0.  They are read on the device, and not checked.  No array may hold NaN or infinities there on a GPU: cuDNN
        multiplies them by 0.
    q_offsets, kv_offsets : GpuRef, optional
        With ``layout="thd"``: int32, (B + 1,), ascending: the token at which each sequence begins, and the end of the
        last.  Tokens in no sequence are not written.
    max_queries, max_keys : int, optional
        With ``layout="thd"``: the tokens of the longest sequence, or more.  Those of longer ones are left out.
    k_pages, v_pages : GpuRef, optional
        int32, (B, pages): k and v are pages, (pages in all, Hk, tokens of a page, D) in the order of `layout`, and
        sequence b consists of pages ``k_pages[b]``, up to ``kv_lengths[b]`` tokens.
    dropout : float
        The probability, from 0 to less than 1, with which a weight becomes 0; the others are divided by
        ``1 - dropout``.  Not with pages.
    seed, offset : int
        With dropout: what is dropped depends on them and on the place of the weight only, on one kind of device.
    tune : bool or "known"
        As of `ConvolutionRequest`; no effect with lengths, offsets or pages.

    Returns
    -------
    GpuRef or tuple of GpuRef
        The result; with `statistics` also the logarithms of the sums of exponentials, float32, (B, Hq, Sq).  Where
        lengths or offsets are given, a query that sees no key has the result 0, and infinity as its statistics.

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
    bias: Any = None
    slopes: Any = None
    sink: Any = None
    q_lengths: Any = None
    kv_lengths: Any = None
    q_offsets: Any = None
    kv_offsets: Any = None
    k_pages: Any = None
    v_pages: Any = None
    mask: str = "none"
    window: int | None = None
    scale: float | None = None
    statistics: bool = False
    layout: str = "bhsd"
    max_queries: int | None = None
    max_keys: int | None = None
    dropout: float = ZERO
    seed: int = 0
    offset: int = 0
    tune: bool | str = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "statistics")
        dtype = dtype_of("q", self.q, ATTENTION_DTYPES)
        for name in ("k", "v"):
            dtype_of(name, getattr(self, name), (dtype,))
        sizes = check_attention(self)
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        fresh = fresh_of(array_shape(made, self.layout, self.q.shape[0]), dtype)
        check_given([("out", self.out, fresh)], _inputs(self, "q", "k", "v"))
        if self.out is not None:
            check_strides("out", self.out)
        build = Builder(self, sizes, dtype)
        forward(build)
        collect = _both if self.statistics else itemgetter("out")
        return build.draft.lowered("cudnn.attention", collect, traits=build.traits(), tune=tuning_of(self))


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGradientRequest(Request[Any]):
    """The gradients of attention by q, k and v, checked when it is made.

    Parameters
    ----------
    q, k, v, mask, window, scale, layout, max_queries, max_keys
        As in `AttentionRequest`.
    bias, slopes, sink, q_lengths, kv_lengths, q_offsets, kv_offsets
        As in `AttentionRequest`.
    y : GpuRef
        The result of attention.
    statistics : GpuRef
        Its statistics, float32, (B, Hq, Sq).
    dy : GpuRef
        The gradient by the result.
    dropout, seed, offset, tune
        As in `AttentionRequest`: the same numbers drop the same weights.
    deterministic : bool
        Whether equal messages give equal bits, at the price of a workspace of ``2 * B * Hq * Sq * Sk`` bytes.
    dq, dk, dv : GpuRef, optional
        Where the gradients go, of the shapes and dtype of q, k and v, with strides as theirs.

    Returns
    -------
    tuple of GpuRef
        The gradients by q, k and v, of their shapes and dtype; then those by bias and sink, if these are given.  Unless
        `deterministic`, sums of the gradient by q are in no fixed order, so that equal messages may differ in the last
        places.

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
    dq: Any = None
    dk: Any = None
    dv: Any = None
    bias: Any = None
    slopes: Any = None
    sink: Any = None
    q_lengths: Any = None
    kv_lengths: Any = None
    q_offsets: Any = None
    kv_offsets: Any = None
    mask: str = "none"
    window: int | None = None
    scale: float | None = None
    layout: str = "bhsd"
    max_queries: int | None = None
    max_keys: int | None = None
    deterministic: bool = False
    dropout: float = ZERO
    seed: int = 0
    offset: int = 0
    tune: bool | str = False

    def lowering(self) -> Lowered:
        """Check the request and return its message."""
        flags(self, "deterministic")
        dtype = dtype_of("q", self.q, ATTENTION_DTYPES)
        for name in ("k", "v", "y", "dy"):
            dtype_of(name, getattr(self, name), (dtype,))
        sizes = check_attention(self)
        made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
        wanted = array_shape(made, self.layout, self.q.shape[0])
        for name in ("y", "dy"):
            check_shape(name, getattr(self, name), self.layout)
            if tuple(getattr(self, name).shape) != wanted:
                raise InvalidRequest(f"{name} has shape {tuple(getattr(self, name).shape)}; allowed: {wanted}")
        dtype_of("statistics", self.statistics, ("float32",))
        if tuple(self.statistics.shape) != made[:3]:
            raise InvalidRequest(f"statistics has shape {tuple(self.statistics.shape)}; allowed: {made[:3]}")
        outputs = [(f"d{n}", getattr(self, f"d{n}"), fresh_of(tuple(getattr(self, n).shape), dtype)) for n in "qkv"]
        check_given(outputs, _inputs(self, "q", "k", "v", "y", "statistics", "dy"))
        for name, given, _ in outputs:
            if given is not None:
                check_strides(name, given)
        build = Builder(self, sizes, dtype)
        backward(build)
        fixed, traits = bool(self.deterministic), build.traits()
        return build.draft.lowered(
            "cudnn.attention_backward", _gradients, deterministic=fixed, traits=traits, tune=tuning_of(self)
        )
