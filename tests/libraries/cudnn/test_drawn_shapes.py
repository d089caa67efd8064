"""Convolutions, attention and group norms over drawn shapes, layouts and options, against formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_reference import ORDERS, reference
from cudnn_reference import assert_close, convolved, filter_gradient, group_norm, random_images
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import atomr_native as an

Array = np.ndarray[Any, Any]
DRAWN = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool, str]:
    """Images, filters, options, whether the channels are last, and the dtype."""
    axes, groups = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2, 3)))
    inner, outer = draw(st.sampled_from((1, 2, 7))), draw(st.sampled_from((1, 3, 5)))
    window = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes))
    least = [d * (k - 1) + 1 - sum(p) for d, k, p in zip(dilation, window, padding, strict=True)]
    size = tuple(max(1, n) + draw(st.integers(0, 4)) for n in least)
    stride = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    images, filters = (draw(st.integers(1, 3)), groups * inner, *size), (groups * outer, inner, *window)
    return images, filters, how, draw(st.booleans()), draw(st.sampled_from(("float32", "float16", "float64")))


@DRAWN
@given(case=convolutions(), seed=st.integers(0, 99))
def test_convolutions(device: an.Device, case: Any, seed: int) -> None:
    shape, filters, how, last, dtype = case
    rng = np.random.default_rng(seed)
    x, w = random_images(rng, shape, dtype), random_images(rng, filters, dtype)
    y = convolved(x, w, **how)
    dy = random_images(rng, y.shape, dtype)

    def put(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a)

    def back(ref: an.GpuRef) -> Array:
        return np.moveaxis(ref.numpy(), -1, 1) if last else ref.numpy()

    gx, gw, gdy = map(put, (x, w, dy))
    dnn, options = device.cudnn, {**how, "channels_last": last}
    terms = 2.0 * np.prod(filters[1:])
    assert_close(back(dnn.convolution(gx, gw, **options)), y, dtype, terms)
    dw = back(dnn.convolution_backward_filter(gx, gdy, filters[2:], **options))
    assert_close(dw, filter_gradient(x, dy, filters[2:], **how), dtype, 2.0 * dy.size / filters[0])
    dx = back(dnn.convolution_backward_data(gdy, gw, shape[2:], **options))
    # The gradient is linear, so its product with any images is that of dy with their convolution.
    images = rng.standard_normal(shape)
    found, wanted = (dx.astype(float) * images).sum(), (dy.astype(float) * convolved(images, w, **how)).sum()
    assert_close(np.array([found]), np.array([wanted]), dtype, terms * np.sqrt(dx.size))


@st.composite
def attentions(draw: st.DrawFn) -> tuple[tuple[int, int, int, int, int, int, int], dict[str, Any]]:
    """Batch, heads, heads of keys, queries, keys, elements, elements of values; options."""
    groups = draw(st.integers(1, 2))
    keys = draw(st.sampled_from((1, 2, 7, 16, 33)))
    mask = draw(st.sampled_from(("none", "causal", "causal_bottom_right")))
    queries = draw(st.integers(1, keys if mask != "none" else 20))
    if queries == keys == 1:
        keys = 3  # gradients over one query and one key are refused
    how: dict[str, Any] = {"layout": draw(st.sampled_from(tuple(ORDERS)))}
    if mask != "none":
        how["mask"] = mask
    if queries <= keys and draw(st.booleans()):
        how["window"] = draw(st.sampled_from((1, 3, 50)))
    elements = [draw(st.sampled_from((8, 24, 64))) for _ in range(2)]
    return (draw(st.integers(1, 2)), groups * draw(st.integers(1, 3)), groups, queries, keys, *elements), how


@DRAWN
@given(case=attentions(), dtype=st.sampled_from(("float16", "bfloat16")), seed=st.integers(0, 99))
def test_attention(device: an.Device, case: Any, dtype: str, seed: int) -> None:
    (b, h, g, s, t, d, e), how = case
    rng, order = np.random.default_rng(seed), ORDERS[how["layout"]]
    q, k, v, dy = (
        random_images(rng, shape, dtype) for shape in ((b, h, s, d), (b, g, t, d), (b, g, t, e), (b, h, s, e))
    )
    y, statistics, *gradients = reference(*(a.astype(np.float64) for a in (q, k, v, dy)), how)

    def put(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(a.transpose(order)))

    arrays = [put(a) for a in (q, k, v)]
    found, stored = device.cudnn.attention(*arrays, statistics=True, **how)
    assert_close(found.numpy().transpose(np.argsort(order)), y, dtype)
    assert_close(stored.numpy(), statistics, "float32", 100.0)
    made = device.cudnn.attention_backward(*arrays, found, stored, put(dy), **how)
    for slope, wanted in zip(made, gradients, strict=True):
        assert_close(slope.numpy().transpose(np.argsort(order)), wanted, dtype, 4.0)


@settings(DRAWN, max_examples=8)
@given(
    sizes=st.tuples(*(st.sampled_from(n) for n in ((1, 2, 5), (1, 2, 3, 40), (1, 3, 8, 300)))),
    spatial=st.lists(st.sampled_from((1, 2, 7, 16)), min_size=1, max_size=3),
    last=st.booleans(),
    dtype=st.sampled_from(("float32", "float16")),
    seed=st.integers(0, 99),
)
def test_group_norms(device: an.Device, sizes: Any, spatial: list[int], last: bool, dtype: str, seed: int) -> None:
    images, groups, own = sizes
    rng, shape = np.random.default_rng(seed), (images, groups * own, *spatial)
    x, dy = (random_images(rng, shape, dtype) for _ in range(2))
    scale, bias = (1 + random_images(rng, shape[1:2], "float32") for _ in range(2))
    wanted = group_norm(*(a.astype(np.float64) for a in (x, dy, scale, bias)), groups)

    def put(a: Array) -> an.GpuRef:
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a)

    how = {"groups": groups, "channels_last": last}
    gx, gscale = put(x), device.put(scale)
    y, mean, inverse = device.cudnn.norm("group", gx, gscale, device.put(bias), **how)
    made = [y, *device.cudnn.norm_backward("group", put(dy), gx, gscale, inverse, mean, **how)]
    # Where groups have few elements, a deviation near 0 is divided by.
    bound = np.ptp(wanted[1]) + np.ptp(wanted[0])
    for found, right in zip(made[:2], wanted, strict=False):
        got = np.moveaxis(found.numpy(), -1, 1) if last else found.numpy()
        assert abs(got.astype(float) - right).max() <= (5e-5 if dtype == "float32" else 4e-3) * (1 + bound)
    for found, right in zip(made[2:], wanted[2:], strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-3, atol=1e-3 * np.sqrt(x.size / shape[1]))


@pytest.mark.parametrize("case", [((3, 5, 2), (7, 5, 1)), ((1, 1, 1, 1, 1), (1, 1, 3, 3, 3))])
def test_padding_larger_than_the_images(device: an.Device, case: Any) -> None:
    shape, filters = case
    x, w = (random_images(np.random.default_rng(3), one, "float32") for one in case)
    how = {"padding": 2}
    found = device.cudnn.convolution(device.put(x), device.put(w), **how).numpy()
    assert_close(found, convolved(x, w, **how), "float32", 2.0 * np.prod(filters[1:]))
    assert found.shape[1:] == (filters[0], *(n + 5 - k for n, k in zip(shape[2:], filters[2:], strict=True)))
