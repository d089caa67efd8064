"""Attention over float8 against formulas in float64 of the values of its codes, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import atomr_native as an
from atomr_native.dtypes import DTYPES

RNG = np.random.default_rng(15)
Array = np.ndarray[Any, Any]

#: Batch, heads, heads of keys, queries, keys, elements; options.
CASES: dict[str, tuple[tuple[int, int, int, int, int, int], dict[str, Any]]] = {
    "plain": ((2, 2, 2, 9, 16, 16), {}),
    "causal, groups": ((1, 4, 2, 24, 24, 32), {"mask": "causal", "layout": "bshd", "scale": 0.3}),
}
ORDERS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}
#: The half of the distance of neighbours, as a part of their magnitude.
ROUNDING = {"float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}


def codes(shape: tuple[int, ...], dtype: str, scale: float) -> tuple[Array, Array]:
    """Return codes, and their values."""
    made = (RNG.standard_normal(shape) / scale).astype(DTYPES[dtype])
    return made, made.astype(np.float64) * scale


def weights_of(q: Array, k: Array, how: dict[str, Any]) -> Array:
    scores = (q @ np.swapaxes(k, -1, -2)) * how.get("scale", q.shape[-1] ** -0.5)
    rows, columns = np.indices(scores.shape[-2:])
    scores = np.where((rows >= columns) | ("mask" not in how), scores, -np.inf)
    made = np.exp(scores - scores.max(-1, keepdims=True))
    return made / made.sum(-1, keepdims=True), scores


def logarithms(scores: Array) -> Array:
    """Of the sums of exponentials."""
    most: Array = scores.max(-1)
    return most + np.log(np.exp(scores - most[..., None]).sum(-1))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("case", CASES)
def test_results(device: an.Device, case: str, dtype: str) -> None:
    (b, h, g, s, t, d), how = CASES[case]
    scales = {"q": 0.05, "k": 0.02, "v": 0.03}
    order = ORDERS[how.get("layout", "bhsd")]
    made = {
        name: codes((b, h if name == "q" else g, s if name == "q" else t, d), dtype, scales[name]) for name in scales
    }
    arrays = [device.put(np.ascontiguousarray(made[name][0].transpose(order))) for name in scales]
    factors = {f"{name}_scale": scale for name, scale in scales.items()} | {"weights_scale": 200.0, "out_scale": 40.0}
    given = {name: device.put(np.array([value], "float32")) for name, value in factors.items()}
    y, weights_amax, out_amax, statistics = device.cudnn.attention_float8(*arrays, **given, statistics=True, **how)
    q, k, v = (made[name][1] for name in scales)
    k, v = (np.repeat(a, h // g, 1) for a in (k, v))
    p, scores = weights_of(q, k, how)
    wanted = p @ v
    assert y.dtype == DTYPES[dtype]
    found = y.numpy().transpose(np.argsort(order)).astype(np.float64) / 40.0
    # Of the result, and of the weights: cuDNN rounds them before it divides by their sum.
    bound = ROUNDING[dtype] * (abs(wanted) + p @ abs(v)) + 2e-3
    assert (abs(found - wanted) <= bound).all()
    assert abs(found - wanted).mean() < ROUNDING[dtype] * abs(wanted).mean()
    np.testing.assert_allclose(weights_amax.numpy(), [p.max()], rtol=0.02)
    np.testing.assert_allclose(out_amax.numpy(), [abs(wanted).max()], rtol=2 * ROUNDING[dtype])
    np.testing.assert_allclose(statistics.numpy(), logarithms(scores), rtol=0, atol=5e-3)
    again = device.cudnn.attention_float8(*arrays, **given, **how)
    assert len(again) == 3
    np.testing.assert_array_equal(again[0].numpy(), y.numpy())


#: Queries and keys of each sequence: full ones, an empty one, no keys, more keys than queries, and the reverse.
QUERIES, KEYS = np.array([12, 5, 0, 4, 7], "int32"), np.array([13, 9, 6, 0, 3], "int32")


class Sequences:
    """Codes of sequences of several lengths, as padded and as packed arrays, and options that say where they end."""

    def __init__(self, device: an.Device, layout: str, dtype: str, size: int, scales: dict[str, float]) -> None:
        self.device, self.layout, self.scales = device, layout, scales
        made = {}
        for name, scale in scales.items():
            queries = name not in ("k", "v")
            made[name] = codes((5, 4 if queries else 2, (QUERIES if queries else KEYS).max(), size), dtype, scale)
        self.codes = {name: pair[0] for name, pair in made.items()}
        self.values = {name: pair[1] for name, pair in made.items()}
        if layout == "thd":
            first = [np.concatenate([[0], np.cumsum(ends)]).astype("int32") for ends in (QUERIES, KEYS)]
            self.how: dict[str, Any] = {"q_offsets": device.put(first[0]), "kv_offsets": device.put(first[1])}
            self.how |= {"max_queries": int(QUERIES.max()), "max_keys": int(KEYS.max())}
        else:
            self.how = {"q_lengths": device.put(QUERIES), "kv_lengths": device.put(KEYS)}
        self.how["layout"] = layout

    def put(self, array: Array, ends: Array) -> an.GpuRef:
        if self.layout == "thd":
            parts = [one[:, :end].swapaxes(0, 1) for one, end in zip(array, ends, strict=True)]
            array = np.concatenate([*parts, np.full((2, *parts[0].shape[1:]), 7, array.dtype)])
        return self.device.put(array)

    def given(self, name: str) -> an.GpuRef:
        return self.put(self.codes[name], KEYS if name in ("k", "v") else QUERIES)

    def parts(self, array: Array, ends: Array) -> list[Array]:
        """Each sequence, (head, token, element); behind the ends of padded ones is nothing but 0."""
        if self.layout == "thd":
            return [part.swapaxes(0, 1).astype(float) for part in np.split(array, np.cumsum(ends))[:-1]]
        assert not any(one[:, end:].astype(float).any() for one, end in zip(array, ends, strict=True))
        return [one[:, :end].astype(float) for one, end in zip(array, ends, strict=True)]

    def one(self, at: int) -> dict[str, Array]:
        """Values of a sequence, with as many heads of keys as of queries."""
        found = {}
        for name, values in self.values.items():
            kept = values[at, :, : (KEYS if name in ("k", "v") else QUERIES)[at]]
            found[name] = np.repeat(kept, 2, 0) if name in ("k", "v") else kept
        return found


def given_scales(device: an.Device, factors: dict[str, float]) -> dict[str, an.GpuRef]:
    return {f"{name}_scale": device.put(np.array([value], "float32")) for name, value in factors.items()}


@pytest.mark.parametrize("layout", ["bhsd", "thd"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_sequences_of_several_lengths(device: an.Device, dtype: str, mask: str, layout: str) -> None:
    """A query that sees no key has the result 0; the largest magnitudes are of the others.  A GPU says why not."""
    scales = {"q": 0.05, "k": 0.02, "v": 0.03}
    made = Sequences(device, layout, dtype, 32, scales)
    given = given_scales(device, {**scales, "weights": 200.0, "out": 40.0})
    arrays = [made.given(name) for name in scales]
    if device.kind != "host":
        with pytest.raises(
            an.Unsupported, match=r"lengths or offsets over float8, with 12 queries and 13 keys"
        ) as caught:
            device.cudnn.attention_float8(*arrays, **given, **made.how, mask=mask)
        assert caught.value.rule == "cudnn.attention_float8_lengths"
        return
    found, weights_amax, out_amax, stored = device.cudnn.attention_float8(
        *arrays, **given, **made.how, mask=mask, statistics=True
    )
    results, sums = made.parts(found.numpy(), QUERIES), stored.numpy()
    most = [0.0, 0.0]
    for at, result in enumerate(results):
        one = made.one(at)
        if not KEYS[at]:
            assert not result.any()
            assert np.isposinf(sums[at]).all()
            continue
        p, scores = weights_of(one["q"], one["k"], {} if mask == "none" else {"mask": mask})
        wanted = p @ one["v"]
        bound = ROUNDING[dtype] * (abs(wanted) + p @ abs(one["v"])) + 2e-3
        assert (abs(result / 40.0 - wanted) <= bound).all()
        np.testing.assert_allclose(sums[at, :, : QUERIES[at]], logarithms(scores), rtol=0, atol=5e-3)
        assert np.isposinf(sums[at, :, QUERIES[at] :]).all()
        if QUERIES[at]:
            most = [max(most[0], p.max()), max(most[1], abs(wanted).max())]
    np.testing.assert_allclose(weights_amax.numpy(), most[0], rtol=0.02)
    np.testing.assert_allclose(out_amax.numpy(), most[1], rtol=2 * ROUNDING[dtype])


@pytest.mark.parametrize("layout", ["bhsd", "thd"])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradients_of_sequences_of_several_lengths(device: an.Device, mask: str, layout: str) -> None:
    dtype, scales = "float8_e4m3fn", {"q": 0.05, "k": 0.04, "v": 0.03, "dy": 0.02}
    made = Sequences(device, layout, dtype, 128, scales)
    y, statistics = np.zeros(made.codes["q"].shape, DTYPES[dtype]), np.full(made.codes["q"].shape[:3], np.inf, "f4")
    wanted: list[dict[str, tuple[Array, Array]]] = []
    largest = 0.0
    for at in range(len(QUERIES)):
        one = made.one(at)
        if not KEYS[at] or not QUERIES[at]:
            wanted.append({})
            continue
        p, scores = weights_of(one["q"], one["k"], {} if mask == "none" else {"mask": mask})
        y[at, :, : QUERIES[at]] = (p @ one["v"] * 40).astype(DTYPES[dtype])
        rounded = y[at, :, : QUERIES[at]].astype(float) / 40
        statistics[at, :, : QUERIES[at]] = logarithms(scores)
        dp = one["dy"] @ one["v"].swapaxes(-1, -2)
        ds = p * (dp - (one["dy"] * rounded).sum(-1, keepdims=True)) * 128**-0.5
        largest = max(largest, abs(ds).max())
        sums = {"dq": (ds, one["k"]), "dk": (ds.swapaxes(1, 2), one["q"]), "dv": (p.swapaxes(1, 2), one["dy"])}
        both = {name: (a @ b, abs(a) @ abs(b)) for name, (a, b) in sums.items()}
        for name in ("dk", "dv"):
            both[name] = tuple(a.reshape(2, 2, *a.shape[1:]).sum(1) for a in both[name])  # type: ignore[assignment]
        wanted.append(both)
    factors = {**scales, "y": 1 / 40, "weights": 200.0, "slopes": 150.0, "dq": 50.0, "dk": 40.0, "dv": 30.0}
    given = given_scales(device, factors)
    arrays = [made.given(name) for name in "qkv"]
    rest = (made.put(y, QUERIES), device.put(statistics), made.given("dy"))
    if device.kind != "host":
        with pytest.raises(an.Unsupported, match="lengths or offsets over float8") as caught:
            device.cudnn.attention_float8_backward(*arrays, *rest, **given, **made.how, mask=mask)
        assert caught.value.rule == "cudnn.attention_float8_lengths"
        return
    found = device.cudnn.attention_float8_backward(*arrays, *rest, **given, **made.how, mask=mask)
    for name, slope, amax in zip(("dq", "dk", "dv"), found, found[3:], strict=False):
        parts = made.parts(slope.numpy(), QUERIES if name == "dq" else KEYS)
        most = 0.0
        for part, both in zip(parts, wanted, strict=True):
            if not both:
                assert not part.any()
                continue
            right, magnitudes = both[name]
            most = max(most, abs(right).max())
            assert (abs(part / factors[name] - right) <= ROUNDING[dtype] * (abs(right) + magnitudes) + 2e-3).all(), name
        np.testing.assert_allclose(amax.numpy(), most, rtol=2 * ROUNDING[dtype])
    np.testing.assert_allclose(found[6].numpy(), largest, rtol=0.02)


def test_too_large_results_are_the_largest_number(device: an.Device) -> None:
    """Magnitudes are those of this message, not of an earlier one."""
    one = device.put(np.ones(1, "float32"))
    q = device.put(np.ones((1, 1, 8, 16), DTYPES["float8_e4m3fn"]))
    given = {"q_scale": one, "k_scale": one, "weights_scale": one}
    for factor, wanted in ((1000.0, 448.0), (1.0, 1.0)):
        scale = device.put(np.array([factor], "float32"))
        y, _, out_amax = device.cudnn.attention_float8(q, q, q, v_scale=one, out_scale=scale, **given)
        assert (y.numpy().astype(float) == wanted).all()
        np.testing.assert_allclose(out_amax.numpy(), [1.0])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradients(device: an.Device, mask: str, groups: int) -> None:
    """Within the rounding of codes, of weights and of gradients by scores."""
    dtype, (b, h, s, d) = "float8_e4m3fn", (2, 2, 16, 128)
    scales = {"q": 0.05, "k": 0.04, "v": 0.03, "dy": 0.02}
    order, how = ORDERS["bshd"], {} if mask == "none" else {"mask": mask}
    made = {n: codes((b, groups if n in "kv" else h, s, d), dtype, scale) for n, scale in scales.items()}
    q, k, v, dy = (made[name][1] for name in scales)
    wide_k, wide_v = (np.repeat(a, h // groups, 1) for a in (k, v))
    p, scores = weights_of(q, wide_k, how)
    statistics = logarithms(scores)
    y = (p @ wide_v * 40).astype(DTYPES[dtype])
    dp = dy @ wide_v.swapaxes(-1, -2)
    ds = p * (dp - (dy * (y.astype(float) / 40)).sum(-1, keepdims=True)) * d**-0.5

    def shared(a: Array) -> Array:
        return a.reshape(b, groups, -1, s, d).sum(2)

    def put(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(a.transpose(order)))

    factors = {f"{name}_scale": scale for name, scale in scales.items()} | {"y_scale": 1 / 40, "weights_scale": 200.0}
    factors |= {"slopes_scale": 150.0, "dq_scale": 50.0, "dk_scale": 40.0, "dv_scale": 30.0}
    given = {name: device.put(np.array([value], "float32")) for name, value in factors.items()}
    arrays = [put(made[name][0]) for name in "qkv"]
    rest = (put(y), device.put(statistics.astype("float32")), put(made["dy"][0]))
    if groups < h and device.kind != "host":
        with pytest.raises(an.Unsupported, match=r"16 queries and 16 keys, with heads that share keys") as caught:
            device.cudnn.attention_float8_backward(*arrays, *rest, **given, mask=mask, layout="bshd")
        assert caught.value.rule == "cudnn.attention_float8_groups"
        return
    found = device.cudnn.attention_float8_backward(*arrays, *rest, **given, mask=mask, layout="bshd")
    sums = {"dq": (ds, wide_k), "dk": (ds.swapaxes(-1, -2), q), "dv": (p.swapaxes(-1, -2), dy)}
    for (name, (left, right)), slope, largest in zip(sums.items(), found, found[3:], strict=False):
        wanted, magnitudes = left @ right, abs(left) @ abs(right)
        if name != "dq":
            wanted, magnitudes = shared(wanted), shared(magnitudes)
        got = slope.numpy().transpose(np.argsort(order)).astype(float) / factors[f"{name}_scale"]
        assert slope.dtype == DTYPES[dtype]
        assert (abs(got - wanted) <= ROUNDING[dtype] * (abs(wanted) + magnitudes) + 2e-3).all(), name
        assert abs(got - wanted).mean() < ROUNDING[dtype] * abs(wanted).mean(), name
        np.testing.assert_allclose(largest.numpy(), [abs(wanted).max()], rtol=2 * ROUNDING[dtype])
    np.testing.assert_allclose(found[6].numpy(), [abs(ds).max()], rtol=0.02)


def test_gradients_of_other_heads_are_refused_on_a_gpu(device: an.Device) -> None:
    one, rows = device.put(np.ones(1, "float32")), device.put(np.full((1, 1, 8), 2.0, "float32"))
    q = device.put(np.ones((1, 1, 8, 64), DTYPES["float8_e4m3fn"]))
    names = "q k v y dy weights slopes dq dk dv"
    given = {f"{name}_scale": one for name in names.split()}
    if device.kind == "host":
        assert device.cudnn.attention_float8_backward(q, q, q, q, rows, q, **given)[0].shape == q.shape
        return
    with pytest.raises(an.Unsupported, match="on Hopper for heads of 128 elements") as caught:
        device.cudnn.attention_float8_backward(q, q, q, q, rows, q, **given)
    assert caught.value.rule == "cudnn.attention_float8_heads"
    assert caught.value.lifted_by == ("shape", "device")


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"q": np.zeros((1, 2, 4, 16), "float16")}, "q has dtype float16; allowed: float8_e4m3fn, float8_e5m2"),
        ({"k": np.zeros((1, 2, 4, 16), DTYPES["float8_e5m2"])}, "k has dtype float8_e5m2; allowed: float8_e4m3fn"),
        ({"mask": "causal_bottom_right"}, "mask='causal_bottom_right'; allowed: 'none', 'causal'"),
        ({"layout": "thd"}, r"q has shape \(1, 2, 4, 16\); allowed: 3 axes, thd"),
        ({"q_lengths": np.zeros(1, "int32")}, "kv_lengths=None, and the other lengths are given"),
        ({"v_scale": np.zeros(2, "float32")}, r"v_scale has shape \(2,\); allowed: one element"),
        ({"out_scale": np.zeros(1)}, "out_scale has dtype float64; allowed: float32"),
        ({"statistics": 1}, "statistics=1 must be True or False"),
    ],
)
def test_bad_input(options: dict[str, Any], text: str) -> None:
    q, one = np.zeros((1, 2, 4, 16), DTYPES["float8_e4m3fn"]), np.ones(1, "float32")
    given = {
        "q": q,
        "k": q,
        "v": q,
        "q_scale": one,
        "k_scale": one,
        "v_scale": one,
        "weights_scale": one,
        "out_scale": one,
    }
    with pytest.raises(an.InvalidRequest, match=text):
        an.Float8AttentionRequest(**{**given, **options})


@pytest.mark.plain
def test_heads_are_multiples_of_16() -> None:
    q, one = np.zeros((1, 2, 4, 24), DTYPES["float8_e4m3fn"]), np.ones(1, "float32")
    scales = dict.fromkeys(("q_scale", "k_scale", "v_scale", "weights_scale", "out_scale"), one)
    with pytest.raises(an.InvalidRequest, match=r"q has strides .* multiples of 16"):
        an.Float8AttentionRequest(q=q, k=q, v=q, **scales)
