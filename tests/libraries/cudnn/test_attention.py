"""Attention and its gradients against formulas in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_reference import ORDERS, reference
from cudnn_reference import assert_close, random_images

import atomr_native as an

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]

#: Batch, heads, heads of keys, queries, keys, elements, elements of values; options.
CASES: dict[str, tuple[tuple[int, int, int, int, int, int, int], dict[str, Any]]] = {
    "plain": ((2, 2, 2, 5, 7, 8, 8), {}),
    "causal": ((1, 4, 2, 6, 6, 16, 16), {"mask": "causal", "layout": "bshd"}),
    "bottom right": ((1, 2, 1, 3, 9, 8, 16), {"mask": "causal_bottom_right", "scale": 0.5}),
    "window": ((2, 2, 2, 8, 9, 8, 8), {"mask": "causal", "window": 3, "layout": "sbhd"}),
    "window, bottom right": ((1, 2, 2, 4, 9, 8, 8), {"mask": "causal_bottom_right", "window": 2}),
    "window, both sides": ((1, 4, 2, 9, 10, 8, 8), {"window": 3}),
    "wide window, both sides": ((1, 2, 2, 6, 9, 8, 8), {"window": 5, "layout": "bshd"}),
    "one token": ((2, 2, 2, 1, 5, 8, 8), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_and_gradients(device: an.Device, case: str) -> None:
    (b, h, g, s, t, d, e), how = CASES[case]
    order = ORDERS[how.get("layout", "bhsd")]
    dtype = "bfloat16" if case == "causal" else "float16"
    q, k, v, dy = (
        random_images(RNG, shape, dtype) for shape in ((b, h, s, d), (b, g, t, d), (b, g, t, e), (b, h, s, e))
    )
    y, statistics, *gradients = reference(*(a.astype(np.float64) for a in (q, k, v, dy)), how)

    def put(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(a.transpose(order)))

    def back(a: an.GpuRef) -> Array:
        return a.numpy().transpose(np.argsort(order))

    given = [put(a) for a in (q, k, v)]
    found, stored = device.cudnn.attention(*given, statistics=True, **how)
    assert_close(back(found), y, dtype)
    assert_close(stored.numpy(), statistics, "float32", 100.0)
    assert_close(back(device.cudnn.attention(*given, **how)), y, dtype)
    made = device.cudnn.attention_backward(*given, found, stored, put(dy), **how)
    for slope, wanted in zip(made, gradients, strict=True):
        assert_close(back(slope), wanted, dtype, 2.0)


def test_gradients_of_parts_of_one_array_go_where_the_caller_says(device: an.Device) -> None:
    """(batch, token, heads of q, k and v, element), and nothing is copied; gradients have their heads outermost."""
    qkv, dy = random_images(RNG, (2, 9, 8, 16), "float16"), random_images(RNG, (2, 9, 4, 16), "float16")
    parts = (slice(4), slice(4, 6), slice(6, 8))
    q, k, v = (qkv[:, :, part].transpose(0, 2, 1, 3).astype(np.float64) for part in parts)
    _, _, *wanted = reference(q, k, v, dy.transpose(0, 2, 1, 3).astype(np.float64), {"mask": "causal"})
    given, made = device.put(qkv), device.zeros((8, 2, 9, 16), "float16")
    arrays = [given[:, :, part] for part in parts]
    how: dict[str, Any] = {"mask": "causal", "layout": "bshd"}
    found, statistics = device.cudnn.attention(*arrays, statistics=True, **how)
    outs = dict(zip(("dq", "dk", "dv"), (made[part].transpose(1, 2, 0, 3) for part in parts), strict=True))
    slopes = device.cudnn.attention_backward(*arrays, found, statistics, device.put(dy), **outs, **how)
    assert [slope.shape for slope in slopes] == [(2, 9, 4, 16), (2, 9, 2, 16), (2, 9, 2, 16)]
    for part, slope in zip(parts, wanted, strict=True):
        assert_close(made.numpy()[part].transpose(1, 0, 2, 3), slope, "float16", 2.0)
    with pytest.raises(an.InvalidRequest, match=r"dq is float16\[2, 9, 2, 16\]; allowed: float16\[2, 9, 4, 16\]"):
        device.cudnn.attention_backward(*arrays, found, statistics, found, dq=outs["dk"], **how)
    with pytest.raises(an.InvalidRequest, match="dk"):
        device.cudnn.attention_backward(*arrays, found, statistics, found, dk=arrays[1], **how)


@pytest.mark.parametrize("groups", [4, 2])
def test_gradients_go_into_parts_of_one_packed_array(device: an.Device, groups: int) -> None:
    """As they lie there: (batch, token, 3, head, element), or the heads of q, k and v one after the other."""
    heads, sizes = 4, (2, 9)
    dtype, how = "float16", {"mask": "causal", "layout": "bshd"}
    shape = (*sizes, 3, heads, 16) if groups == heads else (*sizes, heads + 2 * groups, 16)

    def parts(array: Any) -> list[Any]:
        if groups == heads:
            return [array[:, :, i] for i in range(3)]
        return [array[:, :, :heads], array[:, :, heads : heads + groups], array[:, :, heads + groups :]]

    qkv, dy = random_images(RNG, shape, dtype), random_images(RNG, (*sizes, heads, 16), dtype)
    q, k, v = (part.transpose(0, 2, 1, 3).astype(np.float64) for part in parts(qkv))
    _, _, *wanted = reference(q, k, v, dy.transpose(0, 2, 1, 3).astype(np.float64), how)
    arrays, made = parts(device.put(qkv)), device.full(shape, np.nan, dtype)
    found, statistics = device.cudnn.attention(*arrays, statistics=True, **how)
    outs = dict(zip(("dq", "dk", "dv"), parts(made), strict=True))
    for _ in range(3):  # later calls are remembered
        device.cudnn.attention_backward(*arrays, found, statistics, device.put(dy), **outs, **how)
    for part, slope in zip(parts(made.numpy()), wanted, strict=True):
        assert_close(part.transpose(0, 2, 1, 3), slope, dtype, 2.0)
    outs["dk"] = made.reshape(*sizes, -1)[:, :, 8 : 8 + groups * 16].reshape(*sizes, groups, 16)
    with pytest.raises(an.InvalidRequest, match="dk overlaps dq"):
        device.cudnn.attention_backward(*arrays, found, statistics, found, **outs, **how)


def test_a_rule_is_named(device: an.Device) -> None:
    """A window over more queries than keys: the host device computes it, a GPU says why not."""
    how: dict[str, Any] = {"mask": "causal", "window": 3}
    q, k, dy = (random_images(RNG, (1, 2, n, 8), "float16") for n in (9, 8, 9))
    y, statistics, *gradients = reference(*(a.astype(np.float64) for a in (q, k, k, dy)), how)
    gq, gk = device.put(q), device.put(k)
    if device.kind == "host":
        found, stored = device.cudnn.attention(gq, gk, gk, statistics=True, **how)
        assert_close(found.numpy(), y, "float16")
        made = device.cudnn.attention_backward(gq, gk, gk, found, stored, device.put(dy), **how)
        for slope, wanted in zip(made, gradients, strict=True):
            assert_close(slope.numpy(), wanted, "float16", 2.0)
        return
    with pytest.raises(an.Unsupported, match=r"a window over 9 queries and 8 keys; .* at most as many") as caught:
        device.cudnn.attention(gq, gk, gk, **how)
    assert caught.value.rule == "cudnn.attention_window"
    stored = device.put(statistics.astype("float32"))
    with pytest.raises(an.Unsupported, match="a window over 9 queries"):
        device.cudnn.attention_backward(gq, gk, gk, gq, stored, gq, **how)


def nodes_of(request: Any) -> list[str]:
    """Modes of a graph's pointwise nodes, in order."""
    attributes = request.lowered.spec().attributes
    return [node.mode for node in attributes.nodes if node.op == "pointwise"]


