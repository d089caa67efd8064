"""Attention over sequences of several lengths, in pages, and with what is added to scores, against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, random_images

import atomr_native as an
from atomr_native.builders.cuda.cubin import compile_cubin
from atomr_native.builders.cuda.prelude import prelude
from atomr_native.builders.cuda.target import Target
from atomr_native.libraries.cudnn.cuda.attention import around_source
from atomr_native.libraries.cudnn.cuda.steps import attention_parts

RNG = np.random.default_rng(7)
Array = np.ndarray[Any, Any]
#: Queries and keys of each sequence: full ones, an empty one, no keys, more keys than queries, and the reverse.
QUERIES, KEYS = np.array([6, 3, 0, 2, 5], "int32"), np.array([7, 5, 4, 0, 2], "int32")
HEADS, GROUPS, SIZE, VALUES = 4, 2, 8, 16


def shared(a: Array, heads: int) -> Array:
    """Sums over the heads of a group."""
    return a.reshape(heads, a.shape[0] // heads, *a.shape[1:]).sum(1)


def attention(q: Array, k: Array, v: Array, dy: Array, how: dict[str, Any]) -> dict[str, Array]:
    """Results and gradients of one sequence, (head, token, element); a query without keys has the result 0."""
    heads, scale = len(k), q.shape[-1] ** -0.5
    wide_k, wide_v = (np.repeat(a, len(q) // heads, 0) for a in (k, v))
    rows, columns = np.indices((q.shape[1], k.shape[1]))
    last = rows + (k.shape[1] - q.shape[1] if how["mask"] == "causal_bottom_right" else 0)
    seen = (columns <= last) | (how["mask"] == "none")
    if how.get("window"):
        seen &= columns > last - how["window"]
        seen &= (columns < last + how["window"]) | (how["mask"] != "none")
    scores = q @ wide_k.swapaxes(1, 2) * scale
    scores = scores + how.get("bias", 0) + how.get("slopes", np.zeros(len(q)))[:, None, None] * (columns - rows)
    scores = np.where(seen, scores, -np.inf)
    sink = how.get("sink", np.full(len(q), -np.inf))[:, None, None]
    most = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sink)
    most = np.where(seen.any(-1)[:, None], most, 0)
    powers = np.exp(scores - most)
    with np.errstate(all="ignore"):
        total = np.where(seen.any(-1)[:, None], powers.sum(-1, keepdims=True) + np.exp(sink - most), np.inf)
    p = powers / total
    y = p @ wide_v
    along = (dy * y).sum(-1, keepdims=True)
    ds = p * (dy @ wide_v.swapaxes(1, 2) - along)
    return {
        "y": y, "statistics": (most + np.log(total))[..., 0], "dq": ds @ wide_k * scale,
        "dk": shared(ds.swapaxes(1, 2) @ q * scale, heads), "dv": shared(p.swapaxes(1, 2) @ dy, heads), "dbias": ds,
        "dsink": -(np.exp(sink - most) / total * along).sum((1, 2)),
    }  # fmt: skip


def arrays(dtype: str, behind: float) -> list[Array]:
    """q, k, v and dy, with a number behind the ends of sequences, but for dy."""
    made = []
    for heads, ends, width in (
        (HEADS, QUERIES, SIZE), (GROUPS, KEYS, SIZE), (GROUPS, KEYS, VALUES), (HEADS, QUERIES, VALUES)
    ):  # fmt: skip
        a = random_images(RNG, (len(ends), heads, int(ends.max()), width), dtype)
        for one, end in zip(a, ends, strict=True):
            one[:, end:] = behind if len(made) < 3 else 0
        made.append(a)
    return made


def packed(a: Array, ends: Array) -> Array:
    """Sequences one after the other, (token, head, element), with two tokens that belong to none."""
    parts = [one[:, :end].transpose(1, 0, 2) for one, end in zip(a, ends, strict=True)]
    return np.concatenate([*parts, np.full((2, *parts[0].shape[1:]), 7, a.dtype)])


def unpacked(a: Array, ends: Array) -> list[Array]:
    """Each sequence of a packed array, (head, token, element)."""
    return [part.transpose(1, 0, 2) for part in np.split(a, np.cumsum(ends))[:-1]]


CASES: dict[str, dict[str, Any]] = {
    "plain": {"mask": "none", "sink": True},
    "causal": {"mask": "causal", "bias": (1, HEADS), "dtype": "bfloat16"},
    "causal, window": {"mask": "causal", "window": 2, "slopes": True},
    "window": {"mask": "none", "window": 2, "bias": (1, 1)},
    "bottom right": {"mask": "causal_bottom_right", "sink": True, "deterministic": True},
    "bottom right, window": {"mask": "causal_bottom_right", "window": 3},
    "wide window": {"mask": "causal", "window": 100, "bias": (5, 1)},
}


@pytest.mark.parametrize("layout", ["bhsd", "thd"])
@pytest.mark.parametrize("case", CASES)
def test_sequences_of_several_lengths(device: an.Device, case: str, layout: str) -> None:
    options = {name: value for name, value in CASES[case].items() if name in ("mask", "window")}
    dtype = CASES[case].get("dtype", "float16")
    # cuDNN multiplies what lies behind the ends by 0
    q, k, v, dy = arrays(dtype, np.nan if device.kind == "host" or layout == "thd" else 100.0)
    batch, queries, keys = len(q), q.shape[2], k.shape[2]
    added: dict[str, Array] = {}
    for name in ("slopes", "sink"):
        if name in CASES[case]:
            added[name] = RNG.standard_normal(HEADS).astype("float32")
    if "bias" in CASES[case]:
        added["bias"] = random_images(RNG, (*CASES[case]["bias"], queries, keys), dtype)
    how = {**options, **{name: device.put(value) for name, value in added.items()}}
    if layout == "thd":
        first = [np.concatenate([[0], np.cumsum(ends)]).astype("int32") for ends in (QUERIES, KEYS)]
        how |= {"q_offsets": device.put(first[0]), "kv_offsets": device.put(first[1]), "layout": "thd"}
        how |= {"max_queries": queries, "max_keys": keys}
        q, k, v, dy = (packed(a, ends) for a, ends in zip((q, k, v, dy), (QUERIES, KEYS, KEYS, QUERIES), strict=True))
    else:
        how |= {"q_lengths": device.put(QUERIES), "kv_lengths": device.put(KEYS)}
    given = [device.put(a) for a in (q, k, v)]
    y, statistics = device.cudnn.attention(*given, statistics=True, **how)
    alone = device.cudnn.attention(*given, **how)
    fixed = {"deterministic": CASES[case].get("deterministic", False)}
    if layout == "thd" and "bias" in added and device.kind != "host":
        with pytest.raises(an.Unsupported, match="the gradient by a bias of packed sequences") as caught:
            device.cudnn.attention_backward(*given, y, statistics, device.put(dy), **how, **fixed)
        assert caught.value.rule == "cudnn.attention_packed_bias"
        return
    made = device.cudnn.attention_backward(*given, y, statistics, device.put(dy), **how, **fixed)
    assert len(made) == 3 + ("bias" in added) + ("sink" in added)
    dbias, dsink = np.zeros((batch, HEADS, queries, keys)), np.zeros(HEADS)
    sides = (QUERIES, QUERIES, QUERIES, KEYS, KEYS)
    parts = []
    for a, ends in zip((y, alone, *made[:3]), sides, strict=True):
        whole = a.numpy()
        parts.append(unpacked(whole, ends) if layout == "thd" else list(whole))
    inputs = [
        unpacked(a, ends) if layout == "thd" else [one[:, :end] for one, end in zip(a, ends, strict=True)]
        for a, ends in zip((q, k, v, dy), (QUERIES, KEYS, KEYS, QUERIES), strict=True)
    ]
    stored = statistics.numpy()
    for b, (m, n) in enumerate(zip(QUERIES, KEYS, strict=True)):
        own = dict(options)
        for name, value in added.items():
            own[name] = value.astype(np.float64)
        if "bias" in added:
            own["bias"] = np.broadcast_to(own["bias"], (batch, HEADS, queries, keys))[b, :, :m, :n]
        wanted = attention(*(a[b].astype(np.float64) for a in inputs), own)
        for found, ends, name in zip(parts, sides, ("y", "y", "dq", "dk", "dv"), strict=True):
            assert_close(found[b][:, : ends[b]], wanted[name], dtype, 2.0)
            assert (found[b][:, ends[b] :] == 0).all()
        finite = np.isfinite(wanted["statistics"])
        assert_close(np.where(finite, stored[b, :, :m], 0), np.where(finite, wanted["statistics"], 0), "float32", 100.0)
        assert (stored[b, :, :m][~finite] == np.inf).all()
        assert (stored[b, :, m:] == np.inf).all()
        dbias[b, :, :m, :n] = wanted["dbias"]
        dsink += wanted["dsink"]
    if "bias" in added:
        shape = added["bias"].shape
        axes = tuple(axis for axis in (0, 1) if shape[axis] == 1)
        assert_close(made[3].numpy(), dbias.sum(axes, keepdims=True), dtype, 4.0)
    if "sink" in added:
        assert_close(made[-1].numpy(), dsink, dtype, 4.0)


@pytest.mark.parametrize("queries", [3, 1])
def test_keys_and_values_in_pages(device: an.Device, queries: int) -> None:
    """Prefill and decode: the last queries of each sequence see all keys before them."""
    pages, page, batch = 9, 4, 3
    lengths = np.array([8, 3, 5], "int32")
    k, v = (random_images(RNG, (pages, page, GROUPS, width), "float16") for width in (SIZE, VALUES))
    tables = [RNG.permutation(pages)[: batch * 2].reshape(batch, 2).astype("int32") for _ in range(2)]
    q = random_images(RNG, (batch, queries, HEADS, SIZE), "float16")
    counts = np.minimum(np.full(batch, queries, "int32"), lengths)
    how: dict[str, Any] = {
        "mask": "causal_bottom_right", "layout": "bshd", "q_lengths": device.put(counts),
        "kv_lengths": device.put(lengths), "k_pages": device.put(tables[0]), "v_pages": device.put(tables[1]),
    }  # fmt: skip
    found = device.cudnn.attention(*(device.put(a) for a in (q, k, v)), **how).numpy()
    for b, n in enumerate(lengths):
        whole = [
            np.concatenate(a[table[b]]).astype(np.float64)[:n].transpose(1, 0, 2)
            for a, table in zip((k, v), tables, strict=True)
        ]
        one = q[b].astype(np.float64).transpose(1, 0, 2)
        wanted = attention(one, *whole, np.zeros((HEADS, queries, VALUES)), {"mask": "causal_bottom_right"})["y"]
        assert_close(found[b].transpose(1, 0, 2), wanted, "float16")


def test_parts_of_one_array_are_not_copied(device: an.Device) -> None:
    """Queries, keys and values of one product: (batch, token, 3, head, element)."""
    whole = random_images(RNG, (2, 6, 3, HEADS, SIZE), "float16")
    given = device.put(whole)
    q, k, v = (given[:, :, i] for i in range(3))
    found, statistics = device.cudnn.attention(q, k, v, mask="causal", layout="bshd", statistics=True)
    slopes = device.cudnn.attention_backward(q, k, v, found, statistics, found, mask="causal", layout="bshd")
    for b in range(2):
        parts = [whole[b, :, i].astype(np.float64).transpose(1, 0, 2) for i in range(3)]
        dy = found.numpy()[b].astype(np.float64).transpose(1, 0, 2)
        wanted = attention(*parts, dy, {"mask": "causal"})
        assert_close(dy, wanted["y"], "float16")
        for slope, name in zip(slopes, ("dq", "dk", "dv"), strict=True):
            assert_close(slope.numpy()[b].transpose(1, 0, 2), wanted[name], "float16", 2.0)


def test_slopes_and_sinks_without_lengths(device: an.Device) -> None:
    """With sequences of one length there is one kernel behind the plan for sinks, and none for slopes."""
    q, k, v, dy = (random_images(RNG, (1, HEADS, 5, SIZE), "float16") for _ in range(4))
    added = {name: RNG.standard_normal(HEADS).astype("float32") for name in ("slopes", "sink")}
    how = {"mask": "causal", **{name: device.put(value) for name, value in added.items()}}
    given = [device.put(a) for a in (q, k, v)]
    y, statistics = device.cudnn.attention(*given, statistics=True, **how)
    made = device.cudnn.attention_backward(*given, y, statistics, device.put(dy), **how)
    numbers = [a[0].astype(np.float64) for a in (q, k, v, dy)]
    wanted = attention(*numbers, {"mask": "causal", **{n: a.astype(np.float64) for n, a in added.items()}})
    assert_close(y.numpy()[0], wanted["y"], "float16")
    assert_close(statistics.numpy()[0], wanted["statistics"], "float32", 100.0)
    for slope, name in zip(made, ("dq", "dk", "dv"), strict=False):
        assert_close(slope.numpy()[0], wanted[name], "float16", 2.0)
    assert_close(made[3].numpy(), wanted["dsink"], "float16", 4.0)


def test_rules_are_named(device: an.Device) -> None:
    """The host device computes them, a GPU says why not."""
    q = device.put(random_images(RNG, (1, HEADS, 3, SIZE), "float16"))
    bias = device.put(np.zeros((1, 1, 3, 3), "float16"))
    slopes = device.put(np.zeros(HEADS, "float32"))
    last = q[:, :, :1]
    y, statistics = device.cudnn.attention(last, last, last, statistics=True)
    for rule, text, send in [
        ("bottom_right", "with a bias, over 3 queries and 3 keys", lambda how: {**how, "bias": bias}),
        ("bottom_right", "with slopes, over 3 queries", lambda how: {**how, "slopes": slopes}),
        ("one_token", "gradients over 1 queries and 1 keys; .* for more", None),
    ]:

        def run(send: Any = send) -> Any:
            if send is None:
                return device.cudnn.attention_backward(last, last, last, y, statistics, last)[0]
            return device.cudnn.attention(q, q, q, **send({"mask": "causal_bottom_right"}))

        if device.kind == "host":
            assert np.isfinite(run().numpy()).all()
            continue
        with pytest.raises(an.Unsupported, match=text) as caught:
            run()
        assert caught.value.rule == f"cudnn.attention_{rule}"


@pytest.mark.host_only
def test_offsets_and_pages_are_checked_on_the_host(device: an.Device) -> None:
    q = device.put(np.ones((4, 2, SIZE), "float16"))
    for offsets in ([0, 3, 2], [0, 2, 5], [-1, 2, 4]):
        at = device.put(np.array(offsets, "int32"))
        made = device.cudnn.attention(q, q, q, layout="thd", q_offsets=at, kv_offsets=at, max_queries=4, max_keys=4)
        with pytest.raises(an.InvalidRequest, match=r"allowed: ascending numbers from 0 to 4"):
            made.numpy()
    x = device.put(np.ones((1, 2, 4, SIZE), "float16"))
    one, table = device.put(np.array([4], "int32")), device.put(np.array([[3]], "int32"))
    made = device.cudnn.attention(x, x, x, q_lengths=one, kv_lengths=one, k_pages=table, v_pages=table)
    with pytest.raises(an.InvalidRequest, match=r"pages \[3\] of sequence 0; allowed: 0 to 0"):
        made.numpy()


def test_bad_input() -> None:
    q, k = np.zeros((1, 4, 6, SIZE), "float16"), np.zeros((1, 2, 5, SIZE), "float16")
    one, two, table = np.zeros(1, "int32"), np.zeros(2, "int32"), np.zeros((1, 2), "int32")
    for options, text in [
        ({"q_lengths": one}, "kv_lengths=None, and the other lengths are given"),
        ({"q_lengths": two, "kv_lengths": one}, r"q_lengths has shape \(2,\); allowed: \(1,\)"),
        ({"q_lengths": one.astype("int64"), "kv_lengths": one}, "q_lengths has dtype int64; allowed: int32"),
        ({"bias": np.zeros((1, 4, 6, 6), "float16")}, r"bias has shape .*; allowed: \(1, 4, 6, 5\), with 1 for"),
        ({"bias": np.zeros((1, 4, 5, 6), "float16").swapaxes(2, 3)}, "bias has strides .* allowed: C-contiguous"),
        ({"bias": np.zeros((1, 4, 6, 5), "float32")}, "bias has dtype float32; allowed: float16"),
        ({"slopes": np.zeros(4, "float32")}, "slopes is given with mask='none'"),
        ({"sink": np.zeros(2, "float32")}, r"sink has shape \(2,\); allowed: \(4,\)"),
        ({"q_offsets": two}, "q_offsets is given with layout='bhsd'; allowed: with layout='thd'"),
        ({"k_pages": table}, "v_pages=None, and the other table is given"),
        ({"k_pages": table, "v_pages": table}, "kv_lengths=None with k_pages"),
        ({"k_pages": table, "v_pages": table[:, :1]}, "k_pages is of 10 tokens, and v_pages of 5"),
        ({"k_pages": two, "v_pages": table}, r"k_pages has shape \(2,\); allowed: \(1, pages of a sequence\)"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.AttentionRequest(**{"q": q, "k": k, "v": k, **options})
    q, k = np.zeros((6, 4, SIZE), "float16"), np.zeros((5, 2, SIZE), "float16")
    good = {"q": q, "k": k, "v": k, "layout": "thd", "q_offsets": two, "kv_offsets": two}
    good |= {"max_queries": 6, "max_keys": 5}
    assert an.AttentionRequest(**good)
    for options, text in [
        ({"q_offsets": None}, "q_offsets=None with layout='thd'; allowed: int32"),
        ({"q_offsets": one}, r"q_offsets has shape \(1,\); allowed: \(B \+ 1,\)"),
        ({"kv_offsets": np.zeros(3, "int32")}, "q_offsets is of 1 sequences, and kv_offsets of 2"),
        ({"max_keys": None}, "max_keys=None with layout='thd'"),
        ({"max_queries": 7}, "max_queries=7; allowed: integers from 1 to 6"),
        ({"q_lengths": one}, "q_lengths is given with layout='thd'"),
        ({"k_pages": table}, "k_pages is given with layout='thd'"),
        ({"q": q[None]}, r"q has shape \(1, 6, 4, 8\); allowed: 3 axes, thd"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.AttentionRequest(**{**good, **options})


def graphs() -> list[Any]:
    """Graphs forward and backward of packed sequences with all that kernels around the plan compute."""
    q, k, at = np.zeros((9, 4, SIZE), "float16"), np.zeros((9, 2, SIZE), "float16"), np.zeros(3, "int32")
    how: dict[str, Any] = {
        "q": q, "k": k, "v": k, "layout": "thd", "q_offsets": at, "kv_offsets": at, "max_queries": 6, "max_keys": 7,
        "mask": "causal_bottom_right", "window": 2, "sink": np.zeros(4, "float32"),
    }  # fmt: skip
    forward = an.AttentionRequest(**how, statistics=True)
    backward = an.AttentionGradientRequest(**how, y=q, dy=q, statistics=np.zeros((2, 4, 6), "float32"))
    return [request.lowered.spec().attributes for request in (forward, backward)]


def test_masks_by_lengths_have_the_form_that_engines_recognise() -> None:
    """That of NVIDIA's frontend: the ends first, then the diagonal, then the window, whose left end is an integer."""
    ends = ["gen_index", "cmp_lt", "gen_index", "cmp_lt", "logical_and", "binary_select"]
    right = ["gen_index", "gen_index", "add", "sub", "cmp_ge", "binary_select"]
    left = ["gen_index", "add", "sub", "add", "gen_index", "cmp_gt", "binary_select"]
    forward, backward = graphs()
    for graph, first in ((forward, ["mul"]), (backward, ["mul", "mul", "mul", "sub"])):
        modes = [node.mode for node in graph.nodes if node.op == "pointwise"]
        assert modes[: len(first) + 19] == first + ends + right + left
        limits = [tuple(p for p, _ in node.ports if p in "mnk") for node in graph.nodes if node.op == "matmul"]
        assert limits == [("m", "n"), ("m", "k")] if graph is forward else limits[1:] == [
            ("k", "m"), ("m", "n"), ("k", "m"), ("m", "k")
        ]  # fmt: skip
        shifts = [n for n in graph.nodes if n.op == "pointwise" and n.mode == "add" and n.compute == "int32"]
        assert [float.fromhex(graph.tensors[n.reads[1]].value or "0") for n in shifts] == [0, 2, 0]


def test_sums_of_gradients_have_an_order_only_if_it_is_asked_for() -> None:
    x, s = np.zeros((1, 2, 3, SIZE), "float16"), np.zeros((1, 2, 3), "float32")
    how = {"q": x, "k": x, "v": x, "y": x, "dy": x, "statistics": s}
    for options, ordered, fixed in [
        ({}, False, False),
        ({"deterministic": True}, True, True),
        ({"bias": np.zeros((1, 1, 3, 3), "float16")}, True, False),
    ]:
        lowered = an.AttentionGradientRequest(**how, **options).lowered
        assert ("wide" not in [operand.name for operand in lowered.operands]) is ordered
        assert lowered.spec().attributes.deterministic is fixed


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_around_the_plan_compile(compiler_cache: Path, arch: str) -> None:
    target = Target(arch, 8)
    for graph in graphs():
        parts = attention_parts(graph)
        assert [part.is_around for part in parts] == [True, False, True]
        for part in parts[::2]:
            source, launches = around_source(graph, part, target)
            assert len(launches) == len(part.nodes)
            assert compile_cubin(prelude(("float16", "int32", "float32"), ()) + source, arch)
