"""Dropout of attention's weights, on every kind of device: which are dropped is read off, then formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, random_images

import atomr_native as an

RNG = np.random.default_rng(9)
Array = np.ndarray[Any, Any]

#: Batch, heads, heads of keys, queries, keys, elements; options; lengths of queries and keys.
CASES: dict[str, tuple[tuple[int, int, int, int, int, int], dict[str, Any], tuple[Any, Any] | None]] = {
    "plain": ((2, 2, 2, 9, 16, 16), {}, None),
    "causal, groups": ((1, 4, 2, 16, 16, 16), {"mask": "causal"}, None),
    "fixed order": ((1, 2, 2, 8, 8, 8), {"mask": "causal", "deterministic": True}, None),
    "lengths": ((2, 2, 1, 8, 8, 8), {"mask": "causal"}, ((8, 5), (7, 8))),
}
HOW: dict[str, Any] = {"dropout": 0.3, "seed": 11, "offset": 5}


def seen(shape: tuple[int, ...], how: dict[str, Any], lengths: tuple[Any, Any] | None) -> Array:
    rows, columns = np.indices(shape[-2:])
    found = np.broadcast_to((rows >= columns) | ("mask" not in how), shape)
    if lengths is None:
        return found
    queries, keys = (np.array(one).reshape(-1, 1, 1, 1) for one in lengths)
    return found & (rows < queries) & (columns < keys)


def weights_of(q: Array, k: Array, inside: Array) -> Array:
    scores = np.where(inside, (q @ np.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5, -np.inf)
    with np.errstate(invalid="ignore"):
        made = np.exp(scores - scores.max(-1, keepdims=True))
    return np.nan_to_num(made / made.sum(-1, keepdims=True))


def options(device: an.Device, how: dict[str, Any], lengths: tuple[Any, Any] | None) -> dict[str, Any]:
    given = {name: value for name, value in how.items() if name != "deterministic"}
    if lengths is not None:
        ends = (device.put(np.array(one, np.int32)) for one in lengths)
        given |= dict(zip(("q_lengths", "kv_lengths"), ends, strict=True))
    return {**given, **HOW}


def kept_by(device: an.Device, case: str) -> Array:
    """Return the factors of the weights, 0 or 1 / (1 - p), with values that are unit vectors."""
    (b, h, g, s, t, d), how, lengths = CASES[case]
    q, k = np.zeros((b, h, s, d), "float16"), np.zeros((b, g, t, d), "float16")
    units = np.broadcast_to(np.eye(t, dtype="float16"), (b, g, t, t))
    y = device.cudnn.attention(*map(device.put, (q, k, np.ascontiguousarray(units))), **options(device, how, lengths))
    inside = seen((b, h, s, t), how, lengths)
    return np.where(inside & (y.numpy() != 0), 1 / (1 - HOW["dropout"]), 0)


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(device: an.Device, case: str) -> None:
    (b, h, g, s, t, d), how, lengths = CASES[case]
    given = options(device, how, lengths)
    mask = kept_by(device, case)
    inside = seen((b, h, s, t), how, lengths)
    assert 0.55 < (mask[inside] != 0).mean() < 0.85
    q, k, v, dy = (random_images(RNG, (b, n, m, d), "float16") for n, m in ((h, s), (g, t), (g, t), (h, s)))
    wide = [a.astype(np.float64) for a in (q, k, v, dy)]
    wide_k, wide_v = (np.repeat(a, h // g, 1) for a in wide[1:3])
    p = weights_of(wide[0], wide_k, inside)
    y = (p * mask) @ wide_v
    gq, gk, gv = map(device.put, (q, k, v))
    found, stored = device.cudnn.attention(gq, gk, gv, statistics=True, **given)
    rows = inside.any(-1, keepdims=True)
    assert_close(np.where(rows, found.numpy(), 0), np.where(rows, y, 0), "float16", 2.0)
    again = device.cudnn.attention(gq, gk, gv, **given).numpy()
    np.testing.assert_array_equal(again, found.numpy())
    slope = np.where(rows, wide[3], 0)
    dp = mask * (slope @ np.swapaxes(wide_v, -1, -2))
    ds = p * (dp - (slope * y).sum(-1, keepdims=True)) * d**-0.5

    def shared(a: Array) -> Array:
        return a.reshape(b, g, -1, *a.shape[2:]).sum(2)

    wanted = ds @ wide_k, shared(np.swapaxes(ds, -1, -2) @ wide[0]), shared(np.swapaxes(p * mask, -1, -2) @ slope)
    given["deterministic"] = how.get("deterministic", False)
    made = device.cudnn.attention_backward(gq, gk, gv, found, stored, device.put(dy), **given)
    for one, other in zip(made, wanted, strict=True):
        assert_close(one.numpy(), other, "float16", 4.0)


def test_seed_and_offset_choose(device: an.Device) -> None:
    """Without a plan of their own."""
    q = device.put(random_images(RNG, (1, 2, 8, 16), "float16"))
    results = [
        device.cudnn.attention(q, q, q, dropout=0.5, seed=seed, offset=offset).numpy()
        for seed, offset in ((1, 0), (2, 0), (1, 1), (2**62 + 1, 2**40))
    ]
    assert len({found.tobytes() for found in results}) == 4
    specs = {an.AttentionRequest(q=q, k=q, v=q, dropout=0.5, seed=seed).lowered.spec() for seed in (1, 2)}
    assert len(specs) == 1


def test_sinks_have_their_gradient(device: an.Device) -> None:
    """With dropout, the share of a sink is that without, and its gradient is of the sums of dy * y."""
    case = "causal, groups"
    (b, h, g, s, t, d), how, _ = CASES[case]
    mask, inside = kept_by(device, case), seen((b, h, s, t), how, None)
    q, k, v, dy = (random_images(RNG, (b, n, m, d), "float16") for n, m in ((h, s), (g, t), (g, t), (h, s)))
    sink = RNG.standard_normal(h).astype("float32")
    scores = (q.astype(float) @ np.swapaxes(np.repeat(k, h // g, 1).astype(float), -1, -2)) * d**-0.5
    exponentials = np.where(inside, np.exp(scores), 0)
    other = np.exp(sink.astype(float)).reshape(1, h, 1, 1)
    total = exponentials.sum(-1, keepdims=True) + other
    y = (exponentials / total * mask) @ np.repeat(v, h // g, 1).astype(float)
    given = {**how, **HOW, "sink": device.put(sink)}
    gq, gk, gv = map(device.put, (q, k, v))
    found, stored = device.cudnn.attention(gq, gk, gv, statistics=True, **given)
    assert_close(found.numpy(), y, "float16", 2.0)
    made = device.cudnn.attention_backward(gq, gk, gv, found, stored, device.put(dy), **given)
    wanted = -(other / total * (dy.astype(float) * y).sum(-1, keepdims=True)).sum((0, 2, 3))
    assert_close(made[3].numpy(), wanted, "float16", 8.0)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"dropout": 1.0}, "dropout=1.0; allowed: numbers from 0 to less than 1"),
        ({"dropout": -0.1}, "dropout=-0.1; allowed"),
        ({"seed": -1}, "seed=-1; allowed: integers from 0"),
        ({"offset": 2**63}, "offset=9223372036854775808; allowed: integers from 0"),
    ],
)
def test_bad_input(more: dict[str, Any], text: str) -> None:
    q = np.zeros((1, 2, 4, 8), "float16")
    with pytest.raises(an.InvalidRequest, match=text):
        an.AttentionRequest(q=q, k=q, v=q, **more)