def test_masks_have_the_form_that_engines_recognise() -> None:
    """cuDNN's engines accept other forms, too, and are wrong for them."""
    q, k, statistics = np.zeros((1, 4, 3, 8), "float16"), np.zeros((1, 2, 5, 8), "float16"), np.zeros((1, 4, 3), "f4")
    how: dict[str, Any] = {"q": q, "k": k, "v": k, "mask": "causal_bottom_right", "window": 2}
    right = ["gen_index", "gen_index", "add", "sub", "cmp_ge", "binary_select"]
    left = ["gen_index", "add", "gen_index", "cmp_gt", "binary_select"]
    forward, backward = an.AttentionRequest(**how), an.AttentionGradientRequest(y=q, dy=q, statistics=statistics, **how)
    assert nodes_of(forward)[:13] == ["mul", *right, *left, "sub"]
    assert nodes_of(backward)[2:16] == ["mul", "sub", *right, *left, "exp"]
    for request in (forward, backward):
        graph = request.lowered.spec().attributes
        sums = [node for node in graph.nodes if node.op == "pointwise" and node.mode == "add"]
        shift = next(node for node in sums if node.compute == "float32")
        left_bound = graph.tensors[shift.reads[1]]
        assert (left_bound.dtype, float.fromhex(left_bound.value)) == ("float32", 2 + 3 - 5)


