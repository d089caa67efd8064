"""Connectionist temporal classification against all ways, counted one by one, on every kind of device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cudnn_reference import assert_close

import atomr_native as an
from atomr_native.dtypes import DTYPES

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)


def collapsed(way: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """The labels of a way: repetitions are one, then blanks are left out."""
    return tuple(label for label, _ in itertools.groupby(way) if label != blank)


def enumerated(x: Array, labels: tuple[int, ...], blank: int) -> tuple[float, Array]:
    """Return the cost of a sequence (steps, classes), and its gradient, of all ways."""
    probabilities = np.exp(x - x.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    total, through = 0.0, np.zeros(x.shape)
    for way in itertools.product(range(x.shape[1]), repeat=len(x)):
        if collapsed(way, blank) == labels:
            chance = float(np.prod([probabilities[t, k] for t, k in enumerate(way)]))
            total += chance
            through[range(len(x)), way] += chance
    if total == 0:
        return np.inf, np.zeros(x.shape)
    return -np.log(total), probabilities - through / total


#: Steps and labels of each sequence, of 3 classes and blank 1: equal neighbours, none, as many as fit, too many.
SEQUENCES: tuple[tuple[int, tuple[int, ...]], ...] = (
    (5, (0, 2)), (5, (2, 2, 0)), (4, ()), (1, (0,)), (3, (0, 0)), (2, (0, 0)), (5, (0, 2, 0, 2, 0)), (0, ()), (0, (2,)),
)  # fmt: skip


def problem(dtype: str) -> tuple[Array, Array, Array, Array]:
    """Return scores (steps, sequences, classes), labels with rubbish behind their ends, and the lengths."""
    x = (1.5 * RNG.standard_normal((5, len(SEQUENCES), 3))).astype(DTYPES[dtype])
    labels = np.full((len(SEQUENCES), 5), -7, np.int32)
    for row, (_, own) in zip(labels, SEQUENCES, strict=True):
        row[: len(own)] = own
    ends = np.array([[steps, len(own)] for steps, own in SEQUENCES], np.int32)
    return x, labels, ends[:, 0].copy(), ends[:, 1].copy()


@pytest.mark.parametrize(
    ("dtype", "layout"), [("float64", "tnc"), ("float64", "ntc"), ("float32", "tnc"), ("bfloat16", "ntc")]
)
def test_costs_and_gradients(device: an.Device, dtype: str, layout: str) -> None:
    x, labels, steps, counts = problem(dtype)
    turned = np.ascontiguousarray(x.swapaxes(0, 1)) if layout == "ntc" else x
    given = (device.put(turned), device.put(labels), device.put(steps), device.put(counts))
    costs, dx = device.cudnn.ctc_loss(*given, blank=1, layout=layout, gradient=True)
    only = device.cudnn.ctc_loss(*given, blank=1, layout=layout).numpy()
    np.testing.assert_array_equal(costs.numpy(), only)
    assert costs.dtype == ("float64" if dtype == "float64" else "float32")
    slopes = dx.numpy().swapaxes(0, 1) if layout == "ntc" else dx.numpy()
    for n, (length, own) in enumerate(SEQUENCES):
        cost, wanted = enumerated(x[:length, n].astype(np.float64), own, 1) if length else (np.inf if own else 0.0, 0)
        if np.isinf(cost):
            assert only[n] == np.inf
        else:
            assert_close(only[n], np.float64(cost), "float64" if dtype == "float64" else "float32", 4.0)
        assert_close(slopes[:length, n], np.broadcast_to(wanted, (length, 3)), dtype, 4.0)
        assert not slopes[length:, n].any()
    spared = device.cudnn.ctc_loss(*given, blank=1, layout=layout, zero_infinity=True).numpy()
    np.testing.assert_array_equal(spared, np.where(np.isinf(only), 0, only))


def test_long_sequences_and_many_classes(device: an.Device) -> None:
    """More states and classes than a block has threads, against finite differences of the cost."""
    x = RNG.standard_normal((400, 2, 300))
    labels = RNG.integers(1, 300, (2, 170)).astype(np.int32)
    labels[1, 5:40] = labels[1, 4]
    steps, counts = (device.put(np.array(one, np.int32)) for one in ((400, 250), (170, 90)))
    rest = (device.put(labels), steps, counts)
    dx = device.cudnn.ctc_loss(device.put(x), *rest, gradient=True)[1].numpy()
    along, step = RNG.standard_normal(x.shape), 1e-6
    sides = [device.cudnn.ctc_loss(device.put(x + sign * step * along), *rest).numpy() for sign in (1, -1)]
    np.testing.assert_allclose((dx * along).sum((0, 2)), (sides[0] - sides[1]) / (2 * step), rtol=1e-5)
    np.testing.assert_allclose(dx[:250].sum(2), 0, atol=1e-10)  # adding to all scores of a step changes nothing
    assert not dx[250:, 1].any()


def test_wrong_lengths_and_labels_give_nan(device: an.Device) -> None:
    """They are read on the device, and nothing outside the arrays is: other sequences are right."""
    x, labels, steps, counts = problem("float64")
    wanted = device.cudnn.ctc_loss(*map(device.put, (x, labels, steps, counts)), blank=1).numpy()
    labels[1, 1], labels[6, 4], labels[0, 0] = 3, 1, -1
    steps[2], counts[4] = 6, -1
    given = map(device.put, (x, labels, steps, counts))
    costs, dx = (one.numpy() for one in device.cudnn.ctc_loss(*given, blank=1, gradient=True))
    wrong = [0, 1, 2, 4, 6]
    assert np.isnan(costs[wrong]).all()
    assert np.isnan(dx[:, wrong]).all()
    right = [n for n in range(len(SEQUENCES)) if n not in wrong]
    np.testing.assert_array_equal(costs[right], wanted[right])
    assert np.isfinite(dx[:, right]).all()


def test_views_are_read_by_their_strides(device: an.Device) -> None:
    x, labels, steps, counts = problem("float32")
    wanted = [one.numpy() for one in device.cudnn.ctc_loss(*map(device.put, (x, labels, steps, counts)), gradient=True)]
    spread = [device.put(np.repeat(one, 2, axis=-1))[..., ::2] for one in (x, labels, steps, counts)]
    for found, one in zip(device.cudnn.ctc_loss(*spread, gradient=True), wanted, strict=True):
        np.testing.assert_array_equal(found.numpy(), one)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x": np.zeros((4, 2), "float32")}, r"x has shape \(4, 2\); allowed: 3 axes, tnc"),
        ({"x": np.zeros((4, 2, 3), "int32")}, "x has dtype int32; allowed: float16"),
        ({"blank": 3}, "blank=3; allowed: integers from 0 to 2"),
        ({"labels": np.zeros((3, 2), "int32")}, r"labels has shape \(3, 2\); allowed: \(2, labels of the longest\)"),
        ({"labels": np.zeros((2, 2), "int64")}, "labels has dtype int64; allowed: int32"),
        ({"label_lengths": np.zeros(3, "int32")}, r"label_lengths has shape \(3,\); allowed: \(2,\)"),
        ({"layout": "ntc"}, r"labels has shape \(2, 2\); allowed: \(4,"),
        ({"gradient": 1}, "gradient=1 must be True or False"),
    ],
)
def test_bad_input(options: dict[str, Any], text: str) -> None:
    ends = np.ones(2, "int32")
    given = {"x": np.zeros((4, 2, 3), "float32"), "labels": np.zeros((2, 2), "int32"), "input_lengths": ends}
    with pytest.raises(an.InvalidRequest, match=text):
        an.CtcLossRequest(**{**given, "label_lengths": ends, **options})
