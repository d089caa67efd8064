"""Norms and their gradients against formulas in float64, on every kind of device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close, random_images

import atomr_native as an

RNG = np.random.default_rng(11)
EPSILON = 1e-5
#: Groups by the number of channels: some, as many as channels, and all channels in a group.
GROUPS = {6: 3, 4: 4, 3: 1}

#: Shapes, and the axes of the statistics with channels first.
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "batch": ("batch", (3, 8, 5, 4), (0, 2, 3)),
    "batch, one axis": ("batch", (4, 16, 7), (0, 2)),
    "batch, odd channels": ("batch", (3, 5, 4, 7), (0, 2, 3)),
    "batch, one channel": ("batch", (9, 1, 6), (0, 2)),
    "instance": ("instance", (2, 8, 5, 3), (2, 3)),
    "group": ("group", (2, 6, 5, 3), (2, 3, 4)),
    "group, one axis": ("group", (3, 4, 7), (2, 3)),
    "group, three axes": ("group", (2, 3, 2, 3, 2), (2, 3, 4, 5)),
    "layer": ("layer", (3, 2, 40), (2,)),
    "layer, two axes": ("layer", (5, 3, 7), (1, 2)),
    "rms": ("rms", (3, 2, 40), (2,)),
}


def formula(
    kind: str, x: np.ndarray[Any, Any], axes: tuple[int, ...], scale: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any]
    if kind == "group":  # the axes are those of (N, groups, C / groups, ...)
        shape = x.shape
        x = x.reshape(shape[0], GROUPS[shape[1]], -1, *shape[2:])
        made = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPSILON)
        return made.reshape(shape) * scale + bias
    mean = 0 if kind == "rms" else x.mean(axes, keepdims=True)
    made = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + EPSILON)
    return made * scale + bias


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_norms_and_gradients(device: an.Device, case: str, channels_last: bool) -> None:
    kind, shape, axes = CASES[case]
    image = kind in ("batch", "instance", "group")
    how: dict[str, Any] = {"groups": GROUPS[shape[1]]} if kind == "group" else {}
    if channels_last and not image:
        pytest.skip("the axes of this norm have no channels")
    x, dy = random_images(RNG, shape, "float32"), random_images(RNG, shape, "float32")
    own = (shape[1],) if image else tuple(shape[a] for a in axes)
    scale, bias = 1 + random_images(RNG, own, "float32"), random_images(RNG, own, "float32")
    wide = (len(shape) - 2) * (1,) if image else ()
    s, b = (v.reshape(*own, *wide).astype(np.float64) for v in (scale, bias if kind != "rms" else np.zeros(own)))
    wanted = formula(kind, x.astype(np.float64), axes, s, b)

    def turned(a: np.ndarray[Any, Any]) -> an.GpuRef:
        return device.put(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if channels_last else a)

    def back(a: an.GpuRef) -> np.ndarray[Any, Any]:
        return np.moveaxis(a.numpy(), -1, 1) if channels_last else a.numpy()

    gx, gscale = turned(x), device.put(scale)
    last = None if kind == "rms" else device.put(bias)
    y, *statistics = device.cudnn.norm(kind, gx, gscale, last, channels_last=channels_last, **how)
    assert_close(back(y), wanted, "float32", 4.0)
    mean = None if kind == "rms" else statistics[0]
    inverse = statistics[-1]
    if mean is not None:
        grouped = x.reshape(shape[0], GROUPS[shape[1]], -1, *shape[2:]) if kind == "group" else x
        assert_close(mean.numpy().ravel(), grouped.astype(np.float64).mean(axes).ravel(), "float32")
    how["channels_last"] = channels_last
    gradients = device.cudnn.norm_backward(kind, turned(dy), gx, gscale, inverse, mean, **how)
    sums = tuple(a for a in range(len(shape)) if a != 1) if image else tuple(range(len(shape) - len(own)))
    unit = formula(kind, x.astype(np.float64), axes, np.ones(1), np.zeros(1))
    assert_close(gradients[1].numpy(), (dy * unit).sum(sums), "float32", 8.0)
    if kind != "rms":
        assert_close(gradients[2].numpy(), dy.astype(np.float64).sum(sums), "float32", 8.0)
    direction, step = random_images(RNG, shape, "float32").astype(np.float64), 1e-6
    ahead, behind = (formula(kind, x + sign * step * direction, axes, s, b) for sign in (1, -1))
    slope = ((ahead - behind) * dy).sum() / (2 * step)
    assert abs((back(gradients[0]).astype(np.float64) * direction).sum() - slope) < 1e-3 * max(1, abs(slope))


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("axes", [(1,), (0, 3), (2, 1)], ids=str)
def test_any_axes(device: an.Device, kind: str, axes: tuple[int, ...]) -> None:
    """Of views with these axes last, and results that lie like x in memory."""
    shape = (3, 8, 4, 6)
    others = tuple(a for a in range(4) if a not in axes)
    order, back = (*others, *axes), np.argsort((*others, *axes))
    x, dy = (random_images(RNG, shape, "float32") for _ in range(2))
    own = tuple(shape[a] for a in axes)
    scale, bias = 1 + random_images(RNG, own, "float32"), random_images(RNG, own, "float32")
    last = None if kind == "rms" else device.put(bias)
    gx, gdy, gscale = device.put(x), device.put(dy), device.put(scale)
    y, dx = device.zeros(shape, "float32"), device.zeros(shape, "float32")
    made = device.cudnn.norm(kind, gx.transpose(*order), gscale, last, out=y.transpose(*order))
    wide, inner = x.transpose(order).astype(np.float64), tuple(range(len(others), 4))
    b = bias if kind == "layer" else np.zeros(own)
    assert_close(y.numpy(), formula(kind, wide, inner, scale, b).transpose(back), "float32", 4.0)
    assert made[-1].shape == tuple(shape[a] for a in others)
    mean = None if kind == "rms" else made[1]
    found = device.cudnn.norm_backward(
        kind, gdy.transpose(*order), gx.transpose(*order), gscale, made[-1], mean, out=dx.transpose(*order)
    )
    dense = device.cudnn.norm_backward(
        kind, device.put(dy.transpose(order).copy()), device.put(x.transpose(order).copy()), gscale, made[-1], mean
    )
    assert_close(dx.numpy(), dense[0].numpy().astype(np.float64).transpose(back), "float32")
    for one, other in zip(found[1:], dense[1:], strict=True):
        assert_close(one.numpy(), other.numpy().astype(np.float64), "float32", 4.0)


@pytest.mark.parametrize("channels", [8, 11])
def test_running_statistics(device: an.Device, channels: int) -> None:
    """Training updates them in place, by the unbiased variance; inference uses them."""
    x = random_images(RNG, (4, channels, 3, 5), "float32")
    one, zero = device.put(np.ones(channels, "float32")), device.put(np.zeros(channels, "float32"))
    mean, var = (device.put(np.full(channels, value, "float32")) for value in (0.5, 2.0))
    device.cudnn.norm("batch", device.put(x), one, zero, running_mean=mean, running_var=var, momentum=0.25)
    wide = x.astype(np.float64)
    new_mean = 0.75 * 0.5 + 0.25 * wide.mean((0, 2, 3))
    new_var = 0.75 * 2.0 + 0.25 * wide.var((0, 2, 3), ddof=1)
    assert_close(mean.numpy(), new_mean, "float32")
    assert_close(var.numpy(), new_var, "float32")
    y = device.cudnn.norm("batch", device.put(x), one, zero, running_mean=mean, running_var=var, training=False).numpy()
    wanted = (wide - new_mean[:, None, None]) / np.sqrt(new_var[:, None, None] + EPSILON)
    assert_close(y, wanted, "float32", 4.0)


def test_bad_input() -> None:
    x, v = np.zeros((2, 8, 3, 3), "float32"), np.zeros(8, "float32")
    for options, text in [
        ({"kind": "power", "bias": v}, "kind='power'; allowed: 'batch', 'instance', 'group', 'layer', 'rms'"),
        ({"kind": "group", "bias": v}, "groups=None; allowed: an integer from 1 to 8"),
        ({"kind": "group", "bias": v, "groups": 3}, "groups=3 of 8 channels; allowed: a divisor"),
        ({"kind": "batch", "bias": v, "groups": 2}, "groups=2 with kind='batch'; allowed: with kind='group'"),
        ({"kind": "batch"}, "batch norms need bias"),
        ({"kind": "rms", "bias": v}, "allowed for rms norms"),
        ({"kind": "instance", "bias": v, "running_mean": v, "running_var": v}, "do not take running_mean"),
        ({"kind": "batch", "bias": v, "training": False}, "training=False; allowed"),
        ({"kind": "batch", "bias": v, "epsilon": 0.0}, "epsilon=0.0; allowed: a positive number"),
        ({"kind": "batch", "bias": v[:3]}, r"bias has shape \(3,\); allowed: \(8,\)"),
    ]:
        with pytest.raises(an.InvalidRequest, match=text):
            an.NormalizationRequest(x=x, scale=v, **options)