def test_windows_without_a_mask_have_the_form_that_engines_recognise() -> None:
    q, k = np.zeros((1, 4, 3, 8), "float16"), np.zeros((1, 2, 5, 8), "float16")
    request = an.AttentionRequest(q=q, k=k, v=k, window=2)
    right = ["gen_index", "gen_index", "add", "cmp_ge", "binary_select"]
    left = ["gen_index", "add", "gen_index", "cmp_gt", "binary_select"]
    assert nodes_of(request)[:12] == ["mul", *right, *left, "sub"]
    graph = request.lowered.spec().attributes
    bounds = [graph.tensors[node.reads[1]] for node in graph.nodes if node.op == "pointwise" and node.mode == "add"]
    assert [(bound.dtype, float.fromhex(bound.value)) for bound in bounds[:2]] == [("int32", 1), ("float32", 2)]


def test_sums_over_heads_that_share_keys_have_the_dtype_of_the_operands() -> None:
    q, k, statistics = np.zeros((1, 4, 3, 8), "float16"), np.zeros((1, 2, 5, 8), "float16"), np.zeros((1, 4, 3), "f4")
    graph = an.AttentionGradientRequest(q=q, k=k, v=k, y=q, dy=q, statistics=statistics).lowered.spec().attributes
    shared = [node for node in graph.nodes if node.op == "reduction" and graph.tensors[node.writes[0]].shape[1] == 2]
    assert [graph.tensors[node.reads[0]].dtype for node in shared] == ["float16", "float16"]


def test_bad_input() -> None:
    q, k = np.zeros((1, 4, 6, 8), "float16"), np.zeros((1, 2, 5, 8), "float16")
    for options, text in [
        ({"q": q.astype("float32")}, "q has dtype float32; allowed: float16, bfloat16"),
        ({"mask": "full"}, "mask='full'; allowed: 'none', 'causal', 'causal_bottom_right'"),
        ({"mask": "causal_bottom_right"}, "the first queries see no key"),
        ({"window": 1}, "the last queries see no key"),
        ({"mask": "causal", "window": 1}, "the last queries see no key"),
        ({"q": q[:, :3]}, "q has 3 heads, and k has 2"),
        ({"q": q[..., :4], "k": k[..., :4]}, "heads of 4 elements; allowed: multiples of 8 up to 256"),
        ({"v": k[:, :1]}, "allowed: one batch, the heads and tokens of k in v"),
        ({"layout": "bhds"}, "layout='bhds'; allowed: 'bhsd', 'bshd', 'sbhd'"),
        ({"k": k[:, :, ::-1][:, :, ::-1], "v": np.zeros((1, 2, 5, 12), "float16")[..., 4:]}, "v has strides"),
        ({"scale": float("nan")}, "scale=nan; allowed: a finite number"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.AttentionRequest(**{"q": q, "k": k, "v": k, **options})
