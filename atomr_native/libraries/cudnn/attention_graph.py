"""Graphs of attention: products, masks and softmax in the form for which cuDNN has kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from ...plans.lowering import Scalar
from .attention_shapes import LAYOUTS, Sizes, array_shape, scale_of
from .draft import Draft, packed
from .spec import fresh_of

__all__ = ["Builder", "backward", "forward"]

_SWAPPED: Final = (0, 1, 3, 2)


class Builder:
    """Parts that both directions have."""

    def __init__(self, request: Any, sizes: Sizes, dtype: str) -> None:
        self.draft = Draft()
        self.request, self.sizes, self.dtype = request, sizes, dtype
        self.packed = request.layout == "thd"
        self.is_backward = hasattr(request, "dy")
        self.scores = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        self.rows = (sizes.batch, sizes.heads, sizes.queries, 1)
        self._begins: dict[tuple[str, int], int] = {}
        #: Tensors of the lengths of queries and keys; None: all are as long as the arrays.
        self.lengths: tuple[int, int] | None = None
        self._offsets: dict[str, int] = {}
        #: The share of weights that are kept, and for each 1 or 0: whether it is.
        self.kept = 1.0 - float(request.dropout)
        self._add_lengths()
        self.mask = self._drawn() if request.dropout else None
        self.scale = self.draft.constant(scale_of(request, sizes), 4)

    def _add_lengths(self) -> None:
        batch, draft, request = self.sizes.batch, self.draft, self.request
        if self.packed:
            made = []
            for name, most in (("q_offsets", self.sizes.queries), ("kv_offsets", self.sizes.keys)):
                tokens = (request.q if name == "q_offsets" else request.k).shape[0]
                at = draft.view(draft.read(name, getattr(request, name)), (batch + 1, 1, 1, 1), (1, 1, 1, 1))
                self._offsets[name] = at
                made.append(draft.result((batch, 1, 1, 1), "int32", (1, 1, 1, 1)))
                draft.node("lengths", {"x": at, "y": made[-1]}, compute="int32", integers={"most": (most, tokens)})
            self.lengths = (made[0], made[1])
        elif request.q_lengths is not None:
            found = [draft.read(name, getattr(request, name)) for name in ("q_lengths", "kv_lengths")]
            ends = [draft.view(one, (batch, 1, 1, 1), (draft.dense_strides(one)[0],) * 4) for one in found]
            self.lengths = (ends[0], ends[1])

    def _drawn(self) -> int:
        """Add random numbers of seed and offset."""
        draft = self.draft
        draft.scalars += [Scalar(name, "int64", int(getattr(self.request, name))) for name in ("seed", "offset")]
        ports = {name: draft.result((1, 1, 1, 1), "int64", (1, 1, 1, 1)) for name in ("seed", "offset")}
        draft.node("seeds", ports, compute="int64")
        made = draft.result(self.scores)
        draft.node("rng", {**ports, "y": made}, reals={"kept": self.kept})
        return made

    def dropped(self, weights: int, *, dtype: str = "float32") -> int:
        """Add weights without those that are dropped, in this dtype."""
        if self.mask is None:
            return weights
        draft = self.draft
        made = draft.pointwise("mul", weights, self.mask)
        return draft.pointwise("mul", made, draft.constant(1 / self.kept, 4), dtype=dtype)

    def _begins_of(self, name: str, step: int, tokens: int) -> int:
        """Return the tensor of the elements at which packed sequences begin, of an array with a step between tokens."""
        found = self._begins.get((name, step))
        if found is None:
            shape = (self.sizes.batch + 1, 1, 1, 1)
            found = self._begins[name, step] = self.draft.result(shape, "int32", (1, 1, 1, 1))
            ports = {"x": self._offsets[name], "y": found}
            self.draft.node("offsets", ports, compute="int32", integers={"step": (step,), "most": (tokens,)})
        return found

    def view(self, operand: int, *, turned: bool = False, keys: bool = False) -> int:
        """Add the tensor (batch, head, token, element) of an operand, or with the last two axes exchanged."""
        spec, strides = self.draft.operands[operand].spec, self.draft.dense_strides(operand)
        places = _SWAPPED if turned else range(4)
        if not self.packed:
            axes = [LAYOUTS[self.request.layout][place] for place in places]
            return self.draft.view(operand, [spec.shape[a] for a in axes], [strides[a] for a in axes])
        tokens = self.sizes.keys if keys else self.sizes.queries
        step, head, one = strides
        begins = self._begins_of("kv_offsets" if keys else "q_offsets", step, spec.shape[0])
        shape, steps = (self.sizes.batch, spec.shape[1], tokens, spec.shape[2]), (tokens * step, head, step, one)
        return self.draft.view(operand, [shape[p] for p in places], [steps[p] for p in places], ragged=begins)

    def read(self, name: str, *, turned: bool = False, keys: bool = False) -> int:
        """Add an operand that is read, and its tensor."""
        return self.view(self.draft.read(name, getattr(self.request, name)), turned=turned, keys=keys)

    def statistics(self, operand: int) -> int:
        """Add the tensor (batch, head, token, 1) of an operand of 3 axes."""
        strides = self.draft.dense_strides(operand)
        return self.draft.view(operand, self.rows, (*strides, 1))

    def heads(self, name: str) -> int | None:
        """Add the tensor (1, head, 1, 1) of an operand with a number for each head, if there is one."""
        given = getattr(self.request, name)
        if given is None:
            return None
        operand = self.draft.read(name, given)
        return self.draft.view(operand, (1, self.sizes.heads, 1, 1), (self.sizes.heads, 1, 1, 1))

    def bias(self) -> int | None:
        """Add the tensor that is added to the scores, if there is one."""
        if self.request.bias is None:
            return None
        operand = self.draft.read("bias", self.request.bias)
        shape = self.draft.operands[operand].spec.shape
        return self.draft.view(operand, shape, packed(shape))

    def paged(self, name: str, shape: tuple[int, ...], *, turned: bool) -> int:
        """Add the keys or values that are in pages, as sequences."""
        draft = self.draft
        at = draft.read(f"{name}_pages", getattr(self.request, f"{name}_pages"))
        n = draft.operands[at].spec.shape[1]
        step = draft.dense_strides(at)[0]
        table = draft.view(at, (self.sizes.batch, 1, n, 1), (step, step, draft.dense_strides(at)[1], 1))
        pages = self.read(name)
        places = _SWAPPED if turned else range(4)
        steps = packed(shape)
        made = draft.result([shape[p] for p in places], self.dtype, [steps[p] for p in places])
        _, ends = self.lengths or (-1, -1)  # requests with pages have lengths
        draft.node(
            "pages", {"x": pages, "table": table, "lengths": ends, "y": made}, integers={"turned": (int(turned),)}
        )
        return made

    def matmul(self, a: int, b: int, shape: tuple[int, ...], *, to: int | None = None, by: str = "") -> int:
        """Add a product; `by` names the axes (m, n, k) that queries and keys have, such as ``mk``."""
        made = self.draft.result(shape) if to is None else to
        limits = {} if self.lengths is None else dict(zip(by, self.lengths, strict=True))
        self.draft.node("matmul", {"a": a, "b": b, "c": made, **limits})
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
        if found.ragged >= 0:
            self.draft.tensors[made] = replace(self.draft.tensors[made], ragged=found.ragged)
        self.draft.node("transpose", {"x": x, "y": made}, integers={"axes": _SWAPPED})
        return made

    def scaled(self, q: int, k: int) -> int:
        """Add the scaled scores of queries and keys, with what is added to them."""
        draft = self.draft
        scores = draft.pointwise("mul", self.matmul(q, k, self.scores, by="mn"), self.scale)
        bias = self.bias()
        if bias is not None:
            scores = draft.pointwise("add", scores, bias)
        slopes = self.heads("slopes")
        if slopes is not None:
            row, column = (self._index(scores, axis, "int32") for axis in (2, 3))
            distance = draft.pointwise("sub", column, row, dtype="int32", compute="int32")
            scores = draft.pointwise("add", scores, draft.pointwise("mul", distance, slopes))
        return scores

    def padded(self, scores: int) -> int:
        """Add scores with minus infinity behind the ends of the sequences."""
        if self.lengths is None:
            return scores
        draft = self.draft
        seen = [
            draft.pointwise("cmp_lt", self._index(scores, axis, "int32"), length, dtype="bool", compute="bool")
            for axis, length in zip((2, 3), self.lengths, strict=True)
        ]
        inside = draft.pointwise("logical_and", *seen, dtype="bool", compute="bool")
        return draft.pointwise("binary_select", scores, draft.constant(-math.inf, 4), inside)

    def masked(self, scores: int) -> int:
        """Add scores with minus infinity where the mask hides a key.

        cuDNN's engines take the mask from the form of these nodes, and are wrong for equivalent ones.
        """
        draft, request, sizes = self.draft, self.request, self.sizes
        scores = self.padded(scores)
        if request.mask == "none" and request.window is None:
            return scores
        bottom_right = request.mask == "causal_bottom_right"
        column, row = self._index(scores, 3), self._index(scores, 2)
        ends = self.lengths
        if bottom_right:
            for mode, n, end in (("add", sizes.keys, 1), ("sub", sizes.queries, 0)):
                last = draft.constant(n, 4, "int32") if ends is None else ends[end]
                row = draft.pointwise(mode, row, last, dtype="int32", compute="int32")
        elif request.mask == "none":
            after = draft.constant(int(request.window) - 1, 4, "int32")
            row = draft.pointwise("add", row, after, dtype="int32", compute="int32")
        seen = draft.pointwise("cmp_ge", row, column, dtype="bool", compute="bool")
        scores = draft.pointwise("binary_select", scores, draft.constant(-math.inf, 4), seen)
        if request.window is None:
            return scores
        if bottom_right and ends is not None:
            window = draft.constant(int(request.window), 4, "int32")
            column = draft.pointwise("add", self._index(scores, 3), window, dtype="int32", compute="int32")
            for mode, end in (("sub", 1), ("add", 0)):
                column = draft.pointwise(mode, column, ends[end], dtype="int32", compute="int32")
        else:
            left = int(request.window) + (sizes.queries - sizes.keys if bottom_right else 0)
            column = draft.pointwise("add", self._index(scores, 3), draft.constant(left, 4))
        near = draft.pointwise("cmp_gt", column, self._index(scores, 2), dtype="bool", compute="bool")
        return draft.pointwise("binary_select", scores, draft.constant(-math.inf, 4), near)

    def _index(self, scores: int, axis: int, compute: str = "float32") -> int:
        return self.draft.pointwise("gen_index", scores, dtype="int32", compute=compute, integers={"axis": (axis,)})

    def vacate(self, tensor: int, *, keys: bool = False, value: float = 0.0) -> None:
        """Add that rows of queries that see no key, or of keys behind the end, get a value."""
        if self.lengths is None:
            return
        request = self.request
        if request.mask == "none":
            last = 0 if request.window is None else 3
        else:
            last = 2 if request.mask == "causal_bottom_right" else 1
        integers = {"rule": (int(keys), last, 0 if request.window is None else int(request.window))}
        ports = {"queries": self.lengths[0], "keys": self.lengths[1], "y": tensor}
        self.draft.node("vacate", ports, integers=integers, reals={"value": value})

    def written(self, name: str, given: Any, shape: tuple[int, ...], *, keys: bool = False) -> int:
        """Add an operand (batch, head, token, element) that is written, and its tensor."""
        source = self.request.k if keys else self.request.q
        made = array_shape(shape, self.request.layout, source.shape[0])
        return self.view(self.draft.write(name, given, fresh_of(made, self.dtype)), keys=keys)

    def traits(self) -> list[str]:
        """Return what the graph has, by which support rules know it."""
        request, sizes = self.request, self.sizes
        has = {
            "bottom_right": request.mask == "causal_bottom_right",
            "window": request.window is not None,
            "bias": request.bias is not None,
            "slopes": request.slopes is not None,
            "sink": request.sink is not None,
            "dropout": bool(request.dropout),
            "ragged": self.packed,
            "padding": self.lengths is not None,
            "paged": getattr(request, "k_pages", None) is not None,
            "shared_keys": sizes.heads != sizes.groups,
            "one_query": sizes.queries == 1,
            "one_key": sizes.keys == 1,
            "backward": self.is_backward,
            "more_queries": sizes.queries > sizes.keys,
        }
        return [name for name, found in has.items() if found]


def forward(build: Builder) -> None:
    """Add the nodes of attention."""
    draft, request, sizes, dtype = build.draft, build.request, build.sizes, build.dtype
    q = build.read("q")
    if request.k_pages is not None:
        k = build.paged("k", (sizes.batch, sizes.groups, sizes.keys, sizes.head_dim), turned=True)
    else:
        k = build.read("k", turned=True, keys=True)
        v = build.read("v", keys=True)
    made = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
    out = build.written("out", request.out, made)
    scores = build.masked(build.scaled(q, k))
    largest = build.reduction("max", scores, build.rows)
    exponentials = draft.pointwise("exp", draft.pointwise("sub", scores, largest))
    total = build.reduction("add", exponentials, build.rows)
    # cuDNN has no engine for the graph without them.
    name = "statistics" if request.statistics else "log_sums"
    stored = build.statistics(draft.write(name, None, fresh_of(build.rows[:3], "float32")))
    draft.pointwise("add", largest, draft.pointwise("log", total), to=stored)
    weights = draft.pointwise("div", exponentials, total, dtype=dtype if build.mask is None else "float32")
    weights = build.dropped(weights, dtype=dtype)
    if request.k_pages is not None:
        v = build.paged("v", (sizes.batch, sizes.groups, sizes.keys, sizes.value_dim), turned=False)
    build.matmul(weights, v, made, to=out, by="mk")
    # The form of sinks that NVIDIA's frontend makes has tensors of other shapes than their values.
    sink = build.heads("sink")
    if sink is not None:
        draft.node("sink_forward", {"sink": sink, "y": out, "statistics": stored})
    build.vacate(out)
    if request.statistics:
        build.vacate(stored, value=math.inf)


def backward(build: Builder) -> None:
    """Add the nodes of the gradients."""
    draft, request, sizes, dtype = build.draft, build.request, build.sizes, build.dtype
    q, dy, y = build.read("q"), build.read("dy"), build.read("y")
    k, v = build.read("k", turned=True, keys=True), build.read("v", turned=True, keys=True)
    statistics = build.statistics(draft.read("statistics", request.statistics))
    # Parts of the graph meet in memory here: the sums of dy * y, and the gradient by q before it is rounded.
    sums = build.statistics(draft.write("sums", None, fresh_of(build.rows[:3], "float32")))
    q_shape = (sizes.batch, sizes.heads, sizes.queries, sizes.head_dim)
    by_value = (sizes.batch, sizes.heads, sizes.keys, sizes.value_dim)
    by_key = (sizes.batch, sizes.heads, sizes.keys, sizes.head_dim)
    # In a fixed order, the sums are of rounded products in cuDNN's workspace.
    ordered = request.deterministic or request.bias is not None
    wide = -1 if ordered else draft.write("wide", None, fresh_of(q_shape, "float32"))
    dq = build.written("dq", request.dq, q_shape)
    dk = build.written("dk", request.dk, (*by_key[:1], sizes.groups, *by_key[2:]), keys=True)
    dv = build.written("dv", request.dv, (*by_value[:1], sizes.groups, *by_value[2:]), keys=True)
    products = draft.pointwise("mul", dy, y, to=draft.result(draft.tensors[dy].shape))
    total = build.reduction("add", products, build.rows)
    draft.pointwise("mul", total, draft.constant(build.kept, 4), to=sums)
    # The engines for gradients expect the mask after the statistics are subtracted.
    weights = draft.pointwise("exp", build.masked(draft.pointwise("sub", build.scaled(q, k), statistics)))
    _shared(build, build.transposed(build.dropped(weights), dtype), dy, by_value, dv)
    slopes = build.matmul(dy, v, build.scores, by="mn")
    if build.mask is not None:
        slopes = draft.pointwise("mul", slopes, build.mask)
    slopes = draft.pointwise("mul", draft.pointwise("sub", slopes, sums), weights)
    if build.mask is not None:
        slopes = draft.pointwise("mul", slopes, draft.constant(1 / build.kept, 4))
    if request.bias is not None:
        shape = tuple(request.bias.shape)
        dbias = draft.whole(draft.write("dbias", None, fresh_of(shape, dtype)))
        build.reduction("add", slopes, shape, to=dbias)
    slopes = draft.pointwise("mul", slopes, build.scale)
    _shared(build, build.transposed(slopes, dtype), q, by_key, dk)
    keys = build.transposed(k, "float32")
    if ordered:
        build.matmul(slopes, keys, q_shape, to=dq, by="mk")
    else:
        accumulated = draft.view(wide, q_shape, packed(q_shape))
        build.matmul(slopes, keys, q_shape, to=accumulated, by="mk")
        draft.pointwise("identity", accumulated, to=dq)
    sink = build.heads("sink")
    if sink is not None:
        at = draft.write("dsink", None, fresh_of((sizes.heads,), "float32"))
        dsink = draft.view(at, (1, sizes.heads, 1, 1), (sizes.heads, 1, 1, 1))
        ports = {"sink": sink, "statistics": statistics, "sums": sums, "y": dsink}
        draft.node("sink_backward", ports, reals={"factor": 1 / build.kept})
    build.vacate(dq)
    build.vacate(dk, keys=True)
    build.vacate(dv, keys=True)


def _shared(build: Builder, a: int, b: int, shape: Sequence[int], to: int) -> None:
    """Add a product, summed over the heads of a group."""
    by = "km"  # queries are summed, keys are rows
    if build.sizes.heads == build.sizes.groups:
        build.matmul(a, b, tuple(shape), to=to, by=by)
        return
    parts = build.draft.result(shape, build.dtype)
    build.reduction("add", build.matmul(a, b, tuple(shape), to=parts, by=by), tuple(shape), to=to)
